package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
)

// A handle of another workflow's name is told so, also while the run goes on.
func TestResultOfAnotherWorkflow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
		p := boot(t, fresh(t), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		if err := p.Result(short, "o", "other", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("result: %v, want ErrNotFound", err)
		}
	})
}

// Whoever asks for a result at the moment at which the run ends is told it.
func TestResultAtTheMomentOfTheEnd(t *testing.T) {
	wf := flow("w", func(run *engine.Run) (string, error) {
		return engine.Step(run, "s", func(context.Context) (string, error) { return "done", nil })
	})
	p := boot(t, fresh(t), wf, func(c *engine.Config) { c.PollInterval = time.Hour })
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range torture.Rounds(1000, 1000, 200) {
				h, err := wf.Start(ctx, p, fmt.Sprintf("o-%d-%d", w, i), "")
				if err != nil {
					t.Error(err)
					return
				}
				var asking sync.WaitGroup
				for range 3 {
					asking.Go(func() {
						short, cancel := context.WithTimeout(ctx, time.Minute)
						defer cancel()
						for range 3 {
							if _, err := h.Result(short); err != nil {
								t.Errorf("result of %q: %v", h.ID(), err)
								return
							}
						}
					})
				}
				asking.Wait()
			}
		})
	}
	all.Wait()
}
