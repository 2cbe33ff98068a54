package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A countsReads counts the reads of a key.
type countsReads struct {
	storage.Storage
	of []byte
	n  atomic.Int32
}

func (s *countsReads) Unwrap() storage.Storage { return s.Storage }

func (s *countsReads) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.Equal(key, s.of) {
		s.n.Add(1)
	}
	return s.Storage.Get(ctx, key)
}

// Who waits for the result of a run keeps no former execution of it in memory: neither one of an earlier life, nor one that
// was parked. And who waited since the first life is told the end of the last: the store is not read.
func TestWaiterKeepsNoFormerExecution(t *testing.T) {
	for _, name := range []string{"lives", "parks"} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				const times = 5
				wf := &engine.Workflow[int, string]{Name: "long", Func: func(run *engine.Run, n int) (string, error) {
					if err := run.Sleep(time.Minute); err != nil {
						return "", err
					}
					switch {
					case n == times:
						return "done", nil
					case name == "lives":
						return "", engine.ContinueAsNew(run, n+1)
					}
					for range times {
						if err := run.Sleep(time.Minute); err != nil {
							return "", err
						}
					}
					return "done", nil
				}}
				s := &countsReads{Storage: fresh(t), of: keys.Output("o")}
				p := boot(t, s, wf, func(c *engine.Config) {
					if name == "parks" {
						c.ParkAfter = 10 * time.Second
					}
				})
				h := start(t, wf, p, "o", 0)
				got := make(chan string, 1)
				go func() {
					out, err := outcome(h)
					if err != nil {
						out = err.Error()
					}
					got <- out
				}()
				former := map[any]func() bool{}
				for range times {
					synctest.Wait()
					x := engine.InMemory(p.Engine, "o")
					if x == nil {
						t.Fatal("the run is not in memory")
					}
					kept := weak.Make(x)
					former[kept] = func() bool { return kept.Value() != nil }
					x = nil
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				if len(former) != times {
					t.Fatalf("%d executions", len(former))
				}
				runtime.GC()
				for _, is := range former {
					if is() {
						t.Error("an execution is kept in memory")
					}
				}
				if got := <-got; got != "done" {
					t.Errorf("the result is %s", got)
				}
				if n := s.n.Load(); name == "lives" && n != 0 {
					t.Errorf("the output was read %d times", n)
				}
				p.stop(t)
			})
		})
	}
}

// An attempt of the first life that does not return keeps none of the later lives in memory, but for the present one.
func TestAttemptOfTheFirstLifeKeepsNoLaterOne(t *testing.T) {
	virtual(t, func(t *testing.T) {
		free := make(chan bool)
		deaf := &activity.Activity[int, int]{Name: "deaf", Run: func(ctx context.Context, n int) (int, error) {
			<-free
			return n, nil
		}}
		const times = 5
		wf := again("long", times, func(run *engine.Run, life int) error {
			if life == 0 {
				deaf.Go(run, life)
			}
			return run.Sleep(time.Minute)
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", 0)
		var lives []weak.Pointer[run.Execution]
		for range times {
			synctest.Wait()
			lives = append(lives, weak.Make(engine.InMemory(p.Engine, "o")))
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		runtime.GC()
		for i, life := range lives[1:] {
			if life.Value() != nil {
				t.Errorf("life %d is kept in memory", i+1)
			}
		}
		close(free)
		result(t, h)
	})
}

// A reset, or a takeover, by another engine ends the attempts of the engine that has lost the run, whether its function waits
// for them or blocks. The cause is that of a lost lease, and not that of a termination.
func TestCauseOfAnAttemptWhoseRunIsResetElsewhere(t *testing.T) {
	for _, name := range []string{"waits", "blocks", "step"} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				hold := make(chan bool)
				causes := make(chan error, 10)
				until := func(ctx context.Context, n int) (int, error) {
					select {
					case <-ctx.Done():
						causes <- context.Cause(ctx)
						return 0, context.Cause(ctx)
					case <-hold:
						return n, nil
					}
				}
				work := &activity.Activity[int, int]{Name: "work", Run: until}
				wf := flow("works", func(run *engine.Run) (string, error) {
					if err := run.Sleep(time.Second); err != nil {
						return "", err
					}
					if name == "step" { // nothing but a look at the run notices that another engine has it
						_, err := engine.Step(run, "step", func(ctx context.Context) (int, error) { return until(ctx, 1) })
						return "done", err
					}
					f := work.Go(run, 1)
					if err := run.Sleep(time.Second); err != nil {
						return "", err
					}
					if name == "blocks" {
						<-hold
					}
					_, err := f.Get(run)
					return "done", err
				})
				full := func(c *engine.Config) { c.MaxRunsInMemory = 1 } // it does not claim the run again by itself
				p := boot(t, sharing{s}, wf, leases, full)
				h := start(t, wf, p, "o", "")
				time.Sleep(5 * time.Second)
				var other *process
				if name == "step" {
					other = boot(t, sharing{s}, wf, leases)
				}
				if err := made(t, sharing{s}).Reset(ctx, "o", "1", audit); err != nil {
					t.Fatal(err)
				}
				if cause := <-causes; !errors.Is(cause, activity.ErrLeaseLost) || errors.Is(cause, activity.ErrTerminated) {
					t.Errorf("the attempt was told %v, want ErrLeaseLost", cause)
				}
				close(hold)
				result(t, h)
				if other != nil {
					other.stop(t)
				}
				p.stop(t)
			})
		})
	}
}

// The function of a run blocks, and another process terminates the run. Who waits for its result is told so as soon as its
// engine hears of it, and so is who asks after that.
func TestResultOfARunThatBlocksAndIsTerminatedElsewhere(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		hold := make(chan bool)
		wf := flow("blocks", func(*engine.Run) (string, error) {
			<-hold
			return "", nil
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		before := make(chan error, 1)
		go func() { before <- outcomeOf(h) }()
		time.Sleep(5 * time.Second)
		if err := made(t, s).Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-before; !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("who had asked before the termination got %v", err)
		}
		if err := outcomeOf(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("who asked after it got %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("they waited for %v", took)
		}
		close(hold)
		p.stop(t)
	})
}

// Describe does not say what a former execution waits for, which still waits here.
func TestDescribeAsksNoFormerExecution(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		approve := &signal.Signal[string]{Name: "approve"}
		wf := flow("w", func(run *engine.Run) (string, error) { return approve.Receive(run) })
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		synctest.Wait()
		if i := describe(t, p, "o"); !slices.Contains(i.Waiting, "receive approve") {
			t.Fatalf("it waits for %q", i.Waiting)
		}
		other := made(t, s, wf)
		if err := other.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if err := other.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		start(t, wf, other, "o", "")
		if i := describe(t, p, "o"); len(i.Waiting) != 0 {
			t.Errorf("the run that nobody has begun waits for %q", i.Waiting)
		}
		p.stop(t)
	})
}

// An attempt of a purged workflow does not return. A start with its id whose caller has given up is executed all the same.
func TestStartInDoubtBesideAnAttemptOfAPurgedRun(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		hold := make(chan bool)
		stuck := &activity.Activity[string, string]{Name: "stuck", Run: func(context.Context, string) (string, error) {
			<-hold
			return "", nil
		}}
		wf := &engine.Workflow[string, string]{Name: "w", Func: func(run *engine.Run, in string) (string, error) {
			if in == "stuck" {
				return stuck.Do(run, in)
			}
			return "done", nil
		}}
		late := commitsLate(s, func(b storage.Batch) bool { return writes(b, "wf:o:in") && !creates(keys.Workflow("o"))(b) })
		p := boot(t, late, wf)
		start(t, wf, p, "o", "stuck")
		time.Sleep(time.Second)
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		abandoned, abandon := context.WithCancel(ctx)
		started := make(chan error, 1)
		go func() {
			_, err := wf.Start(abandoned, p, "o", "")
			started <- err
		}()
		<-late.sent
		abandon()
		if err := <-started; !errors.Is(err, context.Canceled) {
			t.Errorf("start: %v, want that its outcome is unknown", err)
		}
		close(late.landing)
		if err := <-late.landed; err != nil {
			t.Fatalf("the late start: %v", err)
		}
		time.Sleep(10 * time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("the run that was started is %s", i.Status)
		}
		close(hold)
		p.stop(t)
	})
}

// A failsStarts does not commit starts while it fails, and counts the reads of workflows.
type failsStarts struct {
	storage.Storage
	fails atomic.Pointer[error]
	reads atomic.Int32
}

func (s *failsStarts) Unwrap() storage.Storage { return s.Storage }

func (s *failsStarts) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.HasPrefix(key, []byte("wf:")) {
		s.reads.Add(1)
	}
	return s.Storage.Get(ctx, key)
}

func (s *failsStarts) Commit(ctx context.Context, b storage.Batch) error {
	if err := s.fails.Load(); err != nil && writes(b, "wf:") {
		<-ctx.Done()
		return *err
	}
	return s.Storage.Commit(ctx, b)
}

// failing starts workflows all at once, each of which fails with err after five seconds.
func (s *failsStarts) failing(t testing.TB, p *process, wf *engine.Workflow[string, string], starts int, err error) {
	t.Helper()
	s.fails.Store(&err)
	defer s.fails.Store(nil)
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range starts {
		all.Go(func() {
			if _, err := wf.Start(within, p, fmt.Sprint(i), ""); err == nil {
				t.Error("a start has not failed")
			}
		})
	}
	all.Wait()
}

// Starts that fail cost little after the store is back: the engine reads for the first thousand of them, less and less often.
// If a start was certainly not written, it reads nothing.
func TestStartsThatFailCostLittleLater(t *testing.T) {
	const starts = 1500
	for _, c := range []struct {
		name  string
		err   error
		reads int32
	}{
		{"of unknown outcome", errors.New("connection lost"), 12_000},
		{"withdrawn", &storage.WithdrawnError{Ended: context.DeadlineExceeded}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				wf := flow("w", func(*engine.Run) (string, error) { return "done", nil })
				s := &failsStarts{Storage: fresh(t)}
				p := boot(t, s, wf, func(c *engine.Config) { c.MaxRunsInMemory = starts })
				s.failing(t, p, wf, starts, c.err)
				s.reads.Store(0)
				time.Sleep(5 * time.Minute)
				if n := s.reads.Load(); n > c.reads {
					t.Errorf("%d reads in five minutes", n)
				}
				if got := result(t, start(t, wf, p, "o", "")); got != "done" {
					t.Errorf("the result is %s", got)
				}
				p.stop(t)
			})
		})
	}
}

// mendable is a workflow that is held until it is mended.
func mendable(mended *atomic.Bool) *engine.Workflow[string, string] {
	return flow("mendable", func(run *engine.Run) (string, error) {
		act := counting(new(tally), "act")
		if !mended.Load() {
			act.Retry.Backoff = -1
		}
		if _, err := act.Do(run, ""); err != nil {
			return "", err
		}
		return "done", nil
	})
}

// A held run is resumed at once, however many starts have failed before.
func TestResumeBesideStartsThatFail(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const starts = 1500
		var mended atomic.Bool
		held := mendable(&mended)
		wf := flow("w", func(*engine.Run) (string, error) { return "done", nil })
		s := &failsStarts{Storage: fresh(t)}
		p := boot(t, s, wf, held, func(c *engine.Config) { c.MaxRunsInMemory = starts })
		h := start(t, held, p, "held", "")
		eventually(t, "it is held", func() bool { return len(describe(t, p, "held").Attention) > 0 })
		s.failing(t, p, wf, starts, errors.New("connection lost"))
		mended.Store(true)
		began := time.Now()
		if err := p.Resume(ctx, "held", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "done" || time.Since(began) > 5*time.Second {
			t.Errorf("the result is %s, after %v", got, time.Since(began))
		}
		p.stop(t)
	})
}

// A run is looked at although many others, whose ids are before its, cannot be read.
func TestResumeBesideRunsThatCannotBeRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const many = 15
		var mended, resuming atomic.Bool
		bad := map[string]bool{}
		s := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && bad[string(c.Key)] {
				return storagetest.ErrorBefore
			}
			for _, op := range c.Batch.Ops { // what is resumed cannot be read from then on
				if resuming.Load() && bytes.HasPrefix(op.Key, []byte("wf:a")) {
					bad[string(op.Key)] = true
				}
			}
			return storagetest.None
		})
		held := mendable(&mended)
		p := bootOn(t, s, held)
		ids := []string{"z"}
		for i := range many {
			ids = append(ids, fmt.Sprintf("a%02d", i))
		}
		for _, id := range ids {
			start(t, held, p, id, "")
			eventually(t, "it is held", func() bool { return len(describe(t, p, id).Attention) > 0 })
		}
		mended.Store(true)
		resuming.Store(true)
		for _, id := range ids[1:] {
			if err := p.Resume(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := p.Resume(ctx, "z", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, held.Handle(p, "z")); got != "done" || time.Since(began) > time.Minute {
			t.Errorf("the result is %s, after %v", got, time.Since(began))
		}
		if len(bad) != many {
			t.Errorf("%d runs could not be read, want %d", len(bad), many)
		}
		p.kill()
	})
}

// The store goes away while a start tries to find out whether it was written. Run, told to stop, does not wait for that.
func TestRunReturnsWhileAStartReads(t *testing.T) {
	virtual(t, func(t *testing.T) {
		away := false
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			switch {
			case away && c.Method != "Commit":
				return storagetest.ErrorBefore
			case c.Method == "Commit" && creates(keys.Workflow("o"))(c.Batch) && !away:
				away = true
				return storagetest.ErrorAfter
			}
			return storagetest.None
		})
		wf := flow("w", nil2)
		p := bootOn(t, f, wf)
		started := make(chan error, 1)
		go func() {
			_, err := wf.Start(ctx, p, "o", "")
			started <- err
		}()
		time.Sleep(time.Minute)
		p.end()
		time.Sleep(10 * time.Minute)
		select {
		case err := <-p.done:
			p.done <- err
		default:
			t.Error("Run has not returned")
			p.Close()
		}
		if err, i := <-started, (*engine.InterruptedError)(nil); !errors.As(err, &i) || !i.Unknown {
			t.Errorf("Start = %v, want that its outcome is unknown", err)
		}
		p.stop(t)
	})
}
