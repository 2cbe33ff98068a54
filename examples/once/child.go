package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
)

// childEnv is the variable that makes this program a worker. It contains the plan.
const childEnv = "WEFT_ONCE_CHILD"

// A plan tells a worker what to do.
type plan struct {
	Name, Provider, Store, Where string
	Clients                      int
	Lease, Timeout, Settle       time.Duration
}

// A worker makes refunds.
type worker struct {
	plan
	http    *http.Client
	ledger  *idempotency.Ledger
	host    host // nil: the store is no database
	effects map[Kind]*idempotency.Effect[Refund, string]
	witness *witness
}

// child is a worker. It ends when it is killed, when the provider has ended, or when the provider
// has no tasks left.
func child() int {
	w := &worker{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &w.plan); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the provider has ended
	}()
	if err := w.work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *worker) work(ctx context.Context) error {
	store, host, err := stores[w.Store].open(ctx, w.Where)
	if err != nil {
		return err
	}
	defer store.Close()
	if w.host = host; host != nil {
		defer host.close()
	}
	w.witness = &witness{Storage: store}
	w.ledger, err = idempotency.New(idempotency.Config{
		Storage: w.witness, Lease: w.Lease,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	w.effects = w.definitions()
	if _, err := w.post(ctx, "/ready", nil, nil); err != nil {
		return err
	}
	var clients sync.WaitGroup
	for range w.Clients {
		clients.Go(func() {
			if err := w.serve(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
	}
	clients.Wait()
	return w.ledger.Close()
}

// serve does one task after the other.
func (w *worker) serve(ctx context.Context) error {
	for {
		var t task
		switch status, err := w.post(ctx, "/task", nil, &t); {
		case err != nil:
			return err
		case status == http.StatusGone:
			return nil
		case status == http.StatusNoContent:
			time.Sleep(5 * time.Millisecond) // there is none at the moment
			continue
		}
		o := w.do(ctx, t)
		o.Task, o.Witnessed = t, w.witness.take()
		if _, err := w.post(ctx, "/outcome", o, nil); err != nil {
			return err
		}
	}
}

// do does a task.
func (w *worker) do(ctx context.Context, t task) outcome {
	if t.Resolve {
		return outcome{Err: text(w.resolve(ctx, t))}
	}
	if t.Leaves > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.Leaves)
		defer cancel()
	}
	r, err := w.refund(ctx, t)
	o := outcome{
		Err: text(err), Decision: r.Decision,
		Receipt: receipt{r.EffectID, r.Result, r.Attempt, r.FirstSeen.UnixMicro(), r.SealedAt.UnixMicro()},
	}
	if err == nil {
		return o
	}
	for _, known := range []error{idempotency.ErrFenceLost, idempotency.ErrConflict, idempotency.ErrIndeterminate, idempotency.ErrInProgress, errDeclined} {
		if errors.Is(err, known) {
			o.Known = known.Error()
			break
		}
	}
	if t.Leaves > 0 && ctx.Err() != nil {
		o.Known = errLeft.Error()
	}
	return o
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// post sends in to the provider, and decodes its answer into out.
func (w *worker) post(ctx context.Context, path string, in, out any) (status int, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Provider+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Worker", w.Name)
	answer, err := w.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err == nil && out != nil && len(all) > 0 {
		err = json.Unmarshal(all, out)
	}
	return answer.StatusCode, err
}

// inTxNumber returns a number for a refund that is a row, and its fencing token.
func inTxNumber(ctx context.Context) (number, token int64) {
	return rand.Int64(), int64(activity.InfoFrom(ctx).FencingToken)
}
