package enginetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
)

// monthly charges once a month, for as many months as its input says.
func monthly(b *bank, keyed bool) func(world *Recorder) Scenario {
	return func(world *Recorder) Scenario {
		*b = bank{world: world}
		charge := charging(b, keyed)
		w := &engine.Workflow[int, int]{Name: "monthly", Func: func(run *engine.Run, months int) (int, error) {
			for range months {
				if err := run.Sleep(30 * 24 * time.Hour); err != nil {
					return 0, err
				}
				if _, err := charge.Do(run, "o"); err != nil {
					return 0, err
				}
			}
			return months, nil
		}}
		return Scenario{
			Workflows: []engine.Definition{w},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				h, err := w.Start(ctx, eng, "order-42", 24)
				if err == nil {
					_, err = h.Result(ctx)
				}
				return err
			},
		}
	}
}

// A process that dies again and again does not charge twice, if the key of a charge is that of the
// operation.
func TestCrashOften(t *testing.T) {
	const failures = 300
	var b bank
	r := often(t, failures, monthly(&b, true))
	found(t, r)
	if r.plays < 3 || r.plays > failures/10 {
		t.Errorf("%d failures in %d plays, want several in each", failures, r.plays-2)
	}
}

func TestCrashOftenFindsWhatWasDoneTwice(t *testing.T) {
	var b bank
	r := often(t, 300, monthly(&b, false))
	found(t, r, "play ", " were crashes:\n    \"card charged\" happened 2", " times, undisturbed 24 times\n        order-42  charge  operation ",
		"attempt 2  process ", "charge has no IdempotencyKey")
	if n := strings.Count(r.String(), "order-42  charge"); n > mostRows/2 {
		t.Errorf("%d rows, want only those of charges that were made twice", n)
	}
}

// Failures reach scenarios with few calls, too.
func TestCrashOftenOfAShortScenario(t *testing.T) {
	var b bank
	r := often(t, 50, func(world *Recorder) Scenario {
		b = bank{world: world}
		return ordering(checkout(&b, true))
	})
	found(t, r)
	if r.plays < 5 {
		t.Errorf("%d plays, want more", r.plays)
	}
}

// A scenario may take longer than the usual limit of 1,200 days.
func TestTimeoutOfAScenario(t *testing.T) {
	years := func(limit time.Duration) *report {
		return often(t, 20, func(world *Recorder) Scenario {
			w := simple(func(run *engine.Run) (string, error) { return "", run.Sleep(4 * 365 * 24 * time.Hour) })
			s := ordering(w)
			start := s.Drive
			s.Timeout = limit
			s.Drive = func(ctx context.Context, eng *engine.Engine) error {
				if err := start(ctx, eng); err != nil {
					return err
				}
				_, err := w.Handle(eng, "order-42").Result(ctx)
				return err
			}
			return s
		})
	}
	found(t, years(5*365*24*time.Hour))
	found(t, years(0), "undisturbed:\n", "Drive has no success", "deadline exceeded")
}
