package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

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
				if err := b.Cancel(ctx, "enough"); err != nil {
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

// A parent of more children than its parking can be conditional on stays in
// memory, and rests there.
func TestParentOfTooManyToBeParked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "child", 0, make([]string, 1001), func(run *engine.Run, s string) (string, error) { return sub.Do(run, s) })
			return fmt.Sprint(len(out)), err
		})
		p := boot(t, fresh(t), wf, sub, parkAfter(-1))
		ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
		defer cancel()
		if got, err := start(t, wf, p, "p", "").Result(ctx); got != "1001" || err != nil {
			t.Errorf("got %q, %v", got, err)
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

// A request to stop is ErrCancelled also inside of a time limit, for each of the
// operations in it and for those to come.
func TestCancelInsideATimeLimit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("limit", func(run *engine.Run) (string, error) {
			short := run.WithTimeout(time.Hour)
			nap := func(run *engine.Run) (any, error) { return nil, run.Sleep(30 * time.Minute) }
			a, b := engine.Go(short, "a", nap), engine.Go(short, "b", nap)
			_, errA := a.Get(short)
			_, errB := b.Get(short)
			next := short.Sleep(time.Second)
			if !errors.Is(errA, engine.ErrCancelled) || !errors.Is(errB, engine.ErrCancelled) || !errors.Is(next, engine.ErrCancelled) {
				t.Errorf("got %v, %v, %v", errA, errB, next)
			}
			return "", next
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "l", "")
		time.Sleep(time.Minute)
		if err := h.Cancel(ctx, "enough"); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("got %v", err)
		}
	})
}

// Two children with one id, begun together: the first has it.
func TestChildrenOfOneID(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := &engine.Workflow[string, string]{Name: "sub", Func: func(run *engine.Run, s string) (string, error) { return s, run.Sleep(time.Minute) }}
		wf := flow("parent", func(run *engine.Run) (string, error) {
			kid := sub.With(engine.StartOptions{ChildID: "kid"})
			a, b := kid.Go(run, "first"), kid.Go(run, "second")
			_, second := b.Get(run)
			first, err := a.Get(run)
			return fmt.Sprint(first, errors.Is(second, engine.ErrExists)), err
		})
		p := boot(t, fresh(t), wf, sub)
		if got := result(t, start(t, wf, p, "p", "")); got != "firsttrue" {
			t.Errorf("got %q", got)
		}
	})
}

// A passing fault of the store while a child is asked to stop is waited out.
func TestDismissalOutlastsFaults(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(100 * time.Hour) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			_, err := sub.With(engine.StartOptions{ChildID: "kid"}).Do(run.WithTimeout(time.Minute), "")
			return fmt.Sprint(errors.Is(err, engine.ErrTimeout)), nil
		})
		faults, begun := 0, time.Now()
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && string(c.Key) == "wf:kid" && time.Since(begun) >= time.Minute && faults < 3 {
				faults++
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		p := bootOn(t, f, wf, sub)
		if got := result(t, start(t, wf, p, "p", "")); got != "true" || faults != 3 {
			t.Errorf("got %q; %d faults", got, faults)
		}
		if err := p.Result(ctx, "", "kid", nil); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("child: %v", err)
		}
	})
}

// A run that dismisses a child again after a restart asks that child to stop, and
// not another workflow that has the id by now.
func TestDismissalMeansTheChild(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "slept", run.Sleep(30 * time.Minute) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			_, err := sub.With(engine.StartOptions{ChildID: "kid"}).Do(run.WithTimeout(time.Minute), "")
			if !errors.Is(err, engine.ErrTimeout) {
				return "", err
			}
			return yes.Receive(run)
		})
		store := fresh(t)
		p := boot(t, store, wf, sub)
		start(t, wf, p, "p", "")
		time.Sleep(2 * time.Minute)
		if err := p.Result(ctx, "", "kid", nil); !errors.Is(err, engine.ErrCancelled) {
			t.Fatal(err)
		}
		if err := p.Purge(ctx, "kid", audit); err != nil {
			t.Fatal(err)
		}
		start(t, sub, p, "kid", "")
		time.Sleep(time.Second)
		p.kill()
		p = boot(t, store, wf, sub)
		time.Sleep(time.Second)
		tell(t, yes, p, "p", "ann")
		if got := result(t, wf.Handle(p, "p")); got != "ann" {
			t.Errorf("parent: %q", got)
		}
		h := sub.Handle(p, "kid")
		if got := result(t, h); got != "slept" {
			t.Errorf("got %q", got)
		}
	})
}

// A child that outlives the function is started also when the function returns
// before it was.
func TestChildrenOfAParentThatReturnsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		onEnd engine.ParentEnd
		there bool
		took  time.Duration
	}{
		"cancel":  {engine.CancelChild, false, 0},
		"abandon": {engine.AbandonChild, true, 0},
		"await":   {engine.AwaitChild, true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Minute) })
				wf := flow("parent", func(run *engine.Run) (string, error) {
					sub.With(engine.StartOptions{ChildID: "kid", OnParentEnd: c.onEnd}).Go(run, "")
					return "over", nil
				})
				p := boot(t, fresh(t), wf, sub)
				begun := time.Now()
				if got := result(t, start(t, wf, p, "p", "")); got != "over" {
					t.Errorf("got %q", got)
				}
				if took := time.Since(begun).Round(time.Second); took != c.took {
					t.Errorf("took %v", took)
				}
				time.Sleep(time.Hour)
				i, err := p.Describe(ctx, "kid")
				if there := err == nil; there != c.there || there && i.Status != checkpoint.Completed {
					t.Errorf("child: %+v, %v", i, err)
				}
			})
		})
	}
}

// SG5: a signal that its receiver has no use for any more goes to the next
// receiver, before those that were accepted after it.
func TestSignalThatIsPutBackComesFirst(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			inner, cancel := run.WithCancel()
			said := ""
			receive := func(name string) func(run *engine.Run) (any, error) {
				return func(run *engine.Run) (any, error) {
					v, err := yes.Receive(run)
					if err == nil {
						said += name + v + " "
					}
					if v == "1" {
						cancel()
					}
					return nil, err
				}
			}
			engine.Go(run, "a", receive("a"))
			engine.Go(inner, "b", receive("b"))
			_, err := engine.Go(run, "c", receive("c")).Get(run)
			return said, err
		})
		s := fresh(t)
		p := boot(t, s, wf)
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		p.stop(t)
		e := made(t, s)
		for _, v := range []string{"1", "2", "3"} {
			tell(t, yes, e, "w", v)
		}
		e.Close()
		p = boot(t, s, wf)
		h := wf.Handle(p, "w")
		if got := result(t, h); got != "a1 c2 " {
			t.Errorf("got %q", got)
		}
	})
}

// What was to begin and is not any more does not keep a run in memory.
func TestChildThatIsNotBegunDoesNotKeepItsParent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", nil })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil }); err != nil {
				return "", err
			}
			_, err := sub.Do(run, "")
			if !errors.Is(err, engine.ErrCancelled) {
				return "not cancelled", nil
			}
			return yes.Receive(run.WithoutCancel())
		})
		h := &hooked{Storage: fresh(t)}
		var p *process
		h.beforeCommit = func(b storage.Batch) {
			if touches(b, "wf:p:ckpt:") && touches(b, "kid:p:") {
				h.beforeCommit = nil
				if err := p.Cancel(ctx, "p", "enough"); err != nil {
					t.Error(err)
				}
			}
		}
		p = boot(t, h, wf, sub, parkAfter(time.Second))
		handle := start(t, wf, p, "p", "")
		time.Sleep(time.Minute)
		if n := engine.Runs(p.Engine); n != 0 {
			t.Errorf("%d runs in memory", n)
		}
		tell(t, yes, p, "p", "ann")
		if got := result(t, handle); got != "ann" {
			t.Errorf("got %q", got)
		}
	})
}

// A parent's records of children that it has given up go when it learns of them,
// and are not read again and again.
func TestRecordsOfGivenUpChildrenGo(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			last := sub.Go(run, "")
			for range 10 {
				if _, err := sub.Do(run.WithTimeout(time.Second), ""); !errors.Is(err, engine.ErrTimeout) {
					return "", err
				}
			}
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			return last.Get(run)
		})
		s := fresh(t)
		p := boot(t, s, wf, sub)
		h := start(t, wf, p, "p", "")
		time.Sleep(2 * time.Minute)
		if left := entries(t, s, "kid:"); len(left) != 1 {
			t.Errorf("%d records of children, want that of one", len(left))
		}
		_ = result(t, h)
	})
}

// What the store can take at once bounds how many children are born at once, and
// how many of them parking is conditional on.
func TestChildrenOnASmallStore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "child", 0, make([]string, 200), func(run *engine.Run, s string) (string, error) { return sub.Do(run, s) })
			return fmt.Sprint(len(out)), err
		})
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: 100, Bytes: 1 << 20}}
		p := boot(t, s, wf, sub, parkAfter(time.Second))
		ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
		defer cancel()
		if got, err := start(t, wf, p, "p", "").Result(ctx); got != "200" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// A child's id whose record is lost, and not all that belonged to it, is damage:
// the parent is held, and does not try for ever.
func TestChildIDOfADamagedWorkflow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", nil })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			return sub.With(engine.StartOptions{ChildID: "kid"}).Do(run, "")
		})
		s := fresh(t)
		put(t, s, []byte("wf:kid:in"), []byte("left over"))
		p := boot(t, s, wf, sub)
		start(t, wf, p, "p", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "p"); !heldFor(i, engine.Damaged) {
			t.Errorf("got %+v", i)
		}
	})
}

// A loop around Select costs a replay no memory, however often it went round.
func TestReplayOfALongLoopKeepsNothing(t *testing.T) {
	const rounds = 20_000
	var grown atomic.Int64 // between the 1,000th round and the last
	wf := flow("loop", func(run *engine.Run) (string, error) {
		kept, early := run.Cancelled(), int64(0)
		for i := range rounds {
			if i == 1000 {
				early = heap()
			}
			zero, never := run.After(0), run.After(time.Hour)
			first, err := engine.Select(run, zero, never, yes.Next(run), kept)
			if err != nil || first != engine.Case(zero) {
				return "", fmt.Errorf("round %d: %v, %w", i, first, err)
			}
		}
		grown.Store(heap() - early)
		return yes.Receive(run)
	})
	virtual(t, func(t *testing.T) {
		store := fresh(t)
		p := boot(t, store, wf)
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		if n := grown.Load(); n == 0 || n > rounds*2500 { // the store is in memory
			t.Errorf("heap has grown by %d KiB", n>>10)
		}
		p.kill()
		grown.Store(0)
		boot(t, store, wf)
		time.Sleep(time.Second)
		if n := grown.Load(); n == 0 || n > 2<<20 {
			t.Errorf("in the replay the heap has grown by %d KiB", n>>10)
		}
	})
}

// The end of a scope in which nothing is under way costs nothing, with however many
// branches beside it.
func TestManyScopes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("many", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "part", 0, make([]int, 10_000), func(run *engine.Run, i int) (int, error) {
				inner, cancel := run.WithCancel()
				defer cancel()
				return i, inner.Sleep(time.Second)
			})
			return fmt.Sprint(len(out)), err
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "m", "")); got != "10000" {
			t.Errorf("got %q", got)
		}
	})
}

// A workflow that cannot be claimed does not keep those behind it from the last
// place in memory, nor the engine busy.
func TestLastPlaceIsForWhoCanBeClaimed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Second) })
		s := fresh(t)
		e := made(t, s, wf)
		for _, id := range []string{"a", "b", "c", "d"} {
			start(t, wf, e, id, "")
			time.Sleep(time.Second)
		}
		e.Close()
		for _, id := range []string{"a", "b"} {
			put(t, s, []byte("wf:"+id), []byte("damaged"))
		}
		var read atomic.Int32
		h := &hooked{Storage: s, afterGet: func(key []byte) {
			if string(key) == "wf:a" {
				read.Add(1)
			}
		}}
		p := boot(t, h, wf, func(c *engine.Config) { c.MaxRuns = 1 })
		for _, id := range []string{"c", "d"} {
			if got := result(t, wf.Handle(p, id)); got != "done" {
				t.Errorf("%s: got %q", id, got)
			}
		}
		time.Sleep(time.Minute)
		if n := read.Load(); n > 200 { // it is looked at with every poll
			t.Errorf("a damaged record was read %d times in a minute", n)
		}
	})
}

// transacting is a store in memory with transactions: of nothing but the batch.
type transacting struct{ storage.Storage }

func (s transacting) Unwrap() storage.Storage { return s.Storage }

func (s transacting) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	b, err := f(ctx)
	if err != nil {
		return err
	}
	return s.Commit(ctx, b)
}

// A function in a transaction that does not heed its context is left behind, as any
// other.
func TestTransactThatDoesNotComeBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		let := make(chan struct{})
		wf := flow("w", func(run *engine.Run) (string, error) {
			n := 0
			return fmt.Sprint(n), run.TransactStep("deaf", &n, func(context.Context) error { <-let; return nil })
		})
		s := fresh(t)
		p := boot(t, transacting{s}, wf)
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		p.close()
		close(let)
		time.Sleep(time.Second)
		for _, c := range historyOf(t, made(t, s), "w") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.Ended {
					t.Error("it went on after the engine was closed")
				}
			}
		}
	})
}

// Coming back takes nothing back but that the function was stuck, and a report that
// is late does not stay.
func TestStuckFunctionComesBack(t *testing.T) {
	for name, late := range map[string]bool{"": false, "as it is reported": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				act := puzzling(new(atomic.Bool))
				wf := flow("w", func(run *engine.Run) (string, error) {
					act.Go(run, "key")
					if err := run.Sleep(24 * time.Hour); err != nil {
						return "", err
					}
					time.Sleep(45 * time.Second)
					return yes.Receive(run)
				})
				s := &hooked{Storage: fresh(t)}
				reported := 0
				s.beforeCommit = func(b storage.Batch) {
					if touches(b, "wf:w") && !touches(b, "wf:w:") {
						if reported++; late {
							time.Sleep(time.Minute)
						}
					}
				}
				p := boot(t, s, wf)
				start(t, wf, p, "w", "")
				time.Sleep(23 * time.Hour)
				if i := describe(t, p, "w"); !heldFor(i, engine.Indeterminate) {
					t.Fatalf("got %+v", i)
				}
				time.Sleep(2 * time.Hour)
				if i := describe(t, p, "w"); !heldFor(i, engine.Indeterminate) || heldFor(i, engine.Stuck) || reported == 0 {
					t.Errorf("got %+v; reported %d times", i, reported)
				}
			})
		})
	}
}

// The function of WithCancel is for the branches of the run. An activity that calls
// it meddles with nothing, and that is told.
func TestCancelFromAnActivity(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(lines)
		wf := flow("w", func(run *engine.Run) (string, error) {
			inner, cancel := run.WithCancel()
			nap := engine.Go(inner, "nap", func(run *engine.Run) (string, error) { return "slept", run.Sleep(time.Minute) })
			if _, err := engine.Step(run, "meddles", func(context.Context) (int, error) {
				time.Sleep(time.Second)
				cancel()
				return 1, nil
			}); err != nil {
				return "", err
			}
			return nap.Get(run)
		})
		p := boot(t, fresh(t), wf, log.logger())
		if got := result(t, start(t, wf, p, "w", "")); got != "slept" || log.count("was cancelled from outside") != 1 {
			t.Errorf("got %q; told %d times", got, log.count("was cancelled from outside"))
		}
	})
}
