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
	"github.com/weft-go/weft/storage"
)

// A cancelled workflow ends as that; the request stands in what is told of it.
func TestCancelWhileSleeping(t *testing.T) {
	for _, by := range []string{"its engine", "another engine", "a new process"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var inner error
			wf := flow("w", func(run *engine.Run) (string, error) {
				inner = run.Sleep(24 * time.Hour)
				again := run.Sleep(time.Hour) // nothing more is begun
				return "", errors.Join(inner, again)
			})
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Minute)
			client := made(t, s)
			defer client.Close()
			asked := time.Now()
			var c engine.Client = p
			switch by {
			case "another engine":
				c = client
			case "a new process":
				p.kill()
				c = client
			}
			for again := range 2 { // the second changes nothing
				err := wf.Handle(c, "o").Cancel(ctx, engine.Actor{Name: "ann", Reason: "customer called"})
				if err != nil && !(again == 1 && errors.Is(err, engine.ErrTerminal)) { // it may have ended by then
					t.Fatalf("by %s: %v", by, err)
				}
			}
			if by == "a new process" {
				p = boot(t, s, wf)
			}
			if _, err := outcome(wf.Handle(p, "o")); !errors.Is(err, engine.ErrCancelled) {
				t.Errorf("by %s: result %v, want ErrCancelled", by, err)
			}
			if took := time.Since(asked); took > 5*time.Second {
				t.Errorf("by %s: it took %v", by, took)
			}
			i := describe(t, p, "o")
			if i.Status != checkpoint.StatusCancelled || i.Cancel == nil || i.Cancel.Reason != "customer called" || i.Cancel.By != "ann" || !i.Cancel.At.Equal(asked) || !errors.Is(inner, engine.ErrCancelled) {
				t.Errorf("by %s: %+v, in the run %v", by, i, inner)
			}
			if got := askers(t, p, "o"); !slices.Equal(got, []string{"ann"}) {
				t.Errorf("by %s: got requests by %q in the history, want one by ann", by, got)
			}
			err := wf.Handle(p, "o").Cancel(ctx, engine.Actor{Reason: "again"})
			var end *engine.TerminalError
			if !errors.As(err, &end) || end.Status != checkpoint.StatusCancelled {
				t.Errorf("after the end: %v, want a *TerminalError", err)
			}
		})
	}
}

// askers returns who requested the cancellation of a run, from its history.
func askers(t *testing.T, p *process, id string) (names []string) {
	t.Helper()
	for c, err := range p.History(ctx, id) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindAsked {
				names = append(names, e.By)
			}
		}
	}
	return names
}

// The context of an attempt under way ends with ErrCancelled as its cause; its
// answer is not used.
func TestCancelDuringAnActivity(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var cause error
		act := &activity.Activity[string, int]{Name: "act", Timeout: time.Hour, Run: func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return 1, nil
		}}
		p := boot(t, fresh(t), doing(act))
		h := start(t, doing(act), p, "o", "")
		time.Sleep(time.Minute)
		if err := h.Cancel(ctx, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result %v, want ErrCancelled", err)
		}
		p.stop(t)
		if !errors.Is(cause, engine.ErrCancelled) {
			t.Errorf("cause %v, want ErrCancelled", cause)
		}
		for _, c := range historyOf(t, made(t, p.store.Unwrap()), "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindSettled {
					t.Errorf("the answer is recorded: %+v", e)
				}
			}
		}
	})
}

// ACT-41: what was cancelled before anybody drove it begins no activity.
func TestCancelBeforeItRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		wf := doing(counting(&runs, "act"))
		client := made(t, s)
		defer client.Close()
		h := start(t, wf, client, "o", "")
		if err := h.Cancel(ctx, engine.Actor{Reason: "never mind"}); err != nil {
			t.Fatal(err)
		}
		p := boot(t, s, wf)
		if _, err := outcome(wf.Handle(p, "o")); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result %v, want ErrCancelled", err)
		}
		time.Sleep(10 * time.Second)
		if n := runs.of("act"); n != 0 {
			t.Errorf("the activity ran %d times after its workflow was cancelled", n)
		}
		if left := append(entries(t, s, "todo:"), entries(t, s, "held:")...); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// A workflow may see the request and complete all the same; errors of its own
// are its failure.
func TestCancelIsARequest(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(err error) (string, error)
		want checkpoint.Status
	}{
		{"swallowed", func(error) (string, error) { return "done", nil }, checkpoint.StatusCompleted},
		{"returned", func(err error) (string, error) { return "", err }, checkpoint.StatusCancelled},
		{"wrapped", func(err error) (string, error) { return "", fmt.Errorf("stop: %w", err) }, checkpoint.StatusCancelled},
		{"another error", func(error) (string, error) { return "", errBroke }, checkpoint.StatusFailed},
	} {
		virtual(t, func(t *testing.T) {
			wf := flow("w", func(run *engine.Run) (string, error) { return c.end(run.Sleep(time.Hour)) })
			p := boot(t, fresh(t), wf)
			h := start(t, wf, p, "o", "")
			time.Sleep(time.Second)
			if err := h.Cancel(ctx, engine.Actor{Reason: "r"}); err != nil {
				t.Fatal(err)
			}
			outcome(h)
			if i := describe(t, p, "o"); i.Status != c.want || i.Cancel == nil {
				t.Errorf("%s: %s, request %v; want %s", c.name, i.Status, i.Cancel, c.want)
			}
		})
	}
	virtual(t, func(t *testing.T) { // nobody asked
		wf := flow("w", func(*engine.Run) (string, error) { return "", engine.ErrCancelled })
		p := boot(t, fresh(t), wf)
		if _, err := outcome(start(t, wf, p, "o", "")); !strings.Contains(sprint(err), "cancelled") {
			t.Error(err)
		}
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusFailed {
			t.Errorf("a run that cancels itself: %s, want failed", i.Status)
		}
	})
}

// A request that races the end: either it is in time, or the caller is told that
// the workflow has ended. CK7.
func TestCancelRacesCompletion(t *testing.T) {
	wf := flow("w", func(run *engine.Run) (string, error) {
		if err := run.Sleep(time.Millisecond); err != nil {
			return "", err
		}
		return "done", nil
	})
	p := boot(t, fresh(t), wf)
	for i := range 300 {
		h := start(t, wf, p, sprint("o", i), "")
		time.Sleep(time.Duration(i%30) * 70 * time.Microsecond)
		asking := h.Cancel(ctx, engine.Actor{Reason: "r"})
		_, err := outcome(h)
		in := describe(t, p, h.ID())
		switch {
		case asking == nil && errors.Is(err, engine.ErrCancelled) && in.Status == checkpoint.StatusCancelled:
		case asking == nil && err == nil && in.Status == checkpoint.StatusCompleted && in.Cancel != nil:
		case errors.Is(asking, engine.ErrTerminal) && err == nil && in.Status == checkpoint.StatusCompleted && in.Cancel == nil:
		default:
			t.Errorf("round %d: Cancel = %v, Result = %v, %s, request %v", i, asking, err, in.Status, in.Cancel)
		}
	}
	p.stop(t)
}

// A restart replays the request at its place.
func TestCancelOverARestart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var seen []string
		wf := flow("w", func(run *engine.Run) (string, error) {
			a := run.Sleep(time.Minute)
			b := run.Sleep(time.Hour)
			c := run.Sleep(time.Hour)
			seen = append(seen, fmt.Sprint(a, b != nil, c != nil))
			_, err := engine.Step(run, "never", func(context.Context) (int, error) { t.Error("begun after the request"); return 0, nil })
			seen = append(seen, sprint(errors.Is(err, engine.ErrCancelled)))
			return "", err
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(2 * time.Minute)
		if err := h.Cancel(ctx, engine.Actor{Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		p.kill() // the request is durable, and nobody has seen it
		p = boot(t, s, wf)
		if _, err := outcome(wf.Handle(p, "o")); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result %v, want ErrCancelled", err)
		}
		for i := 0; i < len(seen); i += 2 {
			if seen[i] != "<nil> true true" || seen[i+1] != "true" {
				t.Errorf("saw %q", seen)
			}
		}
	})
}

// A request and the end of the workflow meet: whichever is committed first decides what
// the caller of Cancel is told. A request that was first is told by Info, also of a
// workflow that completed all the same.
func TestCancelMeetsTheEnd(t *testing.T) {
	for _, first := range []string{"the request", "the end"} {
		t.Run(first, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				client := made(t, s)
				defer client.Close()
				cancels := make(chan error, 1)
				var met atomic.Bool
				meet := func(at string, b storage.Batch) {
					if at == first && touches(b, "wf:o:out") && met.CompareAndSwap(false, true) {
						cancels <- client.Cancel(ctx, "o", engine.Actor{Reason: "customer called"})
					}
				}
				store := &hooked{
					Storage:      s,
					beforeCommit: func(b storage.Batch) { meet("the request", b) },
					afterCommit:  func(b storage.Batch) error { meet("the end", b); return nil },
				}
				wf := flow("w", func(run *engine.Run) (string, error) { return "done", nil })
				p := boot(t, store, wf)
				h := start(t, wf, p, "o", "")
				if got, err := soon(h); err != nil || got != "done" {
					t.Errorf("result %q, %v; want that it completed", got, err)
				}
				asked := <-cancels
				i := describe(t, client, "o")
				if i.Status != checkpoint.StatusCompleted {
					t.Errorf("it is %s, want completed", i.Status)
				}
				switch first {
				case "the request":
					if asked != nil || i.Cancel == nil || i.Cancel.Reason != "customer called" {
						t.Errorf("Cancel = %v, the request is told as %+v", asked, i.Cancel)
					}
				case "the end":
					var end *engine.TerminalError
					if !errors.As(asked, &end) || end.Status != checkpoint.StatusCompleted || i.Cancel != nil {
						t.Errorf("Cancel = %v, the request is told as %+v; want a *TerminalError and none", asked, i.Cancel)
					}
				}
				p.stop(t)
			})
		})
	}
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
		if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("got %v", err)
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
