package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A journey is a workflow with an operation of each kind, and what it saw on its way.
type journey struct {
	calls tally    // of functions
	keys  tally    // idempotency keys
	seen  []string // by the function, in each execution from its beginning on
}

func (c *journey) workflows() (wf *engine.Workflow[string, string], all []any) {
	kid := flow("kid", func(run *engine.Run) (string, error) { return "grown", run.Sleep(5 * time.Second) })
	free := flow("free", func(*engine.Run) (string, error) { return "", nil })
	plain := &activity.Activity[string, string]{Name: "plain", Run: func(_ context.Context, s string) (string, error) {
		c.calls.add("plain " + s)
		return "p", nil
	}}
	keyed := &activity.Activity[string, string]{Name: "keyed", Idempotent: true, Run: func(ctx context.Context, s string) (string, error) {
		i := activity.InfoFrom(ctx)
		c.calls.add("keyed " + s)
		c.keys.add(i.IdempotencyKey)
		return "k", nil
	}}
	wf = flow("tour", func(run *engine.Run) (string, error) {
		c.seen = nil
		note := func(what string) {
			c.seen = append(c.seen, fmt.Sprint(what, " ", run.Now().UnixMicro(), " ", run.Random().Int64(), " ", run.HistoryLen()))
		}
		note("begun")
		begin, err := engine.Step(run, "begin", func(context.Context) (string, error) {
			c.calls.add("step")
			return "s", nil
		})
		note("step")
		a, err1 := plain.Do(run, "a")
		note("plain")
		k, err2 := keyed.Do(run, "a")
		note("keyed")
		err3 := run.Sleep(20 * time.Second)
		note("slept")
		v, err4 := yes.Receive(run)
		note("received")
		g, err5 := kid.AsChild(engine.ChildOptions{}).Do(run, "")
		note("kid")
		both := engine.Go(run, "both", func(run *engine.Run) (string, error) {
			a, err := plain.Do(run, "b")
			if err != nil {
				return "", err
			}
			k, err := keyed.Do(run, "b")
			return a + k, err
		})
		late := run.After(10 * time.Second)
		b, err6 := both.Get(run)
		note("both")
		_, err7 := late.Get(run)
		note("late")
		_, err8 := free.Detach(run, "", "")
		note("free")
		w, err9 := yes.Receive(run)
		note("ended")
		return strings.Join([]string{begin, a, k, v, g, b, w}, " "), errors.Join(err, err1, err2, err3, err4, err5, err6, err7, err8, err9)
	})
	return wf, []any{wf, kid, free}
}

// standing are the events of a run that a replay delivers, of operations alone.
func operations(cs []checkpoint.Checkpoint) (ids []string) {
	for _, c := range cs {
		for _, e := range c.Events {
			if e.Operation != "" && !slices.Contains(ids, e.Operation) {
				ids = append(ids, e.Operation)
			}
		}
	}
	return ids
}

const journeyed = "s p k one grown pk two"

// whole says what is wrong with a store.
func whole(t testing.TB, s storage.Storage) {
	t.Helper()
	for _, problem := range integrity.Check(ctx, s, time.Time{}) {
		t.Error(problem)
	}
}

// OPS-2: a run that has ended is reset to each operation of its history. What had its outcome by then
// is not executed again, what the function sees up to there is the same, and what comes is begun anew.
func TestResetToEachOperation(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		c := &journey{}
		wf, all := c.workflows()
		p := boot(t, s, append(all, rareLeases)...)
		play := func(id string) *engine.Handle[string] {
			c.calls = tally{}
			h := start(t, wf, p, id, "")
			send(t, yes, p, id, "one", "first")
			send(t, yes, p, id, "two", "second")
			if got := result(t, h); got != journeyed {
				t.Fatalf("got %q", got)
			}
			return h
		}
		play("model")
		ids := append(operations(historyOf(t, p.Engine, "model")), "", "7")
		for _, before := range ids {
			id := "before " + before
			h := play(id)
			was, calls := slices.Clone(c.seen), c.calls.all()
			history := historyOf(t, p.Engine, id)
			time.Sleep(30 * time.Second)
			if err := p.Reset(ctx, id, before, audit); err != nil {
				t.Fatalf("before %q: %v", before, err)
			}
			if got := result(t, h); got != journeyed {
				t.Errorf("before %q: got %q", before, got)
			}
			standing, fresh := split(history, before)
			for _, e := range standing {
				if e.Kind == checkpoint.KindSettled && slices.Contains(fresh, e.Operation) {
					t.Errorf("before %q: %s has its outcome, and is begun again", before, e.Operation)
				}
			}
			again := c.calls.all()[len(calls):]
			wantCalls := callsOf(fresh)
			if !slices.Equal(again, wantCalls) {
				t.Errorf("before %q: called %q again, want %q", before, again, wantCalls)
			}
			same := 0
			for same < min(len(was), len(c.seen)) && was[same] == c.seen[same] {
				same++
			}
			if n, _ := strconv.Atoi(before[:min(len(before), 1)]); same < n || len(c.seen) != len(was) {
				t.Errorf("before %q: the function saw %q, and %q before", before, c.seen, was)
			}
			for _, op := range operations(historyOf(t, p.Engine, id)[len(history):]) {
				if early := op == "8" && strings.HasPrefix(before, "7."); !early && !strings.HasSuffix(op, "~1") { // 8 began before the branch went on
					t.Errorf("before %q: operation %s", before, op)
				}
			}
		}
		for k, n := range c.keys.n {
			if n > 1 {
				t.Errorf("the key %s was used %d times", k, n)
			}
		}
		whole(t, s)
	})
}

// split returns the events of a history that stand after a reset, and the operations that are begun
// again.
func split(cs []checkpoint.Checkpoint, before string) (standing []checkpoint.Event, fresh []string) {
	found := before == ""
	for _, c := range cs {
		for _, e := range c.Events {
			if e.Operation != "" && (e.Operation == before || strings.HasPrefix(e.Operation, before+".")) {
				found = true
			}
			switch {
			case !found:
				standing = append(standing, e)
			case e.Operation != "" && !slices.Contains(fresh, e.Operation):
				fresh = append(fresh, e.Operation)
			}
		}
	}
	return standing, fresh
}

// callsOf are the calls of the operations of a journey, in order.
func callsOf(ids []string) (calls []string) {
	names := map[string]string{"1": "step", "2": "plain a", "3": "keyed a", "7.1": "plain b", "7.2": "keyed b"}
	for _, id := range ids {
		if names[id] != "" {
			calls = append(calls, names[id])
		}
	}
	return calls
}

// reset resets what can be.
func reset(t testing.TB, p engineLike, id, before string) {
	t.Helper()
	if err := p.Reset(ctx, id, before, audit); err != nil {
		t.Fatalf("reset %q to before %q: %v", id, before, err)
	}
}

// OPS-2, OPS-9: a run is reset while it runs, is parked or held, after every end, twice, and to before a
// reset. An owner is fenced, also another engine, and the function goes on from the point.
func TestResetOfARunInAnyState(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var calls tally
		bad := false
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for i := range 3 {
				name := fmt.Sprint("step ", i+1)
				if _, err := engine.Step(run, name, func(context.Context) (string, error) { calls.add(name); return "", nil }); err != nil {
					return "", err
				}
			}
			v, err := yes.Receive(run)
			if bad || err != nil {
				return "", errors.Join(err, errBroke)
			}
			return v, nil
		})
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		defer other.Close()
		start(t, wf, p, "o", "")
		want := func(when string, n1, n2, n3 int) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if got := [3]int{calls.of("step 1"), calls.of("step 2"), calls.of("step 3")}; got != [3]int{n1, n2, n3} {
				t.Errorf("%s: steps were called %v times, want %v", when, got, [3]int{n1, n2, n3})
			}
		}
		want("at first", 1, 1, 1)
		reset(t, p, "o", "3")
		want("while it waits", 1, 1, 2)
		if wf, err := journal.Load(ctx, s, "o"); err != nil || !slices.Contains(wf.Needs, "resets") {
			t.Errorf("an earlier release may execute it: %v, %v", wf, err)
		}
		reset(t, other, "o", "3~1")
		want("again, by another engine", 1, 1, 3)
		reset(t, other, "o", "2")
		want("to before a reset", 1, 2, 4)
		p.stop(t)
		p = boot(t, s, wf, parking)
		h := wf.Handle(p, "o")
		time.Sleep(10 * time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || len(i.Waiting) != 1 {
			t.Errorf("%+v", i)
		}
		reset(t, p, "o", "3")
		want("while it is parked", 1, 2, 5)
		send(t, yes, p, "o", "done", "evt")
		if got := result(t, h); got != "done" {
			t.Errorf("got %q", got)
		}
		reset(t, p, "o", "3")
		if got := result(t, h); got != "done" {
			t.Errorf("completed and reset: got %q", got)
		}
		want("completed", 1, 2, 6)
		bad = true
		reset(t, p, "o", "4")
		if _, err := outcome(h); !strings.Contains(fmt.Sprint(err), "broke") {
			t.Errorf("with bad code: %v", err)
		}
		bad = false
		reset(t, p, "o", "4")
		if got := result(t, h); got != "done" {
			t.Errorf("failed and reset: got %q", got)
		}
		reset(t, p, "o", "")
		if got := result(t, h); got != "done" {
			t.Errorf("to the start: got %q", got)
		}
		want("to the start", 2, 3, 7)
		var acted []string
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindActed {
					acted = append(acted, e.Name+" by "+e.By)
				}
			}
		}
		if len(acted) != 8 || acted[0] != "reset to before 3 by "+audit.Name || acted[7] != "reset to the start by "+audit.Name {
			t.Errorf("the history has %q", acted)
		}
		var file bytes.Buffer
		if err := p.Export(ctx, "o", &file); err != nil {
			t.Fatal(err)
		}
		if err := p.Replay(ctx, &file); err != nil {
			t.Errorf("replay of the export: %v", err)
		}
		whole(t, s)
	})
}

// OPS-3: signals that were received behind the point are there again, in their places and before
// those that wait. An id that was sent has its first answer, also if the acceptance was forgotten.
func TestSignalsOfAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, forgotten := range []bool{false, true} {
			s := store.Open(t)
			wf := flow("wf", func(run *engine.Run) (string, error) {
				all := ""
				for range 4 {
					v, err := yes.Receive(run)
					if err != nil {
						return "", err
					}
					all += v
				}
				return all, nil
			})
			memory := func(c *engine.Config) { c.SignalIDRetention = time.Minute }
			p := boot(t, s, wf, rareLeases, memory)
			start(t, wf, p, "o", "")
			first := map[string]signal.Accepted{}
			for _, v := range []string{"a", "b", "c"} {
				first[v] = send(t, yes, p, "o", v, v)
			}
			time.Sleep(10 * time.Second)
			if forgotten {
				time.Sleep(3 * time.Hour)
			}
			if left := len(entries(t, s, "sigres:")); (left == 0) != forgotten {
				t.Fatalf("%d acceptances are remembered", left)
			}
			if forgotten { // it is remembered again, and again forgotten in time
				first = map[string]signal.Accepted{}
			}
			p.stop(t)
			reset(t, made(t, s, memory), "o", "2")
			var waiting []string
			e := made(t, s, memory)
			for i, err := range e.Signals(ctx, "o") {
				if err != nil || i.Indeterminate {
					t.Errorf("%+v, %v", i, err)
				}
				waiting = append(waiting, i.ID)
			}
			if fmt.Sprint(waiting) != "[b c]" {
				t.Errorf("waiting %v", waiting)
			}
			for _, v := range []string{"b", "c"} {
				again := send(t, yes, e, "o", v, v)
				if was, ok := first[v]; ok && again.AcceptedAt != was.AcceptedAt {
					t.Errorf("%s: %+v, first %+v", v, again, was)
				}
				if _, err := yes.Send(ctx, e, "o", "other", &signal.Options{ID: v}); !errors.Is(err, signal.ErrConflict) {
					t.Errorf("another payload: %v", err)
				}
			}
			p = boot(t, s, wf, rareLeases, memory)
			send(t, yes, p, "o", "d", "d")
			if got := result(t, wf.Handle(p, "o")); got != "abcd" {
				t.Errorf("received %q", got)
			}
			whole(t, s)
			p.stop(t)
			s.Close()
		}
	})
}

// OPS-3: a signal behind the point whose ID was used again, after it was forgotten, cannot be there again: there is one
// payload for an ID. The reset is refused, and writes nothing.
func TestResetOfASignalWhoseIDWasUsedAgain(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, receipts := range []int{1, 2} { // if it is 1, the second signal waits
			s := store.Open(t)
			wf := flow("wf", func(run *engine.Run) (string, error) {
				for range receipts {
					if _, err := yes.Receive(run); err != nil {
						return "", err
					}
				}
				return "", run.Sleep(decade)
			})
			p := boot(t, s, wf, rareLeases, func(c *engine.Config) { c.SignalIDRetention = time.Minute })
			start(t, wf, p, "o", "")
			for range 2 {
				send(t, yes, p, "o", "v", "x")
				time.Sleep(5 * time.Minute)
			}
			was := recordsOfRuns(t, s)
			soon, cancel := context.WithTimeout(ctx, time.Minute)
			if err := p.Reset(soon, "o", "", audit); !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), `signal "yes" with the ID "x"`) {
				t.Errorf("%d received: %v, want ErrNotApplicable that names the signal", receipts, err)
			}
			cancel()
			if is := recordsOfRuns(t, s); !slices.Equal(is, was) {
				t.Errorf("%d received: written: %q, before %q", receipts, is, was)
			}
			if receipts == 1 {
				if err := p.ClearSignal(ctx, "o", "yes", "x", audit); err != nil {
					t.Fatal(err)
				}
				reset(t, p, "o", "")
			}
			p.stop(t)
			whole(t, s)
			s.Close()
		}
	})
}

// OPS-4, OPS-5, OPS-6: a child that was begun before the point is told again if it ended since, and
// waited for otherwise. One that was begun behind it is asked to stop, or taken up if it has a
// ChildID.
func TestChildrenOfAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var begun tally
		kid := flow("kid", nil)
		kid.Func = func(run *engine.Run, in string) (string, error) {
			_, err := engine.Step(run, "s", func(context.Context) (string, error) { begun.add(in); return "", nil })
			if err != nil {
				return "", err
			}
			switch in {
			case "brief", "named brief":
				return in, nil
			}
			v, err := yes.Receive(run)
			return in + v, err
		}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			brief, long := kid.AsChild(engine.ChildOptions{}).Go(run, "brief"), kid.AsChild(engine.ChildOptions{ID: "long"}).Go(run, "long")
			if err := run.Sleep(time.Second); err != nil { // 3
				return "", err
			}
			if err := run.Sleep(time.Second); err != nil { // 4
				return "", err
			}
			kid.AsChild(engine.ChildOptions{}).Go(run, "derived")                       // 5
			named := kid.AsChild(engine.ChildOptions{ID: "named"}).Go(run, "named")     // 6
			over := kid.AsChild(engine.ChildOptions{ID: "over"}).Go(run, "named brief") // 7
			a, err1 := brief.Get(run)
			o, err2 := over.Get(run)
			b, err3 := named.Get(run)
			c, err4 := long.Get(run)
			return strings.Join([]string{a, o, b, c}, " "), errors.Join(err1, err2, err3, err4)
		})
		p := boot(t, s, wf, kid, leases)
		h := start(t, wf, p, "o", "")
		time.Sleep(10 * time.Second)
		var derived string
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindStarted && e.Operation == "5" {
					derived = e.Child
				}
			}
		}
		reset(t, p, "o", "4")
		time.Sleep(10 * time.Second)
		if i := describe(t, p, derived); i.Status != checkpoint.StatusCancelled || i.Cancel == nil || !strings.Contains(i.Cancel.Reason, "reset of parent") {
			t.Errorf("the child with a derived id is %+v", i)
		}
		for _, id := range []string{"long", "named"} {
			send(t, yes, p, id, "!", "")
		}
		if got := result(t, h); got != "brief named brief named! long!" {
			t.Errorf("got %q", got)
		}
		for in, n := range map[string]int{"brief": 1, "long": 1, "named": 1, "named brief": 1, "derived": 2} {
			if begun.of(in) != n {
				t.Errorf("child %q was begun %d times, want %d", in, begun.of(in), n)
			}
		}
		reset(t, p, "o", "4")
		if got := result(t, h); got != "brief named brief named! long!" {
			t.Errorf("after the end: got %q", got)
		}
		if err := p.Reset(ctx, "long", "1", audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("a child of a parent that was told: %v", err)
		}
		whole(t, s)
	})
}

// OPS-5: a child that its parent has given up, and forgotten, ends just as the parent is reset to before that: the parent gets
// its end.
func TestChildEndsBesideAReset(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &hooked{Storage: fresh(t)}
		var again atomic.Bool
		kid := flow("kid", func(run *engine.Run) (string, error) {
			if err := run.Sleep(decade); !errors.Is(err, engine.ErrCancelled) {
				return "", err
			}
			return "late", run.WithoutCancel().Sleep(time.Minute)
		})
		brief := sleeper(6 * time.Second)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			brief.Go(run, "") // 1: its end has the parent look at its children
			scope, cancel := run.WithCancel()
			late := kid.Go(scope, "")                      // 2
			if err := run.Sleep(time.Second); err != nil { // 3
				return "", err
			}
			if err := run.Sleep(time.Second); err != nil { // 4
				return "", err
			}
			if again.Load() {
				return late.Get(run)
			}
			cancel()
			for range 5 {
				if err := run.Sleep(2 * time.Second); err != nil {
					return "", err
				}
			}
			return "", run.Sleep(decade)
		})
		var p *process
		key, once, forgotten := keys.Child("o", "2"), sync.Once{}, atomic.Bool{}
		s.afterGet = func(got []byte) {
			if bytes.Equal(got, key) && forgotten.Load() {
				once.Do(func() {
					again.Store(true)
					reset(t, p, "o", "4")
				})
			}
		}
		p = boot(t, s, wf, kid, brief, parkAfter(decade))
		h := start(t, wf, p, "o", "")
		time.Sleep(20 * time.Second)
		if left := entries(t, s.Storage, string(key)); len(left) > 0 {
			t.Fatalf("there is %v", left)
		}
		forgotten.Store(true)
		soonDone(t, h, 2*time.Minute)
		if got := result(t, h); got != "late" {
			t.Errorf("got %q", got)
		}
	})
}

// The records of children that a workflow has given up are all removed, also if there are more than fit into a commit of the store.
func TestRecordsOfManyGivenUpChildrenAreRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		mem := new(memory.Store)
		s := &hooked{Storage: mem, max: storage.Size{Ops: 127, Bytes: 1 << 20}}
		kid := flow("kid", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		wf := flow("wf", func(run *engine.Run) (string, error) {
			kid.Go(run, "") // it is there as long as the parent
			scope, cancel := run.WithCancel()
			for range 60 {
				kid.Go(scope, "")
			}
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			cancel()
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			brief := sleeper(time.Second)
			for range 10 { // its checkpoints remove the records that nobody needs
				if _, err := brief.AsChild(engine.ChildOptions{}).Do(run, ""); err != nil {
					return "", err
				}
			}
			return yes.Receive(run)
		})
		p := boot(t, s, wf, kid, sleeper(time.Second), leases)
		start(t, wf, p, "o", "")
		time.Sleep(30 * time.Second)
		if n := len(entries(t, mem, "kid:o:")); n != 61 {
			t.Fatalf("%d records of children, want 61", n)
		}
		time.Sleep(5 * time.Minute)
		if left := entries(t, mem, "kid:o:"); len(left) != 1 {
			t.Errorf("%d records of children, want that of the one that is waited for", len(left))
		}
		p.kill()
	})
}

// OPS-1, OPS-5, OPS-6: a child that is to outlive its parent, and whose scope has ended, goes on: also after a reset to before the end of
// the scope, whether its parent is terminated then or reset to before the child. Its record goes when its parent learns of its end.
func TestAbandonedChildOfAScopeOutlivesAReset(t *testing.T) {
	for _, then := range []string{"terminated", "reset", "told"} {
		t.Run(then, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer func() { s.Close() }()
				kid := flow("kid", func(run *engine.Run) (string, error) { return yes.Receive(run) })
				brief := sleeper(6 * time.Second)
				var child string
				wf := flow("wf", func(run *engine.Run) (string, error) {
					brief.Go(run, "")                              // 1: its end has the parent look at its children
					kid.Go(run, "")                                // 2: it is there as long as the parent
					if err := run.Sleep(time.Second); err != nil { // 3
						return "", err
					}
					scope, cancel := run.WithCancel()
					kid.AsChild(engine.ChildOptions{OnParentEnd: engine.ParentEndAbandon}).Go(scope, "") // 4
					if err := run.Sleep(time.Second); err != nil {                                       // 5
						return "", err
					}
					cancel()
					for range 10 { // its checkpoints remove the records that nobody needs
						if err := run.Sleep(2 * time.Second); err != nil {
							return "", err
						}
					}
					return yes.Receive(run)
				})
				p := boot(t, s, wf, kid, brief, leases)
				start(t, wf, p, "o", "")
				time.Sleep(15 * time.Second)
				for _, c := range historyOf(t, p.Engine, "o") {
					for _, e := range c.Events {
						if e.Kind == checkpoint.KindStarted && e.Operation == "4" {
							child = e.Child
						}
					}
				}
				if then == "told" {
					send(t, yes, p, child, "", "")
					eventually(t, "the record of the child is removed", func() bool { return len(entries(t, s, string(keys.Child("o", "4")))) == 0 })
					whole(t, s)
					return
				}
				reset(t, p, "o", "5")
				time.Sleep(15 * time.Second)
				if then == "reset" {
					reset(t, p, "o", "4")
				} else if err := p.Terminate(ctx, "o", audit); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second)
				if i := describe(t, p, child); i.Status != checkpoint.StatusRunning || i.Cancel != nil {
					t.Errorf("the child is %s: %+v", i.Status, i.Cancel)
				}
				whole(t, s)
			})
		})
	}
}

// OPS-6: a child with a ChildID that was begun behind the point, and that the function does not start again, is asked to
// stop when the workflow ends, also by the next owner. One of another input is not taken up: its id is taken.
func TestChildThatIsNotTakenUp(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		kid := flow("kid", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		code := func(id, in string) *engine.Workflow[string, string] {
			return flow("wf", func(run *engine.Run) (string, error) {
				if err := run.Sleep(time.Second); err != nil {
					return "", err
				}
				if id != "" {
					if _, err := kid.AsChild(engine.ChildOptions{ID: id}).Do(run, in); err != nil { // 2
						return "", err
					}
				}
				return yes.Receive(run)
			})
		}
		p := boot(t, s, code("kid", "a"), kid, leases)
		start(t, code("kid", "a"), p, "o", "")
		time.Sleep(5 * time.Second)
		p.stop(t)
		reset(t, made(t, s), "o", "2")
		p = boot(t, s, code("kid", "b"), kid, leases)
		if _, err := outcome(code("", "").Handle(p, "o")); !strings.Contains(fmt.Sprint(err), "is taken") {
			t.Errorf("another input: %v", err)
		}
		if i := describe(t, p, "kid"); i.Cancel == nil || !strings.Contains(i.Cancel.Reason, "reset of parent") {
			t.Errorf("the child is %+v", i)
		}
		p.stop(t)

		p = boot(t, s, code("second", "a"), kid, leases)
		start(t, code("second", "a"), p, "p", "")
		time.Sleep(5 * time.Second)
		p.stop(t)
		reset(t, made(t, s), "p", "2")
		p = boot(t, s, code("", ""), kid, leases)
		time.Sleep(5 * time.Second)
		if i := describe(t, p, "second"); i.Cancel != nil {
			t.Errorf("the function has not ended, and the child is %+v", i)
		}
		p.stop(t)
		p = boot(t, s, code("", ""), kid, leases)
		send(t, yes, p, "p", "done", "")
		if got := result(t, code("", "").Handle(p, "p")); got != "done" {
			t.Errorf("got %q", got)
		}
		time.Sleep(10 * time.Second)
		if i := describe(t, p, "second"); i.Status != checkpoint.StatusCancelled || i.Cancel == nil || !strings.Contains(i.Cancel.Reason, "reset of parent") {
			t.Errorf("the child is %+v", i)
		}
		whole(t, s)
	})
}

// OPS-6: a child with a ChildID that was begun behind the point has ended, before the reset or after it, and its parent was not
// told. The function takes it up and is told; if the function does not start it again, nothing comes of it. A child with a
// derived id is begun anew.
func TestChildEndedUnseenBeforeAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var begun tally
		kid := flow("kid", nil)
		kid.Func = func(run *engine.Run, in string) (string, error) {
			_, err := engine.Step(run, "s", func(context.Context) (string, error) { begun.add(in); return "", nil })
			if err != nil || in == "derived" {
				return "", err
			}
			return yes.Receive(run)
		}
		left := false
		wf := flow("wf", nil)
		wf.Func = func(run *engine.Run, id string) (string, error) {
			if err := run.Sleep(time.Second); err != nil || left && id == "left" { // 1
				return id, err
			}
			named := kid.AsChild(engine.ChildOptions{ID: "kid " + id}).Go(run, id) // 2
			if _, err := kid.AsChild(engine.ChildOptions{}).Do(run, "derived"); err != nil {
				return "", err
			}
			return named.Get(run)
		}
		ids := []string{"before", "after", "left"}
		p := boot(t, s, wf, kid, leases)
		for _, id := range ids {
			start(t, wf, p, id, id)
		}
		time.Sleep(5 * time.Second)
		p.stop(t)
		p = boot(t, s, kid, leases) // it does not drive the parents
		grow := func(id string) {
			send(t, yes, p, "kid "+id, "grown "+id, "")
			result(t, kid.Handle(p, "kid "+id))
		}
		grow("before")
		grow("left")
		for _, id := range ids {
			reset(t, p, id, "2")
		}
		grow("after")
		p.stop(t)
		left = true
		p = boot(t, s, wf, kid, leases)
		for id, want := range map[string]string{"before": "grown before", "after": "grown after", "left": "left"} {
			h := wf.Handle(p, id)
			soonDone(t, h, 30*time.Second)
			if got := result(t, h); got != want || begun.of(id) != 1 {
				t.Errorf("%s: got %q, and the child began %d times", id, got, begun.of(id))
			}
		}
		if n := begun.of("derived"); n != 5 {
			t.Errorf("children with derived ids began %d times, want 5", n)
		}
		whole(t, s)
	})
}

// OPS-4, OPS-5: a child whose parent was told how it ended cannot be reset. A parent that had ended
// before, and so was not told, is no obstacle.
func TestResetOfAChildThatWasTold(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		kid := flow("kid", func(run *engine.Run) (string, error) {
			_, err := yes.Receive(run)
			return "grown", errors.Join(err, run.Sleep(time.Second))
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			a, err := kid.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "")
			if err != nil {
				return "", err
			}
			b, err := yes.Receive(run)
			return a + b, err
		})
		p := boot(t, s, wf, kid, leases)
		h := start(t, wf, p, "o", "")
		send(t, yes, p, "o", " up", "")
		eventually(t, "the child is there", func() bool { _, err := p.Describe(ctx, "kid"); return err == nil })
		send(t, yes, p, "kid", "", "")
		time.Sleep(500 * time.Millisecond)
		reset(t, p, "kid", "1") // it has not ended
		if got := result(t, h); got != "grown up" {
			t.Errorf("got %q", got)
		}
		reset(t, p, "o", "2")
		p.kill()
		e := made(t, s)
		defer e.Close()
		if err := e.Reset(ctx, "kid", "1", audit); !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), "told") {
			t.Errorf("the child: %v", err)
		}
		left := flow("left", func(run *engine.Run) (string, error) {
			kid.AsChild(engine.ChildOptions{ID: "alone", OnParentEnd: engine.ParentEndAbandon}).Go(run, "")
			return "", nil
		})
		p = boot(t, s, left, kid, leases)
		result(t, start(t, left, p, "left", ""))
		send(t, yes, p, "alone", "", "")
		alone := kid.Handle(p, "alone")
		result(t, alone)
		reset(t, p, "alone", "1")
		if got := result(t, alone); got != "grown" {
			t.Errorf("a child of a parent that had ended: %q", got)
		}
	})
}

// OPS-7: a value that was set behind the point is gone, and one from before it is as it was then. Choices
// of versions behind the point are made again.
func TestValuesAndVersionsOfAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		owner := &engine.Value[string]{Name: "owner"}
		code := func(newest int, more bool) *engine.Workflow[string, string] {
			wf := flow("wf", func(run *engine.Run) (string, error) {
				set(run, "begun", 1)
				early := run.Version("early")
				if err := errors.Join(owner.Set(run, "ann"), run.Sleep(time.Second)); err != nil {
					return "", err
				}
				mid := run.Version("mid") // at the point
				set(run, "half", 2)
				if err := run.Sleep(time.Second); err != nil { // 2
					return "", err
				}
				late := run.Version("late")
				if err := errors.Join(phase.Set(run, "late"), owner.Set(run, "bob"), run.Sleep(time.Second)); err != nil { // 3
					return "", err
				}
				if more {
					third := &engine.Value[string]{Name: "third"}
					if err := third.Set(run, "x"); err != nil {
						return "", err
					}
				}
				_, err := yes.Receive(run)
				return fmt.Sprint(early, mid, late), err
			})
			wf.Versions = map[string]int{"early": newest, "mid": newest, "late": newest}
			return wf
		}
		p := boot(t, s, code(1, true), leases)
		start(t, code(1, true), p, "o", "")
		time.Sleep(10 * time.Second)
		p.stop(t)
		reset(t, made(t, s), "o", "2")
		if got := valuesOf(t, made(t, s), "o"); got["third"] != "" || got["stage"] == `"late"` || got["owner"] == `"bob"` {
			t.Errorf("before the replay: values %v", got)
		}
		wf := code(2, false)
		p = boot(t, s, wf, leases)
		time.Sleep(500 * time.Millisecond)
		if got := valuesOf(t, p.Engine, "o"); len(got) != 3 || got["stage"] != `"half"` || got["progress 50%: a/b"] != "2" || got["owner"] != `"ann"` {
			t.Errorf("at the point: values %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := valuesOf(t, p.Engine, "o"); len(got) != 3 || got["stage"] != `"late"` || got["owner"] != `"bob"` {
			t.Errorf("after the reset: values %v", got)
		}
		p.stop(t)
		p = boot(t, s, wf, leases)
		send(t, yes, p, "o", "", "")
		if got := result(t, wf.Handle(p, "o")); got != "1 2 2" {
			t.Errorf("versions %q, want that of before the point, and twice the newest", got)
		}
		whole(t, s)
	})
}

// OPS-8: what cannot be done is refused, and nothing is written.
func TestResetIsRefused(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		book := &activity.Activity[string, string]{
			Name:       "book",
			Run:        func(_ context.Context, s string) (string, error) { return s, nil },
			Compensate: func(_ context.Context, _, _ string) error { return nil },
		}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err1 := book.Do(run, "a")
			_, err2 := book.Do(run, "b")
			return "", errors.Join(err1, err2, errBroke)
		})
		later := flow("later", func(*engine.Run) (string, error) { return "", nil })
		p := boot(t, s, wf, later, leases)
		h := start(t, wf, p, "o", "")
		if _, err := outcome(h); err == nil {
			t.Fatal("it has not failed")
		}
		start(t, later.With(engine.StartOptions{StartAt: time.Now().Add(time.Hour)}), p, "later", "")
		was := recordsOfRuns(t, s)
		for _, c := range []struct {
			id, before string
			want       error
		}{
			{"o", "7", engine.ErrNotFound},
			{"o", "1~1", engine.ErrNotFound},
			{"nobody", "1", engine.ErrNotFound},
			{"o", "2", engine.ErrNotApplicable},      // 1 was undone
			{"o", "1.undo", engine.ErrNotApplicable}, // 2 was
			{"later", "", engine.ErrNotApplicable},
			{"o", strings.Repeat("1", 500), engine.ErrInvalid},
			{"", "1", engine.ErrInvalid},
		} {
			if err := p.Reset(ctx, c.id, c.before, audit); !errors.Is(err, c.want) {
				t.Errorf("reset %q to %q: %v, want %v", c.id, c.before, err, c.want)
			}
		}
		if err := p.Reset(ctx, "o", "1", engine.Actor{}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("without an actor: %v", err)
		}
		if is := recordsOfRuns(t, s); !slices.Equal(is, was) {
			t.Errorf("written: %q, before %q", is, was)
		}
		reset(t, p, "o", "1")
		if _, err := outcome(h); err == nil {
			t.Error("it has not failed again")
		}
	})
}

// OPS-2: if another engine resets a run, its owner executes it again when the attempts of the former
// execution have returned.
func TestResetByAnotherEngineWaitsForAttempts(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var attempts, running atomic.Int64
		slow := &activity.Activity[string, string]{Name: "slow", Run: func(_ context.Context, s string) (string, error) { // ignores cancellation
			attempts.Add(1)
			if running.Add(1) > 1 {
				t.Error("two attempts of an operation run at the same time")
			}
			defer running.Add(-1)
			time.Sleep(20 * time.Second)
			return s, nil
		}}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			v := slow.Go(run, "slow") // 1
			for range 2 {
				if _, err := engine.Step(run, "step", func(context.Context) (int, error) { return 0, nil }); err != nil {
					return "", err
				}
			}
			return v.Get(run)
		})
		p := boot(t, s, wf, leases)
		h := start(t, wf, p, "o", "")
		time.Sleep(5 * time.Second)
		reset(t, made(t, s), "o", "3")
		if got := result(t, h); got != "slow" || attempts.Load() != 2 {
			t.Errorf("result %q after %d attempts, want 2", got, attempts.Load())
		}
		whole(t, s)
		p.stop(t)
	})
}

// OPS-8: what an earlier life has left undone is no operation of the present one.
func TestResetToAnOperationOfAnEarlierLife(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		slow := &activity.Activity[string, string]{Name: "slow", Run: func(ctx context.Context, s string) (string, error) {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Minute):
				return s, nil
			}
		}}
		wf := &engine.Workflow[string, string]{Name: "wf", Func: func(run *engine.Run, in string) (string, error) {
			if in == "first" {
				slow.Go(run, in) // 1
				return "", errors.Join(run.Sleep(time.Second), engine.ContinueAsNew(run, "second"))
			}
			return in, run.Sleep(time.Second) // 3
		}}
		p := boot(t, s, wf, leases)
		h := start(t, wf, p, "o", "first")
		if got := result(t, h); got != "second" {
			t.Fatalf("result %q", got)
		}
		givenUp := slices.ContainsFunc(historyOf(t, p.Engine, "o")[0].Events, func(e checkpoint.Event) bool {
			return e.Kind == checkpoint.KindGivenUp && e.Operation == "1"
		})
		if !givenUp {
			t.Fatalf("operation 1 was not given up: %v", kinds(historyOf(t, p.Engine, "o")))
		}
		for _, before := range []string{"1", "2"} {
			if err := p.Reset(ctx, "o", before, audit); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("reset to before %s, which is of the life before: %v, want ErrNotFound", before, err)
			}
		}
		reset(t, p, "o", "3")
		if got := result(t, h); got != "second" {
			t.Errorf("result %q after a reset", got)
		}
		p.stop(t)
	})
}

// OPS-2, OPS-3: updates that were accepted behind the point are pending again, in their order, and are answered anew,
// under other ids. One that was accepted before the point and answered behind it is answered anew. Those
// who ask for an answer wait for it.
func TestUpdatesOfAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		factor := 1
		var order []string
		double := &engine.Update[int, string]{Name: "double", Errors: []error{errNegative}}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			order = nil
			if err := double.Handle(run, func(n int) error {
				if n < 0 {
					return errNegative
				}
				return nil
			}, func(run *engine.Run, n int) (string, error) {
				order = append(order, fmt.Sprint(n))
				v, err := engine.Step(run, "times", func(context.Context) (int, error) {
					time.Sleep(time.Duration(n) * time.Millisecond) // updates in progress have their results in order
					return n * factor, nil
				})
				return fmt.Sprint(v), errors.Join(err, run.Sleep(time.Second))
			}); err != nil {
				return "", err
			}
			err := run.Sleep(time.Second)
			v, err2 := yes.Receive(run) // 2
			return v, errors.Join(err, err2)
		})
		call := func(c engine.Client, id string, n int, want string) {
			t.Helper()
			if got, err := double.Call(patient(t, time.Minute), c, "o", n, by(id)); got != want || err != nil {
				t.Fatalf("update %s: %q, %v, want %q", id, got, err, want)
			}
		}
		p := boot(t, s, wf, leases)
		h := start(t, wf, p, "o", "")
		time.Sleep(10 * time.Second)
		for i := range 4 {
			call(p, fmt.Sprint(i+1), i+1, fmt.Sprint(i+1))
		}
		if _, err := double.Call(patient(t, time.Minute), p, "o", -1, by("no")); !errors.Is(err, engine.ErrRejected) {
			t.Errorf("refused update: %v", err)
		}
		send(t, yes, p, "o", "v", "v")
		if got := result(t, h); got != "v" {
			t.Fatalf("result %q", got)
		}
		for n, c := range []struct {
			before  string
			pending int
			want    []string // answers
			ids     []string // of updates in the history, as it stands
		}{
			{"u3", 2, []string{"1", "2", "30", "40"}, []string{"u1", "u2", "u3~1", "u4~1"}},
			{"u3~1.1", 0, []string{"1", "2", "300", "400"}, []string{"u1", "u2", "u3~1", "u4~1"}},
			{"u2.2", 2, []string{"1", "2", "3000", "4000"}, []string{"u1", "u2", "u3~3", "u4~3"}},
			{"1", 4, []string{"10000", "20000", "30000", "40000"}, []string{"u1~4", "u2~4", "u3~4", "u4~4"}},
		} {
			factor *= 10
			p.stop(t)
			client := made(t, s)
			reset(t, client, "o", c.before)
			if got := entries(t, s, "upd:"); len(got) != c.pending {
				t.Errorf("before %s: pending %q, want %d", c.before, got, c.pending)
			}
			if got := entries(t, s, "upr:"); len(got) != 5-c.pending {
				t.Errorf("before %s: answers %q, want %d and a refusal", c.before, got, 4-c.pending)
			}
			if got := entries(t, s, "exp:"); n == 0 && len(got) != 4 { // of 1, 2, the refusal, the signal
				t.Errorf("before %s: expire %q", c.before, got)
			}
			intact(t, s)
			if _, err := double.Call(patient(t, time.Minute), client, "o", 7, by("4")); !errors.Is(err, engine.ErrMismatch) {
				t.Errorf("before %s: another input: %v, want ErrMismatch", c.before, err)
			}
			waits := make(chan string, 1)
			go func() {
				got, err := double.Call(patient(t, time.Minute), client, "o", 4, by("4"))
				waits <- fmt.Sprint(got, err)
			}()
			time.Sleep(time.Second)
			if len(waits) > 0 {
				t.Errorf("before %s: answered before it runs: %s", c.before, <-waits)
			}
			p = boot(t, s, wf, leases)
			for i, want := range c.want {
				call(p, fmt.Sprint(i+1), i+1, want)
			}
			if got := <-waits; got != c.want[3]+"<nil>" {
				t.Errorf("before %s: who waited got %s", c.before, got)
			}
			if got := strings.Join(order, " "); got != "1 2 3 4" {
				t.Errorf("before %s: executed in the order %s", c.before, got)
			}
			if _, err := double.Call(patient(t, time.Minute), p, "o", -1, by("no")); !errors.Is(err, engine.ErrRejected) {
				t.Errorf("before %s: refused update: %v", c.before, err)
			}
			if got := result(t, wf.Handle(p, "o")); got != "v" {
				t.Errorf("before %s: result %q", c.before, got)
			}
			record, err := journal.Load(ctx, s, "o")
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, cp := range historyOf(t, p.Engine, "o") {
				for i, e := range cp.Events {
					if e.Kind == checkpoint.KindAccepted && !record.PassedOver(journal.Place{Checkpoint: cp.Number, Event: i}) {
						ids = append(ids, e.Operation)
					}
				}
			}
			if !slices.Equal(ids, c.ids) {
				t.Errorf("before %s: updates %q, want %q", c.before, ids, c.ids)
			}
			whole(t, s)
		}
		if err := p.Reset(ctx, "o", "u9", audit); !errors.Is(err, engine.ErrNotFound) || err.Error() != `engine: reset "o": its history has no operation "u9"` {
			t.Errorf("to before an update that there is not: %v", err)
		}
		p.stop(t)
	})
}

// OPS-8: an update that was accepted before the point and answered behind it cannot be answered anew if its answer is
// forgotten and another one with its ID is pending.
func TestResetOfAnUpdateWhoseIDIsUsedAgain(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		slow := &engine.Update[int, int]{Name: "slow"}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := slow.Handle(run, nil, func(run *engine.Run, n int) (int, error) { return n, run.Sleep(time.Second) }); err != nil {
				return "", err
			}
			return yes.Receive(run)
		})
		p := boot(t, s, wf, rareLeases, func(c *engine.Config) { c.SignalIDRetention = time.Minute })
		start(t, wf, p, "o", "")
		if _, err := slow.Call(patient(t, time.Minute), p, "o", 1, by("u")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		p.stop(t)
		client := made(t, s)
		defer client.Close()
		if _, err := slow.Call(patient(t, time.Minute), client, "o", 2, by("u")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("answered: %v", err)
		}
		err := client.Reset(patient(t, time.Minute), "o", "u1.1", audit)
		if !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), `update "slow" with the ID "u": its ID was used again`) {
			t.Errorf("reset: %v", err)
		}
		whole(t, s)
	})
}

// OPS-2: nobody can answer for an operation that a reset has passed over: nothing would come of it. An operation that
// had begun before the point is still the one.
func TestResolveAfterAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var known atomic.Bool
		pay := puzzling(&known)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			first := pay.Go(run, "a") // 1
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			second, err := pay.Do(run, "b") // 3
			if err != nil {
				return "", err
			}
			v, err := first.Get(run)
			return v + second, err
		})
		p := boot(t, s, wf, rareLeases)
		asked := func(operations ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			var got []string
			for _, a := range describe(t, p, "o").Attention {
				got = append(got, a.Operation)
			}
			if slices.Sort(got); !slices.Equal(got, operations) {
				t.Fatalf("it asks for %q, want %q", got, operations)
			}
		}
		resolve := func(e *engine.Engine, operation string) error {
			return e.Resolve(ctx, "o", operation, activity.CompletedWithResult(operation), audit)
		}
		start(t, wf, p, "o", "")
		asked("1", "3")
		p.stop(t)
		client := made(t, s)
		defer client.Close()
		beside := made(t, &between{Storage: s, get: "wf:o", happens: func() { reset(t, client, "o", "3") }})
		defer beside.Close()
		for _, e := range []*engine.Engine{beside, client} { // it is reset while the first call decides
			if err := resolve(e, "3"); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("Resolve of what was passed over: %v, want ErrNotApplicable", err)
			}
		}
		if err := resolve(client, "1"); err != nil {
			t.Errorf("Resolve of what had begun before the point: %v", err)
		}
		p = boot(t, s, wf, rareLeases)
		asked("3~1")
		if err := resolve(p.Engine, "3~1"); err != nil {
			t.Error(err)
		}
		if got := result(t, wf.Handle(p, "o")); got != "13~1" {
			t.Errorf("got %q", got)
		}
		whole(t, s)
		p.stop(t)
	})
}

// UPD-1: a workflow is reset between the two reads of who waits for the answer to its update: of the workflow, which had ended,
// and of the answer. The update is then not over.
func TestUpdateWhoseWorkflowIsResetMeanwhile(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		slow := &engine.Update[int, int]{Name: "slow"}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := slow.Handle(run, nil, func(run *engine.Run, n int) (int, error) {
				if _, err := engine.Step(run, "step", func(context.Context) (int, error) { return n, nil }); err != nil {
					return 0, err
				}
				return n, run.Sleep(time.Minute)
			}); err != nil {
				return "", err
			}
			_, err := yes.Receive(run)
			return "", err
		})
		p := boot(t, s, wf, leases)
		for id, before := range map[string]string{"accepted": "u1.1", "waiting": "u1"} { // what the update is after the reset
			start(t, wf, p, id, "")
			if _, err := slow.Call(patient(t, 10*time.Second), p, id, 1, by("1")); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s: answered: %v", id, err)
			}
			if err := p.Terminate(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
			met := false
			client := made(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Get" && bytes.Equal(c.Key, keys.Answer(id, "1")) && !met {
					met = true
					reset(t, p, id, before)
				}
				return storagetest.None
			}), wf)
			if got, err := slow.Call(patient(t, time.Hour), client, id, 1, by("1")); !met || got != 1 || err != nil {
				t.Errorf("%s: reset meanwhile: %t; got %d, %v", id, met, got, err)
			}
			client.Close()
			whole(t, s)
		}
		p.stop(t)
	})
}

// An update in progress goes back with a run that was terminated, and one whose answer is forgotten with one
// that has ended.
func TestUpdatesOfAResetAfterTheEnd(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		slow := &engine.Update[int, int]{Name: "slow"}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := slow.Handle(run, nil, func(run *engine.Run, n int) (int, error) {
				return n, run.Sleep(time.Minute)
			}); err != nil {
				return "", err
			}
			_, err := yes.Receive(run)
			return "", errors.Join(err, run.Sleep(time.Second)) // 2
		})
		p := boot(t, s, wf, leases)
		start(t, wf, p, "killed", "")
		time.Sleep(10 * time.Second)
		if _, err := slow.Call(patient(t, 10*time.Second), p, "killed", 1, by("1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("answered: %v", err)
		}
		if err := p.Terminate(ctx, "killed", audit); err != nil {
			t.Fatal(err)
		}
		for _, before := range []string{"u1", "u1~1.1"} {
			if _, err := slow.Call(patient(t, time.Hour), p, "killed", 1, by("1")); before == "u1" && !errors.Is(err, engine.ErrTerminated) {
				t.Errorf("terminated: %v", err)
			}
			reset(t, p, "killed", before)
			if got, err := slow.Call(patient(t, time.Hour), p, "killed", 1, by("1")); got != 1 || err != nil {
				t.Errorf("after the reset to %s: %d, %v", before, got, err)
			}
			whole(t, s)
		}
		h := start(t, wf, p, "old", "")
		for n := range 2 {
			if got, err := slow.Call(patient(t, time.Hour), p, "old", n, by(fmt.Sprint(n))); got != n || err != nil {
				t.Fatalf("answered %d, %v", got, err)
			}
		}
		send(t, yes, p, "old", "v", "v")
		result(t, h)
		for _, before := range []string{"u1", "u1~1.1", "u2~1.1"} {
			forgotten := storage.Batch{}
			for _, key := range append(entries(t, s, "upr:old:"), entries(t, s, "exp:")...) {
				forgotten.Ops = append(forgotten.Ops, storage.Delete([]byte(key)))
			}
			if err := s.Commit(ctx, forgotten); err != nil {
				t.Fatal(err)
			}
			reset(t, p, "old", before)
			for n := range 2 {
				if got, err := slow.Call(patient(t, time.Hour), p, "old", n, by(fmt.Sprint(n))); got != n || err != nil && !errors.Is(err, engine.ErrTerminal) {
					t.Errorf("after the reset to %s: %d, %v", before, got, err)
				}
			}
			if got := result(t, h); got != "" {
				t.Errorf("result %q", got)
			}
		}
		p.stop(t)
	})
}

// OPS-2: a life after a reset uses no number that was passed over: no update, and no operation.
func TestLifeAfterAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		buggy := true
		calls := &tally{}
		keyed := &activity.Activity[int, string]{Name: "keyed", Idempotent: true, Run: func(ctx context.Context, n int) (string, error) {
			calls.add(activity.InfoFrom(ctx).IdempotencyKey)
			return fmt.Sprint(n), nil
		}}
		wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, life int) (string, error) {
			if err := increase.Handle(run, nil, func(run *engine.Run, n int) (int, error) {
				_, err := keyed.Do(run, n)
				return n + life, err
			}); err != nil {
				return "", err
			}
			many := 2
			if buggy {
				many = 6
			}
			all := ""
			for i := range many {
				v, err := keyed.Do(run, 10*life+i)
				if err != nil {
					return "", err
				}
				all += v + " "
			}
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
			if life == 0 {
				return "", engine.ContinueAsNew(run, 1)
			}
			return all, nil
		}}
		p := boot(t, s, wf, leases)
		h := start(t, wf, p, "o", 0)
		time.Sleep(10 * time.Second)
		add(t, p, "o", "1", 100, 100)
		add(t, p, "o", "2", 200, 200)
		buggy = false
		reset(t, p, "o", "2")
		add(t, p, "o", "1", 100, 100)
		add(t, p, "o", "2", 200, 200)
		buggy = true
		send(t, yes, p, "o", "a", "a")
		time.Sleep(10 * time.Second)
		add(t, p, "o", "3", 300, 301)
		send(t, yes, p, "o", "b", "b")
		if got := result(t, h); got != "10 11 12 13 14 15 " {
			t.Errorf("result %q", got)
		}
		for k, n := range calls.n {
			if n > 1 {
				t.Errorf("the key %s was used %d times", k, n)
			}
		}
		for _, e := range historyOf(t, p.Engine, "o") {
			for _, e := range e.Events {
				if e.Kind == checkpoint.KindAccepted && e.Operation != "u3" {
					t.Errorf("the third update is operation %s, want u3", e.Operation)
				}
			}
		}
		whole(t, s)
		p.stop(t)
	})
}

// OPS-2: the hooks are open that were open at the point, and no others, while the run runs and after it has ended. If
// another run has one of their tokens, the reset is refused and nothing is written.
func TestHooksOfAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		other := waitsFor("other")
		wf := flow("wf", func(run *engine.Run) (string, error) {
			err1 := run.Sleep(time.Second)
			kept, err2 := paid.Open(run, &signal.HookOptions{Token: "kept"}) // 2
			gone, err3 := paid.Open(run, &signal.HookOptions{Token: "gone"}) // 3
			if err := errors.Join(err1, err2, err3, run.Sleep(time.Second)); err != nil {
				return "", err
			}
			err1 = gone.Dispose(run) // 5
			err2 = run.Sleep(time.Second)
			gone, err3 = paid.Open(run, &signal.HookOptions{Token: "gone"}) // 7
			if err := errors.Join(err1, err2, err3, run.Sleep(time.Second)); err != nil {
				return "", err
			}
			late, err := paid.Open(run, &signal.HookOptions{Token: "late"}) // 9
			if err != nil {
				return "", err
			}
			v, err1 := late.Receive(run) // 10
			err2 = late.Dispose(run)     // 11
			w, _, err3 := kept.ReceiveWithin(run, time.Minute)
			x, _, err4 := gone.ReceiveWithin(run, time.Minute)
			return v + w + x, errors.Join(err1, err2, err3, err4)
		})
		// hooks returns which tokens are taken, and how many records the hooks of o have.
		tokens := func() (taken string, records int) {
			for _, token := range []string{"kept", "gone", "late"} {
				if a, err := journal.ReadHookAddress(ctx, s, keys.TokenHash(token)); err != nil {
					t.Fatal(err)
				} else if a != nil {
					taken += token + " "
				}
			}
			return taken, len(entries(t, s, "hk:"))
		}
		open := map[string]string{
			"": "", "1": "", "2": "", "3": "kept ", "4": "kept gone ", "5": "kept gone ", "6": "kept ", "7": "kept ",
			"8": "kept gone ", "9": "kept gone ", "10": "kept gone late ", "11": "kept gone late ", "12": "kept gone ",
		}
		stride := 1 // with the race detector a third of the points on disks and servers
		if _, fast := s.(*memory.Store); !fast {
			stride = 3
		}
		for _, ended := range []bool{false, true} {
			for _, before := range every(torture.Rounds(1, 1, stride), slices.Sorted(maps.Keys(open))) {
				if !ended && len(before) > 1 { // it has not come there
					continue
				}
				p := boot(t, s, wf, other, parking)
				h := start(t, wf, p, "o", "")
				time.Sleep(10 * time.Second)
				ids := map[string]string{}
				for e, err := range storage.All(ctx, s, keys.HooksOf("o")) {
					if err != nil {
						t.Fatal(err)
					}
					k, err := journal.OpenHook(e)
					if err != nil {
						t.Fatal(err)
					}
					ids[k.TokenHash] = k.ID
				}
				if ended {
					resume(t, p, "late", "first", "first"+before)
					if got := result(t, h); got != "first" {
						t.Fatalf("result %q", got)
					}
					if want := open[before]; want != "" {
						token := strings.Fields(want)[len(strings.Fields(want))-1]
						holder := start(t, other, p, "holder", token)
						tokenOf(t, p, "holder")
						time.Sleep(time.Second)
						was := snapshot(t, s)
						var taken *signal.TokenError
						if err := p.Reset(ctx, "o", before, audit); !errors.As(err, &taken) || taken.WorkflowID != "holder" {
							t.Errorf("before %q: %v, want a TokenError with holder", before, err)
						}
						if !sameBut(t, was, snapshot(t, s), "eng:", "meta:") {
							t.Errorf("before %q: a reset that was refused has written something", before)
						}
						resume(t, p, token, "x", "x"+before)
						result(t, holder)
						if err := p.Purge(ctx, "holder", audit); err != nil {
							t.Fatal(err)
						}
					}
				}
				p.stop(t)
				reset(t, made(t, s), "o", before)
				taken, records := tokens()
				if taken != open[before] || records != len(strings.Fields(taken)) {
					t.Errorf("before %q, ended %v: taken %q, and %d records; want %q", before, ended, taken, records, open[before])
				}
				intact(t, s)
				p = boot(t, s, wf, other, parking)
				time.Sleep(10 * time.Second)
				resume(t, p, "kept", " 2", fmt.Sprint("2", before, ended))
				resume(t, p, "gone", " 3", fmt.Sprint("3", before, ended))
				want := "again 2 3"
				if ended && (before == "11" || before == "12") {
					want = "first 2 3"
				} else {
					if ended && before == "10" {
						want = "first 2 3"
					} else {
						resume(t, p, "late", "again", fmt.Sprint("again", before, ended))
					}
				}
				if got := result(t, wf.Handle(p, "o")); got != want {
					t.Errorf("before %q, ended %v: result %q, want %q", before, ended, got, want)
				}
				whole(t, s)
				if err := p.Purge(ctx, "o", audit); err != nil {
					t.Fatal(err)
				}
				p.stop(t)
			}
		}
	})
}

// OPS-2: a hook that the run has taken over behind the point is that of the life before again.
func TestHooksOfAResetOverLives(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, life int) (string, error) {
			err1 := run.Sleep(time.Second)
			h, err2 := paid.Open(run, &signal.HookOptions{Token: "token"})
			if err := errors.Join(err1, err2); err != nil {
				return "", err
			}
			if life == 0 {
				return "", engine.ContinueAsNew(run, 1)
			}
			v, err1 := h.Receive(run) // 5
			return v, errors.Join(err1, h.Dispose(run))
		}}
		p := boot(t, s, wf, leases)
		h := start(t, wf, p, "o", 0)
		time.Sleep(10 * time.Second)
		resume(t, p, "token", "v", "v")
		if got := result(t, h); got != "v" {
			t.Fatalf("result %q", got)
		}
		for before, by := range map[string]string{"4": "2", "": "2", "5": "4"} {
			p.stop(t)
			reset(t, made(t, s), "o", before)
			var hooks []string
			for e, err := range storage.All(ctx, s, keys.HooksOf("o")) {
				if err != nil {
					t.Fatal(err)
				}
				h, err := journal.OpenHook(e)
				if err != nil {
					t.Fatal(err)
				}
				op, _, _ := strings.Cut(h.Operation, "~")
				hooks = append(hooks, op)
			}
			if !slices.Equal(hooks, []string{by}) {
				t.Errorf("before %q: hooks are of operations %q, want %s", before, hooks, by)
			}
			whole(t, s)
			p = boot(t, s, wf, leases)
			if got := result(t, wf.Handle(p, "o")); got != "v" { // what the hook got waits in it
				t.Errorf("before %q: result %q", before, got)
			}
		}
		p.stop(t)
	})
}

// OPS-9: of two resets at once, the second goes back from what the first has made of the history. To before the
// same operation it may go, although that has not begun since.
func TestResetBesideAReset(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for range 4 {
				if err := run.Sleep(time.Second); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		p := boot(t, s, wf, leases)
		result(t, start(t, wf, p, "o", ""))
		p.stop(t)
		first := made(t, s)
		defer first.Close()
		var once sync.Once
		second := made(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" {
				once.Do(func() { reset(t, first, "o", "2") })
			}
			return storagetest.None
		}))
		defer second.Close()
		if err := second.Reset(ctx, "o", "4", audit); !errors.Is(err, engine.ErrNotFound) { // it was passed over
			t.Errorf("got %v", err)
		}
		once = sync.Once{}
		reset(t, second, "o", "2")
		p = boot(t, s, wf, leases)
		if got := result(t, wf.Handle(p, "o")); got != "done" {
			t.Errorf("got %q", got)
		}
		if ids := operations(historyOf(t, p.Engine, "o")); fmt.Sprint(ids) != "[1 2 3 4 2~3 3~3 4~3]" {
			t.Errorf("operations %v", ids)
		}
		whole(t, s)
	})
}

// OPS-3: a reset takes back what the run records while the reset is being decided: a signal that it receives then is
// there again, and a hook that it opens then is closed.
func TestResetBesideItsOwner(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("wf", func(run *engine.Run) (string, error) {
			all := ""
			for range 2 {
				v, err := yes.Receive(run)
				if err != nil {
					return "", err
				}
				all += v
				if _, err := invoices.Open(run, &signal.HookOptions{Token: v}); err != nil {
					return "", err
				}
			}
			_, err := word.Receive(run)
			return all, err
		})
		for nth := 1; ; nth++ { // call to the store, behind which the run goes on
			s := sharing{new(memory.Store)}
			p := boot(t, s, wf, leases)
			start(t, wf, p, "o", "")
			send(t, yes, p, "o", "a", "a")
			synctest.Wait()
			calls, met := 0, false
			e := made(t, storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault {
				if calls++; calls == nth {
					send(t, yes, p, "o", "b", "b")
					synctest.Wait()
					met = true
				}
				return storagetest.None
			}))
			reset(t, e, "o", "1")
			e.Close()
			if !met {
				if nth < 10 {
					t.Errorf("a reset makes %d calls", nth-1)
				}
				p.stop(t)
				return
			}
			send(t, word, p, "o", "", "end")
			if got, err := outcome(wf.Handle(p, "o")); got != "ab" || err != nil {
				t.Errorf("the run went on before call %d: it returned %q, %v", nth, got, err)
			}
			whole(t, s)
			p.stop(t)
		}
	})
}

// OPS-2: a reset whose outcome is unknown is made once, whether it was applied or not.
func TestResetKnowsItself(t *testing.T) {
	for fault, commits := range map[storagetest.Fault]int{storagetest.ErrorBefore: 2, storagetest.ErrorAfter: 1} {
		onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
			s := store.Open(t)
			defer func() { s.Close() }()
			wf := flow("wf", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Second) })
			p := boot(t, s, wf, leases)
			result(t, start(t, wf, p, "o", ""))
			p.stop(t)
			met := 0
			e := made(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" {
					if met++; met == 1 {
						return fault
					}
				}
				return storagetest.None
			}))
			defer e.Close()
			reset(t, e, "o", "1")
			if n, err := acts(ctx, e, "o"); met != commits || n != 1 || err != nil {
				t.Errorf("%d commits and %d resets, want %d and 1: %v", met, n, commits, err)
			}
			p = boot(t, s, wf, leases)
			if got := result(t, wf.Handle(p, "o")); got != "done" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// OPS-2, OPS-9: the first commit of a reset or a retry is applied late, while it is decided again, or another reset is
// made then. What that has written is no reason to refuse it.
func TestResetIsNotRefusedForWhatItHasWritten(t *testing.T) {
	again := func(e *engine.Engine) error { return e.Reset(ctx, "o", "2", audit) }
	retry := func(e *engine.Engine) error { return e.Resume(ctx, "o", audit) }
	for name, c := range map[string]struct {
		before string // the read of such a key
		beside bool   // another one is made then
		call   func(e *engine.Engine) error
		acts   int
	}{
		"signal, late":          {"sig:", false, again, 1},
		"hook, late":            {"hook:", false, again, 1},
		"hook of a retry, late": {"hook:", false, retry, 1},
		"signal, beside":        {"sig:", true, again, 2},
		"hook, beside":          {"hook:", true, again, 2},
	} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				wf := flow("wf", func(run *engine.Run) (string, error) {
					if _, err := paid.Open(run, &signal.HookOptions{Token: "token"}); err != nil {
						return "", err
					}
					v, err := yes.Receive(run)
					return "", errors.Join(err, errors.New(v))
				})
				p := boot(t, s, wf, rareLeases)
				start(t, wf, p, "o", "")
				send(t, yes, p, "o", "v", "x")
				time.Sleep(time.Minute)
				p.stop(t)
				raced := 0
				var racing storage.Storage = &lateStore{Storage: s, of: "wf:", before: c.before, land: func(b storage.Batch) {
					if err := s.Commit(ctx, b); err != nil {
						t.Errorf("late: %v", err)
					}
					raced++
				}}
				if c.beside {
					racing = &hooked{Storage: s, beforeGet: func(key []byte) {
						if strings.HasPrefix(string(key), c.before) && raced == 0 {
							raced++
							if err := again(made(t, s)); err != nil {
								t.Errorf("beside: %v", err)
							}
						}
					}}
				}
				e := made(t, racing)
				if err := c.call(e); err != nil || raced != 1 {
					t.Errorf("%v; %d were made meanwhile, want 1", err, raced)
				}
				if n, err := acts(ctx, e, "o"); n != c.acts || err != nil {
					t.Errorf("%d are recorded, want %d: %v", n, c.acts, err)
				}
				p = boot(t, s, wf, rareLeases)
				if _, err := outcome(wf.Handle(p, "o")); err == nil || !strings.Contains(err.Error(), "v") {
					t.Errorf("the run ended with %v", err)
				}
				whole(t, s)
				p.stop(t)
			})
		})
	}
}

// OPS-2, OPS-8: an action is refused also if the record of the run changes each time while it is decided.
func TestRefusalBesideAnOwnerThatNeverRests(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, e *engine.Engine) error{
		"Resolve": func(ctx context.Context, e *engine.Engine) error {
			return e.Resolve(ctx, "o", "1", activity.NotCompleted[string](), audit)
		},
		"Resume": func(ctx context.Context, e *engine.Engine) error { return e.Resume(ctx, "o", audit) },
	} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				wf := flow("wf", func(run *engine.Run) (string, error) { return "", run.Sleep(decade) })
				p := boot(t, s, wf, rareLeases)
				start(t, wf, p, "o", "")
				time.Sleep(time.Second)
				p.stop(t)
				call, cancel := context.WithCancel(ctx)
				defer cancel()
				reads := 0
				e := made(t, &hooked{Storage: s, afterGet: func(key []byte) {
					if string(key) != "wf:o" {
						return
					}
					if reads++; reads > 500 {
						cancel()
					}
					rewrite(t, s, "o", func(wf *journal.Workflow) { wf.State++ })
				}})
				defer e.Close()
				began := time.Now()
				if err := act(call, e); !errors.Is(err, engine.ErrNotApplicable) || reads > 50 || time.Since(began) > time.Minute {
					t.Errorf("%v after %d reads and %v, want ErrNotApplicable", err, reads, time.Since(began))
				}
			})
		})
	}
}

// A reset that has stopped its owner from committing, because others were faster twice, is refused as any other.
func TestResetIsRefusedAfterItHasStoppedTheOwner(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
			return "", run.Sleep(decade)
		})
		p := boot(t, s, wf, rareLeases, func(c *engine.Config) { c.SignalIDRetention = time.Minute })
		start(t, wf, p, "o", "")
		send(t, yes, p, "o", "v", "x")
		time.Sleep(3 * time.Hour) // its acceptance is forgotten
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		commits := 0
		e := made(t, &hooked{Storage: s, beforeCommit: func(storage.Batch) {
			switch commits++; {
			case commits <= 2:
				rewrite(t, s, "o", func(wf *journal.Workflow) { wf.State++ })
				if commits == 2 {
					send(t, yes, p, "o", "v", "x")
				}
			case commits > 10:
				cancel()
			}
		}})
		defer e.Close()
		if err := e.Reset(call, "o", "", audit); !errors.Is(err, engine.ErrNotApplicable) || commits != 3 {
			t.Errorf("%v after %d commits, want ErrNotApplicable after 3", err, commits)
		}
		p.stop(t)
	})
}

// A cancellation and a termination behind the point are gone, and a request before it stays. Time
// limits count from the reset on.
func TestResetOfWhatWasStopped(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, how := range []string{"cancelled", "terminated", "too late"} {
			s := store.Open(t)
			wf := flow("wf", func(run *engine.Run) (string, error) {
				if err := run.Sleep(time.Second); err != nil {
					return "", err
				}
				v, ok, err := yes.ReceiveWithin(run, time.Minute)
				return fmt.Sprint(v, ok), err
			})
			p := boot(t, s, wf, rareLeases)
			h := start(t, wf, p, "o", "")
			time.Sleep(10 * time.Second)
			var err error
			before := ""
			switch how {
			case "cancelled":
				err = p.Cancel(ctx, "o", audit)
			case "terminated":
				before, err = "1", p.Terminate(ctx, "o", audit)
			case "too late":
				before = "2" // its limit begins anew
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := outcome(h); how != "too late" && !errors.Is(err, engine.ErrCancelled) || how == "too late" && got != "false" {
				t.Errorf("%s: %q, %v", how, got, err)
			}
			time.Sleep(10 * time.Minute)
			reset(t, p, "o", before)
			time.Sleep(30 * time.Second)
			if i := describe(t, p, "o"); i.Cancel != nil || i.Status != checkpoint.StatusRunning {
				t.Errorf("%s, and reset: %+v", how, i)
			}
			send(t, yes, p, "o", "in time ", "")
			if got := result(t, h); got != "in time true" {
				t.Errorf("%s: got %q", how, got)
			}
			whole(t, s)
			p.stop(t)
			s.Close()
		}
	})
}

// OPS-2: an activity that was given up because its run was cancelled has no outcome. If the run is reset to
// before that, the activity goes on as what is known of its last attempt says.
func TestResetToBeforeACancellation(t *testing.T) {
	for how, c := range map[string]struct {
		fails    bool // the first attempt returns an error, or else it times out
		verdict  activity.Verification[string]
		calls    int64 // of the verifier, after the reset
		attempts int64
	}{
		"failed":        {true, activity.NotCompleted[string](), 0, 2},
		"timed out":     {false, activity.NotCompleted[string](), 1, 2},
		"indeterminate": {false, activity.Indeterminate[string]("nobody knows"), 1, 1},
	} {
		t.Run(how, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer func() { s.Close() }()
				var attempts, verified atomic.Int64
				a := &activity.Activity[string, string]{
					Name: "pay", Timeout: 10 * time.Second, Retry: activity.Retry{Backoff: time.Hour, MaxBackoff: time.Hour},
					IdempotencyKey:  func(s string) string { return s },
					OnIndeterminate: activity.AwaitOperator,
					Run: func(ctx context.Context, s string) (string, error) {
						switch {
						case attempts.Add(1) > 1:
							return "paid", nil
						case c.fails:
							return "", activity.NoEffect(errBroke)
						}
						<-ctx.Done()
						return "", ctx.Err()
					},
					Verify: func(context.Context, string) (activity.Verification[string], error) {
						verified.Add(1)
						return c.verdict, nil
					},
				}
				wf := flow("wf", func(run *engine.Run) (string, error) {
					v := a.Go(run, "k") // 1
					if _, err := engine.Step(run, "step", func(context.Context) (int, error) { return 0, nil }); err != nil {
						return "", err
					}
					return v.Get(run)
				})
				p := boot(t, s, wf, rareLeases)
				h := start(t, wf, p, "o", "")
				time.Sleep(10 * time.Minute)
				if err := p.Cancel(ctx, "o", audit); err != nil {
					t.Fatal(err)
				}
				if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
					t.Fatalf("cancelled: %v", err)
				}
				asked := verified.Load()
				reset(t, p, "o", "2")
				time.Sleep(10 * time.Minute)
				if how == "indeterminate" {
					if i := describe(t, p, "o"); len(i.Attention) != 1 {
						t.Fatalf("nobody is asked: %+v", i)
					}
					if err := p.Resolve(ctx, "o", "1", activity.CompletedWithResult[any]("paid"), audit); err != nil {
						t.Fatal(err)
					}
				}
				if got := result(t, h); got != "paid" || attempts.Load() != c.attempts {
					t.Errorf("got %q after %d attempts, want %d", got, attempts.Load(), c.attempts)
				}
				if got := verified.Load() - asked; got < c.calls || c.calls == 0 && got > 0 {
					t.Errorf("the verifier was called %d times after the reset, want %d", got, c.calls)
				}
				whole(t, s)
				p.stop(t)
			})
		})
	}
}

// A run of a queue gives its slot back and waits in the line again.
func TestResetOfARunInAQueue(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		queue := func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "print", Concurrency: 1}} }
		wf := flow("wf", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, wf, leases, queue)
		in := wf.With(engine.StartOptions{Queue: "print"})
		a := start(t, in, p, "a", "")
		time.Sleep(5 * time.Second)
		b := start(t, in, p, "b", "")
		send(t, yes, p, "a", "one", "")
		if got := result(t, a); got != "one" {
			t.Errorf("got %q", got)
		}
		time.Sleep(5 * time.Second)
		reset(t, p, "a", "1")
		time.Sleep(5 * time.Second)
		if i := describe(t, p, "a"); i.Status.Terminal() {
			t.Errorf("it has passed the one in the slot: %+v", i)
		}
		reset(t, p, "b", "")
		if got := result(t, a); got != "one" {
			t.Errorf("got %q", got)
		}
		send(t, yes, p, "b", "two", "")
		if got := result(t, b); got != "two" {
			t.Errorf("got %q", got)
		}
		if left := entries(t, s, "slot:"); len(left) > 0 {
			t.Errorf("slots %q", left)
		}
		whole(t, s)
	})
}

// OPS-2, OPS-3: whatever call to the store fails, or at whichever the process is killed, a workflow is reset
// once, and ends.
func TestResetWhateverFails(t *testing.T) {
	t.Logf("%d plays", sweep.Every(t, sweepStores["memory"], torture.Rounds(1, 5, 97), resetting))
}

// acts returns how often operators have acted on a workflow.
func acts(ctx context.Context, eng *engine.Engine, id string) (n int, err error) {
	for c, err := range eng.History(ctx, id) {
		if err != nil {
			return 0, err
		}
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindActed {
				n++
			}
		}
	}
	return n, nil
}

// resetting: a workflow that has ended is reset to before it opens a hook, answers an update, and receives a
// signal.
func resetting(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, i int) (string, error) {
		a, err1 := act.Do(run, i)
		h, err := paid.Open(run, &signal.HookOptions{Token: "resetting"})
		if err == nil {
			err = increase.Handle(run, nil, func(run *engine.Run, n int) (int, error) { return n + 1, run.Sleep(time.Second) })
		}
		if err != nil {
			return "", err
		}
		v, err2 := yes.Receive(run)
		if err := h.Dispose(run); err != nil {
			return "", err
		}
		b, err3 := act.Do(run, i+1)
		return a + v + b, errors.Join(err1, err2, err3)
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"o"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "o", 7)
			if err != nil {
				return "", err
			}
			one, err := increase.Call(ctx, eng, "o", 1, by("1"))
			if err != nil {
				return "", err
			}
			if _, err := yes.Send(ctx, eng, "o", "yes", &signal.Options{ID: "evt"}); err != nil {
				return "", err
			}
			if _, err := h.Result(ctx); err != nil {
				return "", err
			}
			n, err := acts(ctx, eng, "o")
			if err == nil && n == 0 {
				err = eng.Reset(ctx, "o", "2", audit)
			}
			if err != nil {
				return "", err
			}
			two, err := increase.Call(ctx, eng, "o", 1, by("1"))
			if err != nil {
				return "", err
			}
			got, err := h.Result(ctx)
			if err != nil {
				return "", err
			}
			n, err = acts(ctx, eng, "o")
			return fmt.Sprint(got, one, two, " after ", n), err
		},
	}
}

// A send that a reset has passed over was accepted, and has left no trace in the history. One of the next life that has its number
// is another signal.
func TestSendAfterAResetAndAContinuation(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		inner := store.Open(t)
		defer func() { inner.Close() }()
		buggy := true
		target := flow("target", func(run *engine.Run) (string, error) {
			a, err1 := yes.Receive(run)
			b, err2 := yes.Receive(run)
			return a + b, errors.Join(err1, err2)
		})
		wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, life int) (string, error) {
			if life > 0 {
				return "", yes.SendFrom(run, "target", "b")
			}
			if err := run.Sleep(time.Second); err != nil { // 1
				return "", err
			}
			if buggy {
				return "", yes.SendFrom(run, "target", "a") // 2
			}
			return "", engine.ContinueAsNew(run, 1)
		}}
		accepted, goOn := make(chan bool), make(chan bool)
		var once sync.Once
		s := &hooked{Storage: inner, afterCommit: func(b storage.Batch) error {
			if touches(b, "sig:target") {
				once.Do(func() { close(accepted); <-goOn })
			}
			return nil
		}}
		p := boot(t, s, wf, target, leases)
		h := start(t, target, p, "target", "")
		start(t, wf, p, "o", 0)
		<-accepted
		buggy = false
		client := made(t, inner)
		defer client.Close()
		reset(t, client, "o", "1")
		close(goOn)
		result(t, wf.Handle(p, "o"))
		soonDone(t, h, time.Minute)
		if got := result(t, h); got != "ab" {
			t.Errorf("the target received %q", got)
		}
		whole(t, inner)
		p.stop(t)
	})
}
