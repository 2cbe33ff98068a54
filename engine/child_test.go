package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
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
				if e.Kind == checkpoint.Started {
					kids = append(kids, e.Child)
				}
			}
		}
		if len(kids) != 2 || kids[0] == kids[1] {
			t.Fatalf("children: %v", kids)
		}
		for _, id := range kids {
			if i := describe(t, p, id); i.Parent != "p" || i.Status != checkpoint.Completed {
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
			named := sleeper.With(engine.StartOptions{ChildID: "sleeper"})
			_, cancelled := named.Do(run, "")
			_, taken := named.Do(run, "")
			_, long := sleeper.With(engine.StartOptions{ChildID: strings.Repeat("x", 201)}).Do(run, "")
			return fmt.Sprint(errors.Is(failed, errBroke), errors.As(failed, &w),
				errors.Is(cancelled, engine.ErrCancelled), errors.Is(taken, engine.ErrExists), errors.Is(long, engine.ErrInvalid)), nil
		})
		store := fresh(t)
		p := boot(t, store, wf, sub, sleeper)
		h := start(t, wf, p, "p", "")
		time.Sleep(time.Minute)
		if err := p.Cancel(ctx, "sleeper", "enough"); err != nil {
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
		"cancel":              {engine.CancelChild, false, "cancelled", "completed"},
		"abandon":             {engine.AbandonChild, false, "completed", "completed"},
		"await":               {engine.AwaitChild, false, "completed", "completed"},
		"cancelled: cancel":   {engine.CancelChild, true, "cancelled", "cancelled"},
		"cancelled: abandon":  {engine.AbandonChild, true, "completed", "cancelled"},
		"cancelled: await it": {engine.AwaitChild, true, "cancelled", "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
				wf := flow("parent", func(run *engine.Run) (string, error) {
					f := sub.With(engine.StartOptions{ChildID: "kid", OnParentEnd: c.onEnd}).Go(run, "")
					if c.cancel {
						return f.Get(run)
					}
					return "", run.Sleep(time.Minute)
				})
				p := boot(t, fresh(t), wf, sub)
				h := start(t, wf, p, "p", "")
				time.Sleep(30 * time.Second)
				if c.cancel {
					if err := h.Cancel(ctx, "enough"); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = outcome(h)
				time.Sleep(time.Second)
				awaited := c.onEnd == engine.AwaitChild && !c.cancel
				if i := describe(t, p, "kid"); awaited != (i.Status == checkpoint.Completed) {
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
			f := sub.With(engine.StartOptions{ChildID: "kid"}).Go(run, "")
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
		if err := one.Result(ctx, "sub", "kid", nil); err != nil {
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
