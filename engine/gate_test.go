package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// Nobody waits for ever for a place among MaxActivities: who is told that there
// is one, and has no use for it any more, tells the next.
func TestEveryAttemptGetsItsPlace(t *testing.T) {
	for range 20 {
		virtual(t, func(t *testing.T) {
			wf := flow("w", func(run *engine.Run) (string, error) {
				_, err := engine.Map(run, "map", 2, make([]int, 5), func(run *engine.Run, _ int) (int, error) {
					return engine.Step(run, "step", func(context.Context) (int, error) { return 1, nil })
				})
				return "done", err
			})
			p := boot(t, new(memory.Store), wf, func(c *engine.Config) { c.MaxActivities = 1 })
			var begun []*engine.Handle[string]
			for i := range 10 {
				begun = append(begun, start(t, wf, p, sprint(i), ""))
			}
			for _, h := range begun {
				if got := result(t, h); got != "done" {
					t.Errorf("%s: %q", h.ID(), got)
				}
			}
		})
	}
}

// A place that becomes free is offered to the next who waits for one, also when
// the one before him is gone, or has no use for it any more.
func TestPlaceThatNobodyTakesIsPassedOn(t *testing.T) {
	for name, goesOn := range map[string]bool{"it is gone": false, "it has no use for it": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				act := &activity.Activity[string, string]{Name: "work", Run: func(ctx context.Context, s string) (string, error) {
					select {
					case <-time.After(time.Minute):
					case <-ctx.Done():
					}
					return s, nil
				}, Timeout: time.Hour}
				wf := &engine.Workflow[string, string]{Name: "works", Func: func(run *engine.Run, s string) (string, error) {
					out, err := act.Do(run, s)
					if errors.Is(err, engine.ErrCancelled) && goesOn {
						return yes.Receive(run.WithoutCancel())
					}
					return out, err
				}}
				p := boot(t, fresh(t), wf, func(c *engine.Config) { c.MaxActivities = 1 })
				a := start(t, wf, p, "a", "a")
				time.Sleep(time.Second)
				b := start(t, wf, p, "b", "b")
				time.Sleep(time.Second)
				c := start(t, wf, p, "c", "c")
				time.Sleep(time.Second)
				if err := b.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
					t.Fatal(err)
				}
				if got := result(t, a); got != "a" {
					t.Errorf("a: %q", got)
				}
				if got := result(t, c); got != "c" {
					t.Errorf("c: %q", got)
				}
			})
		})
	}
}
