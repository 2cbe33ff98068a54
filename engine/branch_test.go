package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/signal"
)

// Branches take turns, may share variables, and have operations of their own
// names: "3.1" is the first of the branch that operation 3 began.
func TestBranches(t *testing.T) {
	virtual(t, func(t *testing.T) {
		slow := &activity.Activity[int, int]{Name: "slow", Run: func(ctx context.Context, i int) (int, error) {
			time.Sleep(time.Duration(10-i) * time.Second)
			return i, nil
		}}
		wf := flow("branches", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			var order []int
			var fs []*future.Future[int]
			for i := range 5 {
				fs = append(fs, engine.Go(run, "part", func(run *engine.Run) (int, error) {
					v, err := slow.Do(run, i)
					order = append(order, v)
					return v * v, err
				}))
			}
			all, err := engine.All(run, fs...)
			return fmt.Sprint(order, all), err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "b", "")
		if got, want := result(t, h), "[4 3 2 1 0] [0 1 4 9 16]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		var ops []string
		for _, c := range historyOf(t, p.Engine, "b") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindSettled {
					ops = append(ops, e.Operation)
				}
			}
		}
		if want := []string{"6.1", "5.1", "4.1", "3.1", "2.1"}; !slices.Equal(ops, want) {
			t.Errorf("operations: got %v, want %v", ops, want)
		}
	})
}

// Interleaving 13, 28: branches share a variable, and who writes it first is the
// same in each replay: an operation returns when its event is delivered, and not
// because its record is there.
func TestReplayTakesTurnsAsBefore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		hold := &signal.Signal[string]{Name: "go on"}
		var seen []string
		act := &activity.Activity[int, int]{Name: "a", Run: func(ctx context.Context, i int) (int, error) {
			time.Sleep(time.Duration(i*7919%13) * time.Second)
			return i, nil
		}}
		wf := flow("race", func(run *engine.Run) (string, error) {
			last, trace := -1, []string{}
			for i := range 20 {
				engine.Go(run, "racer", func(run *engine.Run) (any, error) {
					for range 3 {
						v, err := act.Do(run, i)
						if err != nil {
							return nil, err
						}
						trace = append(trace, fmt.Sprint(last, ">", v))
						last = v
					}
					return nil, nil
				})
			}
			_, err := hold.Receive(run)
			seen = append(seen, strings.Join(trace, " "))
			return strings.Join(trace, " "), err
		})
		store := fresh(t)
		p := boot(t, store, wf)
		start(t, wf, p, "r", "")
		time.Sleep(time.Hour)
		for range 3 { // each of them replays all of it
			p.kill()
			p = boot(t, store, wf)
			time.Sleep(time.Minute)
		}
		if _, err := hold.Send(ctx, p, "r", "", nil); err != nil {
			t.Fatal(err)
		}
		h := wf.Handle(p, "r")
		got := result(t, h)
		if len(strings.Fields(got)) != 60 || len(seen) != 1 || seen[0] != got {
			t.Errorf("%d writes; got %q, seen %q", len(strings.Fields(got)), got, seen)
		}
		p.kill()
	})
}

// The error and the panic of a branch are those of its future.
func TestBranchFails(t *testing.T) {
	virtual(t, func(t *testing.T) {
		errs := make(chan error, 4)
		wf := flow("fails", func(run *engine.Run) (string, error) {
			a := engine.Go(run, "errs", func(*engine.Run) (int, error) { return 7, errBroke })
			b := engine.Go(run, "panics", func(*engine.Run) (int, error) { panic("oh") })
			c := engine.Go(run, "leaves", func(*engine.Run) (int, error) { runtime.Goexit(); return 0, nil })
			for _, f := range []*future.Future[int]{a, b, c} {
				v, err := f.Get(run)
				if v != 0 {
					t.Errorf("got %d with an error", v)
				}
				errs <- err
			}
			_, err := engine.All(run, a, b, c)
			return "", err
		})
		p := boot(t, fresh(t), wf)
		_, err := outcome(start(t, wf, p, "f", ""))
		if a := <-errs; a != errBroke {
			t.Errorf("error: got %v", a)
		}
		if b := <-errs; b == nil || !strings.Contains(b.Error(), "oh") {
			t.Errorf("panic: got %v", b)
		}
		if c := <-errs; c == nil {
			t.Error("Goexit: no error")
		}
		var failed *engine.WorkflowError
		if !errors.As(err, &failed) || !strings.Contains(failed.Message, "broke") || !strings.Contains(failed.Stack, "branch_test.go") {
			t.Errorf("result: got %v with stack %q", err, failed.Stack)
		}
	})
}

// A function that returns ends what is left, and the history tells.
func TestBranchesLeftBehind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		deferred := false
		wf := flow("leaves", func(run *engine.Run) (string, error) {
			engine.Go(run, "sleeper", func(run *engine.Run) (any, error) {
				defer func() { deferred = true }()
				return nil, run.Sleep(time.Hour)
			})
			return "done", run.Sleep(time.Second)
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "l", "")); got != "done" {
			t.Errorf("got %q", got)
		}
		p.stop(t)
		if !deferred {
			t.Error("the branch's deferred function did not run")
		}
		p = boot(t, p.store, wf)
		cs := historyOf(t, p.Engine, "l")
		last := cs[len(cs)-1].Events
		if len(last) != 2 || last[0].Kind != checkpoint.KindGivenUp || last[0].Operation != "1" || last[0].Name != "sleeper" {
			t.Errorf("last events: %+v", last)
		}
	})
}

// A Run belongs to its branch, and to nobody's goroutine.
func TestRunOfAnotherBranch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("foreign", func(outer *engine.Run) (string, error) {
			f := engine.Go(outer, "inner", func(run *engine.Run) (string, error) {
				return "", outer.Sleep(time.Second)
			})
			_, err := f.Get(outer)
			return fmt.Sprint(errors.Is(err, engine.ErrForeignRun)), nil
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "f", "")); got != "true" {
			t.Errorf("got %s, want ErrForeignRun", got)
		}
	})
}

func TestBranchesNestOnlySoDeep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var down func(run *engine.Run, n int) (int, error)
		down = func(run *engine.Run, n int) (int, error) {
			deeper, err := engine.Go(run, "down", func(run *engine.Run) (int, error) { return down(run, n+1) }).Get(run)
			if errors.Is(err, engine.ErrInvalid) {
				return n, nil
			}
			return deeper, err
		}
		wf := flow("deep", func(run *engine.Run) (string, error) {
			n, err := down(run, 0)
			return fmt.Sprint(n), err
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "d", "")); got != "16" {
			t.Errorf("got %s branches inside each other", got)
		}
	})
}

// Map has so many branches at a time, and no more.
func TestMap(t *testing.T) {
	virtual(t, func(t *testing.T) {
		under, most := 0, 0
		work := &activity.Activity[int, int]{Name: "work", Run: func(_ context.Context, i int) (int, error) {
			time.Sleep(time.Second)
			if i == 13 {
				return 0, activity.Permanent(errBroke)
			}
			return i * 2, nil
		}}
		wf := &engine.Workflow[int, []int]{Name: "map", Func: func(run *engine.Run, n int) ([]int, error) {
			in := make([]int, n)
			for i := range in {
				in[i] = i
			}
			out, err := engine.Map(run, "part", 10, in, func(run *engine.Run, i int) (int, error) {
				under++
				most = max(most, under)
				defer func() { under-- }()
				return work.Do(run, i)
			})
			if n > 13 && (err == nil || !strings.Contains(err.Error(), "broke")) {
				t.Errorf("got %v, want the error of one", err)
			}
			return out, nil
		}}
		p := boot(t, fresh(t), wf)
		begun := time.Now()
		got := result(t, start(t, wf, p, "m", 100))
		if took := time.Since(begun); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("100 seconds of work, ten at a time, took %v", took)
		}
		for i, v := range got {
			if want := i * 2; v != want && i != 13 {
				t.Errorf("result %d: got %d, want %d", i, v, want)
			}
		}
		if len(got) != 100 || got[13] != 0 || most != 10 {
			t.Errorf("%d results, result 13 is %d, at most %d at a time", len(got), got[13], most)
		}
		if got := result(t, start(t, wf, p, "nothing", 0)); len(got) != 0 {
			t.Errorf("of nothing: got %v", got)
		}
	})
}

// A request to stop ends a Map: no further branch begins, and those that have
// begun are waited for.
func TestMapIsCancelled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		begun, cleaned := 0, 0
		wf := flow("map", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "part", 3, make([]int, 50), func(run *engine.Run, i int) (int, error) {
				begun++
				if err := run.Sleep(time.Hour); err != nil {
					if e := run.WithoutCancel().Sleep(time.Minute); e != nil {
						return 0, e
					}
					cleaned++
					return 0, err
				}
				return 1, nil
			})
			if len(out) != 50 || !errors.Is(err, engine.ErrCancelled) {
				t.Errorf("got %d results and %v", len(out), err)
			}
			return "", err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "m", "")
		time.Sleep(90 * time.Minute)
		if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("got %v", err)
		}
		if begun != 6 || cleaned != 3 {
			t.Errorf("%d begun and %d cleaned up, want 6 and 3", begun, cleaned)
		}
	})
}

// 10,000 timers due at one instant all fire.
func TestManyTimersAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 10_000
		wf := flow("timers", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "sleeper", 0, make([]int, n), func(run *engine.Run, _ int) (int, error) {
				return 1, run.Sleep(time.Minute)
			})
			return fmt.Sprint(len(out)), err
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "t", "")); got != fmt.Sprint(n) {
			t.Errorf("got %s", got)
		}
		if cs := historyOf(t, p.Engine, "t"); len(cs) > 2+n/1000 {
			t.Errorf("%d checkpoints", len(cs))
		}
	})
}
