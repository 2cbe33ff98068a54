package engine_test

import (
	"bytes"
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
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A change of code is what a run did, and what it does now, and how this is told.
type change struct {
	name                   string
	was, now               func(run *engine.Run, c *tally) error
	operation, told, asked string
	older                  bool // an earlier release recorded enough to tell
}

var changes = []change{
	{
		name: "branches swapped", was: branched("a", "b"), now: branched("b", "a"),
		operation: "1.1", told: `step s in the branch "a"`, asked: `step s in the branch "b"`,
	},
	{
		name: "branch renamed", was: branched("a", "b"), now: branched("a", "c"),
		operation: "2.1", told: `step s in the branch "b"`, asked: `step s in the branch "c"`,
	},
	{
		name: "branch of a long name renamed", was: branched(strings.Repeat("a", 99)), now: branched(strings.Repeat("a", 98)),
		operation: "1.1", told: `step s in the branch with the digest #`, asked: `step s in the branch with the digest #`,
	},
	{
		name: "branch around a branch renamed", was: nested("a", "b"), now: nested("c", "b"),
		operation: "1.1.1", told: `step s in the branch "a/b"`, asked: `step s in the branch "c/b"`,
	},
	{
		name: "another child", was: kidBorn("kid-1"), now: kidBorn("kid-2"), older: true,
		operation: "1", told: `child kid with the id "kid-1"`, asked: `child kid with the id "kid-2"`,
	},
	{
		name: "a child with an id of its own", was: kidBorn(""), now: kidBorn("kid-2"), older: true,
		operation: "1", told: `child kid with the id "wrun_`, asked: `child kid with the id "kid-2"`,
	},
	{
		name: "another one detached", was: kidDetached("kid-1"), now: kidDetached("kid-2"), older: true,
		operation: "1", told: `detached kid with the id "kid-1"`, asked: `detached kid with the id "kid-2"`,
	},
	{
		name: "sent elsewhere", was: sentTo("o"), now: sentTo("p"),
		operation: "1", told: `send word to "o"`, asked: `send word to "p"`,
	},
	{
		name: "a limit instead of a pause", was: pausing, now: limiting,
		operation: "1", told: "timer of Sleep or After", asked: "timer of WithTimeout",
	},
	{
		name: "a pause instead of a limit", was: limiting, now: pausing,
		operation: "1", told: "timer of WithTimeout", asked: "timer of Sleep or After",
	},
	{
		name: "without a time limit",
		was: func(run *engine.Run, _ *tally) error {
			_, _, err := said.ReceiveWithin(run, time.Second)
			return err
		},
		now: func(run *engine.Run, _ *tally) error {
			_, err := said.Receive(run)
			return err
		},
		operation: "1", told: "receive word that came to its time limit", asked: "receive word without one", older: true,
	},
}

var (
	said = &signal.Signal[string]{Name: "word"}
	kid  = flow("kid", func(*engine.Run) (string, error) { return "", nil })
)

// branched are branches, one after the other, that do the same step.
func branched(names ...string) func(run *engine.Run, c *tally) error {
	return func(run *engine.Run, c *tally) error {
		for _, name := range names {
			f := engine.Go(run, name, func(run *engine.Run) (int, error) { return marked(run, c) })
			if _, err := f.Get(run); err != nil {
				return err
			}
		}
		return nil
	}
}

// nested is a step in a branch of a branch.
func nested(outer, inner string) func(run *engine.Run, c *tally) error {
	return func(run *engine.Run, c *tally) error {
		_, err := engine.Go(run, outer, func(run *engine.Run) (int, error) {
			return engine.Go(run, inner, func(run *engine.Run) (int, error) { return marked(run, c) }).Get(run)
		}).Get(run)
		return err
	}
}

func marked(run *engine.Run, c *tally) (int, error) {
	return engine.Step(run, "s", func(context.Context) (int, error) { return c.add("step"), nil })
}

func kidBorn(id string) func(run *engine.Run, c *tally) error {
	return func(run *engine.Run, c *tally) error {
		_, err := kid.AsChild(engine.ChildOptions{ID: id}).Do(run, "")
		return err
	}
}

func kidDetached(id string) func(run *engine.Run, c *tally) error {
	return func(run *engine.Run, c *tally) error {
		_, err := kid.Detach(run, id, "")
		return err
	}
}

func sentTo(to string) func(run *engine.Run, c *tally) error {
	return func(run *engine.Run, c *tally) error { return said.SendFrom(run, to, "x") }
}

func pausing(run *engine.Run, _ *tally) error { return run.Sleep(time.Second) }

func limiting(run *engine.Run, _ *tally) error {
	if err := run.WithTimeout(time.Second).Sleep(time.Minute); !errors.Is(err, engine.ErrTimeout) {
		return fmt.Errorf("limited: %w", err)
	}
	return nil
}

// changing is a workflow of that code, which then rests.
func changing(c *tally, code func(run *engine.Run, c *tally) error) *engine.Workflow[string, string] {
	return flow("w", func(run *engine.Run) (string, error) {
		if err := code(run, c); err != nil {
			return "", err
		}
		return "done", run.Sleep(3 * time.Minute)
	})
}

// What identifies an operation is compared, and not only its kind and its name: a run
// is held where something else is asked for, and Engine.Replay tells so before. What an
// earlier release did not record is not compared.
func TestWhatIdentifiesAnOperation(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s storage.Storage) {
				var ran tally
				was, now := changing(&ran, c.was), changing(&ran, c.now)
				p := boot(t, s, was, kid)
				start(t, was, p, "o", "")
				time.Sleep(time.Minute)
				history := exported(t, p.Engine, "o")
				p.kill()
				before := sprint(ran.all())

				for code, held := range map[*engine.Workflow[string, string]]bool{was: false, now: true} {
					err := made(t, new(memory.Store), code, kid).Replay(ctx, bytes.NewReader(history))
					var n *engine.NonDeterminismError
					if held != errors.As(err, &n) || !held && err != nil {
						t.Errorf("replay: %v", err)
					} else if held && (n.Operation != c.operation || !strings.HasPrefix(n.Recorded, c.told) || !strings.HasPrefix(n.Asked, c.asked) || n.Recorded == n.Asked) {
						t.Errorf("replay: %+v, want operation %s, %q and %q", n, c.operation, c.told, c.asked)
					}
				}
				p = boot(t, s, now, kid)
				time.Sleep(time.Minute)
				i := describe(t, p, "o")
				if !heldFor(i, engine.ReasonNonDeterminism) {
					t.Fatalf("%+v, want it held", i)
				}
				if a := i.Attention[0]; a.Operation != c.operation || !strings.Contains(a.Detail, c.told) || !strings.Contains(a.Detail, c.asked) {
					t.Errorf("%+v, want operation %s, %q and %q", a, c.operation, c.told, c.asked)
				}
				if after := sprint(ran.all()); after != before {
					t.Errorf("the changed code ran %s, before %s", after, before)
				}
				p.stop(t)
				p = boot(t, s, was, kid)
				if got := result(t, was.Handle(p, "o")); got != "done" {
					t.Errorf("mended: %q", got)
				}
				p.stop(t)
			})
		})
	}
}

// FMT-10, FMT-23: a run that an earlier release began, with less in its records, goes on.
func TestRunOfAnEarlierRelease(t *testing.T) {
	for _, c := range changes {
		if strings.Contains(c.name, "without a time limit") {
			continue // there was a signal out of nothing
		}
		for name, code := range map[string]func(run *engine.Run, c *tally) error{"same": c.was, "changed": c.now} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					var ran tally
					s := new(memory.Store)
					was, now := changing(&ran, c.was), changing(&ran, code)
					p := boot(t, s, was, kid)
					start(t, was, p, "o", "")
					time.Sleep(time.Minute)
					p.kill()
					n := len(ran.all())
					olden(t, s, "o")
					p = boot(t, s, now, kid)
					time.Sleep(time.Minute)
					held := heldFor(describe(t, p, "o"), engine.ReasonNonDeterminism)
					if held != (c.older && name == "changed") {
						t.Fatalf("held: %v", held)
					}
					if got := len(ran.all()); got != n {
						t.Errorf("%d steps, before %d", got, n)
					}
					if !held {
						if got := result(t, now.Handle(p, "o")); got != "done" {
							t.Errorf("result %q", got)
						}
					}
					p.stop(t)
				})
			})
		}
	}
}

// olden takes out of the checkpoints of a workflow what an earlier release did not
// record.
func olden(t *testing.T, s storage.Storage, id string) {
	t.Helper()
	type event struct {
		Kind      checkpoint.Kind `cbor:"1,keyasint"`
		Operation string          `cbor:"2,keyasint,omitempty"`
		Of        string          `cbor:"3,keyasint,omitempty"`
		Name      string          `cbor:"4,keyasint,omitempty"`
		Attempt   int             `cbor:"5,keyasint,omitempty"`
		Result    []byte          `cbor:"6,keyasint,omitempty"`
		SignalID  string          `cbor:"12,keyasint,omitempty"`
		By        string          `cbor:"13,keyasint,omitempty"`
		Why       string          `cbor:"14,keyasint,omitempty"`
		Child     string          `cbor:"15,keyasint,omitempty"`
	}
	type stored struct {
		Generation string  `cbor:"1,keyasint"`
		Commit     []byte  `cbor:"2,keyasint"`
		Time       int64   `cbor:"3,keyasint"`
		Events     []event `cbor:"4,keyasint,omitempty"`
		Skip       uint64  `cbor:"5,keyasint,omitempty"`
	}
	for _, key := range logged(t, s, id) {
		var c stored
		if _, err := record.Open([]byte(key), get(t, s, []byte(key)), journal.Version, &c); err != nil {
			t.Fatal(err)
		}
		raw, err := record.Seal([]byte(key), journal.Version, &c, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, []byte(key), raw)
	}
}

// An order as it was, and with a field more.
type (
	oldOrder struct{ ID string }
	newOrder struct {
		ID    string
		Cents []int
	}
)

// Another input holds no run, with a key or without one: an engine tells of it once,
// however often it replays the run, and Engine.Replay names the operations. What
// identifies the effect of a call is its key.
func TestAnotherInputIsTold(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		word := &signal.Signal[any]{Name: "word"}
		child := &engine.Workflow[any, string]{Name: "child", Func: func(*engine.Run, any) (string, error) { return "", nil }}
		code := func(in func(n int) any) *engine.Workflow[string, string] {
			a := &activity.Activity[any, int]{Name: "a", Run: func(context.Context, any) (int, error) { return 0, nil }}
			k := &activity.Activity[any, int]{Name: "k", Idempotent: true, Run: a.Run}
			return flow("w", func(run *engine.Run) (string, error) {
				_, err1 := a.Do(run, in(1))
				_, err2 := k.Do(run, in(2))
				_, err3 := child.Do(run, in(3))
				err4 := word.SendFrom(run, run.ID(), in(4))
				if err := errors.Join(err1, err2, err3, err4); err != nil {
					return "", err
				}
				for range 3 { // it is parked, and comes back
					if err := run.Sleep(time.Minute); err != nil {
						return "", err
					}
				}
				return "done", nil
			})
		}
		was := code(func(n int) any { return oldOrder{fmt.Sprint(n)} })
		now := code(func(n int) any { return newOrder{fmt.Sprint(n), []int{n}} })
		p := boot(t, s, was, child)
		start(t, was, p, "o", "")
		time.Sleep(30 * time.Second)
		history := exported(t, p.Engine, "o")
		p.kill()

		if err := made(t, new(memory.Store), was, child).Replay(ctx, bytes.NewReader(history)); err != nil {
			t.Errorf("replay of what it was: %v", err)
		}
		var told atomic.Int64
		var said lines
		hook := func(c *engine.Config) {
			c.ParkAfter = time.Second
			c.Events.InputChanged = func(e engine.InputChangedEvent) {
				if told.Add(1); e.WorkflowID != "o" || e.Operation != "1" {
					t.Errorf("told of %s of %s", e.Operation, e.WorkflowID)
				}
			}
		}
		err := made(t, new(memory.Store), now, child, hook).Replay(ctx, bytes.NewReader(history))
		var in *engine.InputChangedError
		if want := []string{"1 (activity a)", "2 (activity k)", "3 (child child)", "4 (send word)"}; !errors.As(err, &in) || in.WorkflowID != "o" || !slices.Equal(in.Operations, want) {
			t.Errorf("replay: %v, want %q", err, want)
		}
		if told.Load() != 0 {
			t.Error("a replay of an export is no event of a run")
		}
		p = boot(t, s, now, child, hook, said.logger())
		if got := result(t, now.Handle(p, "o")); got != "done" {
			t.Errorf("result %q", got)
		}
		if n, l := told.Load(), said.count("differs from the recorded one"); n != 1 || l != 1 {
			t.Errorf("told %d times, logged %d times; want once", n, l)
		}
		p.stop(t)
	})
}

// A Map whose elements come in another order gives each the outcome of another. Nothing
// that identifies its operations tells: their inputs do, before a deploy.
func TestMapInAnotherOrderIsTold(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a := &activity.Activity[string, string]{Name: "a", Run: func(_ context.Context, s string) (string, error) { return s, nil }}
		over := func(in ...string) *engine.Workflow[string, string] {
			return flow("w", func(run *engine.Run) (string, error) {
				out, err := engine.Map(run, "m", 0, in, func(run *engine.Run, s string) (string, error) { return a.Do(run, s) })
				return strings.Join(out, ""), err
			})
		}
		was := over("a", "b", "c")
		p := boot(t, new(memory.Store), was)
		result(t, start(t, was, p, "o", ""))
		history := exported(t, p.Engine, "o")
		for _, now := range []struct {
			in   []string
			want []string
		}{
			{[]string{"a", "b", "c"}, nil},
			{[]string{"a", "c", "b"}, []string{"2.1 (activity a)", "3.1 (activity a)"}},
			{[]string{"a", "b", "d"}, []string{"3.1 (activity a)"}},
		} {
			err := made(t, new(memory.Store), over(now.in...)).Replay(ctx, bytes.NewReader(history))
			var in *engine.InputChangedError
			if errors.As(err, &in) {
				slices.Sort(in.Operations) // they end in any order
			}
			if now.want == nil && err != nil || now.want != nil && (in == nil || !slices.Equal(in.Operations, now.want)) {
				t.Errorf("%q: %v, want %q", now.in, err, now.want)
			}
		}
		p.stop(t)
	})
}

// If an operation is another one besides, both are told.
func TestAnotherInputAndAnotherOperation(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a := &activity.Activity[int, int]{Name: "a", Run: func(context.Context, int) (int, error) { return 0, nil }}
		code := func(n int, d time.Duration) *engine.Workflow[string, string] {
			return flow("w", func(run *engine.Run) (string, error) {
				if _, err := a.Do(run, n); err != nil {
					return "", err
				}
				if d < 0 {
					return "", nil
				}
				return "", run.Sleep(d)
			})
		}
		was := code(1, time.Second)
		p := boot(t, new(memory.Store), was)
		result(t, start(t, was, p, "o", ""))
		err := made(t, new(memory.Store), code(2, -1)).Replay(ctx, bytes.NewReader(exported(t, p.Engine, "o")))
		var in *engine.InputChangedError
		var n *engine.NonDeterminismError
		if !errors.As(err, &in) || !errors.As(err, &n) || n.Operation != "2" {
			t.Errorf("%v", err)
		}
		p.stop(t)
	})
}
