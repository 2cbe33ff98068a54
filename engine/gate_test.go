package engine_test

import (
	"context"
	"testing"

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
