package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
)

// A leaver ends the goroutine in which it is encoded, or asked for its text. That is what t.FailNow does.
type leaver struct{}

func (leaver) MarshalJSON() ([]byte, error) { runtime.Goexit(); return nil, nil }
func (leaver) Error() string                { runtime.Goexit(); return "" }

// F12, AC8: runtime.Goexit while a result is encoded, or while an error is asked for its text, is a failure. It is
// recorded as such: no success without a result, and nothing waits for ever. What had an effect is not repeated.
func TestGoexitWhileAnOutcomeIsEncoded(t *testing.T) {
	var runs, asked tally
	returns := func(name string) func(context.Context, string) (leaver, error) {
		return func(context.Context, string) (leaver, error) { runs.add(name); return leaver{}, nil }
	}
	fails := func(name string) func(context.Context, string) (leaver, error) {
		return func(context.Context, string) (leaver, error) { runs.add(name); return leaver{}, leaver{} }
	}
	key := func(s string) string { return s }
	twice := activity.Retry{MaxAttempts: 2}
	plain := &activity.Activity[string, leaver]{Name: "plain", Run: returns("plain")}
	keyed := &activity.Activity[string, leaver]{Name: "keyed", Run: returns("keyed"), IdempotencyKey: key}
	verified := &activity.Activity[string, leaver]{
		Name:           "verified",
		IdempotencyKey: key,
		Run: func(context.Context, string) (leaver, error) {
			runs.add("verified")
			return leaver{}, errBroke
		},
		Verify: func(context.Context, string) (activity.Verification[leaver], error) {
			asked.add("verified")
			return activity.CompletedWithResult(leaver{}), nil
		},
	}
	unclear := &activity.Activity[string, string]{
		Name:           "unclear",
		IdempotencyKey: key,
		Run:            func(context.Context, string) (string, error) { runs.add("unclear"); return "", errBroke },
		Verify: func(context.Context, string) (activity.Verification[string], error) {
			asked.add("unclear")
			panic(leaver{})
		},
	}
	panics := &activity.Activity[string, string]{Name: "panics", Run: func(context.Context, string) (string, error) { runs.add("panics"); panic(leaver{}) }, Retry: twice}
	text := &activity.Activity[string, leaver]{Name: "text", Run: fails("text"), Retry: twice}
	increases := &engine.Update[int, leaver]{Name: "increases"}
	refuses := &engine.Update[int, leaver]{Name: "refuses"}
	for name, c := range map[string]struct {
		do          func(run *engine.Run) error
		want        string // what the function learns
		runs, asked int
	}{
		"plain":    {func(run *engine.Run) error { _, err := plain.Do(run, ""); return err }, "*activity.Error activity plain: attempt 1: result: called runtime.Goexit", 1, 0},
		"keyed":    {func(run *engine.Run) error { _, err := keyed.Do(run, "keyed"); return err }, "*activity.ResultUnavailableError", 1, 0},
		"verified": {func(run *engine.Run) error { _, err := verified.Do(run, "verified"); return err }, "*activity.IndeterminateError", 1, 5},
		"text":     {func(run *engine.Run) error { _, err := text.Do(run, ""); return err }, "*activity.Error activity text: attempt 2: called runtime.Goexit", 2, 0},
		"unclear":  {func(run *engine.Run) error { _, err := unclear.Do(run, "unclear"); return err }, "*activity.IndeterminateError", 1, 5},
		"panics":   {func(run *engine.Run) error { _, err := panics.Do(run, ""); return err }, "*activity.Error activity panics: attempt 2: called runtime.Goexit", 2, 0},
		"step": {func(run *engine.Run) error {
			_, err := engine.Step(run, "step", func(context.Context) (leaver, error) { return returns("step")(nil, "") })
			return err
		}, "*activity.Error activity step: attempt 1: result: called runtime.Goexit", 1, 0},
		"update": {func(run *engine.Run) error {
			if err := increases.Handle(run, nil, func(*engine.Run, int) (leaver, error) { return leaver{}, nil }); err != nil {
				return err
			}
			if err := refuses.Handle(run, nil, func(*engine.Run, int) (leaver, error) { return leaver{}, leaver{} }); err != nil {
				return err
			}
			check := func(n int) error {
				if n == 1 {
					return leaver{}
				}
				panic(leaver{})
			}
			if err := increase.Handle(run, check, func(*engine.Run, int) (int, error) { return 0, nil }); err != nil {
				return err
			}
			return run.Sleep(time.Minute)
		}, "<nil> <nil>", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				runs, asked = tally{}, tally{}
				s := store.Open(t)
				defer s.Close()
				learnt := ""
				wf := flow("w", func(run *engine.Run) (string, error) {
					err := c.do(run)
					learnt = fmt.Sprintf("%T %v", err, err)
					return "", nil
				})
				p := boot(t, s, wf)
				h := start(t, wf, p, "o", "")
				if name == "update" {
					for _, u := range []*engine.Update[int, leaver]{increases, refuses} {
						if _, err := u.Call(timed(t, time.Minute), p, "o", 1, nil); err == nil || !strings.Contains(err.Error(), "Goexit") {
							t.Errorf("update %s: %v", u.Name, err)
						}
					}
					for n := range 2 {
						if _, err := increase.Call(timed(t, time.Minute), p, "o", n, nil); !errors.Is(err, engine.ErrRejected) || !strings.Contains(err.Error(), "Goexit") {
							t.Errorf("check: %v", err)
						}
					}
				}
				if _, err := h.Result(timed(t, time.Hour)); err != nil || !strings.HasPrefix(learnt, c.want) {
					t.Errorf("result %v, learnt %q, want %q; attention %v", err, learnt, c.want, describe(t, p, "o").Attention)
				}
				if runs.of(name) != c.runs || asked.of(name) != c.asked {
					t.Errorf("%d attempts and %d questions, want %d and %d", runs.of(name), asked.of(name), c.runs, c.asked)
				}
				p.stop(t)
			})
		})
	}
	for name, end := range map[string]func() (leaver, error){
		"result": func() (leaver, error) { return leaver{}, nil },
		"error":  func() (leaver, error) { return leaver{}, leaver{} },
		"panic":  func() (leaver, error) { panic(leaver{}) },
	} {
		t.Run("workflow "+name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				wf := &engine.Workflow[string, leaver]{Name: "w", Func: func(*engine.Run, string) (leaver, error) { return end() }}
				p := boot(t, s, wf)
				_, err := start(t, wf, p, "o", "").Result(timed(t, time.Hour))
				var failed *engine.WorkflowError
				if !errors.As(err, &failed) || !strings.Contains(failed.Message, "called runtime.Goexit") {
					t.Errorf("%v", err)
				}
				p.stop(t)
			})
		})
	}
}

// leaving is JSON, and ends the goroutine in which a signal.Opened is encoded as long as it is set.
type leaving struct {
	engine.Codec
	bad *atomic.Bool
}

func (leaving) Name() string { return "leaving" }

func (l leaving) Encode(ctx context.Context, v any) ([]byte, error) {
	if _, opened := v.(signal.Opened); opened && l.bad.Load() {
		runtime.Goexit()
	}
	return l.Codec.Encode(ctx, v)
}

// A codec that calls runtime.Goexit where a hook is opened ends no goroutine of the engine: the run is held. After
// Resume it goes on.
func TestGoexitWhileAHookIsOpened(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var bad atomic.Bool
		bad.Store(true)
		wf := waitsFor("wf")
		p := boot(t, s, wf, func(c *engine.Config) { c.Codec = leaving{engine.JSON, &bad} })
		h := start(t, wf, p, "o", "t")
		time.Sleep(time.Minute)
		i := describe(t, p, "o")
		if !heldFor(i, engine.ReasonBadDefinition) || i.Attention[0].Name != "paid" || !strings.Contains(i.Attention[0].Detail, "Goexit") {
			t.Errorf("attention: %v", i.Attention)
		}
		bad.Store(false)
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		resume(t, p, tokenOf(t, p, "o"), "done", "x")
		if got := result(t, h); got != "done" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
	})
}
