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
	"github.com/weft-go/weft/internal/bulk"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// bulkOf returns the state of a bulk.
func bulkOf(t testing.TB, e *engine.Engine, id string) engine.BulkInfo {
	t.Helper()
	for i, err := range e.Bulks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if i.ID == id {
			return i
		}
	}
	t.Fatalf("there is no bulk %q", id)
	return engine.BulkInfo{}
}

func startBulk(t testing.TB, e interface {
	StartBulk(context.Context, string, engine.Bulk, engine.Actor) error
}, id string, b engine.Bulk) {
	t.Helper()
	if err := e.StartBulk(ctx, id, b, audit); err != nil {
		t.Fatal(err)
	}
}

// whenEnded waits, in virtual time, until a bulk has ended.
func whenEnded(t testing.TB, e *engine.Engine, id string) engine.BulkInfo {
	t.Helper()
	eventually(t, "end of bulk "+id, func() bool { return !bulkOf(t, e, id).EndedAt.IsZero() })
	return bulkOf(t, e, id)
}

// several starts workflows with the ids prefix0, prefix1 ...
func several(t testing.TB, wf *engine.Workflow[string, string], p *process, prefix string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprint(prefix, i))
		start(t, wf, p, ids[i], "")
	}
	return ids
}

func stateOf(t testing.TB, p *process, ids ...string) (states []string) {
	t.Helper()
	for _, id := range ids {
		i, err := p.Describe(ctx, id)
		switch {
		case errors.Is(err, engine.ErrNotFound):
			states = append(states, "gone")
		case err != nil:
			t.Fatal(err)
		default:
			states = append(states, string(i.Status))
		}
	}
	return states
}

// OPS-10: on each store, a bulk does what the call for one workflow does, to what fitted its filter when it
// began. What is started later, and what has ended before and is to be stopped, is left alone.
func TestBulk(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var fixed atomic.Bool
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		breaks := flow("breaks", func(run *engine.Run) (string, error) {
			return engine.Step(run, "try", func(context.Context) (string, error) {
				if !fixed.Load() {
					return "", errBroke
				}
				return "fixed", nil
			})
		})
		p := boot(t, s, asks, breaks, leases)
		// of starts four workflows, of which the first is sent what it waits for, a bulk on them, and another workflow.
		of := func(do engine.Verb, change func(*engine.Bulk)) (engine.BulkInfo, []string) {
			t.Helper()
			prefix := string(do) + "-"
			ids := several(t, asks, p, prefix, 4)
			send(t, yes, p, ids[0], "early", "")
			result(t, asks.Handle(p, ids[0]))
			time.Sleep(time.Second)
			b := engine.Bulk{Do: do, Filter: engine.Filter{IDPrefix: prefix}}
			if change != nil {
				change(&b)
			}
			startBulk(t, p.Engine, string(do), b)
			time.Sleep(time.Millisecond)
			start(t, asks, p, prefix+"late", "")
			i := whenEnded(t, p.Engine, string(do))
			equal(t, prefix+"late", stateOf(t, p, prefix+"late"), "[running]")
			time.Sleep(time.Second)
			return i, ids
		}
		counts := func(i engine.BulkInfo, done, refused int64) {
			t.Helper()
			if i.Done != done || i.Refused != refused || int64(len(i.Refusals)) != refused || i.Stopped != nil || i.By != audit || i.Engine == "" {
				t.Errorf("%s: got %+v, want %d done and %d refused", i.ID, i, done, refused)
			}
		}

		i, ids := of(engine.BulkCancel, nil)
		counts(i, 3, 0)
		equal(t, "cancel", stateOf(t, p, ids...), "[completed cancelled cancelled cancelled]")
		if c := describe(t, p, ids[1]).Cancel; c == nil || c.By != "ann" || !strings.HasPrefix(c.Reason, `test (bulk "cancel" of 20`) {
			t.Errorf("the cancellation is by %+v", c)
		}
		i, ids = of(engine.BulkTerminate, nil)
		counts(i, 3, 0)
		equal(t, "terminate", stateOf(t, p, ids...), "[completed cancelled cancelled cancelled]")
		i, ids = of(engine.BulkSignal, func(b *engine.Bulk) { b.Signal = signal.Message{Name: "yes", Payload: "all"} })
		counts(i, 3, 0)
		for _, id := range ids[1:] {
			equal(t, id, result(t, asks.Handle(p, id)), "all")
		}
		if i.Bulk.Signal.Name != "yes" || i.Bulk.Signal.ID == nil || i.Bulk.Signal.Payload != nil {
			t.Errorf("the signal of the bulk is %+v", i.Bulk.Signal)
		}
		i, ids = of(engine.BulkPurge, nil)
		counts(i, 1, 0)
		equal(t, "purge", stateOf(t, p, ids...), "[gone running running running]")
		i, ids = of(engine.BulkProtect, nil)
		counts(i, 4, 0)
		for _, id := range ids {
			if describe(t, p, id).Protected == nil {
				t.Errorf("%s is not protected", id)
			}
		}
		startBulk(t, p.Engine, "delete what is protected", engine.Bulk{Do: engine.BulkDelete, Filter: engine.Filter{IDPrefix: "protect-"}})
		i = whenEnded(t, p.Engine, "delete what is protected")
		counts(i, 1, 4) // protect-late is not
		if i.Refusals[0].ID != ids[0] || !strings.Contains(i.Refusals[0].Reason, "ann has protected it") {
			t.Errorf("refused: %+v", i.Refusals)
		}
		startBulk(t, p.Engine, "again", engine.Bulk{Do: engine.BulkUnprotect, Filter: engine.Filter{IDPrefix: "protect-"}})
		counts(whenEnded(t, p.Engine, "again"), 4, 0)
		i, ids = of(engine.BulkDelete, nil)
		counts(i, 4, 0)
		equal(t, "delete", stateOf(t, p, ids...), "[gone gone gone gone]")

		failing := several(t, breaks, p, "breaks-", 3)
		for _, id := range failing {
			if _, err := outcome(breaks.Handle(p, id)); err == nil {
				t.Fatalf("%s completed", id)
			}
		}
		failed := engine.Filter{Workflow: "breaks", Status: checkpoint.StatusFailed}
		time.Sleep(time.Second)
		startBulk(t, p.Engine, "reset in vain", engine.Bulk{Do: engine.BulkReset, Before: "1", Filter: failed})
		counts(whenEnded(t, p.Engine, "reset in vain"), 3, 0) // they fail again, and are not reset again
		time.Sleep(time.Second)
		equal(t, "reset in vain", stateOf(t, p, failing...), "[failed failed failed]")
		fixed.Store(true)
		startBulk(t, p.Engine, "resume", engine.Bulk{Do: engine.BulkResume, Filter: engine.Filter{IDPrefix: "breaks-2"}})
		counts(whenEnded(t, p.Engine, "resume"), 1, 0)
		equal(t, "resumed", result(t, breaks.Handle(p, "breaks-2")), "fixed")
		startBulk(t, p.Engine, "reset", engine.Bulk{Do: engine.BulkReset, Filter: failed})
		counts(whenEnded(t, p.Engine, "reset"), 2, 0)
		for _, id := range failing[:2] {
			equal(t, id, result(t, breaks.Handle(p, id)), "fixed")
		}
		p.stop(t)
		agreeing(t, s)
	})
}

// OPS-10: a filter selects the same as in a list, as it was when the bulk began, although workflows change
// their status while the bulk goes on.
func TestWhatFittedWhenABulkBegan(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var first atomic.Bool
		asks := flow("asks", func(run *engine.Run) (string, error) {
			if first.CompareAndSwap(false, true) {
				return "", run.Sleep(10 * time.Second)
			}
			return yes.Receive(run)
		})
		other := flow("other", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, other, leases, func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "one", Concurrency: 1}} })
		queued := several(t, in(asks, "one"), p, "queued-", 3) // the second begins when the first has ended
		red := several(t, other.With(engine.StartOptions{Labels: map[string]string{"team": "red"}}), p, "red-", 2)
		plain := several(t, other, p, "plain-", 2)
		time.Sleep(time.Second)
		slow := activity.Rate{Count: 1, Per: 40 * time.Second}
		all := engine.Filter{Workflow: "asks"}
		startBulk(t, p.Engine, "type", engine.Bulk{Do: engine.BulkSignal, Signal: signal.Message{Name: "yes", Payload: "x"}, Filter: all, Rate: slow})
		time.Sleep(time.Second)
		start(t, asks, p, "asks-later", "")
		time.Sleep(20 * time.Second)
		send(t, yes, p, queued[1], "early", "") // so the third begins before it is its turn
		if i := whenEnded(t, p.Engine, "type"); i.Done != 2 || i.Refused != 1 || i.Refusals[0].ID != queued[1] || i.Last != queued[2] {
			t.Errorf("of a type: %+v", i)
		}
		equal(t, "the third", result(t, asks.Handle(p, queued[2])), "x")
		startBulk(t, p.Engine, "label", engine.Bulk{Do: engine.BulkTerminate, Filter: engine.Filter{Labels: map[string]string{"team": "red"}}})
		if i := whenEnded(t, p.Engine, "label"); i.Done != 2 {
			t.Errorf("of a label: %+v", i)
		}
		equal(t, "of a label", stateOf(t, p, append(red, plain...)...), "[cancelled cancelled running running]")

		// With a Status, those are left alone that have it no longer, and those that have it only since.
		running := engine.Filter{Workflow: "other", Status: checkpoint.StatusRunning}
		startBulk(t, p.Engine, "status", engine.Bulk{Do: engine.BulkCancel, Filter: running, Rate: slow})
		time.Sleep(time.Second)
		send(t, yes, p, plain[1], "y", "")
		start(t, other, p, "plain-later", "")
		if i := whenEnded(t, p.Engine, "status"); i.Done+i.Refused != 2 && i.Done != 1 {
			t.Errorf("of a status: %+v", i)
		}
		equal(t, "of a status", stateOf(t, p, plain[0], plain[1], "plain-later"), "[cancelled completed running]")

		startBulk(t, p.Engine, "times", engine.Bulk{Do: engine.BulkTerminate, Filter: engine.Filter{Before: midnight.Add(time.Hour), TopLevel: true}})
		whenEnded(t, p.Engine, "times")
		equal(t, "by time", stateOf(t, p, "plain-later", "asks-later"), "[cancelled cancelled]")
	})
}

// OPS-10: held workflows are resumed, once each, and no others.
func TestBulkOfWhatNeedsAnOperator(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var wrong atomic.Bool
		asks := flow("asks", func(run *engine.Run) (string, error) {
			if wrong.Load() && run.ID() != "o2" {
				if err := run.Sleep(time.Second); err != nil {
					return "", err
				}
			}
			if _, err := engine.Step(run, "ask", func(context.Context) (string, error) { return "", nil }); err != nil {
				return "", err
			}
			return yes.Receive(run)
		})
		p := boot(t, s, asks, leases)
		ids := several(t, asks, p, "o", 3)
		time.Sleep(time.Second)
		p.stop(t)
		wrong.Store(true)
		p = boot(t, s, asks, leases)
		held := func(id string) bool { return heldFor(describe(t, p, id), engine.ReasonNonDeterminism) }
		for _, id := range ids[:2] {
			send(t, yes, p, id, "y", "") // it is parked, and replayed for this
		}
		eventually(t, "two are held", func() bool { return held("o0") && held("o1") })
		startBulk(t, p.Engine, "in vain", engine.Bulk{Do: engine.BulkResume, Filter: engine.Filter{Attention: true}})
		if i := whenEnded(t, p.Engine, "in vain"); i.Done != 2 || i.Refused != 0 {
			t.Errorf("resume in vain: %+v", i)
		}
		eventually(t, "two are held again", func() bool { return held("o0") && held("o1") })
		wrong.Store(false)
		time.Sleep(time.Second)
		startBulk(t, p.Engine, "go on", engine.Bulk{Do: engine.BulkResume, Filter: engine.Filter{Attention: true}})
		if i := whenEnded(t, p.Engine, "go on"); i.Done != 2 || i.Refused != 0 {
			t.Errorf("resume: %+v", i)
		}
		send(t, yes, p, ids[2], "y", "")
		for i, want := range []int{2, 2, 0} {
			equal(t, ids[i], result(t, asks.Handle(p, ids[i])), "y")
			if n, err := acts(ctx, p.Engine, ids[i]); n != want || err != nil {
				t.Errorf("%s was resumed %d times, want %d: %v", ids[i], n, want, err)
			}
		}
	})
}

// OPS-10: a request to cancel a workflow that is held is recorded, so the bulk has done it.
func TestBulkCancelOfWhatIsHeld(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		c := &terminable{t: t, store: store, s: store.Open(t)}
		defer func() { c.s.Close() }()
		terminables["held"](c)
		startBulk(t, c.p.Engine, "cancel", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{IDPrefix: "o"}})
		if i := whenEnded(t, c.p.Engine, "cancel"); i.Done != 1 || i.Refused != 0 {
			t.Errorf("%+v, want one done", i)
		}
		if i := describe(t, c.p, "o"); i.Cancel == nil || i.Cancel.By != "ann" {
			t.Errorf("the request is not recorded: %+v", i)
		}
		c.p.stop(t)
	})
}

// OPS-10: a bulk goes on after the death of the engine that carries it out, amid a page, and without its
// starter. Each workflow is reset once, none faster than the rate allows, and all are counted.
func TestBulkGoesOnAfterACrash(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var fixed atomic.Bool
		breaks := flow("breaks", func(run *engine.Run) (string, error) {
			return engine.Step(run, "try", func(context.Context) (string, error) {
				if !fixed.Load() {
					return "", errBroke
				}
				return "fixed", nil
			})
		})
		p := boot(t, s, breaks, leases)
		ids := several(t, breaks, p, "o", 12)
		for _, id := range ids {
			_, _ = outcome(breaks.Handle(p, id))
		}
		time.Sleep(time.Second)
		p.stop(t)
		fixed.Store(true)

		client := made(t, s)
		b := engine.Bulk{Do: engine.BulkReset, Filter: engine.Filter{Workflow: "breaks", Status: checkpoint.StatusFailed}, Rate: activity.Rate{Count: 2, Per: time.Second}}
		startBulk(t, client, "reset", b)
		client.Close()
		resets := 0
		for life := range 5 { // each dies right before or after a reset
			f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				reset := c.Method == "Commit" && slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool {
					return o.Kind == storage.DeleteOp && strings.HasPrefix(string(o.Key), "ls:breaks:failed:")
				})
				if !reset {
					return storagetest.None
				}
				if resets++; resets%2 == 0 {
					return storagetest.None
				}
				return []storagetest.Fault{storagetest.CrashAfter, storagetest.CrashBefore}[life%2]
			})
			p = bootOn(t, f, breaks, leases)
			time.Sleep(20 * time.Second)
			p.kill()
		}
		p = boot(t, s, breaks, leases)
		i := whenEnded(t, p.Engine, "reset")
		if i.Done != 12 || i.Refused != 0 || i.Bulk.Rate != b.Rate {
			t.Errorf("got %+v", i)
		}
		var when []time.Time
		for _, id := range ids {
			equal(t, id, result(t, breaks.Handle(p, id)), "fixed")
			if n, err := acts(ctx, p.Engine, id); n != 1 || err != nil {
				t.Errorf("%s was reset %d times, %v", id, n, err)
			}
			for _, c := range historyOf(t, p.Engine, id) {
				if slices.ContainsFunc(c.Events, func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindActed }) {
					when = append(when, c.Time)
				}
			}
		}
		slices.SortFunc(when, time.Time.Compare)
		for n := 2; n < len(when); n++ {
			if when[n].Sub(when[n-2]) < b.Rate.Per {
				t.Errorf("resets %d to %d came within %v", n-2, n, when[n].Sub(when[n-2]))
			}
		}
		p.stop(t)
		agreeing(t, s)
	})
}

// OPS-10: a bulk resets runs that have answered updates and opened hooks, each once and whole, although its engine
// dies right before or after a reset. What came behind the point is there again: an update is answered anew, and a hook
// is open with what it has received. A run of which another one has the token stays as it is, and is listed.
func TestBulkResetsUpdatesAndHooks(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		factor := 1
		double := &engine.Update[int, string]{Name: "double"}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := double.Handle(run, nil, func(run *engine.Run, n int) (string, error) {
				v, err := engine.Step(run, "times", func(context.Context) (int, error) { return n * factor, nil })
				return fmt.Sprint(v), err
			}); err != nil {
				return "", err
			}
			h, err := paid.Open(run, &signal.HookOptions{Token: "t-" + run.ID()}) // 1
			if err != nil {
				return "", err
			}
			err1 := run.Sleep(time.Minute) // 2
			v, err2 := h.Receive(run)      // 3
			err3 := run.Sleep(time.Minute) // 4
			if err := errors.Join(err1, err2, err3); err != nil {
				return "", err
			}
			if factor == 1 {
				return "", errBroke
			}
			w, _, err := h.ReceiveWithin(run, time.Minute) // 5
			return v + w, err
		})
		other := waitsFor("other")
		p := boot(t, s, wf, other, leases)
		call := func(id, update string, n int, want string) {
			t.Helper()
			if got, err := double.Call(patient(t, time.Hour), p, id, n, by(update)); got != want || err != nil {
				t.Errorf("update %s of %s: %q, %v, want %q", update, id, got, err, want)
			}
		}
		ids := several(t, wf, p, "o", 4)
		time.Sleep(time.Second)
		first := map[string]signal.Accepted{}
		for _, id := range ids {
			call(id, "before", 1, "1")
			first[id] = resume(t, p, "t-"+id, "paid", "first")
		}
		time.Sleep(61 * time.Second)
		for _, id := range ids {
			call(id, "behind", 2, "2")
		}
		for _, id := range ids {
			if _, err := outcome(wf.Handle(p, id)); err == nil {
				t.Fatalf("%s completed", id)
			}
		}
		start(t, other, p, "holder", "t-o3")
		tokenOf(t, p, "holder")
		time.Sleep(time.Second)
		p.stop(t)

		client := made(t, s)
		startBulk(t, client, "reset", engine.Bulk{
			Do: engine.BulkReset, Before: "3", Filter: engine.Filter{Workflow: "wf", Status: checkpoint.StatusFailed}, Rate: activity.Rate{Count: 1, Per: time.Second},
		})
		client.Close()
		factor = 10
		for _, fault := range []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter} {
			var died atomic.Bool
			p = bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				reset := c.Method == "Commit" && slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool {
					return o.Kind == storage.DeleteOp && strings.HasPrefix(string(o.Key), "ls:wf:failed:")
				})
				if !reset {
					return storagetest.None
				}
				died.Store(true)
				return fault
			}), wf, other, leases)
			eventually(t, "the death of the engine", died.Load)
			p.kill()
		}
		p = boot(t, s, wf, other, leases)
		i := whenEnded(t, p.Engine, "reset")
		if i.Done != 3 || i.Refused != 1 || i.Refusals[0].ID != "o3" || !strings.Contains(i.Refusals[0].Reason, "holder") {
			t.Errorf("got %+v", i)
		}
		for _, id := range ids[:3] {
			call(id, "before", 1, "1")
			call(id, "behind", 2, "20")
			if a := resume(t, p, "t-"+id, "paid", "first"); !a.Repeated || a.AcceptedAt != first[id].AcceptedAt {
				t.Errorf("%s: what it had received was accepted again: %+v", id, a)
			}
			resume(t, p, "t-"+id, " again", "second")
			equal(t, id, result(t, wf.Handle(p, id)), "paid again")
			if n, err := acts(ctx, p.Engine, id); n != 1 || err != nil {
				t.Errorf("%s was reset %d times, %v", id, n, err)
			}
		}
		if n, err := acts(ctx, p.Engine, "o3"); n != 0 || err != nil {
			t.Errorf("o3 was reset %d times, %v", n, err)
		}
		equal(t, "the one that was refused", stateOf(t, p, "o3"), "[failed]")
		resume(t, p, "t-o3", "mine", "third")
		equal(t, "holder", result(t, other.Handle(p, "holder")), "mine")
		p.stop(t)
		agreeing(t, s)
	})
}

// OPS-10: after the death of an engine at any commit of a bulk, whatever it does, it is done to each workflow, and
// each is counted once.
func TestEachVerbAfterACrash(t *testing.T) {
	for _, do := range []engine.Verb{
		engine.BulkCancel, engine.BulkTerminate, engine.BulkSignal, engine.BulkResume, engine.BulkReset,
		engine.BulkPurge, engine.BulkDelete, engine.BulkProtect, engine.BulkUnprotect,
	} {
		t.Run(string(do), func(t *testing.T) {
			plays := 0
			for _, fault := range []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter} {
				for commit, crashed := 1, true; crashed; commit++ {
					virtual(t, func(t *testing.T) { crashed = crashedBulk(t, do, commit, fault) })
					plays++
				}
			}
			t.Logf("%d plays", plays)
			if plays < 10 {
				t.Errorf("only %d plays", plays)
			}
		})
	}
}

// crashedBulk plays a bulk in which the engine dies at a commit. It returns false if there was no such commit.
func crashedBulk(t *testing.T, do engine.Verb, commit int, fault storagetest.Fault) (crashed bool) {
	s := new(memory.Store)
	var fixed atomic.Bool
	wf := flow("wf", func(run *engine.Run) (string, error) {
		if do == engine.BulkPurge {
			return "", nil
		}
		if _, err := engine.Step(run, "try", func(context.Context) (string, error) { return "", nil }); err != nil {
			return "", err
		}
		if (do == engine.BulkResume || do == engine.BulkReset) && !fixed.Load() {
			return "", errBroke
		}
		return yes.Receive(run)
	})
	var begun, died atomic.Bool
	commits := 0
	f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if c.Method != "Commit" {
			return storagetest.None
		}
		if !begun.Load() { // that which starts the bulk is not one of them
			begun.Store(slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool { return bytes.Equal(o.Key, keys.Bulk("all")) }))
			return storagetest.None
		}
		if commits++; commits == commit {
			died.Store(true)
			return fault
		}
		return storagetest.None
	})
	p := bootOn(t, f, wf, leases)
	ids := several(t, wf, p, "o", 3)
	time.Sleep(time.Second)
	if do == engine.BulkUnprotect {
		for _, id := range ids {
			if err := p.Protect(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
		}
	}
	fixed.Store(true)
	b := engine.Bulk{Do: do, Filter: engine.Filter{IDPrefix: "o"}}
	if do == engine.BulkSignal {
		b.Signal = signal.Message{Name: "yes", Payload: "y"}
	}
	starting, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	p.StartBulk(starting, "all", b, audit) // another commit may be the one at which the engine dies: then its answer is lost
	cancel()
	time.Sleep(500 * time.Millisecond)
	p.kill()
	p = boot(t, s, wf, leases)
	startBulk(t, p.Engine, "all", b) // the same one
	if i := whenEnded(t, p.Engine, "all"); i.Done != 3 || i.Refused != 0 {
		t.Errorf("crash at commit %d: %+v", commit, i)
	}
	time.Sleep(10 * time.Second)
	want := map[engine.Verb]string{
		engine.BulkCancel: "cancelled", engine.BulkTerminate: "cancelled", engine.BulkSignal: "completed", engine.BulkPurge: "gone", engine.BulkDelete: "gone",
	}[do]
	for _, id := range ids {
		if state := stateOf(t, p, id)[0]; want != "" && state != want {
			t.Errorf("crash at commit %d: %s is %s", commit, id, state)
		}
		if want == "gone" {
			continue
		}
		i := describe(t, p, id)
		if protected := i.Protected != nil; protected != (do == engine.BulkProtect) {
			t.Errorf("crash at commit %d: %s: protected: %v", commit, id, protected)
		}
		if do == engine.BulkResume || do == engine.BulkReset {
			if n, err := acts(ctx, p.Engine, id); n != 1 || err != nil {
				t.Errorf("crash at commit %d: operators have acted %d times on %s, %v", commit, n, id, err)
			}
		}
	}
	p.stop(t)
	agreeing(t, s)
	return died.Load()
}

// OPS-10: two engines share the bulks; the one that lives takes over those of the one that has died, and
// before that leaves them alone.
func TestOneEngineCarriesOutABulk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		shared := sharedStore{s}
		a, b := boot(t, shared, asks, leases), boot(t, shared, asks, leases)
		ids := several(t, asks, a, "o", 40)
		time.Sleep(time.Second)
		startBulk(t, a.Engine, "stop", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Workflow: "asks"}, Rate: activity.Rate{Count: 1, Per: time.Second}})
		time.Sleep(500 * time.Millisecond)
		first := bulkOf(t, b.Engine, "stop").Engine
		for range 50 { // so the other one looks at it, too
			time.Sleep(500 * time.Millisecond)
			if now := bulkOf(t, b.Engine, "stop").Engine; now != first {
				t.Fatalf("%s carries it out, and then %s, although both live", first, now)
			}
		}
		i := bulkOf(t, b.Engine, "stop")
		cancelled := 0
		for _, s := range stateOf(t, b, ids...) {
			if s == "cancelled" {
				cancelled++
			}
		}
		if cancelled < 24 || cancelled > 27 {
			t.Errorf("%d were cancelled in 25 seconds", cancelled)
		}
		a.kill()
		after := whenEnded(t, b.Engine, "stop")
		if i.Engine == "" || after.Engine == i.Engine || after.Done != 40 || after.Refused != 0 {
			t.Errorf("it went from %+v to %+v", i, after)
		}
	})
}

// OPS-10: an engine that takes over a bulk keeps its rate: it begins nothing sooner after the last operation of the
// engine before than the rate allows, although it does not know when that was.
func TestTakeoverKeepsTheRate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, leases)
		ids := several(t, asks, p, "o", 5)
		time.Sleep(time.Second)
		startBulk(t, p.Engine, "slowly", engine.Bulk{Do: engine.BulkTerminate, Filter: engine.Filter{Workflow: "asks"}, Rate: activity.Rate{Count: 1, Per: time.Hour}})
		time.Sleep(time.Second)
		for range 20 { // restarts, each within the hour
			p.stop(t)
			p = boot(t, s, asks, leases)
			time.Sleep(time.Minute)
		}
		equal(t, "within 20 minutes", stateOf(t, p, ids...), "[cancelled running running running running]")
		time.Sleep(5 * time.Hour)
		equal(t, "after five hours more", stateOf(t, p, ids...), "[cancelled cancelled cancelled cancelled cancelled]")
	})
}

// OPS-10: by a clock that is ahead, what a bulk has reset, and has failed again, fits once more. It is not reset again.
func TestBulkWithAClockAhead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		breaks := flow("breaks", func(run *engine.Run) (string, error) { return "", errBroke })
		p := boot(t, s, breaks, leases)
		ids := several(t, breaks, p, "o", 3)
		time.Sleep(time.Second)
		client := made(t, s)
		engine.SetNow(client, func() time.Time { return time.Now().Add(time.Hour) })
		startBulk(t, client, "reset", engine.Bulk{Do: engine.BulkReset, Filter: engine.Filter{Status: checkpoint.StatusFailed}, Rate: activity.Rate{Count: 1, Per: 6 * time.Second}})
		client.Close()
		if i := whenEnded(t, p.Engine, "reset"); i.Done != 3 || i.Refused != 0 {
			t.Errorf("got %+v", i)
		}
		for _, id := range ids {
			if n, err := acts(ctx, p.Engine, id); n != 1 || err != nil {
				t.Errorf("%s was reset %d times, %v", id, n, err)
			}
		}
	})
}

// OPS-10: an engine whose clock is ahead for a while does not forget a bulk that has ended: it is listed, and starting it
// again does nothing.
func TestBulkIsNotForgottenByAClockAhead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		breaks := flow("breaks", func(run *engine.Run) (string, error) { return "", errBroke })
		b := engine.Bulk{Do: engine.BulkReset, Filter: engine.Filter{Workflow: "breaks"}}
		short := func(c *engine.Config) { c.TombstoneRetention = 3 * time.Hour }
		p := boot(t, s, breaks, leases, short)
		ids := several(t, breaks, p, "o", 3)
		time.Sleep(time.Second)
		startBulk(t, p.Engine, "again", b)
		whenEnded(t, p.Engine, "again")
		p.stop(t)
		var ahead wall
		ahead.jump(4 * time.Hour)
		p = bootAt(t, s, &ahead, breaks, leases, short)
		time.Sleep(2 * time.Minute)
		p.kill()
		p = boot(t, s, breaks, rareLeases, short)
		if i := bulkOf(t, p.Engine, "again"); i.Done != 3 {
			t.Errorf("got %+v", i)
		}
		startBulk(t, p.Engine, "again", b)
		time.Sleep(time.Minute)
		for _, id := range ids {
			if n, err := acts(ctx, p.Engine, id); n != 1 || err != nil {
				t.Errorf("%s was reset %d times, %v", id, n, err)
			}
		}
		time.Sleep(5 * time.Hour)
		if _, err := p.Bulk(ctx, "again"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("after its time: %v", err)
		}
	})
}

// sharedStore is a store that several processes may open.
type sharedStore struct{ storage.Storage }

func (s sharedStore) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.Shared = true
	return c
}

// OPS-10: what was purged and started again before its turn is another workflow, and what has continued as
// new another life.
func TestBulkLeavesOthersAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, leases)
		for _, do := range []engine.Verb{engine.BulkTerminate, engine.BulkCancel, engine.BulkSignal, engine.BulkReset, engine.BulkDelete, engine.BulkProtect} {
			prefix := string(do) + "-"
			ids := several(t, asks, p, prefix, 3)
			time.Sleep(time.Second)
			b := engine.Bulk{Do: do, Filter: engine.Filter{IDPrefix: prefix}, Rate: activity.Rate{Count: 1, Per: 2 * time.Second}}
			if do == engine.BulkSignal {
				b.Signal = signal.Message{Name: "yes", Payload: "x"}
			}
			startBulk(t, p.Engine, string(do), b)
			time.Sleep(time.Second) // the page is read
			if err := p.Delete(ctx, ids[1], audit); err != nil {
				t.Fatal(err)
			}
			start(t, asks, p, ids[1], "")
			i := whenEnded(t, p.Engine, string(do))
			info := describe(t, p, ids[1])
			if info.Status != checkpoint.StatusRunning || info.Cancel != nil || info.Protected != nil {
				t.Errorf("%s: it did something to another workflow: %+v", do, info)
			}
			want := ids[1:2]
			if do == engine.BulkDelete {
				want = nil // that is what was asked for
			}
			var refused []string
			for _, x := range i.Refusals {
				refused = append(refused, x.ID)
			}
			if !slices.Equal(refused, want) {
				t.Errorf("%s: refused %v, want %v", do, i.Refusals, want)
			}
		}
	})
}

// OPS-10: a signal of a bulk is not for a workflow that was started with the id while it was sent.
func TestBulkSignalsNoLaterStart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, rareLeases)
		ids := several(t, asks, p, "o", 2)
		time.Sleep(time.Second)
		p.stop(t)
		client := made(t, s, asks)
		defer client.Close()
		var armed atomic.Bool
		p = boot(t, &hooked{Storage: s, afterGet: func(key []byte) {
			if string(key) != "wf:"+ids[1] || !armed.CompareAndSwap(true, false) {
				return
			}
			if err := client.Delete(ctx, ids[1], audit); err != nil {
				t.Error(err)
			}
			start(t, asks, client, ids[1], "")
		}}, rareLeases)
		startBulk(t, p.Engine, "b", engine.Bulk{
			Do: engine.BulkSignal, Filter: engine.Filter{Workflow: "asks"},
			Signal: signal.Message{Name: "yes", Payload: "x"}, Rate: activity.Rate{Count: 1, Per: 5 * time.Second},
		})
		time.Sleep(time.Second) // the page is read
		armed.Store(true)
		i := whenEnded(t, p.Engine, "b")
		if armed.Load() || i.Done != 1 || len(i.Refusals) != 1 || i.Refusals[0].ID != ids[1] {
			t.Errorf("started anew: %t; %+v", !armed.Load(), i)
		}
		if got := entries(t, s, "inbox:"); len(got) != 1 {
			t.Errorf("signals: %q", got)
		}
		p.stop(t)
	})
}

// OPS-10: a bulk signals what was started with the id of a workflow that was deleted, though an attempt of that one has not
// returned yet.
func TestBulkSignalsBesideAFormerAttempt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		busy := make(chan struct{})
		asks := flow("asks", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "busy", func(context.Context) (int, error) { <-busy; return 0, nil }); err != nil {
				return "", err
			}
			return yes.Receive(run)
		})
		p := boot(t, s, asks, leases)
		defer p.stop(t)
		start(t, asks, p, "o", "")
		time.Sleep(time.Second)
		if err := p.Delete(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		h := start(t, asks.With(engine.StartOptions{StartAt: time.Now().Add(time.Minute)}), p, "o", "")
		startBulk(t, p.Engine, "b", engine.Bulk{
			Do: engine.BulkSignal, Filter: engine.Filter{Workflow: "asks"}, Signal: signal.Message{Name: "yes", Payload: "x"},
		})
		i := whenEnded(t, p.Engine, "b")
		close(busy)
		if i.Done != 1 || len(i.Refusals) != 0 {
			t.Fatalf("%+v", i)
		}
		if got := result(t, h); got != "x" {
			t.Errorf("received %q", got)
		}
	})
}

// OPS-10: what a bulk could not do is counted, and the first thousand are listed with the reason.
func TestRefusalsOfABulk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		quick := flow("quick", func(run *engine.Run) (string, error) { return "", nil })
		p := boot(t, s, quick, rareLeases, func(c *engine.Config) { c.TombstoneRetention = time.Hour })
		const all = 1050
		ids := several(t, quick, p, "o", all)
		for _, id := range ids {
			result(t, quick.Handle(p, id))
		}
		time.Sleep(time.Second)
		startBulk(t, p.Engine, "reset", engine.Bulk{Do: engine.BulkReset, Before: "77", Filter: engine.Filter{Workflow: "quick", Status: checkpoint.StatusCompleted}})
		i := whenEnded(t, p.Engine, "reset")
		if i.Done != 0 || i.Refused != all || len(i.Refusals) != engine.MaxRefusals {
			t.Fatalf("%d done, %d refused, %d listed", i.Done, i.Refused, len(i.Refusals))
		}
		seen := map[string]bool{}
		for _, x := range i.Refusals {
			if seen[x.ID] || !strings.Contains(x.Reason, `its history has no operation "77"`) {
				t.Fatalf("refused: %+v", x)
			}
			seen[x.ID] = true
		}
		equal(t, "reset in vain", stateOf(t, p, ids[0], ids[all-1]), "[completed completed]") // none is terminated
		time.Sleep(50 * time.Minute)
		if again := bulkOf(t, p.Engine, "reset"); again.Refused != all {
			t.Errorf("after 50 minutes: %+v", again)
		}
		time.Sleep(15 * time.Minute)
		for i := range p.Bulks(ctx) {
			t.Errorf("after an hour there is %s", i.ID)
		}
		equal(t, "left of it", append(entries(t, s, "bulk:"), entries(t, s, "bref:")...), "[]")
	})
}

// OPS-10: after StopBulk has returned nothing more is done, and what was done is counted.
func TestStopBulk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, leases)
		ids := several(t, asks, p, "o", 20)
		time.Sleep(time.Second)
		b := engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Workflow: "asks"}, Rate: activity.Rate{Count: 1, Per: time.Second}}
		startBulk(t, p.Engine, "stop", b)
		time.Sleep(7500 * time.Millisecond)
		ben := engine.Actor{Name: "ben", Reason: "enough"}
		if err := p.StopBulk(ctx, "stop", ben); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		i := bulkOf(t, p.Engine, "stop")
		if i.Done != 8 || i.Stopped == nil || *i.Stopped != ben || i.EndedAt.IsZero() {
			t.Errorf("got %+v", i)
		}
		equal(t, "after the stop", stateOf(t, p, ids[7], ids[8]), "[cancelled running]")
		startBulk(t, p.Engine, "stop", b) // it is the same
		time.Sleep(time.Minute)
		if again := bulkOf(t, p.Engine, "stop"); again.Done != 8 || !again.EndedAt.Equal(i.EndedAt) {
			t.Errorf("it went on: %+v", again)
		}
		if err := errors.Join(p.StopBulk(ctx, "stop", audit)); err != nil {
			t.Errorf("stopped again: %v", err)
		}
		if err := p.StopBulk(ctx, "none", audit); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("stop of none: %v", err)
		}
		// One that waits for a long time is stopped, and makes room, within a minute.
		startBulk(t, p.Engine, "slow", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Workflow: "asks"}, Rate: activity.Rate{Count: 1, Per: 1000 * time.Hour}})
		time.Sleep(time.Minute)
		if i := bulkOf(t, p.Engine, "slow"); i.Done != 0 && i.Done != 1 {
			t.Errorf("a slow one: %+v", i)
		}
		if err := p.StopBulk(ctx, "slow", audit); err != nil {
			t.Fatal(err)
		}
	})
}

// OPS-10: a bulk is stopped when a page has been counted, and nobody knows that yet. The page is counted once.
func TestStopBulkBesideACountOfUnknownOutcome(t *testing.T) {
	for _, outcome := range []error{nil, storagetest.ErrInjected} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			client := made(t, s)
			defer client.Close()
			asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
			var stopped atomic.Bool
			p := boot(t, &hooked{Storage: s, afterCommit: func(b storage.Batch) error {
				if !touches(b, "bulk:") || bulkOf(t, client, "stop").Done == 0 || !stopped.CompareAndSwap(false, true) {
					return nil
				}
				if err := client.StopBulk(ctx, "stop", audit); err != nil {
					t.Error(err)
				}
				return outcome
			}}, asks, leases)
			ids := several(t, asks, p, "o", 3)
			time.Sleep(time.Second)
			startBulk(t, p.Engine, "stop", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Workflow: "asks"}, Rate: activity.Rate{Count: 1, Per: time.Hour}})
			time.Sleep(3 * time.Hour)
			if i := bulkOf(t, client, "stop"); i.Done != 1 || i.Refused != 0 || i.Stopped == nil || !stopped.Load() {
				t.Errorf("the commit that counts the page ends with %v: got %+v", outcome, i)
			}
			equal(t, "states", stateOf(t, p, ids...), "[cancelled running running]")
			p.stop(t)
		})
	}
}

// OPS-10: a bulk begins, or is stopped, if and only if the host commits, and a transaction in which there was nothing to do
// depends on that.
func TestBulkInATransaction(t *testing.T) {
	onAllTransactions(t, func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, staged bool) {
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, func(c *engine.Config) { c.PollInterval = 20 * time.Millisecond })
		ids := several(t, asks, p, "o", 3)
		until := func(what string, done func(engine.BulkInfo) bool) {
			t.Helper()
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if i, err := p.Bulk(ctx, what); err != nil || time.Now().After(end) {
					t.Fatalf("bulk %s: %+v, %v", what, i, err)
				} else if done(i) {
					return
				}
			}
		}
		slow := engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: time.Hour}}
		tx := begin(t)
		startBulk(t, p.In(tx), "slow", slow)
		tx.rollback()
		if _, err := p.Bulk(ctx, "slow"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("after a rollback: %v, want ErrNotFound", err)
		}
		tx = begin(t)
		startBulk(t, p.In(tx), "slow", slow)
		startBulk(t, p.In(tx), "slow", slow) // it is the same
		if err := p.In(tx).StartBulk(ctx, "slow", engine.Bulk{Do: engine.BulkCancel, Filter: slow.Filter}, audit); !errors.Is(err, engine.ErrMismatch) {
			t.Errorf("another one: %v, want ErrMismatch", err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		until("slow", func(i engine.BulkInfo) bool { return i.Done == 1 })
		tx = begin(t)
		if err := p.In(tx).StopBulk(ctx, "slow", audit); err != nil {
			t.Error(err)
		}
		tx.rollback()
		if i := bulkOf(t, p.Engine, "slow"); i.Stopped != nil {
			t.Errorf("stopped, although the host has rolled back: %+v", i)
		}
		if staged {
			tx = begin(t)
			startBulk(t, p.In(tx), "slow", slow)
			if err := p.StopBulk(ctx, "slow", audit); err != nil {
				t.Error(err)
			}
			if err := tx.commit(); !errors.Is(err, storage.ErrConflict) {
				t.Errorf("the bulk has changed meanwhile: %v, want ErrConflict", err)
			}
		}
		for range 2 {
			tx = begin(t)
			if err := p.In(tx).StopBulk(ctx, "slow", audit); err != nil {
				t.Error(err)
			}
			if err := tx.commit(); err != nil {
				t.Error(err)
			}
		}
		if i := bulkOf(t, p.Engine, "slow"); i.Stopped == nil || *i.Stopped != audit {
			t.Errorf("got %+v", i)
		}
		tx = begin(t)
		startBulk(t, p.In(tx), "stop", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{IDPrefix: "o"}})
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		until("stop", func(i engine.BulkInfo) bool { return !i.EndedAt.IsZero() && i.Done == 3 })
		for _, id := range ids {
			if _, err := outcome(asks.Handle(p, id)); !errors.Is(err, engine.ErrCancelled) {
				t.Errorf("%s: %v, want ErrCancelled", id, err)
			}
		}
		p.stop(t)
	})
}

// OPS-10: however many slow bulks a namespace has, those of others go on beside them.
func TestBulksOfManyNamespaces(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, leases)
		several(t, asks, p, "o", 5)
		time.Sleep(time.Second)
		b := engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}}
		slow := b
		slow.Rate = activity.Rate{Count: 1, Per: 10 * time.Minute}
		for i := range 12 {
			startBulk(t, p.Engine, fmt.Sprintf("@acme/prod/%02d", i), slow)
		}
		time.Sleep(time.Minute)
		for _, id := range []string{"own", "@acme/test/1", "@other/prod/1"} {
			startBulk(t, p.Engine, id, b)
		}
		time.Sleep(time.Minute)
		var ended, waiting []string
		for i, err := range p.Bulks(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if !i.EndedAt.IsZero() {
				ended = append(ended, i.ID)
			} else if i.Engine == "" {
				waiting = append(waiting, i.ID)
			}
		}
		equal(t, "ended", ended, "[@acme/test/1 @other/prod/1 own]")
		equal(t, "waiting", waiting, "[@acme/prod/10 @acme/prod/11]")
		time.Sleep(2 * time.Hour)
		for i, err := range p.Bulks(ctx) {
			if err != nil || i.EndedAt.IsZero() || i.Done != 5 {
				t.Errorf("it has not ended: %+v, %v", i, err)
			}
		}
	})
}

// OPS-10: a bulk that cannot be is refused before anything is written, and so is another one with an id in use.
func TestInvalidBulks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		e := made(t, s)
		defer e.Close()
		some := engine.Filter{Workflow: "asks"}
		token := "t"
		msg := signal.Message{Name: "yes", Payload: "x"}
		before := entries(t, s, "")
		for what, c := range map[string]struct {
			id string
			b  engine.Bulk
			by engine.Actor
		}{
			"no id":              {"", engine.Bulk{Do: engine.BulkCancel, Filter: some}, audit},
			"a long id":          {strings.Repeat("x", 201), engine.Bulk{Do: engine.BulkCancel, Filter: some}, audit},
			"no actor":           {"b", engine.Bulk{Do: engine.BulkCancel, Filter: some}, engine.Actor{Name: "ann"}},
			"a long reason":      {"b", engine.Bulk{Do: engine.BulkCancel, Filter: some}, engine.Actor{Name: "ann", Reason: strings.Repeat("x", 4090)}},
			"no verb":            {"b", engine.Bulk{Filter: some}, audit},
			"an unknown verb":    {"b", engine.Bulk{Do: "explode", Filter: some}, audit},
			"everything":         {"b", engine.Bulk{Do: engine.BulkCancel}, audit},
			"no label":           {"b", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Labels: map[string]string{}}}, audit},
			"no time":            {"b", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Before: time.Time{}.In(time.FixedZone("", 3600))}}, audit},
			"an unknown status":  {"b", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{Status: "lost"}}, audit},
			"an operation":       {"b", engine.Bulk{Do: engine.BulkCancel, Filter: some, Before: "2"}, audit},
			"a long operation":   {"b", engine.Bulk{Do: engine.BulkReset, Filter: some, Before: strings.Repeat("x", 300)}, audit},
			"a signal":           {"b", engine.Bulk{Do: engine.BulkCancel, Filter: some, Signal: msg}, audit},
			"no signal":          {"b", engine.Bulk{Do: engine.BulkSignal, Filter: some}, audit},
			"a receiver":         {"b", engine.Bulk{Do: engine.BulkSignal, Filter: some, Signal: signal.Message{Name: "yes", WorkflowID: "o"}}, audit},
			"a token":            {"b", engine.Bulk{Do: engine.BulkSignal, Filter: some, Signal: signal.Message{Name: "yes", Token: &token}}, audit},
			"a large payload":    {"b", engine.Bulk{Do: engine.BulkSignal, Filter: some, Signal: signal.Message{Name: "yes", Payload: strings.Repeat("x", 65<<10)}}, audit},
			"half a rate":        {"b", engine.Bulk{Do: engine.BulkCancel, Filter: some, Rate: activity.Rate{Count: 1}}, audit},
			"a negative rate":    {"b", engine.Bulk{Do: engine.BulkCancel, Filter: some, Rate: activity.Rate{Count: -1, Per: time.Second}}, audit},
			"a time before 1970": {"b", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{After: time.Unix(-1, 0)}}, audit},
		} {
			if err := e.StartBulk(ctx, c.id, c.b, c.by); !errors.Is(err, engine.ErrInvalid) || strings.Count(err.Error(), "engine: ") != 1 {
				t.Errorf("%s: %v", what, err)
			}
		}
		equal(t, "written", entries(t, s, ""), before)

		b := engine.Bulk{Do: engine.BulkSignal, Filter: some, Signal: msg, Rate: activity.Rate{Count: 1, Per: time.Second}}
		startBulk(t, e, "b", b)
		startBulk(t, e, "b", b)
		for _, change := range []func(*engine.Bulk){
			func(b *engine.Bulk) { b.Do, b.Signal = engine.BulkCancel, signal.Message{} },
			func(b *engine.Bulk) { b.Filter.Status = checkpoint.StatusRunning },
			func(b *engine.Bulk) { b.Filter.Labels = map[string]string{"a": "b"} },
			func(b *engine.Bulk) { b.Signal.Payload = "y" },
			func(b *engine.Bulk) { b.Rate.Count = 2 },
		} {
			other := b
			change(&other)
			if err := e.StartBulk(ctx, "b", other, audit); !errors.Is(err, engine.ErrMismatch) {
				t.Errorf("another bulk with the id: %v", err)
			}
		}
		startBulk(t, e, "d", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{IDPrefix: "o Deployment:v1"}})
		if err := e.StartBulk(ctx, "d", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{IDPrefix: "o", Deployment: "v1 Deployment:"}}, audit); !errors.Is(err, engine.ErrMismatch) {
			t.Errorf("another filter with the same words: %v", err)
		}
		if i := bulkOf(t, e, "b"); i.Engine != "" || !i.EndedAt.IsZero() || fmt.Sprintf("%s", i.Bulk.Signal.Payload) != `"x"` {
			t.Errorf("got %+v", i)
		}
		put(t, s, keys.Bulk("a"), []byte("rubbish"))
		var ids []string
		for i, err := range e.Bulks(ctx) {
			ids = append(ids, i.ID)
			if (i.ID == "a") != errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s: %v", i.ID, err)
			}
		}
		equal(t, "listed", ids, "[a b d]")
		e.Close()
		if err := e.StartBulk(ctx, "c", b, audit); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("of a closed engine: %v", err)
		}
	})
}

// OPS-10: whatever call to the store fails, or at whichever the process is killed, each workflow of a bulk is
// reset once, and signalled once, and all are counted.
func TestBulkWhateverFails(t *testing.T) {
	t.Logf("%d plays", sweep.Every(t, sweepStores["memory"], torture.Rounds(1, 5, 97), bulking))
}

// bulking: workflows that have failed are reset by a bulk, and sent what they wait for by another. A third cannot
// reset any.
func bulking(w *sweep.World) sweep.Scenario {
	var fixed atomic.Bool
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, i int) (string, error) {
		a, err := act.Do(run, i)
		if err != nil || i == 2 {
			return a, err
		}
		if !fixed.Load() {
			return "", errBroke
		}
		v, err := yes.Receive(run)
		return a + v, err
	}}
	ids := []string{"o0", "o1", "o2"}
	seen := map[string]string{}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       ids,
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			// carry starts a bulk, and notes how it ended. It is forgotten after a day.
			carry := func(id string, b engine.Bulk) error {
				if seen[id] != "" {
					return nil
				}
				if err := eng.StartBulk(ctx, id, b, audit); err != nil {
					return err
				}
				for wait := time.Second; wait < 20*24*time.Hour; wait = wait + min(wait, time.Hour) { // polls are rare
					for i, err := range eng.Bulks(ctx) {
						if err != nil {
							return err
						}
						if i.ID == id && !i.EndedAt.IsZero() {
							refused := []string{}
							for _, x := range i.Refusals {
								refused = append(refused, x.ID)
							}
							slices.Sort(refused)
							seen[id] = fmt.Sprint(id, " ", i.Done, " ", i.Refused, " ", refused, " ")
							return nil
						}
					}
					time.Sleep(min(wait, time.Hour))
				}
				return fmt.Errorf("bulk %s goes on for ever", id)
			}
			for i, id := range ids {
				h, err := wf.Start(ctx, eng, id, i)
				if err != nil {
					return "", err
				}
				if fixed.Load() {
					continue
				}
				if _, err := h.Result(ctx); i < 2 && !errors.Is(err, errBroke) && !isWorkflowError(err) {
					return "", err
				} else if i == 2 && err != nil {
					return "", err
				}
			}
			fixed.Store(true)
			time.Sleep(time.Second)
			reset := engine.Bulk{Do: engine.BulkReset, Before: "1", Filter: engine.Filter{Workflow: "wf", Status: checkpoint.StatusFailed}}
			message := engine.Bulk{Do: engine.BulkSignal, Signal: signal.Message{Name: "yes", Payload: "y"}, Filter: engine.Filter{IDPrefix: "o"}}
			vain := engine.Bulk{Do: engine.BulkReset, Before: "77", Filter: engine.Filter{Workflow: "wf", Status: checkpoint.StatusCompleted}}
			if err := carry("reset", reset); err != nil {
				return "", err
			}
			if err := carry("signal", message); err != nil {
				return "", err
			}
			for _, id := range ids {
				if _, err := wf.Handle(eng, id).Result(ctx); err != nil {
					return "", err
				}
			}
			if err := carry("vain", vain); err != nil {
				return "", err
			}
			learnt := seen["reset"] + seen["signal"] + seen["vain"]
			for _, id := range ids {
				got, err := wf.Handle(eng, id).Result(ctx)
				if err != nil {
					return "", err
				}
				n, err := acts(ctx, eng, id)
				if err != nil {
					return "", err
				}
				learnt += fmt.Sprint(got, " after ", n, " ")
			}
			return learnt, nil
		},
	}
}

func isWorkflowError(err error) bool {
	_, ok := errors.AsType[*engine.WorkflowError](err)
	return ok
}

// waitingRuns boots an engine with three workflows that wait for a signal.
func waitingRuns(t testing.TB, s storage.Storage) (p *process, asks *engine.Workflow[string, string], ids []string) {
	t.Helper()
	asks = flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
	p = boot(t, s, asks, leases)
	ids = several(t, asks, p, "o", 3)
	time.Sleep(time.Second)
	return p, asks, ids
}

// midPage checks that a bulk was killed before its page was counted, so that the page is repeated.
func midPage(t testing.TB, e *engine.Engine, bulk string) {
	t.Helper()
	if n := bulkOf(t, e, bulk).Done; n != 0 {
		t.Fatalf("%d are counted: the page is not repeated", n)
	}
}

// resetMidPage has an operator reset a workflow on which the bulk "stop" has acted, after a crash in the middle of its
// page. It returns the operator's engine, which executes nothing.
func resetMidPage(t testing.TB, s storage.Storage, wf engine.Definition, id string) *engine.Engine {
	t.Helper()
	e := made(t, s, wf, leases)
	midPage(t, e, "stop")
	if err := e.Reset(ctx, id, "", audit); err != nil {
		t.Fatal(err)
	}
	return e
}

// OPS-10: a page that is repeated after a crash stops no workflow again that an operator has taken back meanwhile.
func TestBulkStopsNothingTwice(t *testing.T) {
	for _, do := range []engine.Verb{engine.BulkCancel, engine.BulkTerminate} {
		t.Run(string(do), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				p, asks, ids := waitingRuns(t, s)
				startBulk(t, p.Engine, "stop", engine.Bulk{Do: do, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: time.Second}})
				eventually(t, "end of the first", func() bool { return stateOf(t, p, ids[0])[0] == "cancelled" })
				p.kill()
				e := resetMidPage(t, s, asks, ids[0])
				e.Close()
				p = boot(t, s, asks, leases)
				if i := whenEnded(t, p.Engine, "stop"); i.Done != 3 || i.Refused != 0 {
					t.Errorf("got %+v", i)
				}
				time.Sleep(10 * time.Second)
				equal(t, "states", stateOf(t, p, ids...), "[running cancelled cancelled]")
				p.stop(t)
			})
		})
	}
}

// OPS-10: a page that is repeated after a crash leaves what an operator has protected, or freed, since it was done.
func TestBulkTakesNothingBackTwice(t *testing.T) {
	for _, do := range []engine.Verb{engine.BulkProtect, engine.BulkUnprotect} {
		t.Run(string(do), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				p, asks, ids := waitingRuns(t, s)
				by := p.Unprotect // how an operator takes back what the bulk does
				if do == engine.BulkUnprotect {
					by = p.Protect
					for _, id := range ids {
						if err := p.Protect(ctx, id, audit); err != nil {
							t.Fatal(err)
						}
					}
				}
				protected := func() (all []bool) {
					for _, id := range ids {
						all = append(all, describe(t, p, id).Protected != nil)
					}
					return all
				}
				startBulk(t, p.Engine, "hold", engine.Bulk{Do: do, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: time.Second}})
				eventually(t, "end of the first", func() bool { return protected()[0] == (do == engine.BulkProtect) })
				time.Sleep(time.Millisecond) // two protections of one moment are the same
				if err := by(ctx, ids[0], audit); err != nil {
					t.Fatal(err)
				}
				p.kill()
				p = boot(t, s, asks, leases)
				midPage(t, p.Engine, "hold")
				if i := whenEnded(t, p.Engine, "hold"); i.Done != 3 || i.Refused != 0 {
					t.Errorf("got %+v", i)
				}
				equal(t, "protected", protected(), []bool{do == engine.BulkUnprotect, do == engine.BulkProtect, do == engine.BulkProtect})
				p.stop(t)
			})
		})
	}
}

// OPS-10: of a page that was read by a build that does not note what was protected then, all are freed.
func TestBulkUnprotectsAPageOfAnEarlierBuild(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p, asks, ids := waitingRuns(t, s)
		for _, id := range ids {
			if err := p.Protect(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
		}
		startBulk(t, p.Engine, "free", engine.Bulk{Do: engine.BulkUnprotect, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: time.Second}})
		eventually(t, "end of the first", func() bool { return describe(t, p, ids[0]).Protected == nil })
		p.kill()
		r, err := bulk.Load(ctx, s, "free")
		if err != nil || len(r.Page) != 3 {
			t.Fatalf("%+v, %v", r, err)
		}
		for i := range r.Page {
			r.Page[i].Held = 0
		}
		raw, err := record.Seal(keys.Bulk("free"), bulk.Version, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, keys.Bulk("free"), raw)
		p = boot(t, s, asks, leases)
		if i := whenEnded(t, p.Engine, "free"); i.Done != 3 || i.Refused != 0 {
			t.Errorf("got %+v", i)
		}
		for _, id := range ids {
			if describe(t, p, id).Protected != nil {
				t.Errorf("%s is protected", id)
			}
		}
		p.stop(t)
	})
}

// OPS-10: to protect what had ended before, a bulk reads no history.
func TestBulkProtectsWhatHasEndedWithoutItsHistory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		reads := 0
		p := bootOn(t, storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Scan" && bytes.HasPrefix(c.Range.Start, []byte("log:")) && c.Range.Limit != 1 { // not only the last one
				reads++
			}
			return storagetest.None
		}), nightly, rareLeases)
		ids := several(t, nightly, p, "o", 3)
		time.Sleep(time.Minute)
		reads = 0
		startBulk(t, p.Engine, "all", engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}})
		i := whenEnded(t, p.Engine, "all")
		if i.Done != 3 || reads != 0 {
			t.Errorf("%d reads of histories; %+v", reads, i)
		}
		for _, id := range ids {
			if describe(t, p, id).Protected == nil {
				t.Errorf("%s is not protected", id)
			}
		}
		p.stop(t)
	})
}

// OPS-10: a page that is repeated long after a crash sends no signal again whose ID is the bulk's own, however soon such signals are
// forgotten.
func TestBulkSignalsNobodyTwice(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		asks := flow("asks", func(run *engine.Run) (string, error) {
			for {
				if _, err := yes.Receive(run); err != nil {
					return "", err
				}
			}
		})
		soon := func(c *engine.Config) { c.SignalIDRetention = time.Minute }
		p := boot(t, s, asks, leases, soon)
		ids := several(t, asks, p, "o", 2)
		startBulk(t, p.Engine, "tell", engine.Bulk{
			Do: engine.BulkSignal, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: 2 * time.Second},
			Signal: signal.Message{Name: "yes", Payload: "y", ExpiresAfter: time.Second},
		})
		receipts := func() (all []int) {
			for _, id := range ids {
				n := 0
				for _, kind := range kinds(historyOf(t, p.Engine, id)) {
					if kind == checkpoint.KindReceived {
						n++
					}
				}
				all = append(all, n)
			}
			return all
		}
		eventually(t, "receipt by the first", func() bool { return receipts()[0] == 1 })
		p.kill()
		time.Sleep(time.Hour)
		p = boot(t, s, asks, leases, soon)
		if i := bulkOf(t, p.Engine, "tell"); i.Done != 0 || i.Bulk.Signal.ExpiresAfter != time.Second {
			t.Fatalf("got %+v: the page is not repeated, or the bulk is not as it was started", i)
		}
		if i := whenEnded(t, p.Engine, "tell"); i.Done != 2 || i.Refused != 0 {
			t.Errorf("got %+v", i)
		}
		time.Sleep(time.Minute)
		equal(t, "receipts", receipts(), []int{1, 1})
		p.stop(t)
	})
}

// OPS-10: a page that is repeated after a crash stops no workflow again that has continued as new since an operator took
// the stop back. What became of such a workflow is not known, so it is listed.
func TestBulkStopsNoLaterLifeTwice(t *testing.T) {
	for _, do := range []engine.Verb{engine.BulkCancel, engine.BulkTerminate} {
		t.Run(string(do), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				asks := flow("asks", func(run *engine.Run) (string, error) {
					v, err := yes.Receive(run)
					if err == nil && v == "again" {
						err = engine.ContinueAsNew(run, "")
					}
					return v, err
				})
				p := boot(t, s, asks, leases)
				ids := several(t, asks, p, "o", 2)
				time.Sleep(time.Second)
				startBulk(t, p.Engine, "stop", engine.Bulk{Do: do, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: 2 * time.Second}})
				eventually(t, "end of the first", func() bool { return stateOf(t, p, ids[0])[0] == "cancelled" })
				p.kill()
				e := resetMidPage(t, s, asks, ids[0])
				send(t, yes, &process{Engine: e}, ids[0], "again", "")
				e.Close()
				p = boot(t, s, asks, leases)
				eventually(t, "the next life", func() bool { return describe(t, p, ids[0]).Life == 1 })
				if n := bulkOf(t, p.Engine, "stop"); !n.EndedAt.IsZero() {
					t.Fatalf("it has ended before: %+v", n)
				}
				if i := whenEnded(t, p.Engine, "stop"); i.Done != 1 || i.Refused != 1 || i.Refusals[0].ID != ids[0] {
					t.Errorf("got %+v", i)
				}
				time.Sleep(10 * time.Second)
				equal(t, "states", stateOf(t, p, ids...), "[running cancelled]")
				p.stop(t)
			})
		})
	}
}

// OPS-10: a workflow that was asked to stop by a bulk, and has ended before it was told, is not asked again when an
// operator has reset it.
func TestBulkAsksNobodyTwiceWhoWasNotTold(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var again atomic.Bool
		asks := flow("asks", func(run *engine.Run) (string, error) {
			if run.ID() == "o0" && !again.Load() {
				time.Sleep(3 * time.Second) // it waits for nothing, so it is told nothing
				return "", nil
			}
			return yes.Receive(run)
		})
		p := boot(t, s, asks, leases)
		ids := several(t, asks, p, "o", 5)
		startBulk(t, p.Engine, "stop", engine.Bulk{Do: engine.BulkCancel, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: time.Second}})
		eventually(t, "end of the first", func() bool { return stateOf(t, p, ids[0])[0] == "completed" })
		if c := describe(t, p, ids[0]).Cancel; c == nil {
			t.Fatal("the first was not asked to stop")
		}
		p.kill()
		again.Store(true)
		e := resetMidPage(t, s, asks, ids[0])
		e.Close()
		p = boot(t, s, asks, leases)
		if i := whenEnded(t, p.Engine, "stop"); i.Done != 5 || i.Refused != 0 {
			t.Errorf("got %+v", i)
		}
		time.Sleep(10 * time.Second)
		equal(t, "states", stateOf(t, p, ids...), "[running cancelled cancelled cancelled cancelled]")
		p.stop(t)
	})
}

// OPS-10: Poke has an engine find a bulk that a transaction of the host has started, however rarely it looks.
func TestPokeFindsABulk(t *testing.T) {
	onAllTransactions(t, func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, _ bool) {
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, func(c *engine.Config) { c.PollInterval = time.Hour })
		several(t, asks, p, "o", 3)
		tx := begin(t)
		startBulk(t, p.In(tx), "protect", engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}})
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		p.Poke()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			i := bulkOf(t, p.Engine, "protect")
			if !i.EndedAt.IsZero() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("not begun after a minute: %+v", i)
			}
		}
		p.stop(t)
	})
}

// OPS-10: while one bulk goes on, an engine reads those that have ended rarely, however many there are.
func TestBulksThatHaveEndedAreReadRarely(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const ended = 100
		s := &metered{Storage: fresh(t)}
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, asks, leases)
		several(t, asks, p, "o", 3)
		time.Sleep(time.Second)
		for i := range ended {
			startBulk(t, p.Engine, fmt.Sprintf("ended%03d", i), engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "none"}})
		}
		time.Sleep(time.Minute)
		startBulk(t, p.Engine, "slowly", engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}, Rate: activity.Rate{Count: 1, Per: time.Hour}})
		time.Sleep(time.Minute)
		if rows, _ := s.during(100 * time.Second); rows > 30*ended {
			t.Errorf("%d rows were read in 100 polls, with %d bulks that have ended", rows, ended)
		}
		if i := bulkOf(t, p.Engine, "slowly"); !i.EndedAt.IsZero() || i.Done != 1 {
			t.Errorf("got %+v", i)
		}
	})
}
