package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/stream"
)

type cart struct {
	Cents    int  `json:"cents"`
	Approval bool `json:"approval,omitempty"`
	Fails    bool `json:"fails,omitempty"`
}

var (
	errRefused = errors.New("the card is refused")
	approved   = &signal.Signal[string]{Name: "approved"}
	checkout   = &engine.Workflow[cart, string]{Name: "checkout", Errors: []error{errRefused}, Func: func(run *engine.Run, c cart) (string, error) {
		if c.Fails {
			return "", fmt.Errorf("pay %d: %w", c.Cents, errRefused)
		}
		if !c.Approval {
			return fmt.Sprint(c.Cents, " cents"), nil
		}
		by, err := approved.Receive(run)
		return "approved by " + by, err
	}}
	move    = &engine.Update[string, string]{Name: "move", Errors: []error{errRefused}}
	where   = &engine.Value[[]string]{Name: "where"}
	shipped = &signal.Signal[string]{Name: "shipped"}
	// moving returns where it was moved to, when it is shipped.
	moving = &engine.Workflow[cart, []string]{Name: "moving", Func: func(run *engine.Run, _ cart) ([]string, error) {
		moves := []string{}
		err := move.Handle(run, func(to string) error {
			if to == "nowhere" {
				return fmt.Errorf("%s: %w", to, errRefused)
			}
			return nil
		}, func(run *engine.Run, to string) (string, error) {
			if to == "far" {
				return "", fmt.Errorf("%s: %w", to, errRefused)
			}
			moves = append(moves, to)
			return fmt.Sprint(to, " is number ", len(moves)), where.Set(run, moves)
		})
		if err != nil {
			return nil, err
		}
		_, err = shipped.Receive(run)
		return moves, err
	}}
	words = &stream.Stream[string]{Name: "words/é"}
	// telling writes words, and waits until it is shipped if it is to be approved.
	telling = &engine.Workflow[cart, string]{Name: "telling", Func: func(run *engine.Run, c cart) (string, error) {
		for n := range 4 {
			if _, err := engine.Step(run, "tell", func(ctx context.Context) (int, error) {
				return 0, words.Writer(ctx).Write(fmt.Sprint("word ", n))
			}); err != nil {
				return "", err
			}
			if c.Approval {
				if _, err := shipped.Receive(run); err != nil {
					return "", err
				}
			}
		}
		return "told", nil
	}}
	parcel = &engine.Workflow[cart, string]{Name: "parcel", Func: func(*engine.Run, cart) (string, error) { return "", nil }}
)

var stores = map[string]func(t *testing.T) (storage.Storage, error){
	"memory": func(*testing.T) (storage.Storage, error) { return new(memory.Store), nil },
	"sqlite": func(t *testing.T) (storage.Storage, error) {
		return sqlite.Open(filepath.Join(t.TempDir(), "a.db"), nil)
	},
	"bolt": func(t *testing.T) (storage.Storage, error) {
		return bolt.Open(filepath.Join(t.TempDir(), "a.bolt"), nil)
	},
	"postgres": func(t *testing.T) (storage.Storage, error) { return postgres.Open(t.Context(), pgtest.URL(t), nil) },
}

func onAllStores(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			f(t, s)
		})
	}
}

// served returns an engine on s that runs, and a client of a control plane of it.
func served(t *testing.T, s storage.Storage, plane control.Config) (*engine.Engine, *client.Client) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	eng, err := engine.New(engine.Config{Storage: s, Deployment: "shop-1", Workflows: []engine.Definition{checkout, parcel, moving, telling}, PollInterval: 20 * time.Millisecond, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		eng.Close()
	})
	const secret = "weft_sk_0123456789abcdef0123456789"
	plane.Engine, plane.Logger, plane.RateLimit = eng, log, 1_000_000
	plane.Keys = []control.Key{{ID: "shop", Secret: secret, Scopes: []string{"admin"}}}
	p, err := control.New(plane)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(answers.Handler(p))
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		p.Close()
		server.Close()
	})
	c, err := client.New(server.URL, secret, &client.Options{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return eng, c
}

// said is what a call has returned, for a comparison: its value, and its error by what a caller
// branches on.
func said(v any, err error) string {
	var is []string
	for name, target := range map[string]error{
		"ErrNotFound": weft.ErrNotFound, "ErrExists": weft.ErrExists, "ErrTerminal": weft.ErrTerminal, "ErrInvalid": weft.ErrInvalid,
		"ErrNotApplicable": weft.ErrNotApplicable, "ErrCancelled": weft.ErrCancelled, "ErrConflict": signal.ErrConflict, "errRefused": errRefused,
		"DeadlineExceeded": context.DeadlineExceeded, "ErrRejected": weft.ErrRejected, "ErrMismatch": weft.ErrMismatch, "ErrHeld": weft.ErrHeld,
	} {
		if errors.Is(err, target) {
			is = append(is, name)
		}
	}
	slices.Sort(is)
	if e, ok := errors.AsType[*weft.TerminalError](err); ok {
		is = append(is, fmt.Sprintf("TerminalError %+v", *e))
	}
	if e, ok := errors.AsType[*weft.HeldError](err); ok {
		is = append(is, fmt.Sprintf("HeldError %+v", *e))
	}
	if e, ok := errors.AsType[*weft.ExistsError](err); ok {
		is = append(is, fmt.Sprintf("ExistsError %s %s", e.WorkflowID, e.Status))
	}
	if e, ok := errors.AsType[*weft.WorkflowError](err); ok {
		is = append(is, fmt.Sprintf("WorkflowError %s %s %s", e.WorkflowID, e.Workflow, e.Message))
	}
	if e, ok := errors.AsType[*weft.RejectedError](err); ok {
		is = append(is, fmt.Sprintf("RejectedError %+v", *e))
	}
	if e, ok := errors.AsType[*weft.UpdateError](err); ok {
		is = append(is, fmt.Sprintf("UpdateError %+v", *e))
	}
	if e, ok := errors.AsType[*weft.NoValueError](err); ok {
		is = append(is, fmt.Sprintf("NoValueError %+v", *e))
	}
	if e, ok := errors.AsType[*signal.ConflictError](err); ok {
		is = append(is, fmt.Sprintf("ConflictError %+v", *e))
	}
	if e, ok := errors.AsType[*weft.InterruptedError](err); ok {
		is = append(is, fmt.Sprintf("InterruptedError unknown: %v, read-only: %v", e.Unknown, e.ReadOnly))
	}
	if err != nil && len(is) == 0 {
		is = []string{err.Error()}
	}
	return strings.TrimSpace(fmt.Sprintf("%v %s", v, strings.Join(is, ", ")))
}

// script is a program that uses definitions with a client. It returns what it was told. Its runs
// have ids that begin with "run-".
func script(t *testing.T, c engine.Client) (lines []string) {
	ctx := t.Context()
	note := func(what string, v any, err error) { lines = append(lines, what+": "+said(v, err)) }
	start := func(what, id string, in cart) *engine.Handle[string] {
		h, err := checkout.Start(ctx, c, id, in)
		if err != nil {
			note(what, "", err)
			return checkout.Handle(c, id)
		}
		note(what, h.ID(), nil)
		return h
	}
	result := func(what string, h *engine.Handle[string]) {
		v, err := h.Result(ctx)
		note(what, v, err)
	}
	send := func(what, id, v, signalID string) {
		a, err := approved.Send(ctx, c, id, v, &signal.Options{ID: signalID})
		a.AcceptedAt = time.Time{}
		a.Repeated = false
		note(what, fmt.Sprintf("%+v", a), err)
	}
	by := weft.Actor{Name: "ann", Reason: "why not"}

	result("the result", start("a start", "run-1", cart{Cents: 49}))
	start("the same start", "run-1", cart{Cents: 49})
	start("another input", "run-1", cart{Cents: 50})
	_, err := parcel.Start(ctx, c, "run-1", cart{Cents: 49})
	note("another workflow", "", err)
	note("cancel what has completed", "", checkout.Handle(c, "run-1").Cancel(ctx, by))
	_, err = parcel.Handle(c, "run-1").Result(ctx)
	note("the result of another workflow", "", err)

	waits := start("a start that waits", "run-2", cart{Approval: true})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	_, err = waits.Result(short)
	cancel()
	note("a result that takes long", "", err)
	send("a signal", "run-2", "ann", "evt/1 é")
	send("the same signal", "run-2", "ann", "evt/1 é")
	send("another payload", "run-2", "bob", "evt/1 é")
	send("a signal with an empty ID", "run-2", "bob", "")
	result("the result after the signal", waits)
	send("the same signal after the end", "run-2", "ann", "evt/1 é")
	send("another signal after the end", "run-2", "ann", "evt_2")

	result("a failure", start("a start that fails", "run-3", cart{Cents: 7, Fails: true}))

	cancelled := start("a start that is cancelled", "run-4", cart{Approval: true})
	note("cancel", "", cancelled.Cancel(ctx, by))
	result("the result of what was cancelled", cancelled)
	note("cancel what was cancelled", "", cancelled.Cancel(ctx, by))

	_, err = c.StartWorkflow(ctx, &weft.StartRequest{Workflow: checkout.Name, ID: "run-11", Input: json.RawMessage(`"no cart"`)})
	note("a start with an input of another type", "", err)
	for {
		i, err := c.Describe(ctx, "run-11")
		if err != nil {
			t.Fatal(err)
		}
		if len(i.Attention) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	note("cancel what is held", "", checkout.Handle(c, "run-11").Cancel(ctx, by))

	a, err := approved.SendWithStart(ctx, c, &weft.StartRequest{Workflow: "checkout", ID: "run-5", Input: cart{Approval: true}}, "ann", &signal.Options{ID: "first"})
	note("a signal with its start", a.WorkflowID, err)
	result("the result of that", checkout.Handle(c, "run-5"))

	if _, err := moving.Start(ctx, c, "run-6", cart{}); err != nil {
		t.Fatal(err)
	}
	update := func(what, id, to, updateID string) {
		v, err := move.Call(ctx, c, id, to, &engine.UpdateOptions{ID: updateID})
		note(what, v, err)
	}
	update("an update", "run-6", "Park Lane 2", "click/1 é")
	update("another update", "run-6", "Main Street 1", "click-2")
	update("the same update", "run-6", "Park Lane 2", "click/1 é")
	update("another input", "run-6", "Main Street 1", "click/1 é")
	update("an update that is refused", "run-6", "nowhere", "click-3")
	update("an update that fails", "run-6", "far", "click-4")
	update("an update with an empty ID", "run-6", "far", "")
	v, err := where.Await(ctx, c, "run-6", func(moves []string) bool { return len(moves) == 2 })
	note("a value that is awaited", v, err)
	v, err = where.Read(ctx, c, "run-6")
	note("a value", v, err)
	_, err = (&engine.Value[int]{Name: "none"}).Read(ctx, c, "run-6")
	note("a value that is not published", "", err)
	_, err = where.Read(ctx, c, "run-gone")
	note("a value of what does not exist", "", err)
	short, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	_, err = where.Await(short, c, "run-6", func(moves []string) bool { return len(moves) == 3 })
	note("a value that never comes", "", err)
	cancel()
	short, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
	_, err = (&engine.Update[int, int]{Name: "none"}).Call(short, c, "run-6", 1, &engine.UpdateOptions{ID: "click-5"})
	cancel()
	note("an update that is not handled", "", err)
	updateWithStart := func(what, id, to, updateID string, in cart) {
		v, err := move.CallWithStart(ctx, c, moving.Request(id, in), to, &engine.UpdateOptions{ID: updateID})
		note(what, v, err)
	}
	updateWithStart("an update that starts", "run-7", "Park Lane 2", "click-1", cart{Cents: 1})
	updateWithStart("the same update that starts", "run-7", "Park Lane 2", "click-1", cart{Cents: 1})
	updateWithStart("an update that starts what is there", "run-7", "Main Street 1", "click-2", cart{Cents: 1})
	updateWithStart("an update that starts another input", "run-7", "Main Street 1", "click-3", cart{Cents: 2})
	updateWithStart("an update that starts, with another input of its own", "run-7", "Main Street 1", "click-1", cart{Cents: 1})
	updateWithStart("an update that starts and is refused", "run-8", "nowhere", "click-1", cart{})
	updateWithStart("an update that starts and fails", "run-9", "far", "click-1", cart{})
	if _, err := shipped.Send(ctx, c, "run-6", "ann", nil); err != nil {
		t.Fatal(err)
	}
	moved, err := moving.Handle(c, "run-6").Result(ctx)
	note("the result after the updates", moved, err)
	update("the same update after the end", "run-6", "Park Lane 2", "click/1 é")
	update("the same refusal after the end", "run-6", "nowhere", "click-3")
	update("another update after the end", "run-6", "far", "click-6")
	update("an update of what does not exist", "run-gone", "far", "click-7")
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = where.Await(bounded, c, "run-6", func(moves []string) bool { return len(moves) == 3 })
	note("a value after the end", "", err)
	_, err = (&engine.Value[int]{Name: "none"}).Await(bounded, c, "run-6", func(int) bool { return true })
	note("no value after the end", "", err)

	told, err := telling.Start(ctx, c, "run-10", cart{})
	if err != nil {
		t.Fatal(err)
	}
	tells := func(what, id, name string, at int64) {
		var all []string
		var failed error
		for b, err := range (&stream.Stream[string]{Name: name}).Read(ctx, c.(stream.Source), id, at) {
			if failed = err; err == nil {
				all = append(all, fmt.Sprint(b.Index, " ", b.Data, " of ", b.Operation, ", attempt ", b.Attempt))
			}
		}
		note(what, strings.Join(all, "; "), failed)
	}
	tells("a stream", "run-10", words.Name, 0)
	result("the result after the stream", told)
	tells("the rest of a stream", "run-10", words.Name, 2)
	tells("the last of a stream", "run-10", words.Name, -1)
	tells("behind the end of a stream", "run-10", words.Name, 4)
	tells("a stream that was not written to", "run-10", "none", 0)
	tells("a stream of no name", "run-10", "", 0)
	tells("a stream of a long name", "run-10", strings.Repeat("n", 101), 0)
	tells("a stream of what does not exist", "run-gone", words.Name, 0)
	for _, err := range (&stream.Stream[int]{Name: words.Name}).Read(ctx, c.(stream.Source), "run-10", 3) {
		_, is := errors.AsType[*weft.DecodeError](err)
		note("a stream of another type", is, nil)
	}

	_, err = checkout.Handle(c, "run-gone").Describe(ctx)
	note("what does not exist", "", err)
	note("cancel what does not exist", "", checkout.Handle(c, "run-gone").Cancel(ctx, by))
	send("a signal to what does not exist", "run-gone", "ann", "evt")
	_, err = checkout.Handle(c, "run-gone").Result(ctx)
	note("the result of what does not exist", "", err)
	for _, id := range []string{"run-1", "run-3", "run-4"} {
		describe := func(what string, i weft.Info, err error) {
			why, _, _ := strings.Cut(i.Failure, ", by ") // who cancelled it is another one
			note(what+" "+id, fmt.Sprintf("%s %s %s parent=%q queue=%q %v %v %s", i.ID, i.Workflow, i.Status, i.Parent, i.Queue, i.Labels, i.Attention, why), err)
		}
		i, err := c.Describe(ctx, id)
		describe("describe", i, err)
		for listed, err := range c.(interface {
			List(context.Context, weft.Filter) iter.Seq2[weft.Info, error]
		}).List(ctx, weft.Filter{Workflow: i.Workflow, Status: i.Status}) {
			if listed.ID == id || err != nil {
				describe("list", listed, err)
			}
		}
	}
	return lines
}

// A program is told the same over the wire as in process, on every store: results, and errors by what a
// caller branches on. SIG-3, SIG-52
func TestOverTheWireAsInProcess(t *testing.T) {
	for name := range stores {
		t.Run(name, func(t *testing.T) {
			open := func() storage.Storage {
				s, err := stores[name](t)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			inProcess, _ := served(t, open(), control.Config{})
			_, wired := served(t, open(), control.Config{})
			want, got := script(t, inProcess), script(t, wired)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-in process +over the wire)\n%s", diff)
			}
		})
	}
}

// SIG-48, SIG-49, SIG-51: an indeterminate acceptance is a *client.Error with this code, and a *signal.IndeterminateError.
// An operator clears it, and then the signal is accepted.
func TestIndeterminate(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		_, c := served(t, s, control.Config{})
		ctx := t.Context()
		if _, err := checkout.Start(ctx, c, "run-1", cart{Approval: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := (&signal.Signal[string]{Name: "other"}).Send(ctx, c, "run-1", "x", &signal.Options{ID: "evt"}); err != nil {
			t.Fatal(err)
		}
		page, err := s.Scan(ctx, storage.Range{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		forgotten := 0
		for _, e := range page { // the record of the acceptance, and not the payload
			if key := string(e.Key); key != string(keys.Signal("run-1", "other", "evt")) && strings.Contains(key, "evt") && strings.Contains(key, "run-1") {
				if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(e.Key)}}); err != nil {
					t.Fatal(err)
				}
				forgotten++
			}
		}
		if forgotten == 0 {
			t.Fatal("no record of an acceptance was found")
		}
		_, err = (&signal.Signal[string]{Name: "other"}).Send(ctx, c, "run-1", "x", &signal.Options{ID: "evt"})
		e, ok := errors.AsType[*client.Error](err)
		i, is := errors.AsType[*signal.IndeterminateError](err)
		if !ok || e.Code != "SignalAcceptanceIndeterminate" || e.Status != 409 || e.Retry != "never" || !is || i.WorkflowID != "run-1" || i.SignalName != "other" || i.SignalID != "evt" || i.CorrelationID == "" {
			t.Fatalf("%#v", err)
		}
		p, err := c.Signals(ctx, "run-1", weft.PageRequest{})
		if err != nil || !slices.ContainsFunc(p.Data, func(s weft.SignalInfo) bool { return s.Indeterminate }) {
			t.Errorf("%+v, %v", p, err)
		}
		if err := c.ClearSignal(ctx, "run-1", "other", "evt", weft.Actor{Reason: "it was looked at"}); err != nil {
			t.Fatal(err)
		}
		if _, err := (&signal.Signal[string]{Name: "other"}).Send(ctx, c, "run-1", "x", &signal.Options{ID: "evt"}); err != nil {
			t.Error(err)
		}
	})
}

// A lost answer is asked for again: the call takes effect once, whichever it is.
func TestLostAnswers(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		eng, _ := served(t, s, control.Config{})
		const secret = "weft_sk_abcdefghijklmnopqrstuvwxyz"
		p, err := control.New(control.Config{Engine: eng, Keys: []control.Key{{ID: "lossy", Secret: secret, Scopes: []string{"admin"}}}, RateLimit: 1_000_000, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		lossy := &loser{handler: p, seen: map[string]int{}}
		c, err := client.New("http://localhost", secret, &client.Options{Transport: lossy})
		if err != nil {
			t.Fatal(err)
		}
		ctx, by := t.Context(), weft.Actor{Reason: "a test"}
		h, err := checkout.Start(ctx, c, "", cart{Approval: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := approved.Send(ctx, c, h.ID(), "ann", nil); err != nil {
			t.Fatal(err)
		}
		if v, err := h.Result(ctx); err != nil || v != "approved by ann" {
			t.Errorf("%q, %v", v, err)
		}
		if p, err := c.Signals(ctx, h.ID(), weft.PageRequest{}); err != nil || len(p.Data) != 0 {
			t.Errorf("the signal was accepted twice: %+v, %v", p, err)
		}
		all, err := c.Page(ctx, weft.Filter{}, weft.PageRequest{})
		if err != nil || len(all.Data) != 1 {
			t.Errorf("there are %d runs, %v; want 1", len(all.Data), err)
		}
		if err := c.Purge(ctx, h.ID(), by); err != nil {
			t.Errorf("purge: %v", err)
		}
		if _, err := c.CreateDeployment(ctx, []byte(`{"deploymentId":"shop-1"}`), nil); err != nil {
			t.Errorf("create a deployment: %v", err)
		}
		if a, err := c.Activate(ctx, "shop-1", client.IfNoneActive(), by); err != nil || !a.Changed {
			t.Errorf("activate: %+v, %v", a, err)
		}
		if lossy.lost < 7 {
			t.Errorf("%d answers were lost", lossy.lost)
		}
		// A control plane that has another path than the client thinks says nothing about what was done.
		moved, err := client.New("http://localhost/elsewhere", secret, &client.Options{Transport: lossy})
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := errors.AsType[*client.Error](moved.Purge(ctx, h.ID(), by)); !ok || e.Status != 404 || !e.Unknown {
			t.Errorf("purge at another path: %v", e)
		}
		p.Close()
		if r, err := ready(ctx, c); err != nil || r.Ready || !r.Store {
			t.Errorf("of a control plane that closes: %+v, %v", r, err)
		}
	})
}

// ready asks whether a control plane is ready, until its store has answered: it is not waited for for long, and a machine
// may be busy.
func ready(ctx context.Context, c *client.Client) (r wire.Ready, err error) {
	for began := time.Now(); err == nil && !r.Store && time.Since(began) < time.Minute; {
		if r, err = c.Ready(ctx); err == nil && !r.Store {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return r, err
}

// cutOff returns a client of a control plane of eng whose connections are cut after so many bytes, and how many were.
func cutOff(t *testing.T, eng *engine.Engine, after int) (*client.Client, *atomic.Int32) {
	t.Helper()
	const secret = "weft_sk_abcdefghijklmnopqrstuvwxyz"
	p, err := control.New(control.Config{Engine: eng, Keys: []control.Key{{ID: "cut", Secret: secret, Scopes: []string{"admin"}}}, RateLimit: 1_000_000, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(answers.Handler(p))
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(func() {
		p.Close()
		server.Close()
		transport.CloseIdleConnections()
	})
	cutting := &cutter{RoundTripper: transport, after: after}
	c, err := client.New(server.URL, secret, &client.Options{Transport: cutting})
	if err != nil {
		t.Fatal(err)
	}
	return c, &cutting.cuts
}

// A stream that is read over a real control plane has each chunk once, in order, until its end, however often the
// connection is cut.
func TestReadStream(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		eng, _ := served(t, s, control.Config{})
		c, cuts := cutOff(t, eng, 250)
		if _, err := telling.Start(t.Context(), eng, "run-1", cart{Approval: true}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for b, err := range words.Read(t.Context(), c, "run-1", 0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(b.Index, " ", b.Data))
			if _, err := shipped.Send(t.Context(), eng, "run-1", "next", nil); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"0 word 0", "1 word 1", "2 word 2", "3 word 3"}, got); diff != "" {
			t.Errorf("(-written +read)\n%s", diff)
		}
		if n := cuts.Load(); n < 3 {
			t.Errorf("the connection was cut %d times", n)
		}
	})
}

// Follow over a real control plane yields what the history has: each event once, in its order, until the end, however
// often the connection is cut.
func TestFollow(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		eng, _ := served(t, s, control.Config{})
		c, cuts := cutOff(t, eng, 1000)
		ctx := t.Context()
		if _, err := moving.Start(ctx, eng, "run-1", cart{}); err != nil {
			t.Fatal(err)
		}
		moves := 0
		var got []string
		for e, err := range c.Follow(ctx, "run-1", "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.EventID)
			switch { // each event that the workflow waits for comes while it is followed
			case e.Kind != "parked" && e.Kind != "answered" && len(got) > 1:
			case moves < 5:
				moves++
				if _, err := move.Call(ctx, eng, "run-1", fmt.Sprint("place ", moves), nil); err != nil {
					t.Fatal(err)
				}
			case moves == 5:
				moves++
				if _, err := shipped.Send(ctx, eng, "run-1", "done", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		var want []string
		for r := (weft.PageRequest{Ascending: true}); ; {
			page, err := eng.Events(ctx, "run-1", r)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Data {
				want = append(want, e.ID)
			}
			if r.Cursor = page.Next; !page.HasMore {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-history +followed)\n%s", diff)
		}
		if n := cuts.Load(); n < 3 {
			t.Errorf("the connection was cut %d times", n)
		}
	})
}

// A cutter is a transport that ends each answer after 1,000 bytes.
type cutter struct {
	http.RoundTripper
	after int // bytes of an answer
	cuts  atomic.Int32
}

func (x *cutter) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := x.RoundTripper.RoundTrip(q)
	if err == nil {
		a.Body = &cutBody{ReadCloser: a.Body, of: x, left: x.after}
	}
	return a, err
}

type cutBody struct {
	io.ReadCloser
	of   *cutter
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.of.cuts.Add(1)
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// A loser is a transport that loses the first answer to each request.
type loser struct {
	handler http.Handler
	seen    map[string]int
	lost    int
}

func (l *loser) RoundTrip(q *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	in := q.Clone(q.Context())
	in.RequestURI, in.Host, in.RemoteAddr = q.URL.RequestURI(), q.URL.Host, "127.0.0.1:1"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	answers.Handler(l.handler).ServeHTTP(w, in)
	id := q.Method + q.URL.String()
	if l.seen[id]++; l.seen[id] == 1 {
		l.lost++
		return nil, errors.New("connection reset by peer")
	}
	return w.Result(), nil
}

// Pages, deployments, keys, the audit trail and engines, over a real control plane.
func TestOperations(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		artifacts, err := control.Dir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		_, c := served(t, s, control.Config{RequireDeployment: true, Artifacts: artifacts})
		ctx := t.Context()
		if _, err := checkout.Start(ctx, c, "run-1", cart{}); !errors.Is(err, weft.ErrNoActiveDeployment) { // HTTP-28
			t.Errorf("without a deployment: %v", err)
		}
		d, err := c.UploadDeployment(ctx, []byte(`{"deploymentId":"shop-1","workflows":[{"name":"checkout"}]}`), []byte("a program"))
		if err != nil || d.Status != "created" || d.Artifact == nil || d.Artifact.Size != 9 {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := c.CreateDeployment(ctx, []byte(`{"deploymentId":"shop-2"}`), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Activate(ctx, "shop-1", client.IfNoneActive(), weft.Actor{Reason: "a release"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Activate(ctx, "shop-2", client.IfNoneActive(), weft.Actor{}); !errors.Is(err, weft.ErrNotApplicable) {
			t.Errorf("another one is active: %v", err)
		}
		if a, err := c.ActiveDeployment(ctx); err != nil || a.DeploymentID != "shop-1" {
			t.Errorf("%+v, %v", a, err)
		}
		labelled := checkout.With(engine.StartOptions{Labels: map[string]string{"customer": "ann:b"}})
		for _, id := range []string{"run-1", "run-2", "run/3 é"} {
			h, err := labelled.Start(ctx, c, id, cart{Cents: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Result(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := parcel.Start(ctx, c, "", cart{}); !errors.Is(err, weft.ErrInvalid) {
			t.Errorf("a workflow that the manifest does not have: %v", err)
		}
		var ids []string
		for i, err := range c.List(ctx, weft.Filter{Labels: map[string]string{"customer": "ann:b"}, Deployment: "shop-1"}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, i.ID)
		}
		if diff := cmp.Diff([]string{"run-1", "run-2", "run/3 é"}, ids, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("(-want +listed)\n%s", diff)
		}
		var kinds []string
		for r := (weft.PageRequest{Limit: 1, Ascending: true}); ; {
			p, err := c.Events(ctx, "run/3 é", r)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Data {
				kinds = append(kinds, e.Kind)
			}
			if r.Cursor = p.Next; !p.HasMore {
				break
			}
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != "ended" {
			t.Errorf("the events are %q", kinds)
		}
		if run, err := c.Get(ctx, "run/3 é"); err != nil || string(run.Input) != `{"cents":1}` || string(run.Output) != `"1 cents"` || run.DeploymentID != "shop-1" { // HTTP-44
			t.Errorf("%+v, %v", run, err)
		}
		if p, err := c.Deployments(ctx, weft.PageRequest{}); err != nil || len(p.Data) != 2 {
			t.Errorf("%+v, %v", p, err)
		}
		if p, err := c.Engines(ctx, weft.PageRequest{}); err != nil || len(p.Data) != 1 || !p.Data[0].Alive {
			t.Errorf("%+v, %v", p, err)
		}
		p, err := c.Audit(ctx, client.AuditFilter{Action: "runs.create", Result: "success", KeyID: "shop", RunID: "run-1"}, weft.PageRequest{})
		if err != nil || len(p.Data) != 1 || p.Data[0].Metadata.IdempotencyKey == "" {
			t.Errorf("%+v, %v", p, err)
		}
		if r, err := ready(ctx, c); err != nil || !r.Ready {
			t.Errorf("%+v, %v", r, err)
		}
		if o, err := c.Ownership(ctx); err != nil || o.Status != "pass" {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
