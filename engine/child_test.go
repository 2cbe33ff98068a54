package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A child's start and its parent's checkpoint are one commit; its id is derived,
// and the same after a crash; its end wakes the parent.
func TestChild(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := &engine.Workflow[int, int]{Name: "sub", Func: func(run *engine.Run, i int) (int, error) {
			return i * i, run.Sleep(time.Minute)
		}}
		wf := flow("parent", func(run *engine.Run) (string, error) {
			a, err := sub.Do(run, 3)
			if err != nil {
				return "", err
			}
			b, err := sub.Do(run, 4)
			return fmt.Sprint(a, b), err
		})
		store := fresh(t)
		p := boot(t, store, wf, sub)
		begun := time.Now()
		h := start(t, wf, p, "p", "")
		if got := result(t, h); got != "9 16" {
			t.Errorf("got %q", got)
		}
		if took := time.Since(begun); took > 2*time.Minute+100*time.Millisecond {
			t.Errorf("took %v: the parent was not woken", took)
		}
		var kids []string
		for _, c := range historyOf(t, p.Engine, "p") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindStarted {
					kids = append(kids, e.Child)
				}
			}
		}
		if len(kids) != 2 || kids[0] == kids[1] {
			t.Fatalf("children: %v", kids)
		}
		for _, id := range kids {
			if i := describe(t, p, id); i.Parent != "p" || i.Status != checkpoint.StatusCompleted {
				t.Errorf("child: %+v", i)
			}
		}
		if left := entries(t, store, "kid:"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// What a child came to is its parent's to tell apart.
func TestChildFails(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) {
			return "", fmt.Errorf("today: %w", errBroke)
		})
		sub.Errors = []error{errBroke}
		sleeper := flow("sleeper", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			_, failed := sub.Do(run, "")
			var w *engine.WorkflowError
			named := sleeper.AsChild(engine.ChildOptions{ID: "sleeper"})
			_, cancelled := named.Do(run, "")
			_, taken := named.Do(run, "")
			_, long := sleeper.AsChild(engine.ChildOptions{ID: strings.Repeat("x", 201)}).Do(run, "")
			return fmt.Sprint(errors.Is(failed, errBroke), errors.As(failed, &w),
				errors.Is(cancelled, engine.ErrCancelled), errors.Is(taken, engine.ErrExists), errors.Is(long, engine.ErrInvalid)), nil
		})
		store := fresh(t)
		p := boot(t, store, wf, sub, sleeper)
		h := start(t, wf, p, "p", "")
		time.Sleep(time.Minute)
		if err := p.Cancel(ctx, "sleeper", engine.Actor{Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "true true true true true" {
			t.Errorf("got %q", got)
		}
	})
}

// Cancellation reaches the children, and what becomes of them at the parent's end
// is a choice.
func TestEndOfParent(t *testing.T) {
	for name, c := range map[string]struct {
		onEnd        engine.ParentEnd
		cancel       bool
		child, whole string
	}{
		"cancel":              {engine.ParentEndCancel, false, "cancelled", "completed"},
		"abandon":             {engine.ParentEndAbandon, false, "completed", "completed"},
		"await":               {engine.ParentEndAwait, false, "completed", "completed"},
		"cancelled: cancel":   {engine.ParentEndCancel, true, "cancelled", "cancelled"},
		"cancelled: abandon":  {engine.ParentEndAbandon, true, "completed", "cancelled"},
		"cancelled: await it": {engine.ParentEndAwait, true, "cancelled", "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
				wf := flow("parent", func(run *engine.Run) (string, error) {
					f := sub.AsChild(engine.ChildOptions{ID: "kid", OnParentEnd: c.onEnd}).Go(run, "")
					if c.cancel {
						return f.Get(run)
					}
					return "", run.Sleep(time.Minute)
				})
				p := boot(t, fresh(t), wf, sub)
				h := start(t, wf, p, "p", "")
				time.Sleep(30 * time.Second)
				if c.cancel {
					if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = outcome(h)
				time.Sleep(time.Second)
				awaited := c.onEnd == engine.ParentEndAwait && !c.cancel
				if i := describe(t, p, "kid"); awaited != (i.Status == checkpoint.StatusCompleted) {
					t.Errorf("when the parent has ended the child is %s", i.Status)
				}
				time.Sleep(time.Hour)
				if i := describe(t, p, "kid"); string(i.Status) != c.child {
					t.Errorf("child: %s, want %s", i.Status, c.child)
				}
				if i := describe(t, p, "p"); string(i.Status) != c.whole {
					t.Errorf("parent: %s, want %s", i.Status, c.whole)
				}
			})
		})
	}
}

// Interleaving 33, second half: a child is purged before its parent has looked.
// What it came to is with the parent.
func TestChildIsPurgedBeforeItsParentLooked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "from the dead", run.Sleep(time.Minute) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			f := sub.AsChild(engine.ChildOptions{ID: "kid"}).Go(run, "")
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			return f.Get(run)
		})
		store := fresh(t)
		both := boot(t, store, wf, sub)
		start(t, wf, both, "p", "")
		time.Sleep(10 * time.Second)
		both.kill()
		one := boot(t, store, sub) // knows the child's type only
		if err := one.Result(ctx, "kid", "sub", nil); err != nil {
			t.Fatal(err)
		}
		if err := one.Purge(ctx, "kid", audit); err != nil {
			t.Fatal(err)
		}
		one.stop(t)
		both = boot(t, store, wf, sub)
		h := wf.Handle(both, "p")
		if got := result(t, h); got != "from the dead" {
			t.Errorf("got %q", got)
		}
	})
}

// A thousand children are started and awaited in a handful of commits of the
// parent's.
func TestManyChildren(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 1000
		echo := &activity.Activity[int, int]{Name: "echo", Run: func(_ context.Context, i int) (int, error) { return i, nil }}
		sub := &engine.Workflow[int, int]{Name: "sub", Func: func(run *engine.Run, i int) (int, error) { return echo.Do(run, i) }}
		wf := flow("parent", func(run *engine.Run) (string, error) {
			in := make([]int, n)
			for i := range in {
				in[i] = i
			}
			out, err := engine.Map(run, "child", 0, in, func(run *engine.Run, i int) (int, error) { return sub.Do(run, i) })
			sum := 0
			for _, v := range out {
				sum += v
			}
			return fmt.Sprint(sum), err
		})
		p := boot(t, fresh(t), wf, sub)
		if got, want := result(t, start(t, wf, p, "p", "")), fmt.Sprint(n*(n-1)/2); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		t.Logf("%d checkpoints of the parent", len(historyOf(t, p.Engine, "p")))
	})
}

// Two children with one id, begun together: the first has it.
func TestChildrenOfOneID(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := &engine.Workflow[string, string]{Name: "sub", Func: func(run *engine.Run, s string) (string, error) { return s, run.Sleep(time.Minute) }}
		wf := flow("parent", func(run *engine.Run) (string, error) {
			kid := sub.AsChild(engine.ChildOptions{ID: "kid"})
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
			_, err := sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run.WithTimeout(time.Minute), "")
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
		if err := p.Result(ctx, "kid", "", nil); !errors.Is(err, engine.ErrCancelled) {
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
			_, err := sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run.WithTimeout(time.Minute), "")
			if !errors.Is(err, engine.ErrTimeout) {
				return "", err
			}
			return yes.Receive(run)
		})
		store := fresh(t)
		p := boot(t, store, wf, sub)
		start(t, wf, p, "p", "")
		time.Sleep(2 * time.Minute)
		if err := p.Result(ctx, "kid", "", nil); !errors.Is(err, engine.ErrCancelled) {
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
		"cancel":  {engine.ParentEndCancel, false, 0},
		"abandon": {engine.ParentEndAbandon, true, 0},
		"await":   {engine.ParentEndAwait, true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Minute) })
				wf := flow("parent", func(run *engine.Run) (string, error) {
					sub.AsChild(engine.ChildOptions{ID: "kid", OnParentEnd: c.onEnd}).Go(run, "")
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
				if there := err == nil; there != c.there || there && i.Status != checkpoint.StatusCompleted {
					t.Errorf("child: %+v, %v", i, err)
				}
			})
		})
	}
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
			if appendsTo(b, "p") && touches(b, "kid:p:") {
				h.beforeCommit = nil
				if err := p.Cancel(ctx, "p", engine.Actor{Reason: "enough"}); err != nil {
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
			return sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "")
		})
		s := fresh(t)
		put(t, s, []byte("wf:kid:in"), []byte("left over"))
		p := boot(t, s, wf, sub)
		start(t, wf, p, "p", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "p"); !heldFor(i, engine.ReasonDamaged) {
			t.Errorf("got %+v", i)
		}
	})
}

// A run is not claimed by its own engine between the commit that makes it the engine's and the moment at
// which the engine executes it, although the engine is told of a signal for it meanwhile: its steps are
// made once, and it goes on.
func TestRunIsNotClaimedBeforeItIsExecuted(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		for _, how := range []string{"child", "detached", "suspect"} {
			var steps atomic.Int32
			sub := flow("sub", func(run *engine.Run) (string, error) {
				if _, err := engine.Step(run, "count", func(context.Context) (int32, error) { return steps.Add(1), nil }); err != nil {
					return "", err
				}
				v, err := yes.Receive(run)
				if err != nil {
					return "", err
				}
				return v, run.Sleep(10 * time.Second)
			})
			id := "kid-" + how
			wf := flow("parent", func(run *engine.Run) (string, error) {
				if how == "detached" {
					_, err := sub.Detach(run, id, "")
					return "", err
				}
				return sub.AsChild(engine.ChildOptions{ID: id}).Do(run, "")
			})
			if how == "suspect" {
				p := boot(t, s, sub)
				start(t, sub, p, id, "")
				time.Sleep(time.Second)
				p.kill()
				rewrite(t, s, id, func(wf *journal.Workflow) { wf.Deaths = 5 })
			}
			var slow atomic.Bool
			p := boot(t, &hooked{Storage: s, afterCommit: func(b storage.Batch) error {
				if writes(b, string(keys.Workflow(id))) && slow.CompareAndSwap(false, true) {
					time.Sleep(3 * time.Second)
				}
				return nil
			}}, wf, sub, rareLeases)
			if how != "suspect" {
				start(t, wf, p, "p-"+how, "")
			}
			for range 600 {
				if time.Sleep(time.Second); slow.Load() {
					break
				}
			}
			tell(t, yes, p, id, "told")
			if got, err := outcome(sub.Handle(p, id)); got != "told" || err != nil || steps.Load() != 1 {
				t.Errorf("%s: got %q, %v, and its step was made %d times", how, got, err, steps.Load())
			}
			claims, want := 0, 1 // by its start
			for _, kind := range kinds(historyOf(t, p.Engine, id)) {
				if kind == checkpoint.KindClaimed {
					claims++
				}
			}
			if how == "suspect" {
				want = 2 // also from the dead engine
			}
			if claims != want {
				t.Errorf("%s: it was claimed %d times, want %d", how, claims, want)
			}
			p.stop(t)
		}
	})
}
