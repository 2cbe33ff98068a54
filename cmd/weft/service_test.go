package main_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// odd is an id that must not reach a terminal as it is.
const odd = "a b:%\n\x1b[31mred'\"\\"

type item struct {
	Article string `json:"article"`
	Cents   int    `json:"cents"`
}

var (
	charge = &activity.Activity[item, string]{
		Name:           "charge",
		IdempotencyKey: func(i item) string { return "charge " + i.Article },
		Verify: func(context.Context, item) (activity.Verification[string], error) {
			return activity.Indeterminate[string]("the bank does not know"), nil
		},
		VerifyRetry:     activity.Retry{MaxAttempts: 1},
		Settle:          time.Millisecond,
		OnIndeterminate: activity.AwaitOperator,
		Run:             func(context.Context, item) (string, error) { return "", errors.New("connection reset") },
	}
	flaky = &activity.Activity[string, string]{
		Name:  "flaky",
		Retry: activity.Retry{Backoff: 24 * time.Hour, MaxBackoff: 24 * time.Hour},
		Run:   func(context.Context, string) (string, error) { return "", errors.New("it rains\tagain") },
	}
	approved = &signal.Signal[string]{Name: "approved"}
	stage    = &engine.Value[string]{Name: "stage"}
	left     = &engine.Value[[]string]{Name: "to do\x1b[31m"}

	hello = &engine.Workflow[string, string]{Name: "hello", Func: func(run *engine.Run, name string) (string, error) {
		return engine.Step(run, "greet", func(context.Context) (string, error) { return "hello, " + name, nil })
	}}
	order = &engine.Workflow[item, string]{Name: "order", Func: func(run *engine.Run, i item) (string, error) {
		if _, err := hello.Do(run, i.Article); err != nil {
			return "", err
		}
		if err := errors.Join(stage.Set(run, "charging\x07"), left.Set(run, []string{"charge", "approve"})); err != nil {
			return "", err
		}
		paid, err := charge.Do(run, i)
		if err != nil {
			return "", err
		}
		by, err := approved.Receive(run)
		return paid + ", approved by " + by, err
	}}
	broken = &engine.Workflow[string, string]{Name: "broken", Func: func(*engine.Run, string) (string, error) {
		return "", errors.New("no such article")
	}}
	patient = &engine.Workflow[string, string]{Name: "patient", Func: func(run *engine.Run, in string) (string, error) {
		return flaky.Do(run, in)
	}}
	paid    = &signal.Hook[string]{Name: "paid"}
	invoice = &engine.Workflow[string, string]{Name: "invoice", Func: func(run *engine.Run, token string) (string, error) {
		h, err := paid.Open(run, &signal.HookOptions{Token: token})
		if err != nil {
			return "", err
		}
		return h.Receive(run)
	}}
)

// A service is an engine on a store, in this process.
type service struct {
	*engine.Engine
	stop func()
}

func serve(t *testing.T, s storage.Storage, more ...engine.Definition) *service {
	t.Helper()
	eng, err := engine.New(engine.Config{
		Storage: s, Name: "shop", Workflows: append([]engine.Definition{hello, order, broken, patient}, more...),
		Queues: []engine.Queue{{Name: "night"}}, PollInterval: 20 * time.Millisecond, ParkAfter: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until it runs
		all, err := eng.Engines(t.Context())
		if err == nil && slices.ContainsFunc(all, func(i weft.EngineInfo) bool { return i.Alive }) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the engine does not run", err)
		}
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		eng.Close()
	}
	t.Cleanup(stop)
	return &service{eng, stop}
}

// until waits until the state of a workflow is as wanted.
func (s *service) until(t *testing.T, id string, is func(weft.Info) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		i, err := s.Describe(t.Context(), id)
		if err == nil && is(i) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is %+v, %v", id, i, err)
		}
	}
}

func terminal(i weft.Info) bool { return i.Status.Terminal() }

// fill runs a service on a store until it has a workflow in each state, and stops it. These
// are, from the newest: in-line, late, bad, order-42 and its child, odd.
func fill(t *testing.T, store storage.Storage) {
	t.Helper()
	s := serve(t, store)
	start := func(workflow, id string, input any, o weft.StartOptions) {
		t.Helper()
		if _, err := s.StartWorkflow(t.Context(), &weft.StartRequest{Workflow: workflow, ID: id, Input: input, Options: o}); err != nil {
			t.Fatal(err)
		}
	}
	start("hello", odd, "ann", weft.StartOptions{})
	s.until(t, odd, terminal)
	start("order", "order-42", item{"tea", 990}, weft.StartOptions{Labels: map[string]string{"region": "north", "team": "tea & more"}})
	s.until(t, "order-42", func(i weft.Info) bool { return len(i.Attention) > 0 && i.Owner == "" }) // parked
	id := "click 1"
	if _, err := s.SendSignal(t.Context(), signal.Message{WorkflowID: "order-42", Name: "other", ID: &id, Payload: "x"}); err != nil {
		t.Fatal(err)
	}
	start("broken", "bad", "x", weft.StartOptions{Labels: map[string]string{"region": "north"}})
	s.until(t, "bad", terminal)
	start("patient", "late", "x", weft.StartOptions{})
	s.until(t, "late", func(i weft.Info) bool { return len(i.Waiting) > 0 && i.Owner == "" })
	start("hello", "in-line", "bob", weft.StartOptions{Queue: "day"})
	s.stop()
}

// newSingleOwner returns an engine that owns a store alone.
func newSingleOwner(s storage.Storage) (*engine.Engine, error) {
	return engine.New(engine.Config{Storage: s, Name: "shop", Ownership: engine.OwnershipSingleOwner, Workflows: []engine.Definition{hello}, Logger: slog.New(slog.DiscardHandler)})
}
