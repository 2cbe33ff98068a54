package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// After Close every method answers ErrClosed.
func TestClosedEngine(t *testing.T) {
	wf := flow("w", nil2)
	e := made(t, fresh(t), wf)
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	h := wf.Handle(e, "o")
	sig := &signal.Signal[int]{Name: "s"}
	for name, call := range map[string]func() error{
		"Run":      func() error { return e.Run(ctx) },
		"Start":    func() error { _, err := wf.Start(ctx, e, "o", ""); return err },
		"Result":   func() error { _, err := h.Result(ctx); return err },
		"Cancel":   func() error { return h.Cancel(ctx, engine.Actor{}) },
		"Describe": func() error { _, err := h.Describe(ctx); return err },
		"Send":     func() error { _, err := sig.Send(ctx, e, "o", 1, nil); return err },
		"Purge":    func() error { return e.Purge(ctx, "o", audit) },
		"Retry":    func() error { return e.Resume(ctx, "o", audit) },
		"History": func() (last error) {
			for _, err := range e.History(ctx, "o") {
				last = err
			}
			return last
		},
		"List": func() (last error) {
			for _, err := range e.List(ctx, engine.Filter{}) {
				last = err
			}
			return last
		},
	} {
		if err := call(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", name, err)
		}
	}
}

// A cancelled context is answered with its error, and nothing is written.
func TestCancelledContext(t *testing.T) {
	wf := flow("w", nil2)
	s := fresh(t)
	e := made(t, s, wf)
	defer e.Close()
	done, cancel := context.WithCancel(ctx)
	cancel()
	before := len(entries(t, s, ""))
	h := wf.Handle(e, "o")
	for name, call := range map[string]func() error{
		"Start":    func() error { _, err := wf.Start(done, e, "o", ""); return err },
		"Result":   func() error { _, err := h.Result(done); return err },
		"Cancel":   func() error { return h.Cancel(done, engine.Actor{}) },
		"Describe": func() error { _, err := h.Describe(done); return err },
		"Send":     func() error { _, err := (&signal.Signal[int]{Name: "s"}).Send(done, e, "o", 1, nil); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v, want context.Canceled", name, err)
		}
	}
	if err := e.Run(done); err != nil {
		t.Errorf("Run told to stop before it began: %v, want nil", err)
	}
	if after := len(recordsOfRuns(t, s)); after != 0 || before != 2 {
		t.Errorf("%d records before, %d of workflows after", before, after)
	}
}

// T19: Run, Close and a done context in any order, also at once.
func TestRunAndCloseInAnyOrder(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	wf := flow("w", func(run *engine.Run) (string, error) {
		for range 3 {
			if err := run.Sleep(0); err != nil {
				return "", err
			}
		}
		return "done", run.Sleep(time.Hour)
	})
	s := fresh(t)
	for i := range rounds {
		e := made(t, s, wf)
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		acts := []func(){
			func() {
				if err := e.Run(ctx); err != nil && !errors.Is(err, engine.ErrClosed) {
					t.Errorf("round %d: Run: %v", i, err)
				}
			},
			func() { e.Close() },
			cancel,
			func() {
				if _, err := wf.Start(ctx, e, sprint("o", i%7), ""); err != nil && !errors.Is(err, engine.ErrClosed) && !errors.Is(err, context.Canceled) {
					t.Errorf("round %d: Start: %v", i, err)
				}
			},
			func() { e.Close() },
		}
		rand.Shuffle(len(acts), func(a, b int) { acts[a], acts[b] = acts[b], acts[a] })
		for _, act := range acts {
			wg.Go(act)
			if rand.IntN(2) == 0 {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
			}
		}
		wg.Wait()
		cancel()
	}
}

func TestOneRunAtATime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", nil2)
		p := boot(t, fresh(t), wf)
		result(t, start(t, wf, p, "o", ""))
		if err := p.Engine.Run(ctx); err == nil || errors.Is(err, engine.ErrClosed) {
			t.Errorf("a second Run = %v, want an error of its own", err)
		}
		p.end()
		<-p.done
		p.run() // after the first has ended, another may begin
		time.Sleep(time.Second)
		result(t, start(t, wf, p, "o2", ""))
		p.stop(t)
	})
}

// Close ends a start that the store does not take: nobody waits for ever.
func TestCloseEndsAStartUnderWay(t *testing.T) {
	for _, runs := range []bool{true, false} {
		virtual(t, func(t *testing.T) {
			var broken atomic.Bool
			f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
				if broken.Load() && c.Method == "Commit" {
					return storagetest.ErrorBefore
				}
				return storagetest.None
			})
			wf := flow("w", nil2)
			e := made(t, f, wf)
			ran := make(chan error, 1)
			if runs {
				go func() { ran <- e.Run(ctx) }()
				time.Sleep(time.Second)
			}
			broken.Store(true)
			started := make(chan error, 1)
			go func() {
				_, err := wf.Start(ctx, e, "o", "")
				started <- err
			}()
			time.Sleep(time.Minute)
			closed := make(chan error, 1)
			go func() { closed <- e.Close() }()
			time.Sleep(time.Minute)
			for what, c := range map[string]chan error{"Start": started, "Close": closed} {
				select {
				case err := <-c:
					if what == "Start" && !errors.Is(err, engine.ErrClosed) {
						t.Errorf("running %v: Start = %v, want ErrClosed", runs, err)
					}
				default:
					t.Errorf("running %v: %s has not returned a minute after Close", runs, what)
				}
			}
			if t.Failed() {
				f.Close() // lets everybody go
			}
			if runs {
				<-ran
			}
		})
	}
}

// Run, told to stop, lets attempts finish and records their outcome; nothing is
// repeated in the next engine.
func TestGentleStopKeepsOutcomes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		slow := &activity.Activity[string, int]{Name: "slow", Run: func(ctx context.Context, _ string) (int, error) {
			runs.add("slow")
			time.Sleep(5 * time.Second)
			return 1, ctx.Err()
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			n, err := slow.Do(run, "")
			if err != nil {
				return "", err
			}
			m, err := slow.Do(run, "")
			return sprint(n + m), err
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.stop(t)
		if n := runs.of("slow"); n != 1 {
			t.Errorf("%d runs before the stop, want 1: nothing new is begun", n)
		}
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "2" || runs.of("slow") != 2 {
			t.Errorf("result %s after %d runs, want 2 after 2", got, runs.of("slow"))
		}
	})
}

// An attempt that nobody awaits ends with the life of its run. The cause of its context tells why, and no other run is taken to
// have been cut off. ACT-11.
func TestAttemptThatNobodyAwaits(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		causes := make(chan error, 10)
		hang := &activity.Activity[string, string]{Name: "hang", Run: func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "", ctx.Err()
		}}
		ends := flow("ends", nil)
		ends.Func = func(run *engine.Run, in string) (string, error) {
			hang.Go(run, "")
			if err := run.Sleep(time.Second); err != nil { // 2
				return "", err
			}
			switch in {
			case "first":
				return "", engine.ContinueAsNew(run, "")
			case "waits":
				return "", run.Sleep(decade)
			}
			return "", nil
		}
		var attempts tally
		line := &activity.Activity[string, string]{Name: "line", MaxConcurrent: 1, Run: func(ctx context.Context, in string) (string, error) {
			attempts.add(fmt.Sprint(in, " ", activity.InfoFrom(ctx).Attempt))
			time.Sleep(20 * time.Second)
			return "", nil
		}}
		waits := flow("waits", nil)
		waits.Func = func(run *engine.Run, in string) (string, error) { return line.Do(run, in) }
		p := boot(t, s, ends, waits, leases)
		cause := func(what string, want error) {
			t.Helper()
			time.Sleep(5 * time.Second)
			select {
			case err := <-causes:
				if !errors.Is(err, want) {
					t.Errorf("%s: cause %v, want %v", what, err, want)
				}
			default:
				t.Errorf("%s: the attempt goes on", what)
			}
		}
		start(t, ends, p, "continued", "first")
		cause("of a life that has ended", engine.ErrCancelled)
		cause("of a run that has ended", engine.ErrCancelled)
		start(t, ends, p, "terminated", "waits")
		time.Sleep(5 * time.Second)
		if err := p.Terminate(ctx, "terminated", audit); err != nil {
			t.Fatal(err)
		}
		cause("of a run that was terminated", activity.ErrTerminated)
		start(t, waits, p, "first", "first")
		time.Sleep(time.Second)
		start(t, waits, p, "second", "second")
		time.Sleep(14 * time.Second)
		p.stop(t) // the first ends by itself, and the second has not begun
		p = boot(t, s, ends, waits, leases)
		for _, id := range []string{"first", "second"} {
			result(t, waits.Handle(p, id))
		}
		if attempts.of("first 1") != 1 || attempts.of("second 1") != 1 || len(attempts.n) != 2 {
			t.Errorf("attempts %v", attempts.n)
		}
		p.stop(t)
	})
}

// The cause of an attempt's context tells that the engine stops; and the attempt
// that was cut off is counted. ACT-11.
func TestCloseCutsAttemptsOff(t *testing.T) {
	for _, how := range []string{"Close", "StopTimeout"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var causes []error
			var attempts []int
			stuck := &activity.Activity[string, int]{Name: "stuck", Timeout: 24 * time.Hour, Run: func(ctx context.Context, _ string) (int, error) {
				if attempts = append(attempts, activity.InfoFrom(ctx).Attempt); len(attempts) > 1 {
					return 1, nil
				}
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return 0, ctx.Err()
			}}
			wf := flow("w", func(run *engine.Run) (string, error) {
				n, err := stuck.Do(run, "")
				return sprint(n), err
			})
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Second)
			if how == "Close" {
				p.close()
			} else {
				p.stop(t)
			}
			p = boot(t, s, wf)
			if got := result(t, wf.Handle(p, "o")); got != "1" {
				t.Errorf("%s: result %q", how, got)
			}
			if len(causes) != 1 || !errors.Is(causes[0], activity.ErrStopped) {
				t.Errorf("%s: cause %v, want activity.ErrStopped", how, causes)
			}
			if len(attempts) != 2 || attempts[1] != 2 {
				t.Errorf("%s: attempts %v, want 1 and 2", how, attempts)
			}
			if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
				t.Errorf("%s: status %s", how, i.Status)
			}
		})
	}
}

// OW8: what an engine claims in the very moment in which it is told to stop is handed
// over at once, and does not wait for the activities that it lets finish.
func TestStopHandsOverWhatIsBeingClaimed(t *testing.T) {
	for _, what := range []string{"claim", "start"} {
		t.Run(what, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				base := sharing{fresh(t)}
				claiming := make(chan struct{}, 1)
				slow := storagetest.NewFaulty(base, func(c storagetest.Call) storagetest.Fault {
					if slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool {
						return o.Kind == storage.PutOp && strings.HasPrefix(string(o.Key), "held:") && strings.HasSuffix(string(o.Key), ":late")
					}) {
						claiming <- struct{}{}
						time.Sleep(100 * time.Millisecond)
					}
					return storagetest.None
				})
				busy := &activity.Activity[int, int]{Name: "busy", Run: func(context.Context, int) (int, error) {
					time.Sleep(30 * time.Second)
					return 1, nil
				}}
				long := flow("long", func(run *engine.Run) (string, error) { return sprint(busy.Do(run, 1)), nil })
				ran := make(chan time.Time, 1)
				late := flow("late", func(run *engine.Run) (string, error) {
					ran <- time.Now()
					return "x", nil
				})
				patience := func(c *engine.Config) { c.StopTimeout = time.Minute }
				a := bootOn(t, slow, long, late, as("a"), patience)
				start(t, long, a, "long", "")
				time.Sleep(2500 * time.Millisecond)
				by := a.Engine
				if what == "claim" { // a finds it
					by = made(t, base, long, late)
					defer by.Close()
				}
				go late.Start(ctx, by, "late", "")
				<-claiming
				go a.stop(t)
				told := time.Now()
				boot(t, base, long, late, as("b"), patience)
				if waited := (<-ran).Sub(told); waited > 3*time.Second {
					t.Errorf("it ran elsewhere after %v", waited)
				}
				time.Sleep(time.Minute) // a has stopped
			})
		})
	}
}

// No batch is larger than the store takes.
func TestBatchesOfASmallStore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: 100, Bytes: 1 << 20}}
		s.beforeCommit = func(b storage.Batch) {
			if appendsTo(b, "o") {
				time.Sleep(time.Millisecond) // in which answers come together
			}
		}
		big := &activity.Activity[string, string]{Name: "big", Run: func(context.Context, string) (string, error) {
			time.Sleep(time.Second)
			return strings.Repeat("x", 200<<10), nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			var last *future.Future[string]
			for range 10 {
				last = big.Go(run, "")
			}
			if _, err := last.Get(run); err != nil {
				return "", err
			}
			for range 200 {
				if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		p := boot(t, s, wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "done" {
			t.Errorf("result %q", got)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
}

// An engine that could not sign off at the first attempt does so at the next:
// the incarnation that follows in the same process goes on with its runs.
func TestSignOffIsRepeated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var armed atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) { return "woke", run.Sleep(time.Minute) })
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "eng:") && armed.CompareAndSwap(true, false) {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		e := made(t, f, wf)
		defer e.Close()
		for range 2 {
			ctx, cancel := context.WithCancel(ctx)
			ran := make(chan error, 1)
			go func() { ran <- e.Run(ctx) }()
			start(t, wf, e, "o", "")
			time.Sleep(time.Second)
			armed.Store(true)
			cancel()
			if err := <-ran; err != nil {
				t.Fatal(err)
			}
		}
		go e.Run(ctx)
		if got := result(t, wf.Handle(e, "o")); got != "woke" {
			t.Errorf("result %q", got)
		}
	})
}

// An engine that is told to stop waits for what is under way without turning in
// circles about what it does not begin any more.
func TestStopWhileARetryIsDue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		slow := &activity.Activity[string, string]{Name: "slow", Run: func(context.Context, string) (string, error) {
			time.Sleep(5 * time.Second)
			return "slow", nil
		}}
		flaky := &activity.Activity[string, string]{Name: "flaky", Retry: activity.Retry{Backoff: time.Second, MaxBackoff: time.Second}, Run: func(ctx context.Context, _ string) (string, error) {
			if activity.InfoFrom(ctx).Attempt == 1 {
				return "", errBroke
			}
			return "flaky", nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			a, b := slow.Go(run, ""), flaky.Go(run, "")
			x, err := a.Get(run)
			y, e := b.Get(run)
			return x + y, errors.Join(err, e)
		})
		store := fresh(t)
		p := boot(t, store, wf)
		start(t, wf, p, "w", "")
		time.Sleep(100 * time.Millisecond)
		p.stop(t)
		p = boot(t, store, wf)
		if got := result(t, wf.Handle(p, "w")); got != "slowflaky" {
			t.Errorf("got %q", got)
		}
	})
}
