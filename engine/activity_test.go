package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage/storagetest"
)

// An attempted is when an attempt was and what it was told.
type attempted struct {
	at   time.Time
	info activity.Info
}

// flaky fails before attempt succeed.
func flaky(seen *[]attempted, succeed int, r activity.Retry) *activity.Activity[string, int] {
	return &activity.Activity[string, int]{Name: "flaky", Retry: r, Errors: []error{errBroke}, Run: func(ctx context.Context, _ string) (int, error) {
		i := activity.InfoFrom(ctx)
		*seen = append(*seen, attempted{time.Now(), i})
		if i.Attempt >= succeed {
			return i.Attempt, nil
		}
		return 0, fmt.Errorf("attempt %d: %w", i.Attempt, errBroke)
	}}
}

func doing(act *activity.Activity[string, int]) *engine.Workflow[string, string] {
	return flow("w", func(run *engine.Run) (string, error) {
		n, err := act.Do(run, "in")
		return sprint(n), err
	})
}

// LV4: the bound on attempts, the backoff that doubles with jitter up to its
// maximum, and what the last error says.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		retry   activity.Retry
		succeed int
		want    int // attempts
		fails   bool
		pauses  []time.Duration // the longest each may be, of which at least half
	}{
		{"none needed", activity.Retry{}, 1, 1, false, nil},
		{"defaults", activity.Retry{}, 99, 5, true, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"one", activity.Retry{MaxAttempts: 1}, 99, 1, true, nil},
		{"capped", activity.Retry{MaxAttempts: 6, Backoff: time.Second, MaxBackoff: 3 * time.Second}, 99, 6, true,
			[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second}},
		{"without a bound", activity.Retry{MaxAttempts: -1, Backoff: time.Millisecond, MaxBackoff: time.Second}, 50, 50, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var seen []attempted
				wf := doing(flaky(&seen, c.succeed, c.retry))
				p := boot(t, fresh(t), wf)
				_, err := outcome(start(t, wf, p, "o", ""))
				if (err != nil) != c.fails || len(seen) != c.want {
					t.Fatalf("%v after %d attempts, want %d", err, len(seen), c.want)
				}
				var token uint64
				for i, a := range seen {
					if a.info.Attempt != i+1 {
						t.Errorf("attempt %d was told that it is %d", i+1, a.info.Attempt)
					}
					if a.info.FencingToken <= token {
						t.Errorf("attempt %d has the token %d, the one before %d", i+1, a.info.FencingToken, token)
					}
					token = a.info.FencingToken
					if i > 0 && i <= len(c.pauses) {
						if p := a.at.Sub(seen[i-1].at); p < c.pauses[i-1]/2 || p > c.pauses[i-1] {
							t.Errorf("pause %d is %v, want %v to %v", i, p, c.pauses[i-1]/2, c.pauses[i-1])
						}
					}
				}
				if want := fmt.Sprintf("activity flaky: attempt %d: attempt %[1]d: broke", c.want); c.fails && !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
				n := 0
				for _, k := range kinds(historyOf(t, p.Engine, "o")) {
					if k == checkpoint.KindAttempted {
						n++
					}
				}
				if n != c.want-1 {
					t.Errorf("%d failed attempts with another to come are recorded, want %d", n, c.want-1)
				}
			})
		})
	}
}

// T-23: the count and the time of the next attempt are durable: a restart in the
// middle of a backoff changes neither.
func TestRetriesSurviveARestart(t *testing.T) {
	for _, how := range []string{"kill", "stop"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var seen []attempted
			wf := doing(flaky(&seen, 99, activity.Retry{MaxAttempts: 3, Backoff: 10 * time.Minute, MaxBackoff: time.Hour}))
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Minute)
			if how == "kill" {
				p.kill()
			} else {
				p.stop(t)
			}
			due := historyOf(t, made(t, s), "o")[1].Events[0].Due
			time.Sleep(time.Minute)
			p = boot(t, s, wf)
			_, err := outcome(wf.Handle(p, "o"))
			if !strings.Contains(sprint(err), "broke") || len(seen) != 3 {
				t.Fatalf("%s: %v after %d attempts, want 3", how, err, len(seen))
			}
			if seen[1].at.Before(journal.Time(due)) || seen[1].at.After(journal.Time(due).Add(time.Second)) {
				t.Errorf("%s: the second attempt was at %v, due %v", how, seen[1].at, journal.Time(due))
			}
			for i, a := range seen {
				if a.info.Attempt != i+1 {
					t.Errorf("%s: attempt %d was told that it is %d", how, i+1, a.info.Attempt)
				}
			}
		})
	}
}

// Permanent errors are not tried again; sentinels are told apart before and after
// a restart, and a step's error is the same live and replayed.
func TestErrorIdentitySurvives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		declined := errors.New("card declined")
		act := &activity.Activity[string, int]{Name: "charge", Errors: []error{errors.New("another"), declined}, Run: func(context.Context, string) (int, error) {
			runs.add("charge")
			return 0, activity.Permanent(fmt.Errorf("card 42: %w", declined))
		}}
		var seen []string
		wf := &engine.Workflow[string, string]{Name: "w", Errors: []error{errBroke}, Func: func(run *engine.Run, _ string) (string, error) {
			_, err := act.Do(run, "")
			_, err2 := engine.Step(run, "note", func(context.Context) (int, error) { runs.add("note"); return 0, fmt.Errorf("no: %w", errBroke) })
			var e, e2 *activity.Error
			seen = append(seen, fmt.Sprintf("%v %v %v %v; %v %v %v", err, errors.Is(err, declined), errors.As(err, &e), activity.IsPermanent(err),
				err2, errors.Is(err2, errBroke), errors.As(err2, &e2)))
			return "", run.Sleep(10 * time.Minute)
		}}
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, s, wf)
		result(t, wf.Handle(p, "o"))
		want := "activity charge: attempt 1: card 42: card declined true true false; activity note: attempt 1: no: broke true true"
		if len(seen) != 2 || seen[0] != want || seen[1] != want {
			t.Errorf("the workflow saw\n%q, want twice\n%q", seen, want)
		}
		if runs.of("charge") != 1 || runs.of("note") != 1 {
			t.Errorf("runs: %v", runs.all())
		}
	})
}

// ACT-11, AC5: what an attempt is told of itself; also after a crash that nobody
// knows it survived.
func TestInfo(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var seen []activity.Info
		var life atomic.Pointer[storagetest.Faulty]
		act := &activity.Activity[string, string]{Name: "charge", Timeout: 30 * time.Second, Run: func(ctx context.Context, in string) (string, error) {
			i := activity.InfoFrom(ctx)
			if d := time.Until(i.Deadline); d != 30*time.Second {
				t.Errorf("the deadline is in %v, want 30 s", d)
			}
			seen = append(seen, i)
			if len(seen) < 4 {
				life.Load().Crash()
				<-ctx.Done()
				return "", ctx.Err()
			}
			return in, nil
		}}
		wf := flow("order", func(run *engine.Run) (string, error) {
			if err := run.Sleep(0); err != nil {
				return "", err
			}
			return act.Do(run, "ok")
		})
		next := func() *process {
			life.Store(storagetest.NewFaulty(s, nil))
			return bootOn(t, life.Load(), wf)
		}
		p := next()
		start(t, wf, p, "o 1", "")
		for range 3 {
			time.Sleep(time.Second)
			p.kill()
			p = next()
		}
		if got := result(t, wf.Handle(p, "o 1")); got != "ok" {
			t.Errorf("result %q", got)
		}
		var token uint64
		for i, got := range seen {
			want := activity.Info{Phase: activity.PhaseRun, WorkflowID: "o 1", Workflow: "order", Activity: "charge", Operation: "2", Attempt: i + 1, FencingToken: got.FencingToken, Deadline: got.Deadline}
			if got != want {
				t.Errorf("attempt %d: %+v, want %+v", i+1, got, want)
			}
			if got.FencingToken <= token {
				t.Errorf("attempt %d has the token %d, the one before %d", i+1, got.FencingToken, token)
			}
			token = got.FencingToken
		}
	})
}

// ACT-8, ACT-9, ACT-53, ACT-5, AC3: an activity without a key keeps no record of
// itself, is run again after a crash before its commit, and not after one behind it.
func TestActivityWithoutAKeyIsAtLeastOnce(t *testing.T) {
	for _, c := range []struct {
		fault storagetest.Fault
		runs  int
	}{{storagetest.CrashBefore, 2}, {storagetest.CrashAfter, 1}} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var runs tally
			var last atomic.Int32
			act := &activity.Activity[string, int]{Name: "charge", Run: func(ctx context.Context, _ string) (int, error) {
				last.Store(int32(activity.InfoFrom(ctx).Attempt))
				return runs.add("charge"), nil
			}}
			wf := doing(act)
			f := storagetest.NewFaulty(s, func(call storagetest.Call) storagetest.Fault {
				if call.Method == "Commit" && runs.of("charge") == 1 && len(call.Batch.If) > 1 {
					return c.fault // the commit of its result
				}
				return storagetest.None
			})
			p := bootOn(t, f, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Second)
			p.kill()
			if acts := entries(t, s, "act:"); len(acts) != 0 {
				t.Errorf("records of it: %q, want none", acts)
			}
			p = boot(t, s, wf)
			result(t, wf.Handle(p, "o"))
			if n := runs.of("charge"); n != c.runs {
				t.Errorf("crash %d: it ran %d times, want %d", c.fault, n, c.runs)
			}
			if n := last.Load(); int(n) != c.runs { // an owner that died counts
				t.Errorf("crash %d: the last attempt is told that it is number %d, want %d", c.fault, n, c.runs)
			}
			if acts := entries(t, s, "act:"); len(acts) != 0 {
				t.Errorf("records of it: %q, want none", acts)
			}
		})
	}
}

// AC4, interleaving 22: an attempt that does not heed its timeout is told of, its
// late answer is dropped, and no other runs beside it.
func TestTimeout(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var alive, most atomic.Int32
		var causes []error
		act := &activity.Activity[string, int]{Name: "deaf", Timeout: 10 * time.Second, Retry: activity.Retry{MaxAttempts: 2, Backoff: time.Second}, Run: func(ctx context.Context, _ string) (int, error) {
			most.Store(max(most.Load(), alive.Add(1)))
			defer alive.Add(-1)
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			time.Sleep(5 * time.Minute) // deaf
			return activity.InfoFrom(ctx).Attempt, nil
		}}
		var got error
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, got = act.Do(run, "")
			return "went on", nil
		})
		p := boot(t, fresh(t), wf)
		begun := time.Now()
		if out := result(t, start(t, wf, p, "o", "")); out != "went on" {
			t.Errorf("result %q", out)
		}
		var e *activity.Error
		if !errors.Is(got, activity.ErrTimeout) || !errors.As(got, &e) || e.Attempt != 2 {
			t.Errorf("error %v, want an *activity.Error of attempt 2 that is ErrTimeout", got)
		}
		if most.Load() != 1 {
			t.Errorf("%d attempts at once, want one", most.Load())
		}
		if took := time.Since(begun); took < 5*time.Minute+20*time.Second || took > 6*time.Minute {
			t.Errorf("it took %v; the second attempt waits for the first, nobody for the second", took)
		}
		time.Sleep(10 * time.Minute) // lets the deaf one end
		p.stop(t)
		if !slices.Equal(causes, []error{activity.ErrTimeout, activity.ErrTimeout}) {
			t.Errorf("causes %v, want ErrTimeout", causes)
		}
	})
}

// An attempt that answers in time is not timed out, and one that returns its
// context's error because of the timeout has timed out.
func TestTimeoutThatIsHeeded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		act := &activity.Activity[time.Duration, int]{Name: "act", Timeout: 10 * time.Second, Retry: activity.Retry{MaxAttempts: 1}, Run: func(ctx context.Context, d time.Duration) (int, error) {
			select {
			case <-time.After(d):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := act.Do(run, 9*time.Second)
			_, late := act.Do(run, 11*time.Second)
			_, with := act.With(activity.Options{Timeout: 20 * time.Second}).Do(run, 15*time.Second)
			return sprint(err, " ", errors.Is(late, activity.ErrTimeout), " ", with), nil
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "<nil> true <nil>" {
			t.Errorf("got %s", got)
		}
		p.stop(t)
	})
}

// A definition that makes no sense holds the run, and the mended one goes on.
func TestBadActivityHoldsTheRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		act := counting(&runs, "act")
		act.Retry.Backoff = -1
		wf := doing(act)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonBadDefinition) || runs.of("act") != 0 {
			t.Errorf("%+v after %d runs, want it held", i, runs.of("act"))
		}
		p.stop(t)
		act.Retry.Backoff = 0
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "1" {
			t.Errorf("mended: %q", got)
		}
		if i := describe(t, p, "o"); len(i.Attention) != 0 {
			t.Errorf("ended, and still %v", i.Attention)
		}
	})
}

// ErrForeignRun: a run belongs to its function's goroutine.
func TestForeignRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var kept *engine.Run
		var inside, outside error
		wf := flow("w", func(run *engine.Run) (string, error) {
			kept = run
			return engine.Step(run, "step", func(context.Context) (string, error) {
				inside = run.Sleep(0)
				return "", nil
			})
		})
		p := boot(t, fresh(t), wf)
		result(t, start(t, wf, p, "o", ""))
		outside = kept.Sleep(0)
		if !errors.Is(inside, engine.ErrForeignRun) || !errors.Is(outside, engine.ErrForeignRun) {
			t.Errorf("inside a step: %v, after the end: %v, want ErrForeignRun", inside, outside)
		}
	})
}

// A step may log through its run's logger while the run learns something else.
func TestLoggerInsideAStep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			return engine.Step(run, "s", func(ctx context.Context) (string, error) {
				for ctx.Err() == nil {
					run.Logger().Info("at it")
					time.Sleep(time.Millisecond)
				}
				return "", ctx.Err()
			})
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if err := h.Cancel(ctx, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result: %v", err)
		}
	})
}
