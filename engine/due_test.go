package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/storagetest"
)

// TM3: a timer that is due together with a signal fires once into the history,
// also if the signal has everybody stop to wait for it, and somebody begins again
// later.
func TestTimerThatLosesFiresOnce(t *testing.T) {
	word := &signal.Signal[int]{Name: "word"}
	step := func(run *engine.Run) error {
		_, err := engine.Step(run, "step", func(context.Context) (int, error) { return 1, nil })
		return err
	}
	for name, f := range map[string]func(run *engine.Run) (string, error){
		"a time limit": func(run *engine.Run) (string, error) {
			limited := run.WithTimeout(time.Minute)
			if _, err := word.Receive(limited); err != nil {
				return "", err
			}
			if err := step(run); err != nil {
				return "", err
			}
			if err := step(limited); !errors.Is(err, engine.ErrTimeout) {
				return "", err
			}
			return "timed out", nil
		},
		"a case": func(run *engine.Run) (string, error) {
			late, next := run.After(time.Minute), word.Next(run)
			if c, err := engine.Select(run, late, next); c != next || err != nil {
				return "", err
			}
			if err := step(run); err != nil {
				return "", err
			}
			if c, err := engine.Select(run, late); c != late || err != nil {
				return "", err
			}
			return "timed out", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				clock := new(wall)
				wf := flow("w", f)
				store := storagetest.NewFaulty(fresh(t), nil)
				e := made(t, store, wf)
				engine.SetNow(e, clock.now)
				p := &process{Engine: e, store: store}
				p.run()
				defer p.kill()
				h := start(t, wf, p, "o", "")
				synctest.Wait()
				clock.jump(time.Hour) // the timer is due, and nobody has noticed
				if _, err := word.Send(ctx, p, "o", 1, &signal.Options{ID: "click"}); err != nil {
					t.Fatal(err)
				}
				if got := result(t, h); got != "timed out" {
					t.Errorf("result %q", got)
				}
				fired := 0
				for _, k := range kinds(historyOf(t, e, "o")) {
					if k == checkpoint.KindFired {
						fired++
					}
				}
				if fired != 1 {
					t.Errorf("fired %d times: %v", fired, kinds(historyOf(t, e, "o")))
				}
			})
		})
	}
}
