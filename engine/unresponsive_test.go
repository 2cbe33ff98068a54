package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// F12, interleaving 22: an attempt that does not return when its time is up and Settle
// has passed is shown as what needs a person, with a key and without, until it
// returns. It keeps its place, its late result is not taken, and the rest of the run
// goes on; so it is after a restart of the process.
func TestDeafAttemptNeedsAPerson(t *testing.T) {
	for _, key := range []bool{false, true} {
		t.Run(fmt.Sprint("key ", key), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s, log := fresh(t), new(lines)
				a, b := keyed(func(_ context.Context, n int) (string, error) {
					if n == 1 {
						time.Sleep(time.Hour)
						return "late", errBroke
					}
					return fmt.Sprint("run ", n), nil
				}, func(int) activity.Verification[string] { return activity.NotCompleted[string]() })
				a.Timeout, a.Settle = time.Minute, 10*time.Minute
				if !key {
					a.IdempotencyKey, a.Verify = nil, nil
					a.Settle = 0 // it is the Timeout
				}
				var slept atomic.Bool
				wf := flow("checkout", func(run *engine.Run) (string, error) {
					f := a.Go(run, "42")
					if err := run.Sleep(20 * time.Minute); err != nil {
						return "", err
					}
					slept.Store(true)
					return f.Get(run)
				})
				var other tally
				quick := doing(counting(&other, "quick"))
				p := boot(t, s, wf, quick, log.logger(), func(c *engine.Config) { c.MaxActivities, c.ParkAfter = 1, time.Second })
				h := start(t, wf, p, "o", "")
				needs := func() (list []string) {
					for i, err := range p.List(ctx, engine.Filter{Attention: true}) {
						if err != nil {
							t.Fatal(err)
						}
						for _, at := range i.Attention {
							list = append(list, sprint(i.ID, " ", at.Reason, " ", at.Operation, " ", at.Name, ": ", at.Detail))
						}
					}
					return list
				}
				settled := map[bool]time.Duration{true: 11 * time.Minute, false: 2 * time.Minute}[key]
				time.Sleep(settled - time.Second)
				start(t, quick, p, "other", "")
				if got := needs(); len(got) > 0 {
					t.Errorf("before Settle has passed: %q", got)
				}
				time.Sleep(10 * time.Second)
				if got := needs(); len(got) != 1 || !strings.HasPrefix(got[0], "o unresponsive 1 charge: attempt 1 has not returned") {
					t.Errorf("a person is told %q", got)
				}
				time.Sleep(30 * time.Minute)
				if n := log.count("has timed out and ignores cancellation"); n != 1 || !slept.Load() || other.of("quick") != 0 {
					t.Errorf("%d lines in the log, the run went on: %v, another attempt has its place: %v", n, slept.Load(), other.all())
				}
				if runs, _, _ := b.counts(); runs != 1 {
					t.Errorf("%d attempts while the first lives", runs)
				}
				if got := result(t, h); got != "run 2" {
					t.Errorf("result %q", got)
				}
				if result(t, quick.Handle(p, "other")); other.of("quick") != 1 {
					t.Error("the other never had a place")
				}
				if got := needs(); len(got) > 0 {
					t.Errorf("it has returned, and a person is told %q", got)
				}
				held, back := 0, 0
				for _, c := range historyOf(t, p.Engine, "o") {
					for _, e := range c.Events {
						switch {
						case e.Kind == checkpoint.KindHeld && e.Name == string(engine.ReasonUnresponsive) && e.Operation == "1":
							held++
						case e.Kind == checkpoint.KindCameBack && e.Operation == "1":
							back++
						}
					}
				}
				if held != 1 || back != 1 {
					t.Errorf("the history tells %d times that it is deaf and %d times that it came back, want once each", held, back)
				}
				p.stop(t)
			})
		})
	}
}

// F12: an attempt that blocks for ever: its operation has its outcome from the verifier,
// the run goes on, and stays in view as long as it runs. A process that is started in
// its place knows nothing of the goroutine.
func TestAttemptThatNeverReturns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		block := make(chan int)
		defer close(block)
		a, _ := keyed(func(context.Context, int) (string, error) { <-block; return "", nil },
			func(int) activity.Verification[string] { return activity.CompletedWithResult("verified") })
		a.Timeout = time.Minute
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			out, err := a.Do(run, "42")
			if err != nil {
				return "", err
			}
			return out, run.Sleep(2 * time.Hour)
		})
		p := boot(t, s, wf, parkAfter(time.Second))
		start(t, wf, p, "o", "")
		time.Sleep(time.Hour)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonUnresponsive) {
			t.Errorf("%+v, want it deaf", i.Attention)
		}
		if got := historyOf(t, p.Engine, "o"); got[len(got)-1].Events[0].Kind == checkpoint.KindParked {
			t.Error("it was parked with an attempt under way")
		}
		p.kill()
		p = boot(t, s, wf, parkAfter(time.Second))
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); len(i.Attention) > 0 {
			t.Errorf("in another process: %+v", i.Attention)
		}
		time.Sleep(2 * time.Hour)
		if got := result(t, wf.Handle(p, "o")); got != "verified" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
	})
}

// An activity that does not heed its context holds up neither Close nor Run for
// longer than StopTimeout allows.
func TestActivityThatDoesNotComeBack(t *testing.T) {
	for _, how := range []string{"close", "stop"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			block := make(chan int)
			stuck := &activity.Activity[string, int]{Name: "stuck", Timeout: time.Minute, Run: func(context.Context, string) (int, error) {
				<-block
				return 1, nil
			}}
			p := boot(t, s, doing(stuck))
			defer close(block)
			start(t, doing(stuck), p, "o", "")
			time.Sleep(time.Second)
			begun := time.Now()
			ended := make(chan int)
			go func() {
				map[string]func(){"close": p.close, "stop": func() { p.stop(t) }}[how]()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(time.Hour):
			}
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("%s took %v", how, took)
			}
		})
	}
}

// After an attempt that timed out has returned, nothing holds its run in memory until Settle has passed. And nothing is
// logged after Close about an attempt that has not returned.
func TestTimedOutAttemptLeavesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		type large struct{ _ [1 << 10]byte }
		type key struct{}
		var execution weak.Pointer[large]
		events := func(c *engine.Config) {
			c.Events.ExecutionBegan = func(ctx context.Context, _ engine.ExecutionBeganEvent) context.Context {
				v := new(large)
				execution = weak.Make(v)
				return context.WithValue(ctx, key{}, v)
			}
		}
		block, log := make(chan int), new(recorder)
		defer close(block)
		slow := &activity.Activity[string, string]{
			Name:    "slow",
			Timeout: 30 * time.Minute, // and Settle
			Retry:   activity.Retry{MaxAttempts: 1},
			Run: func(ctx context.Context, in string) (string, error) {
				if <-ctx.Done(); in == "deaf" {
					<-block
				}
				return "", ctx.Err()
			},
		}
		wf := &engine.Workflow[string, string]{Name: "w", Func: func(run *engine.Run, in string) (string, error) {
			_, err := slow.Do(run, in)
			return fmt.Sprint(err), nil
		}}
		p := boot(t, new(memory.Store), wf, events, log.logger())
		if got := result(t, start(t, wf, p, "o", "")); !strings.Contains(got, "timed out") {
			t.Errorf("result %q", got)
		}
		time.Sleep(time.Minute)
		for range 3 {
			runtime.GC()
			time.Sleep(time.Second)
		}
		if execution.Value() != nil {
			t.Error("the execution is still in memory")
		}
		result(t, start(t, wf, p, "deaf", "deaf"))
		p.stop(t)
		time.Sleep(2 * time.Hour)
		if es := log.of("has timed out and ignores cancellation"); len(es) > 0 {
			t.Errorf("logged after Close: %v", es)
		}
	})
}
