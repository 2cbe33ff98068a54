package engine_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

func serving(qs ...engine.Queue) func(*engine.Config) {
	return func(c *engine.Config) { c.Queues = qs }
}

// in is w with a queue.
func in(w *engine.Workflow[string, string], queue string) *engine.Workflow[string, string] {
	return w.With(engine.StartOptions{Queue: queue})
}

func sleeper(d time.Duration) *engine.Workflow[string, string] {
	return flow("sleeper", func(run *engine.Run) (string, error) { return "slept", run.Sleep(d) })
}

// nothingWaits checks that nobody is left in a line, in a slot or in a list.
func nothingWaits(t *testing.T, s storage.Storage) {
	t.Helper()
	for _, family := range []string{"op:", "slot:", "held:", "todo:", "wake:"} {
		if left := entries(t, s, family); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	}
}

// mostAtOnce is how many of the runs were admitted and had not ended at the same time.
func mostAtOnce(infos []engine.Info) (most int) {
	for _, i := range infos {
		n := 0
		for _, j := range infos {
			if !j.StartedAt.After(i.StartedAt) && j.EndedAt.After(i.StartedAt) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// A queue lets in so many runs at a time, in the order in which they were started, and
// the next as soon as one has ended. A run keeps its place while it is parked. What has
// no queue does not wait.
func TestQueueBoundsRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := sleeper(time.Minute)
		p := boot(t, s, wf, serving(engine.Queue{Name: "print", Concurrency: 2}), func(c *engine.Config) {
			c.ParkAfter, c.PollInterval = -1, time.Hour
		})
		time.Sleep(time.Second)
		const runs = 7
		for i := range runs {
			start(t, in(wf, "print"), p, fmt.Sprint(i), "")
		}
		free := start(t, wf, p, "free", "")
		time.Sleep(time.Second)
		for i := range runs {
			info := describe(t, p, fmt.Sprint(i))
			waits := slices.Equal(info.Waiting, []string{`admission to queue "print"`})
			if admitted := i < 2; (info.Status == checkpoint.StatusRunning) != admitted || waits == admitted || info.Queue != "print" {
				t.Errorf("run %d is %+v", i, info)
			}
		}
		if slots := entries(t, s, "slot:"); len(slots) != 2 {
			t.Errorf("slots %q, want 2", slots)
		}
		began := time.Now()
		var infos []engine.Info
		for i := range runs {
			result(t, wf.Handle(p, fmt.Sprint(i)))
			infos = append(infos, describe(t, p, fmt.Sprint(i)))
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("it took %v, want that the next begins when one has ended", took)
		}
		if n := mostAtOnce(infos); n != 2 {
			t.Errorf("%d at once, want 2", n)
		}
		for i := 1; i < runs; i++ {
			if infos[i].StartedAt.Before(infos[i-1].StartedAt) {
				t.Errorf("run %d was let in at %v, and %d at %v", i, infos[i].StartedAt, i-1, infos[i-1].StartedAt)
			}
		}
		if i := describe(t, p, free.ID()); i.Queue != "" || i.StartedAt != i.CreatedAt {
			t.Errorf("without a queue: %+v", i)
		}
		result(t, free)
		time.Sleep(2 * time.Hour) // hints are swept up
		nothingWaits(t, s)
	})
}

// However time is cut, a queue lets in no more than its rate within the rate's time,
// across engines; and not less.
func TestQueueRate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		wf := sleeper(time.Second)
		q := engine.Queue{Name: "mail", Rate: activity.Rate{Count: 3, Per: time.Minute}}
		seldom := func(c *engine.Config) { c.PollInterval = time.Hour }
		a, b := boot(t, s, wf, serving(q), as("a"), seldom), boot(t, s, wf, serving(q), as("b"), seldom)
		time.Sleep(time.Second)
		const runs = 11
		began := time.Now()
		for i := range runs {
			start(t, in(wf, "mail"), []*process{a, b}[i%2], fmt.Sprint(i), "")
			time.Sleep(time.Duration(i) * time.Second)
		}
		time.Sleep(5 * time.Minute)
		var times []time.Time
		for i := range runs {
			info := describe(t, a, fmt.Sprint(i))
			if info.Status != checkpoint.StatusCompleted {
				t.Errorf("run %d is %+v", i, info)
			}
			times = append(times, info.StartedAt)
		}
		slices.SortFunc(times, time.Time.Compare)
		for i := q.Rate.Count; i < runs; i++ {
			if d := times[i].Sub(times[i-q.Rate.Count]); d < time.Minute {
				t.Errorf("4 were let in within %v", d)
			}
		}
		if took := times[runs-1].Sub(began); took > 3*time.Minute+time.Second {
			t.Errorf("the last was let in after %v, want 3 minutes", took)
		}
		if raw := get(t, s, []byte("rate:mail")); len(raw) > 200 {
			t.Errorf("the record of the rate has %d bytes", len(raw))
		}
	})
}

// A run of a queue is driven by engines that serve it, and by no others, however these
// come upon it: by a start, by a signal while it is parked, by the death or the stop of
// its engine, as a parent's child.
func TestOnlyWhoServesAQueueDrivesItsRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		wf := flow("w", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		boss := flow("boss", func(run *engine.Run) (string, error) { return in(wf, "print").Do(run, "") })
		atOnce := func(c *engine.Config) { c.ParkAfter = -1 }
		b := boot(t, s, wf, boss, as("b"), atOnce)
		time.Sleep(time.Second)
		h := start(t, in(wf, "print"), b, "o", "")
		start(t, boss, b, "boss", "")
		time.Sleep(time.Hour)
		kid := ""
		for i, err := range b.List(ctx, engine.Filter{Parent: "boss"}) {
			if err != nil {
				t.Fatal(err)
			}
			kid = i.ID
		}
		for _, id := range []string{"o", kid} {
			if i := describe(t, b, id); i.Status != checkpoint.StatusPending || i.Queue != "print" || len(i.Waiting) != 1 || len(i.Attention) != 0 {
				t.Fatalf("nobody serves the queue, and %q is %+v", id, i)
			}
		}
		f := storagetest.NewFaulty(s, nil)
		a := bootOn(t, f, wf, boss, serving(engine.Queue{Name: "print"}), as("a"), atOnce)
		time.Sleep(10 * time.Second)
		for _, id := range []string{"o", kid} {
			if i := describe(t, b, id); i.Status != checkpoint.StatusRunning || i.Owner != "" || i.Queue != "print" {
				t.Fatalf("it is served, and %q is %+v, want it parked", id, i)
			}
		}
		f.Crash() // nobody serves the queue any more
		a.close()
		time.Sleep(time.Minute)
		send(t, approved, b, "o", "yes", "")
		send(t, approved, b, kid, "yes", "")
		time.Sleep(time.Hour)
		for _, id := range []string{"o", kid} {
			if i := describe(t, b, id); i.Owner != "" || i.Status != checkpoint.StatusRunning {
				t.Fatalf("%q is driven by who does not serve its queue: %+v", id, i)
			}
		}
		c := boot(t, s, wf, serving(engine.Queue{Name: "print"}), as("c"))
		if got := result(t, h); got != "yes" {
			t.Errorf("got %q", got)
		}
		if got := result(t, boss.Handle(b, "boss")); got != "yes" {
			t.Errorf("the parent got %q", got)
		}
		for _, id := range []string{"o", kid} {
			for _, cp := range historyOf(t, c.Engine, id) {
				if strings.HasPrefix(cp.Owner, "b-") {
					t.Errorf("checkpoint %d of %q is b's", cp.Number, id)
				}
			}
		}
		infos, err := c.Engines(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			if want := i.Name != "b"; slices.Contains(i.Queues, "print") != want {
				t.Errorf("engine %s serves %q", i.Name, i.Queues)
			}
		}
		time.Sleep(time.Minute)
		nothingWaits(t, s)
	})
}

// Under a smaller bound nobody is let in before so many have ended.
func TestSmallerBound(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := sleeper(10 * time.Minute)
		a := boot(t, s, wf, serving(engine.Queue{Name: "print", Concurrency: 3}))
		time.Sleep(time.Second)
		for i := range 5 {
			start(t, in(wf, "print"), a, fmt.Sprint(i), "")
			time.Sleep(time.Minute)
		}
		a.stop(t)
		b := boot(t, s, wf, serving(engine.Queue{Name: "print", Concurrency: 1}))
		var infos []engine.Info
		for i := range 5 {
			result(t, wf.Handle(b, fmt.Sprint(i)))
			infos = append(infos, describe(t, b, fmt.Sprint(i)))
		}
		if n := mostAtOnce(infos); n != 3 {
			t.Errorf("%d at once, want the 3 that were let in before", n)
		}
		if n := mostAtOnce(infos[3:]); n != 1 || infos[3].StartedAt.Before(infos[2].EndedAt) {
			t.Errorf("%d at once, the first from %v on; want 1, when the others had ended, at %v", n, infos[3].StartedAt, infos[2].EndedAt)
		}
	})
}

// A run that died with its engine keeps its slot, and its successor goes on in it.
func TestSlotSurvivesItsEngine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		wf := sleeper(5 * time.Minute)
		q := serving(engine.Queue{Name: "print", Concurrency: 1})
		f := storagetest.NewFaulty(s, nil)
		a := bootOn(t, f, wf, q, as("a"))
		time.Sleep(time.Second)
		first, second := start(t, in(wf, "print"), a, "1", ""), start(t, in(wf, "print"), a, "2", "")
		time.Sleep(time.Second)
		f.Crash()
		b := boot(t, s, wf, q, as("b"))
		time.Sleep(time.Minute)
		if i := describe(t, b, first.ID()); !strings.HasPrefix(i.Owner, "b-") {
			t.Errorf("the first is %+v, want it b's", i)
		}
		if i := describe(t, b, second.ID()); i.Status != checkpoint.StatusPending {
			t.Errorf("the second is %+v, want that it waits", i)
		}
		result(t, wf.Handle(b, "1"))
		result(t, wf.Handle(b, "2"))
		one, two := describe(t, b, "1"), describe(t, b, "2")
		if d := two.StartedAt.Sub(one.EndedAt); d < 0 || d > time.Second {
			t.Errorf("the second was let in %v after the first had ended", d)
		}
		nothingWaits(t, s)
	})
}

// The history of a workflow that was cancelled before it has begun, in a queue or delayed, has what operators did before.
func TestVerbsOfWhatHasNotBegun(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		p := boot(t, s, wf)
		start(t, in(wf, "nobody's"), p, "queued", "")
		start(t, wf.With(engine.StartOptions{StartAt: time.Now().Add(time.Hour)}), p, "delayed", "")
		for _, id := range []string{"queued", "delayed"} {
			if err := errors.Join(p.Label(ctx, id, map[string]string{"seen": "yes"}, audit), p.Protect(ctx, id, audit), p.Cancel(ctx, id, audit)); err != nil {
				t.Fatal(err)
			}
			var events []string
			for _, c := range historyOf(t, p.Engine, id) {
				for _, e := range c.Events {
					events = append(events, strings.TrimSpace(sprint(e.Kind, " ", e.By)))
				}
			}
			equal(t, id, events[:min(3, len(events))], "[acted ann acted ann asked ann]")
		}
		p.stop(t)
		intact(t, s)
	})
}

// Who is asked to stop while it waits in a line, and was not begun, has ended: without a
// slot, without its function, and whether anybody serves the queue or not. Its parent is
// told.
func TestCancelInLine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var began tally
		wf := flow("w", func(run *engine.Run) (string, error) { began.add("w"); return "", nil })
		kid := wf.With(engine.StartOptions{Queue: "nobody's"}).AsChild(engine.ChildOptions{ID: "kid"})
		boss := flow("boss", func(run *engine.Run) (string, error) {
			_, err := kid.Do(run, "")
			return sprint(errors.Is(err, engine.ErrCancelled)), nil
		})
		p := boot(t, s, wf, boss, func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Second)
		h := start(t, in(wf, "nobody's"), p, "o", "")
		parent := start(t, boss, p, "boss", "")
		time.Sleep(time.Second)
		ended := make(chan error, 1)
		go func() {
			_, err := h.Result(ctx)
			ended <- err
		}()
		time.Sleep(time.Second)
		asked := time.Now()
		for _, id := range []string{"o", "kid"} {
			if err := p.Cancel(ctx, id, engine.Actor{Reason: "enough"}); err != nil {
				t.Errorf("cancel %q: %v", id, err)
			}
			if err := p.Cancel(ctx, id, engine.Actor{Reason: "enough"}); !errors.Is(err, engine.ErrTerminal) {
				t.Errorf("cancel %q again: %v, want ErrTerminal", id, err)
			}
		}
		if err := <-ended; !errors.Is(err, engine.ErrCancelled) || time.Since(asked) > time.Second {
			t.Errorf("result: %v after %v, want ErrCancelled at once", err, time.Since(asked))
		}
		if got := result(t, parent); got != "true" || time.Since(asked) > time.Second {
			t.Errorf("the parent: %q after %v, want at once that the child was cancelled", got, time.Since(asked))
		}
		i := describe(t, p, "o")
		if i.Status != checkpoint.StatusCancelled || !i.StartedAt.IsZero() || i.EndedAt.IsZero() || i.Cancel == nil || i.Cancel.Reason != "enough" || i.Queue != "nobody's" || len(i.Waiting) > 0 {
			t.Errorf("got %+v", i)
		}
		if got := kinds(historyOf(t, p.Engine, "o")); !slices.Equal(got, []checkpoint.Kind{checkpoint.KindAsked, checkpoint.KindEnded}) {
			t.Errorf("history %v", got)
		}
		var exported bytes.Buffer
		if err := p.Export(ctx, "o", &exported); err != nil {
			t.Fatal(err)
		}
		if err := p.Replay(ctx, &exported); err != nil {
			t.Errorf("its replay: %v", err)
		}
		if _, err := approved.Send(ctx, p, "o", "late", nil); !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("a signal: %v, want ErrTerminal", err)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		nothingWaits(t, s)
		for _, key := range entries(t, s, "") {
			if strings.Contains(key, ":o:") && !strings.HasPrefix(key, "exp:") {
				t.Errorf("left by the purge: %q", key)
			}
		}
		began2 := began.of("w")
		again := start(t, in(wf, ""), p, "o", "")
		result(t, again)
		if began2 != 1 { // of the replay of its history
			t.Errorf("its function was begun %d times", began2)
		}
	})
}

// A failed run that is retried goes to the end of the line. There it is driven by
// nothing that happens to it; a request to stop it hears when it is its turn.
func TestRetryInLine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		fail := true
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "work", func(context.Context) (string, error) {
				if fail {
					return "", errBroke
				}
				return "", nil
			}); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		long := sleeper(time.Hour)
		p := boot(t, s, wf, long, serving(engine.Queue{Name: "print", Concurrency: 1}))
		time.Sleep(time.Second)
		a, b := start(t, in(wf, "print"), p, "a", ""), start(t, in(wf, "print"), p, "b", "")
		failure(t, a, "broke")
		failure(t, b, "broke")
		fail = false
		start(t, in(long, "print"), p, "long", "")
		time.Sleep(time.Second)
		for _, id := range []string{"a", "b"} {
			if err := p.Resume(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
			send(t, approved, p, id, "yes", "")
		}
		if err := p.Cancel(ctx, "b", engine.Actor{Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		for _, id := range []string{"a", "b"} {
			if i := describe(t, p, id); i.Status != checkpoint.StatusRunning || i.Owner != "" || !slices.Equal(i.Waiting, []string{`admission to queue "print"`}) {
				t.Errorf("%q is %+v, want that it waits", id, i)
			}
		}
		if got := result(t, a); got != "yes" {
			t.Errorf("a: %q", got)
		}
		if _, err := outcome(b); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("b: %v, want ErrCancelled", err)
		}
		if d := describe(t, p, "b").EndedAt.Sub(describe(t, p, "long").EndedAt); d < 0 {
			t.Errorf("b ended %v before who was in the slot", -d)
		}
		time.Sleep(time.Minute)
		nothingWaits(t, s)
	})
}

// A line is worked off beside a run that this engine does not know: that keeps nobody
// waiting, and no slot.
func TestLineGoesPastAnUnknownType(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf, strange := sleeper(time.Minute), flow("strange", nil2)
		client := made(t, s)
		for i := range 3 {
			start(t, in(strange, "print"), client, fmt.Sprint("strange", i), "")
		}
		h := start(t, in(wf, "print"), client, "o", "")
		p := boot(t, s, wf, serving(engine.Queue{Name: "print", Concurrency: 1}), func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Errorf("it is %+v behind those that nobody knows", i)
		}
		result(t, h)
		if i := describe(t, p, "strange0"); i.Status != checkpoint.StatusPending || !heldFor(i, engine.ReasonUnregistered) {
			t.Errorf("of an unknown type: %+v", i)
		}
	})
}

// A signal to a run that waits in a line has nobody look at it, and is there when the
// run is admitted.
func TestSignalInLine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := in(flow("w", func(run *engine.Run) (string, error) { return approved.Receive(run) }), "print")
		client := made(t, s)
		start(t, wf, client, "o", "")
		send(t, approved, client, "o", "yes", "")
		if todo := entries(t, s, "todo:"); len(todo) > 0 {
			t.Errorf("to be looked at: %q", todo)
		}
		p := boot(t, s, wf, serving(engine.Queue{Name: "print"}))
		if got := result(t, wf.Handle(p, "o")); got != "yes" {
			t.Errorf("got %q", got)
		}
	})
}

// Two engines find one slot free, or room for one more in the rate, at the same moment
// and for different runs. One of them is let in.
func TestEnginesAtOneDoor(t *testing.T) {
	for seen, q := range map[string]engine.Queue{
		"slot:": {Name: "q", Concurrency: 1},
		"rate:": {Name: "q", Rate: activity.Rate{Count: 1, Per: time.Hour}},
	} {
		virtual(t, func(t *testing.T) {
			s := sharing{fresh(t)}
			client := made(t, s)
			both := make(chan bool)
			var engines []*process
			for _, name := range []string{"a", "b"} {
				wf := flow(name, func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
				start(t, in(wf, "q"), client, name, "")
				met := false
				f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
					if !met && c.Method == "Commit" && slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool { return strings.HasPrefix(string(o.Key), seen) }) {
						met = true // it has looked
						select {
						case both <- true:
						case <-both:
						}
					}
					return storagetest.None
				})
				engines = append(engines, bootOn(t, f, wf, serving(q), as(name), func(c *engine.Config) { c.PollInterval = time.Minute }))
			}
			time.Sleep(5 * time.Minute)
			a, b := describe(t, client, "a"), describe(t, client, "b")
			if a.StartedAt.IsZero() == b.StartedAt.IsZero() {
				t.Errorf("%s: %+v and %+v, want one let in", seen, a, b)
			}
			time.Sleep(90 * time.Minute)
			for _, id := range []string{"a", "b"} {
				if i := describe(t, client, id); i.Status != checkpoint.StatusCompleted {
					t.Errorf("%s: %+v, want both completed", seen, i)
				}
			}
			for _, p := range engines {
				p.stop(t)
			}
		})
	}
}

// A run that is damaged keeps nobody behind it waiting.
func TestLineGoesPastADamagedRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := sleeper(time.Minute)
		client := made(t, s)
		for _, id := range []string{"record", "head"} {
			start(t, in(wf, "print"), client, id, "")
		}
		raw := get(t, s, keys.Workflow("record"))
		put(t, s, keys.Workflow("record"), append(raw[:len(raw)-1:len(raw)-1], raw[len(raw)-1]^1))
		put(t, s, logOf(t, s, "head").Checkpoint(describeBase(t, s, "head")), []byte("stray"))
		h := start(t, in(wf, "print"), client, "o", "")
		p := boot(t, s, wf, serving(engine.Queue{Name: "print", Concurrency: 1}), func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Errorf("behind a damaged run it is %+v", i)
		}
		result(t, h)
	})
}

func describeBase(t *testing.T, s storage.Storage, id string) uint64 {
	t.Helper()
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	return wf.Base
}

// A queue works without conditions of the store, in the one engine that has it.
func TestQueueOfASingleOwner(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := sleeper(time.Minute)
		q := engine.Queue{Name: "print", Concurrency: 2, Rate: activity.Rate{Count: 3, Per: time.Hour}}
		single := func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner }
		p := boot(t, storagetest.NoConditions(s), wf, serving(q), single)
		time.Sleep(time.Second)
		for i := range 6 {
			start(t, in(wf, "print"), p, fmt.Sprint(i), "")
		}
		time.Sleep(90 * time.Second)
		p.kill()
		p = boot(t, storagetest.NoConditions(s), wf, serving(q), single)
		var infos []engine.Info
		for i := range 6 {
			h := wf.Handle(p, fmt.Sprint(i))
			if _, err := outcome(h); errors.Is(err, context.DeadlineExceeded) { // after an hour
				result(t, h)
			}
			infos = append(infos, describe(t, p, fmt.Sprint(i)))
		}
		if n := mostAtOnce(infos); n != 2 {
			t.Errorf("%d at once, want 2", n)
		}
		if d := infos[3].StartedAt.Sub(infos[0].StartedAt); d < time.Hour {
			t.Errorf("4 were let in within %v", d)
		}
		time.Sleep(time.Minute)
		nothingWaits(t, s)
	})
}

// A first signal starts a workflow in its queue, and is there when it is admitted.
func TestSendWithStartInAQueue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := in(flow("w", func(run *engine.Run) (string, error) { return approved.Receive(run) }), "print")
		p := boot(t, s, wf, serving(engine.Queue{Name: "print", Concurrency: 1}))
		time.Sleep(time.Second)
		for i := range 3 {
			id := fmt.Sprint(i)
			if _, err := approved.SendWithStart(ctx, p, wf.Request(id, ""), id, &signal.Options{ID: id}); err != nil {
				t.Fatal(err)
			}
			if _, err := approved.SendWithStart(ctx, p, wf.Request(id, ""), id, &signal.Options{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		var infos []engine.Info
		for i := range 3 {
			if got := result(t, wf.Handle(p, fmt.Sprint(i))); got != fmt.Sprint(i) {
				t.Errorf("run %d got %q", i, got)
			}
			infos = append(infos, describe(t, p, fmt.Sprint(i)))
		}
		if n := mostAtOnce(infos); n > 1 {
			t.Errorf("%d at once, want 1", n)
		}
		time.Sleep(time.Minute)
		nothingWaits(t, s)
	})
}

// What is started in a queue, and asked to stop there, in the host's transaction, is so
// if and only if that commits.
func TestQueueInTheHostsTransaction(t *testing.T) {
	store, host := hosted(t)
	wf := flow("w", nil2)
	q := serving(engine.Queue{Name: "print", Concurrency: 1})
	client := made(t, store, wf, q)
	defer client.Close()
	within := func(f func(in *engine.Tx) error, end func(*sql.Tx) error) {
		t.Helper()
		tx, err := host.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f(client.In(store.WithTx(tx))), end(tx)); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(id string) func(*engine.Tx) error {
		return func(tx *engine.Tx) error {
			_, err := in(wf, "print").Start(ctx, tx, id, "")
			return err
		}
	}
	stop := func(tx *engine.Tx) error { return tx.Cancel(ctx, "stopped", engine.Actor{Reason: "enough"}) }
	within(begin("gone"), (*sql.Tx).Rollback)
	within(begin("stays"), (*sql.Tx).Commit)
	within(begin("stopped"), (*sql.Tx).Commit)
	within(stop, (*sql.Tx).Rollback)
	if i := describe(t, client, "stopped"); i.Status != checkpoint.StatusPending {
		t.Errorf("a request that was rolled back: %+v", i)
	}
	within(stop, (*sql.Tx).Commit)
	if i := describe(t, client, "stopped"); i.Status != checkpoint.StatusCancelled {
		t.Errorf("a request that was committed: %+v", i)
	}
	if _, err := client.Describe(ctx, "gone"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a start that was rolled back: %v, want ErrNotFound", err)
	}
	p := boot(t, store, wf, q)
	defer p.close()
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := wf.Handle(p, "stays").Result(bounded); err != nil {
		t.Errorf("a start that was committed: %v", err)
	}
}

// A queue's name is checked like every other, before anything is written.
func TestQueueNamesAtTheDoor(t *testing.T) {
	wf := flow("w", nil2)
	for name, ok := range map[string]bool{
		"a":                      true,
		"a:b":                    true,
		"100%":                   true,
		"a\x00b":                 true,
		strings.Repeat("x", 100): true,
		strings.Repeat("x", 101): false,
		"\xff":                   false,
	} {
		s := fresh(t)
		e := made(t, s)
		before := len(entries(t, s, ""))
		_, err := in(wf, name).Start(ctx, e, "o", "")
		if (err == nil) != ok || !ok && !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("queue %.20q: %v, want ok %v", name, err, ok)
		}
		if !ok && len(entries(t, s, "")) != before {
			t.Errorf("queue %.20q: something was written", name)
		}
		if ok {
			if i := describe(t, e, "o"); i.Queue != name {
				t.Errorf("queue %.20q is told as %.20q", name, i.Queue)
			}
		}
	}
}

// With engines that come, die and go, a queue never has more than so many runs between
// their admission and their end, each run ends, and no slot is kept.
func TestQueueLimitsHold(t *testing.T) {
	rounds := 5
	if os.Getenv("WEFT_TORTURE") != "" {
		rounds = 100
	}
	for range rounds {
		queueLimitsHold(t)
	}
}

func queueLimitsHold(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	virtual(t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		s := sharing{fresh(t)}
		wf := flow("w", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Duration(run.Random().IntN(20)) * time.Second); err != nil {
				return "", err
			}
			if run.Random().IntN(3) == 0 {
				return "", errBroke
			}
			_, err := engine.Step(run, "work", func(context.Context) (string, error) { return "", nil })
			return "", err
		})
		var queues []engine.Queue
		for i := range 1 + rnd.IntN(3) {
			queues = append(queues, engine.Queue{Name: fmt.Sprintf("q:%d%%%d", i, rnd.IntN(1000)), Concurrency: 1 + rnd.IntN(4)})
		}
		parking := []time.Duration{-1, time.Hour}[rnd.IntN(2)]
		another := func(name string) (*process, *storagetest.Faulty) {
			f := storagetest.NewFaulty(s, nil)
			return bootOn(t, f, wf, serving(queues...), as(name), func(c *engine.Config) { c.ParkAfter = parking }), f
		}
		var engines [3]*process
		var faults [3]*storagetest.Faulty
		for i := range engines {
			engines[i], faults[i] = another(fmt.Sprint("e", i))
		}
		time.Sleep(time.Second)
		client := made(t, s)
		const runs = 30
		for i := range runs {
			q := queues[rnd.IntN(len(queues))].Name
			e := engine.Client(client)
			if n := rnd.IntN(4); n < 3 {
				e = engines[n]
			}
			id := fmt.Sprint(i)
			for {
				if _, err := in(wf, q).Start(ctx, e, id, ""); err == nil {
					break
				}
				e = client
			}
			if rnd.IntN(10) == 0 {
				if err := client.Cancel(ctx, id, engine.Actor{Reason: "enough"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			if i%7 == 6 {
				n := rnd.IntN(3)
				if rnd.IntN(2) == 0 {
					faults[n].Crash()
					engines[n].close()
				} else {
					engines[n].stop(t)
				}
				engines[n], faults[n] = another(fmt.Sprint("e", n))
			}
		}
		byQueue := map[string][]engine.Info{}
		for i := range runs {
			id := fmt.Sprint(i)
			_, err := outcome(wf.Handle(client, id))
			var failed *engine.WorkflowError
			if err != nil && !errors.As(err, &failed) && !errors.Is(err, engine.ErrCancelled) {
				t.Fatalf("run %s: %v", id, err)
			}
			if info := describe(t, client, id); !info.StartedAt.IsZero() {
				byQueue[info.Queue] = append(byQueue[info.Queue], info)
			}
		}
		for _, q := range queues {
			if n := mostAtOnce(byQueue[q.Name]); n > q.Concurrency {
				t.Errorf("queue %q had %d runs at once, want %d at most", q.Name, n, q.Concurrency)
			}
		}
		time.Sleep(time.Minute)
		nothingWaits(t, s)
	})
}
