package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

var errFull = errors.New("disk full")

// A fullDisk is a store that takes no batch while it is full.
type fullDisk struct {
	storage.Storage
	full atomic.Bool
}

func (f *fullDisk) Unwrap() storage.Storage { return f.Storage }

func (f *fullDisk) Commit(ctx context.Context, b storage.Batch) error {
	if f.full.Load() {
		return errFull
	}
	return f.Storage.Commit(ctx, b)
}

// A call that has tried until its context ended says for what it waited, what the store
// answered last, and that the outcome is unknown.
func TestErrorOfAWaitTellsItsCause(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &fullDisk{Storage: fresh(t)}
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(1000 * time.Hour) })
		done := flow("done", func(run *engine.Run) (string, error) { return "", nil })
		failed := flow("failed", func(run *engine.Run) (string, error) { return "", errBroke })
		act := puzzling(new(atomic.Bool))
		held := flow("held", func(run *engine.Run) (string, error) { return act.Do(run, "key") })
		e := made(t, s, wf, done, failed, held)
		p := boot(t, s, wf, done, failed, held)
		start(t, wf, p, "order-42", "")
		result(t, start(t, done, p, "done", ""))
		outcome(start(t, failed, p, "failed", ""))
		start(t, held, p, "held", "")
		for !heldFor(describe(t, p, "held"), engine.ReasonIndeterminate) {
			time.Sleep(time.Second)
		}
		old := "1"
		if _, err := p.SendSignal(ctx, signal.Message{WorkflowID: "order-42", Name: "old", ID: &old}); err != nil {
			t.Fatal(err)
		}
		s.full.Store(true)
		send := func(ctx context.Context) error {
			_, err := e.SendSignal(ctx, signal.Message{WorkflowID: "order-42", Name: "approved"})
			return err
		}
		for what, call := range map[string]func(ctx context.Context) error{
			`signal "approved" to workflow "order-42"`: send,
			`signal "first" to workflow "new"`: func(ctx context.Context) error {
				_, err := e.SendSignal(ctx, signal.Message{Name: "first", Start: &engine.StartRequest{Workflow: "w", ID: "new", Input: ""}})
				return err
			},
			`start of workflow "fresh"`:       func(ctx context.Context) error { _, err := wf.Start(ctx, e, "fresh", ""); return err },
			`cancel of workflow "order-42"`:   func(ctx context.Context) error { return e.Cancel(ctx, "order-42", engine.Actor{}) },
			`purge of workflow "done"`:        func(ctx context.Context) error { return e.Purge(ctx, "done", audit) },
			`resume of workflow "failed"`:     func(ctx context.Context) error { return e.Resume(ctx, "failed", audit) },
			`activation of deployment "blue"`: func(ctx context.Context) error { return e.Activate(ctx, "blue", audit) },
			`resolve of operation "1" of workflow "held"`: func(ctx context.Context) error {
				return e.Resolve(ctx, "held", "1", activity.CompletedWithResult("paid"), audit)
			},
			`clearing of signal "old" of workflow "order-42"`: func(ctx context.Context) error {
				return e.ClearSignal(ctx, "order-42", "old", "1", audit)
			},
		} {
			for name, try := range map[string]func() (context.Context, context.CancelFunc){
				"deadline exceeded": func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 3*time.Second) },
				"canceled": func() (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(ctx)
					time.AfterFunc(3*time.Second, cancel)
					return ctx, cancel
				},
			} {
				ctx, cancel := try()
				err := call(ctx)
				cancel()
				var i *engine.InterruptedError
				if !errors.As(err, &i) || !i.Unknown || !errors.Is(err, errFull) || !errors.Is(err, ctx.Err()) ||
					!strings.HasPrefix(err.Error(), "engine: "+what+": context "+name) || !strings.Contains(err.Error(), "outcome unknown") || !strings.HasSuffix(err.Error(), "disk full") {
					t.Errorf("%s: got %v", what, err)
				}
			}
		}
		// One that waits behind another call tells what that has met.
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
				defer cancel()
				errs <- send(ctx)
			}()
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, errFull) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "outcome unknown") {
				t.Errorf("one of two signals: got %v", err)
			}
		}
		s.full.Store(false)
	})
}

// Who waits for a result is told that it is that which he waited for.
func TestErrorOfAResultTellsWhatItWaitedFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "order-42", "")
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := h.Result(ctx)
		want := `engine: result of workflow "order-42": context deadline exceeded while waiting for its end`
		if !errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		e := made(t, fresh(t), wf)
		defer e.Close()
		h := start(t, wf, e, "order-42", "")
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := h.Result(ctx)
		want := `engine: result of workflow "order-42": context deadline exceeded while waiting for its end; no engine has begun it`
		if fmt.Sprint(err) != want {
			t.Errorf("where no engine runs: got %v, want %s", err, want)
		}
	})
}
