package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
)

// Two activities of one name cannot be told apart in a history.
func TestTwoActivitiesOfOneName(t *testing.T) {
	one := &activity.Activity[string, string]{Name: "charge", Run: func(context.Context, string) (string, error) { return "one", nil }}
	two := &activity.Activity[int, string]{Name: "charge", Run: func(context.Context, int) (string, error) { return "two", nil }}
	same := *one

	_, err := engine.New(engine.Config{Storage: new(memory.Store), Activities: []activity.Definition{one, &same}})
	var bad *engine.ConfigError
	if !errors.As(err, &bad) || bad.Field != "Activities[1].Name" || !strings.Contains(err.Error(), `"charge" is already the name of Activities[0]`) {
		t.Errorf("New: %v", err)
	}

	first := flow("first", func(run *engine.Run) (string, error) { return one.Do(run, "") })
	second := flow("second", func(run *engine.Run) (string, error) { return two.Do(run, 1) })
	again := flow("again", func(run *engine.Run) (string, error) { return same.Do(run, "") })
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		p := boot(t, s, first, second, again)
		result(t, start(t, first, p, "1", ""))
		start(t, second, p, "2", "")
		eventually(t, "it is held", func() bool { return heldFor(describe(t, p, "2"), engine.ReasonBadDefinition) })
		const want = `activity "charge": Name belongs to two activities of this engine, a *activity.Activity[string,string] and a *activity.Activity[int,string]: give one another name`
		if got := describe(t, p, "2").Attention[0].Detail; !strings.Contains(got, want) {
			t.Errorf("held for %q, want %q", got, want)
		}
		if got := result(t, start(t, again, p, "3", "")); got != "one" { // made anew, as in a function
			t.Errorf("got %q", got)
		}
		p.stop(t)
		p = boot(t, s, second) // the fault is mended
		if got := result(t, second.Handle(p, "2")); got != "two" {
			t.Errorf("got %q", got)
		}
		p.stop(t)
	})
}

// A nil engine, or a nil Run, panics with a message that says so.
func TestNilEngineAndNilRun(t *testing.T) {
	wf := flow("wf", func(run *engine.Run) (string, error) { return "", nil })
	act := &activity.Activity[string, string]{Name: "act", Run: func(context.Context, string) (string, error) { return "", nil }}
	var eng *engine.Engine
	var run *engine.Run
	for want, call := range map[string]func(){
		"engine: the start of workflow wf needs a client": func() { _, _ = wf.Start(ctx, nil, "o", "") },
		"engine: the start of workflow wf needs a":        func() { _, _ = wf.Start(ctx, eng, "o", "") },
		"engine: a handle of workflow wf needs a client":  func() { wf.Handle(eng, "o") },
		"signal: yes is sent to a nil engine":             func() { _, _ = yes.Send(ctx, nil, "o", "", nil) },
		"signal: yes is used with a nil Run":              func() { _, _ = yes.Receive(nil) },
		"signal: yes is used with a nil":                  func() { yes.Next(nil) },
		"signal: yes is used with a":                      func() { _ = yes.SendFrom(nil, "o", "") },
		"activity: act was called with a nil Run":         func() { _, _ = act.Do(nil, "") },
		"engine: the Run is nil":                          func() { _, _ = act.Do(run, "") },
		"engine: the Run is":                              func() { _ = run.Sleep(0) },
		"engine: the Run":                                 func() { _, _ = engine.All[string](run) },
		"engine: the":                                     func() { _, _ = wf.Do(run, "") },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, want) {
					t.Errorf("panic %q, want %q", p, want)
				}
			}()
			call()
		}()
	}
}

type account struct {
	Owner struct{ Name, pin string }
}

type halved struct{ N int }

func (h halved) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%d", h.N), nil }
func (h *halved) UnmarshalJSON(b []byte) error {
	_, err := fmt.Sscan(string(b), &h.N)
	h.N /= 2
	return err
}

// Values of which a part would be lost are refused: by New if the type shows it, and otherwise by
// the first start or signal that has a value of the type. Nothing is written.
func TestLossyTypesAreRefused(t *testing.T) {
	_ = account{}.Owner.pin
	in := &engine.Workflow[account, string]{Name: "in", Func: func(*engine.Run, account) (string, error) { return "", nil }}
	out := &engine.Workflow[string, fmt.Stringer]{Name: "out", Func: func(*engine.Run, string) (fmt.Stringer, error) { return nil, nil }}
	_, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{in, out}})
	for _, want := range []string{
		`Workflows[0] "in": its input cannot be stored as it is: Owner.pin is not exported`,
		`Workflows[1] "out": its result cannot be stored as it is: fmt.Stringer is an interface`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := &engine.Workflow[halved, string]{Name: "halves", Func: func(*engine.Run, halved) (string, error) { return "", nil }}
		p := boot(t, s, wf)
		_, err := wf.Start(ctx, p, "o", halved{7})
		if !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), `input of halves "o": a engine_test.halved is not decoded as it was: encoded it is 7, and decoded and encoded again 3`) {
			t.Errorf("start: %v", err)
		}
		if _, err := p.Describe(ctx, "o"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("it was started: %v", err)
		}
		if _, err := in.Start(ctx, p, "o", account{}); !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), "Owner.pin is not exported") {
			t.Errorf("start with a type that the engine does not know: %v", err)
		}
		sig := &signal.Signal[halved]{Name: "half"}
		if _, err := sig.Send(ctx, p, "o", halved{7}, nil); !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), `payload of signal "half"`) {
			t.Errorf("signal: %v", err)
		}
		p.stop(t)
	})
}
