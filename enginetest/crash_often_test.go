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
	const failures = 120
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

// A new release is deployed in the middle of each play. One whose code does not go on with the runs of the release
// before is found.
func TestDeployed(t *testing.T) {
	monthly := func(world *Recorder, charge string, more bool) []engine.Definition {
		return []engine.Definition{&engine.Workflow[string, string]{Name: "monthly", Func: func(run *engine.Run, _ string) (string, error) {
			for range 4 {
				if more {
					if err := run.Sleep(time.Hour); err != nil {
						return "", err
					}
				}
				if err := run.Sleep(30 * 24 * time.Hour); err != nil {
					return "", err
				}
				if _, err := engine.Step(run, "charge", func(ctx context.Context) (string, error) {
					world.Effect(ctx, charge)
					return charge, nil
				}); err != nil {
					return "", err
				}
			}
			return "", nil
		}}}
	}
	deployed := func(more bool) *report {
		return often(t, 20, func(world *Recorder) Scenario {
			first := monthly(world, "charged", false)
			return Scenario{
				Workflows: first, Deployed: monthly(world, "charged by the new release", more), DeployAfter: 45 * 24 * time.Hour,
				Timeout:   200 * 24 * time.Hour,
				MayRepeat: []string{"charged", "charged by the new release"},
				Drive: func(ctx context.Context, eng *engine.Engine) error {
					_, err := eng.StartWorkflow(ctx, &engine.StartRequest{Workflow: "monthly", ID: "order-42", Input: ""})
					if err == nil {
						err = eng.Result(ctx, "order-42", "", nil)
					}
					return err
				},
				Check: func(t testing.TB, world *Recorder) {
					if before, after := world.Count("charged"), world.Count("charged by the new release"); before < 1 || after < 3 {
						t.Errorf("the first release has charged %d times, and the second one %d times", before, after)
					}
				},
			}
		})
	}
	found(t, deployed(false))
	found(t, deployed(true), "the second one 0 times", "Drive has no success")
}

// A scenario may take longer than the usual limit of 1,200 days.
func TestTimeoutOfAScenario(t *testing.T) {
	years := func(limit time.Duration) *report {
		return often(t, 1, func(world *Recorder) Scenario {
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
