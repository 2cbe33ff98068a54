package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// Code that does not do what the history tells holds the run; code that does
// goes on with it.
func TestNonDeterminismHoldsTheRun(t *testing.T) {
	type code = func(run *engine.Run, c *tally) error
	step := func(name string) code {
		return func(run *engine.Run, c *tally) error {
			_, err := engine.Step(run, name, func(context.Context) (int, error) { return c.add(name), nil })
			return err
		}
	}
	charge := func(run *engine.Run, c *tally) error {
		_, err := counting(c, "a").Do(run, "")
		return err
	}
	nap := func(run *engine.Run, _ *tally) error { return run.Sleep(time.Second) }
	right := []code{step("a"), nap, step("b")}
	for _, c := range []struct {
		name                     string
		changed                  []code
		operation, recorded, now string
	}{
		{"another name", []code{step("x"), nap, step("b")}, "1", "step a", "step x"},
		{"another kind", []code{charge, nap, step("b")}, "1", "step a", "activity a"},
		{"another order", []code{step("a"), step("b"), nap}, "2", "timer", "step b"},
		{"another name at the end", []code{step("a"), nap, step("c")}, "3", "step b", "step c"},
		{"ends early", []code{step("a")}, "2", "timer", "the function has ended"},
		{"ends at once", nil, "1", "step a", "the function has ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				var runs tally
				wf := func(codes []code) *engine.Workflow[string, string] {
					return flow("w", func(run *engine.Run) (string, error) {
						for _, f := range codes {
							if err := f(run, &runs); err != nil {
								return "", err
							}
						}
						return "done", run.Sleep(10 * time.Minute)
					})
				}
				end := func(codes []code) *engine.Workflow[string, string] { // without the sleep
					w := wf(codes)
					w.Func = func(run *engine.Run, _ string) (string, error) {
						for _, f := range codes {
							if err := f(run, &runs); err != nil {
								return "", err
							}
						}
						return "done", nil
					}
					return w
				}
				p := boot(t, s, wf(right))
				start(t, wf(right), p, "o", "")
				time.Sleep(time.Minute)
				p.kill()
				before := sprint(runs.all())
				wrong := wf(c.changed)
				if strings.HasPrefix(c.name, "ends") {
					wrong = end(c.changed)
				}
				p = boot(t, s, wrong)
				time.Sleep(time.Minute)
				i := describe(t, p, "o")
				if i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonNonDeterminism) {
					t.Fatalf("%+v, want it held", i)
				}
				a := i.Attention[0]
				if a.Operation != c.operation || !strings.Contains(a.Detail, c.recorded) || !strings.Contains(a.Detail, c.now) || a.Since.IsZero() {
					t.Errorf("attention %+v, want operation %s, %q and %q", a, c.operation, c.recorded, c.now)
				}
				if after := sprint(runs.all()); after != before {
					t.Errorf("the changed code ran %s, before %s", after, before)
				}
				p.stop(t)
				p = boot(t, s, wf(right))
				if got := result(t, wf(right).Handle(p, "o")); got != "done" {
					t.Errorf("mended: %q", got)
				}
				if runs.of("a") != 1 || runs.of("b") != 1 {
					t.Errorf("ran %v, want a and b once", runs.all())
				}
				if i := describe(t, p, "o"); len(i.Attention) != 0 {
					t.Errorf("mended, and still %v", i.Attention)
				}
			})
		})
	}
}

// a type that nobody runs is left alone, and seen; others go on; once it
// is registered it is driven.
func TestUnregisteredTypeIsLeftAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		known, unknown := flow("known", nil2), flow("unknown", nil2)
		p := boot(t, s, known)
		start(t, unknown, p, "u", "")
		result(t, start(t, known, p, "k", ""))
		time.Sleep(time.Minute)
		i := describe(t, p, "u")
		if i.Status != checkpoint.StatusPending || !heldFor(i, engine.ReasonUnregistered) || i.Attention[0].Name != "unknown" || i.Owner != "" {
			t.Errorf("%+v, want it left alone", i)
		}
		var listed []string
		for i, err := range p.List(ctx, engine.Filter{Attention: true}) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, i.ID)
		}
		if !slices.Equal(listed, []string{"u"}) {
			t.Errorf("needing a person: %q, want u", listed)
		}
		result(t, start(t, known, p, "k2", ""))
		p.stop(t)
		p = boot(t, s, known, unknown)
		result(t, unknown.Handle(p, "u"))
	})
}

// A run that another engine held and whose type is gone is left alone too.
func TestTypeThatWentAway(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		old := flow("old", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Hour) })
		p := boot(t, s, old)
		start(t, old, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, s, flow("new", nil2))
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonUnregistered) {
			t.Errorf("%+v, want it left alone", i)
		}
		p.kill()
		p = boot(t, s, old)
		if got := result(t, old.Handle(p, "o")); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// History tells who did what: dense numbers, owner and epoch of each.
func TestHistory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(run *engine.Run) (string, error) {
			for range 3 {
				if err := run.Sleep(time.Minute); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		p := boot(t, s, wf)
		time.Sleep(time.Second) // so that it claims what is started
		start(t, wf, p, "o", "")
		time.Sleep(90 * time.Second)
		first := describe(t, p, "o")
		p.kill()
		p = boot(t, s, wf)
		result(t, wf.Handle(p, "o"))
		cs := historyOf(t, p.Engine, "o")
		want := []checkpoint.Kind{checkpoint.KindClaimed, checkpoint.KindFired, checkpoint.KindSkipped, checkpoint.KindClaimed, checkpoint.KindFired, checkpoint.KindFired, checkpoint.KindEnded}
		if got := kinds(cs); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		last := describe(t, p, "o")
		if last.Epoch <= first.Epoch || last.Owner == first.Owner {
			t.Errorf("epochs %d and %d, owners %q and %q", first.Epoch, last.Epoch, first.Owner, last.Owner)
		}
		for i, c := range cs {
			owner, epoch := first.Owner, first.Epoch
			if i >= 3 {
				owner, epoch = last.Owner, last.Epoch
			}
			if c.Owner != owner || c.Epoch != epoch {
				t.Errorf("checkpoint %d (%v) is of %q, epoch %d; want %q, %d", c.Number, c.Events[0].Kind, c.Owner, c.Epoch, owner, epoch)
			}
			if i > 0 && c.Number != cs[i-1].Number+1 && cs[i-1].Events[0].Kind != checkpoint.KindSkipped {
				t.Errorf("checkpoint %d comes after %d", c.Number, cs[i-1].Number)
			}
		}
		for _, err := range p.History(ctx, "nobody") {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("history of nobody: %v, want ErrNotFound", err)
			}
		}
		for range p.History(ctx, "o") {
			break // a caller may stop
		}
	})
}

// List is newest first, and filtered.
func TestList(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		quick, slow := flow("quick", nil2), flow("slow", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		p := boot(t, s, quick, slow)
		for i, wf := range []*engine.Workflow[string, string]{quick, slow, quick, slow} {
			time.Sleep(time.Second)
			start(t, wf, p, sprint("o", i), "")
		}
		time.Sleep(time.Second)
		for _, c := range []struct {
			f    engine.Filter
			want string
		}{
			{engine.Filter{}, "o3 o2 o1 o0"},
			{engine.Filter{Workflow: "slow"}, "o3 o1"},
			{engine.Filter{Status: checkpoint.StatusCompleted}, "o2 o0"},
			{engine.Filter{Workflow: "slow", Status: checkpoint.StatusCompleted}, ""},
			{engine.Filter{Attention: true}, ""},
		} {
			var got []string
			for i, err := range p.List(ctx, c.f) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, i.ID)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%+v: %q, want %q", c.f, got, c.want)
			}
		}
	})
}

// FMT-16, FMT-25: Purge removes what has ended, and nothing else; its id starts anew.
func TestPurge(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := receiving(1)
		p := boot(t, s, wf, func(c *engine.Config) { c.TombstoneRetention = time.Hour })
		time.Sleep(time.Second) // it runs: a hint to an engine that does not yet is there until its next poll
		start(t, wf, p, "o", "")
		if err := p.Purge(ctx, "o", audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("of one that runs: %v, want ErrNotApplicable", err)
		}
		if err := p.Purge(ctx, "nobody", audit); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("of nobody: %v, want ErrNotFound", err)
		}
		for _, a := range []engine.Actor{{}, {Name: "ann"}, {Reason: "x"}, {Name: "\xff", Reason: "x"}, {Name: "\xc3", Reason: "\xa9"}, {Name: "ann", Reason: strings.Repeat("x", 5000)}} {
			if err := p.Purge(ctx, "o", a); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("by %.20q: %v, want ErrInvalid", a, err)
			}
			if err := p.Resume(ctx, "o", a); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("resume by %.20q: %v, want ErrInvalid", a, err)
			}
			if utf8.ValidString(a.Name) && len(a.Reason) < 4096 {
				continue // nothing more is required of who cancels
			}
			if err := p.Cancel(ctx, "o", a); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("cancel by %.20q: %v, want ErrInvalid", a, err)
			}
		}
		send(t, approved, p, "o", "v", "x")
		result(t, wf.Handle(p, "o"))
		old := describe(t, p, "o")
		for range 2 {
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Errorf("purge: %v", err)
			}
		}
		if left := entries(t, s, ""); len(left) > 6 {
			t.Errorf("left: %q, want the tombstone, its expiry, and those of the engine and the store", left)
		}
		for name, err := range map[string]error{
			"Describe": func() error { _, err := p.Describe(ctx, "o"); return err }(),
			"Result":   p.Result(ctx, "o", "", nil),
			"Cancel":   p.Cancel(ctx, "o", engine.Actor{}),
			"Send":     func() error { _, err := approved.Send(ctx, p, "o", "v", nil); return err }(),
			"Retry":    p.Resume(ctx, "o", audit),
		} {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%s of a purged one: %v, want ErrNotFound", name, err)
			}
		}
		for i := range p.List(ctx, engine.Filter{}) {
			t.Errorf("listed: %+v", i)
		}
		h := start(t, wf, p, "o", "another input")
		young := describe(t, p, "o")
		if young.Epoch <= old.Epoch {
			t.Errorf("the new life has the epoch %d, the old one %d", young.Epoch, old.Epoch)
		}
		send(t, approved, p, "o", "w", "x")
		if got := result(t, h); got != "w" {
			t.Errorf("the new life received %q", got)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour) // the tombstone expires
		if left := recordsOfRuns(t, s); len(left) != 0 {
			t.Errorf("after the tombstone's time: %q", left)
		}
		start(t, wf, p, "o", "")
		if last := describe(t, p, "o"); last.Epoch <= young.Epoch {
			t.Errorf("after the tombstone's time the epoch is %d, was %d", last.Epoch, young.Epoch)
		}
	})
}

// OP-37, LV5: nothing grows with the length of a history but the history.
func TestTenThousandSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const steps, tenth = 10_000, 1_000
	for try := 1; ; try++ {
		took := make([]time.Duration, 0, steps)
		var heap [2]uint64
		wf := &engine.Workflow[int, int]{Name: "long", Func: func(run *engine.Run, n int) (int, error) {
			for i := range n {
				begun := time.Now()
				if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return i, nil }); err != nil {
					return 0, err
				}
				took = append(took, time.Since(begun))
			}
			return n, nil
		}}
		s := &forgetful{Store: new(memory.Store)}
		s.full = func(n int) {
			if n == 2*tenth || n == steps {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				heap[n/steps] = m.HeapAlloc
			}
		}
		p := &process{Engine: made(t, s, wf)}
		p.run()
		if got := result(t, start(t, wf, p, "o", steps)); got != steps {
			t.Fatalf("result %d", got)
		}
		p.end()
		<-p.done
		first, last := median(took[:tenth]), median(took[steps-tenth:])
		if last <= first*3/2 {
			t.Logf("median step: %v in the first tenth, %v in the last; heap %d and %d", first, last, heap[0], heap[1])
			if endedChildren := int64(heap[1]) - int64(heap[0]); endedChildren > 4<<20 {
				t.Errorf("8,000 steps keep %d bytes alive", endedChildren)
			}
			return
		}
		if try == 10 { // others may have begun to use the machine meanwhile
			t.Fatalf("median step: %v in the first tenth, %v in the last", first, last)
		}
	}
}

func median(ds []time.Duration) time.Duration {
	ds = slices.Clone(ds)
	sort.Slice(ds, func(i, j int) bool { return ds[i] < ds[j] })
	return ds[len(ds)/2]
}

// A forgetful store keeps no more than the last checkpoints, so that what is
// left in memory is the engine's.
type forgetful struct {
	*memory.Store
	mu   sync.Mutex
	n    int
	full func(n int)
}

func (f *forgetful) Commit(ctx context.Context, b storage.Batch) error {
	err := f.Store.Commit(ctx, b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if all := journal.AppendedBy(b); err == nil && len(all) > 0 {
		a := all[0]
		f.Store.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(a.Workflow.Log().Checkpoint(a.Entry.Number - 2))}})
		f.n++
		f.full(f.n)
	}
	return err
}

// GC4: purges at once of one workflow do not harm each other.
func TestConcurrentPurges(t *testing.T) {
	s := fresh(t)
	wf := flow("w", nil2)
	p := boot(t, s, wf)
	result(t, start(t, wf, p, "o", ""))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Errorf("purge: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := p.Describe(ctx, "o"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("afterwards: %v, want ErrNotFound", err)
	}
	p.stop(t)
}

// LV2: a damaged record is in the list with its error, and does not hide others.
func TestListGoesOnAfterADamagedRecord(t *testing.T) {
	s := fresh(t)
	wf := flow("w", nil2)
	e := made(t, s)
	defer e.Close()
	for _, id := range []string{"old", "bad", "new"} {
		start(t, wf, e, id, "")
		time.Sleep(2 * time.Millisecond) // ids of one millisecond are in no order
	}
	put(t, s, keys.Workflow("bad"), []byte("damaged"))
	var got []string
	for i, err := range e.List(ctx, engine.Filter{}) {
		got = append(got, i.ID)
		if (i.ID == "bad") != errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", i.ID, err)
		}
	}
	if !slices.Equal(got, []string{"new", "bad", "old"}) {
		t.Errorf("listed %q", got)
	}
}

// A loop around Select costs a replay no memory, however often it went round.
func TestReplayOfALongLoopKeepsNothing(t *testing.T) {
	const rounds = 20_000
	var endedChildren atomic.Int64 // between the 1,000th round and the last
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
		endedChildren.Store(heap() - early)
		return yes.Receive(run)
	})
	virtual(t, func(t *testing.T) {
		store := fresh(t)
		p := boot(t, store, wf)
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		if n := endedChildren.Load(); n == 0 || n > rounds*2500 { // the store is in memory
			t.Errorf("heap has grown by %d KiB", n>>10)
		}
		p.kill()
		endedChildren.Store(0)
		boot(t, store, wf)
		time.Sleep(time.Second)
		if n := endedChildren.Load(); n == 0 || n > 2<<20 {
			t.Errorf("in the replay the heap has grown by %d KiB", n>>10)
		}
	})
}
