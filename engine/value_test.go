package engine_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

var (
	phase    = &engine.Value[string]{Name: "stage"}
	progress = &engine.Value[int]{Name: "progress 50%: a/b"}
)

// set publishes values, which are valid.
func set(run *engine.Run, s string, n int) {
	if err := errors.Join(phase.Set(run, s), progress.Set(run, n)); err != nil {
		panic(err)
	}
}

// valuesOf returns the values of a workflow, by name.
func valuesOf(t testing.TB, e *engine.Engine, id string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for v, err := range e.Values(ctx, id) {
		if err != nil {
			t.Fatalf("values of %q: %v", id, err)
		}
		all[v.Name] = string(v.Value.Data)
	}
	return all
}

// valuesOnly returns the checkpoints of a history that have nothing but values.
func valuesOnly(cs []checkpoint.Checkpoint) (n int) {
	for _, c := range cs {
		if len(c.Events) == 1 && c.Events[0].Kind == checkpoint.KindNoted && c.Events[0].Operation == "" {
			n++
		}
	}
	return n
}

// QRY-1, QRY-2, QRY-6: the last value that was set is read while the run waits, while it is parked,
// after a replay, after the end, and until it is purged. A value has a checkpoint of its own only if
// there is no other.
func TestValues(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "none sees this", 1)
			set(run, "waits", 2)
			v, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			set(run, v, 3)
			_, err = engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil })
			set(run, "ended", 4)
			return v, err
		})
		p := boot(t, s, wf, parking)
		h := start(t, wf, p, "o", "")
		reads := func(when, want string, n int) {
			t.Helper()
			before := snapshot(t, s)
			got, err := phase.Read(ctx, p, "o")
			m, err2 := progress.Read(ctx, p, "o")
			if got != want || m != n || err != nil || err2 != nil {
				t.Errorf("%s: read %q, %d, %v, %v, want %q, %d", when, got, m, err, err2, want, n)
			}
			if all, want := valuesOf(t, p.Engine, "o"), map[string]string{phase.Name: fmt.Sprintf("%q", want), progress.Name: fmt.Sprint(n)}; !maps.Equal(all, want) {
				t.Errorf("%s: values %v, want %v", when, all, want)
			}
			if after := snapshot(t, s); when != "while it waits" && !sameBut(t, before, after, "eng:", "meta:") {
				t.Errorf("%s: reading has written something", when)
			}
		}
		time.Sleep(time.Second)
		reads("while it waits", "waits", 2)
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); i.Owner != "" {
			t.Fatalf("%+v, want it parked", i)
		}
		reads("parked", "waits", 2)
		if n := valuesOnly(historyOf(t, p.Engine, "o")); n != 1 {
			t.Errorf("%d checkpoints only for values, want 1", n)
		}
		send(t, approved, p, "o", "shipped", "x")
		result(t, h)
		reads("at the end", "ended", 4)
		if n := valuesOnly(historyOf(t, p.Engine, "o")); n != 1 {
			t.Errorf("%d checkpoints only for values, want no more than before", n)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if _, err := phase.Read(ctx, p, "o"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("purged: %v, want ErrNotFound", err)
		}
		if left := append(entries(t, s, "wf:o:"), entries(t, s, "log:")...); len(left) > 0 {
			t.Errorf("purged, and there is %q", left)
		}
		p.stop(t)
	})
}

// sameBut reports whether two stores have the same, but for some families of keys.
func sameBut(t testing.TB, a, b storage.Storage, families ...string) bool {
	t.Helper()
	all := func(s storage.Storage) (es []string) {
		for e, err := range storage.All(ctx, s, storage.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(string(e.Key), f) }) {
				es = append(es, fmt.Sprintf("%q=%q", e.Key, e.Value))
			}
		}
		return es
	}
	return slices.Equal(all(a), all(b))
}

// QRY-2: a value is visible also while a step or an activity runs for long, and so is a label.
func TestValueIsVisibleDuringAStep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "begun", 1)
			if err := run.SetLabel("stage", "begun"); err != nil {
				return "", err
			}
			return engine.Step(run, "s", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		})
		p := boot(t, fresh(t), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if got, err := phase.Read(ctx, p, "o"); got != "begun" || err != nil {
			t.Errorf("read %q, %v, want begun", got, err)
		}
		if got := describe(t, p, "o").Labels["stage"]; got != "begun" {
			t.Errorf("label %q, want begun", got)
		}
		p.close()
	})
}

// QRY-1: a run that is held is read.
func TestValueOfAHeldRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		step := "a"
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "begun", 1)
			if _, err := engine.Step(run, step, func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			set(run, "waits", 2)
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.kill()
		step = "b"
		p = boot(t, s, wf)
		time.Sleep(time.Second)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonNonDeterminism) {
			t.Fatalf("%+v, want it held", i)
		}
		if got, err := phase.Read(ctx, p, "o"); got != "waits" || err != nil {
			t.Errorf("read %q, %v, want what was published before", got, err)
		}
		p.stop(t)
	})
}

// QRY-2, LST-9: what a run has set is stored when its engine stops, also if that is at once: the run may
// be parked then, and nobody executes it until something happens.
func TestValueIsStoredWhenTheEngineStops(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "waits", 2)
			if err := run.SetLabel("stage", "waits"); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		p.stop(t)
		client := made(t, s, wf)
		defer client.Close()
		if i := describe(t, client, "o"); i.Owner != "" || i.Labels["stage"] != "waits" {
			t.Errorf("%+v, want it parked, and its label", i)
		}
		if got, err := phase.Read(ctx, client, "o"); got != "waits" || err != nil {
			t.Errorf("read %q, %v, want waits", got, err)
		}
	})
}

// QRY-2: what a run has set is stored when its engine stops, also if somebody else changes the run just then.
func TestValueIsStoredBesideAnOperator(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "waits", 2)
			return approved.Receive(run)
		})
		client := made(t, s, wf)
		defer client.Close()
		times := 0
		p := bootOn(t, storagetest.NewFaulty(&hooked{Storage: s, beforeCommit: func(b storage.Batch) {
			if touches(b, "wf:o:pub:") {
				if times++; times == 1 {
					if err := client.Label(ctx, "o", map[string]string{"team": "blue"}, audit); err != nil {
						t.Error(err)
					}
				}
			}
		}}, nil), wf)
		start(t, wf, p, "o", "")
		p.stop(t)
		if i := describe(t, client, "o"); i.Owner != "" || i.Labels["team"] != "blue" {
			t.Errorf("%+v, want it parked, and its label", i)
		}
		if got, err := phase.Read(ctx, client, "o"); got != "waits" || err != nil || times != 2 {
			t.Errorf("read %q, %v, want waits; it was to be stored %d times", got, err, times)
		}
	})
}

// RET-5: the values of a workflow are gone as soon as it is, also if its removal is interrupted there.
func TestValuesOfAnInterruptedRemoval(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "begun", 1)
			for range 210 { // more than one commit removes
				if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		p.stop(t)
		removed := 0
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method != "Commit" {
				return storagetest.None
			}
			if removed++; removed > 1 {
				return storagetest.CrashBefore
			}
			return storagetest.None
		})
		client := made(t, f, wf)
		defer client.Close()
		if err := client.Purge(ctx, "o", audit); err == nil {
			t.Fatal("the purge was not interrupted")
		}
		reader := made(t, s, wf)
		defer reader.Close()
		if left := entries(t, s, "log:"); len(left) == 0 {
			t.Fatal("nothing is left: the removal was one commit")
		}
		if got, err := phase.Read(ctx, reader, "o"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("read %q, %v, want ErrNotFound", got, err)
		}
		if err := reader.Purge(ctx, "o", audit); err != nil {
			t.Error(err)
		}
		if left := append(entries(t, s, "wf:o:"), entries(t, s, "log:")...); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// QRY-2: a value that was set just before a crash is set again, and stored.
func TestValueThatWasNotStored(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			set(run, "waits", 2)
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		time.Sleep(time.Second)
		start(t, wf, p, "o", "")
		time.Sleep(10 * time.Millisecond)
		if got := valuesOf(t, p.Engine, "o"); len(got) > 0 {
			t.Fatalf("before the crash: %v", got)
		}
		if _, err := phase.Read(ctx, p, "o"); !errors.As(err, new(*engine.NoValueError)) || !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("not published yet: %v, want a NoValueError", err)
		}
		for range 2 {
			p.kill()
			p = boot(t, s, wf)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if got, err := phase.Read(ctx, p, "o"); got != "waits" || err != nil {
			t.Errorf("read %q, %v, want waits", got, err)
		}
		p.stop(t)
	})
}

// QRY-3: to add a Set, or to remove one, is no difference to a history. One that was added before a
// place that the run has passed does not replace a later one.
func TestSetIsAddedAndRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		build := func(first, second string) *engine.Workflow[string, string] {
			return flow("wf", func(run *engine.Run) (string, error) {
				if first != "" {
					set(run, first, 1)
				}
				if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
				if second != "" {
					set(run, second, 2)
				}
				return approved.Receive(run)
			})
		}
		booted := func(wf *engine.Workflow[string, string]) *process {
			return bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.N > 1000 { // it stores the same again at once, for ever
					return storagetest.CrashBefore
				}
				return storagetest.None
			}), wf)
		}
		for i, c := range []struct{ first, second, want string }{
			{"", "waits", "waits"},
			{"added", "waits", "waits"}, // before what was stored
			{"added", "", "waits"},      // the other one is removed
			{"", "", "waits"},
			{"", "another", "waits"}, // a place that counts as passed
		} {
			wf := build(c.first, c.second)
			p := booted(wf)
			if i == 0 {
				start(t, wf, p, "o", "")
			}
			time.Sleep(time.Second)
			if got, err := phase.Read(ctx, p, "o"); got != c.want || err != nil {
				t.Fatalf("build %d: read %q, %v, want %q", i, got, err, c.want)
			}
			if info := describe(t, p, "o"); len(info.Attention) > 0 {
				t.Errorf("build %d: %+v", i, info.Attention)
			}
			p.kill()
		}
		wf := build("", "")
		p := booted(wf)
		send(t, approved, p, "o", "", "x")
		result(t, wf.Handle(p, "o"))
		p.stop(t)
	})
}

// QRY-4: Await returns with the first value that is enough, at once in the engine that executes the
// run, and elsewhere within a poll, of which nobody is told. If the run ends with another value, it
// says so.
func TestAwaitValue(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for i := range 4 {
				if err := run.Sleep(10 * time.Second); err != nil {
					return "", err
				}
				set(run, fmt.Sprint("part ", i), i)
			}
			return "", nil
		})
		p := boot(t, s, wf)
		elsewhere := made(t, storagetest.NewFaulty(s, nil)) // hears nothing
		defer elsewhere.Close()
		begun := time.Now()
		start(t, wf, p, "o", "")
		atLeast := func(n int) func(int) bool { return func(m int) bool { return m >= n } }
		for _, c := range []struct {
			e    *engine.Engine
			n    int
			most time.Duration
		}{{p.Engine, 0, 10200 * time.Millisecond}, {elsewhere, 1, 21300 * time.Millisecond}, {p.Engine, 1, 21300 * time.Millisecond}, {elsewhere, 2, 31300 * time.Millisecond}} {
			n, err := progress.Await(ctx, c.e, "o", atLeast(c.n))
			if took := time.Since(begun); n != c.n || err != nil || took > c.most {
				t.Errorf("at least %d: got %d, %v after %v", c.n, n, err, took)
			}
		}
		for name, e := range map[string]*engine.Engine{"here": p.Engine, "elsewhere": elsewhere} {
			n, err := progress.Await(ctx, e, "o", atLeast(4))
			ended, ok := errors.AsType[*engine.TerminalError](err)
			if n != 0 || !ok || ended.Status != checkpoint.StatusCompleted {
				t.Errorf("%s: more than it publishes: %d, %v, want a TerminalError", name, n, err)
			}
			if took := time.Since(begun); took > 42*time.Second {
				t.Errorf("%s: that took %v", name, took)
			}
			if n, err := progress.Await(ctx, e, "o", atLeast(3)); n != 3 || err != nil {
				t.Errorf("%s: after the end: %d, %v, want 3", name, n, err)
			}
		}
		p.stop(t)
	})
}

// Await ends with its context, says what it waited for, and passes on what enough returns.
func TestAwaitValueInVain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "waits", 1)
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := progress.Await(short, p, "o", func(n int) bool { return n > 1 })
		stopped, ok := errors.AsType[*engine.InterruptedError](err)
		if !ok || !errors.Is(err, context.DeadlineExceeded) || !stopped.ReadOnly || stopped.WaitedFor != "another value" {
			t.Errorf("%v, want an InterruptedError about another value", err)
		}
		other := &engine.Value[int]{Name: "stage"}
		if _, err := other.Await(ctx, p, "o", func(int) bool { return true }); !errors.As(err, new(*engine.DecodeError)) {
			t.Errorf("of another type: %v, want a DecodeError", err)
		}
		if _, err := other.Read(ctx, p, "o"); !errors.As(err, new(*engine.DecodeError)) {
			t.Errorf("of another type: %v, want a DecodeError", err)
		}
		if _, err := phase.Await(ctx, p, "nobody", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("of nobody: %v, want ErrNotFound", err)
		}
		if _, err := phase.Read(ctx, p, "nobody"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("of nobody: %v, want ErrNotFound", err)
		}
		for range p.Values(ctx, "o") {
			break // an iteration may end early
		}
		for _, err := range p.Values(ctx, "nobody") {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("values of nobody: %v, want ErrNotFound", err)
			}
		}
		p.stop(t)
		for what, err := range map[string]error{
			"Read":  second(phase.Read(ctx, p, "o")),
			"Await": second(phase.Await(ctx, p, "o", func(string) bool { return false })),
		} {
			if !errors.Is(err, engine.ErrClosed) {
				t.Errorf("%s with a closed engine: %v, want ErrClosed", what, err)
			}
		}
		c := engine.UnimplementedClient{}
		for what, err := range map[string]error{
			"Read":  second(phase.Read(ctx, c, "o")),
			"Await": second(phase.Await(ctx, c, "o", func(string) bool { return false })),
		} {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s with a client that has no values: %v, want ErrUnsupported", what, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// QRY-6: what is no value is refused. A hundred are stored, also if they need several checkpoints.
func TestValuesThatAreRefused(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		large := strings.Repeat("x", 256<<10-2) // and quotes
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for what, err := range map[string]error{
				"no name":          (&engine.Value[int]{}).Set(run, 1),
				"a long name":      (&engine.Value[int]{Name: strings.Repeat("n", 101)}).Set(run, 1),
				"no UTF-8":         (&engine.Value[int]{Name: "\xff"}).Set(run, 1),
				"no JSON":          (&engine.Value[func()]{Name: "f"}).Set(run, func() {}),
				"a panic":          (&engine.Value[failsToEncode]{Name: "p"}).Set(run, failsToEncode{}),
				"257 KiB":          (&engine.Value[string]{Name: "l"}).Set(run, large+"x"),
				"a size of memory": (&engine.Value[string]{Name: "l"}).Set(run, strings.Repeat(large, 8)),
			} {
				if !errors.Is(err, engine.ErrInvalid) {
					t.Errorf("%s: %v, want ErrInvalid", what, err)
				}
			}
			for i := range 100 {
				if err := (&engine.Value[string]{Name: fmt.Sprint(i)}).Set(run, large); err != nil {
					t.Errorf("value %d: %v", i, err)
				}
			}
			if err := phase.Set(run, "one more"); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("the 101st: %v, want ErrInvalid", err)
			}
			if err := (&engine.Value[string]{Name: "7"}).Set(run, "another"); err != nil {
				t.Errorf("one of the hundred again: %v", err)
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		all := valuesOf(t, p.Engine, "o")
		if len(all) != 100 || len(all["99"]) != 256<<10 || all["7"] != `"another"` {
			t.Errorf("%d values, of which %s has %d bytes and %s is %.20s", len(all), "99", len(all["99"]), "7", all["7"])
		}
		for what, err := range map[string]error{
			"no id":       second(phase.Read(ctx, p, "")),
			"no name":     second((&engine.Value[int]{}).Read(ctx, p, "o")),
			"wait, no id": second(phase.Await(ctx, p, "", nil)),
		} {
			if !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		p.stop(t)
	})
}

// QRY-2, QRY-6: if a checkpoint has no room for all values, several store them. If the process dies
// between these, the next one stores all of them.
func TestValuesInSeveralCheckpoints(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: 90, Bytes: 1 << 20}}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for i := range 99 {
				if err := (&engine.Value[int]{Name: fmt.Sprintf("%02d", i)}).Set(run, i); err != nil {
					return "", err
				}
			}
			if err := errors.Join(phase.Set(run, "the last"), run.SetLabel("stage", "waits")); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "wf:o:pub:") {
				return storagetest.CrashAfter
			}
			return storagetest.None
		}), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.kill()
		if n := len(entries(t, s, "wf:o:pub:")); n == 0 || n == 100 {
			t.Fatalf("%d values before the crash, want some of them", n)
		}
		for range 2 { // the second one has nothing to do
			p = boot(t, s, wf)
			time.Sleep(time.Second)
			if got, err := phase.Read(ctx, p, "o"); got != "the last" || err != nil {
				t.Errorf("read %q, %v, want the last", got, err)
			}
			if n := len(entries(t, s, "wf:o:pub:")); n != 100 {
				t.Errorf("%d values, want 100", n)
			}
			if got := describe(t, p, "o").Labels["stage"]; got != "waits" {
				t.Errorf("label %q, want waits", got)
			}
			if n := valuesOnly(historyOf(t, p.Engine, "o")); n > 5 {
				t.Errorf("%d checkpoints only for values", n)
			}
			p.kill()
		}
	})
}

type failsToEncode struct{}

func (failsToEncode) MarshalJSON() ([]byte, error) { panic("no") }

// QRY-6: values are as they were when they were set, and what is set in a wrong place is refused.
func TestValueIsAsItWasSet(t *testing.T) {
	virtual(t, func(t *testing.T) {
		list := &engine.Value[[]int]{Name: "list"}
		var outer *engine.Run
		wf := flow("wf", func(run *engine.Run) (string, error) {
			outer = run
			l := []int{1, 2}
			if err := list.Set(run, l); err != nil {
				return "", err
			}
			l[0] = 7
			return engine.Step(run, "s", func(context.Context) (string, error) {
				if err := phase.Set(outer, "in a step"); !errors.Is(err, engine.ErrForeignRun) {
					t.Errorf("in a step: %v, want ErrForeignRun", err)
				}
				return "", nil
			})
		})
		p := boot(t, fresh(t), wf)
		result(t, start(t, wf, p, "o", ""))
		if got, err := list.Read(ctx, p, "o"); !slices.Equal(got, []int{1, 2}) || err != nil {
			t.Errorf("%v, %v, want what it was when it was set", got, err)
		}
		if got := valuesOf(t, p.Engine, "o"); len(got) != 1 {
			t.Errorf("values %v", got)
		}
		p.stop(t)
	})
}

// QRY-2: a transaction stores values, and reads them as it sees them.
func TestValuesAndTransactions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sweepStores["sqlite"].Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			set(run, "with a transaction", 1)
			if _, err := sqlite.Transact(run, "book", func(context.Context, *sql.Tx) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if n := valuesOnly(historyOf(t, p.Engine, "o")); n != 0 {
			t.Errorf("%d checkpoints only for values, want none", n)
		}
		if got, err := phase.Read(ctx, p, "o"); got != "with a transaction" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		p.stop(t)
	})
}

// QRY-2: the values of a workflow that ended are those of the life that ended: a start of the same id
// after a purge has none of them.
func TestValuesOfAnotherLife(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		publish := true
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if publish {
				set(run, "old", 1)
				return "", nil
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		old := get(t, s, keys.Published("o", phase.Name))
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		publish = false
		start(t, wf, p, "o", "")
		if _, err := phase.Read(ctx, p, "o"); !errors.As(err, new(*engine.NoValueError)) {
			t.Errorf("%v, want a NoValueError", err)
		}
		put(t, s, keys.Published("o", phase.Name), old) // as if the purge were not complete
		if got := valuesOf(t, p.Engine, "o"); len(got) > 0 {
			t.Errorf("values %v", got)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if got, err := phase.Await(short, p, "o", func(string) bool { return true }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v, want no value of another life", got, err)
		}
		p.kill()
	})
}

// publishing: a workflow publishes values between its steps, more at once than a checkpoint has room
// for, and at its end. Whatever is repeated after a crash, the values are the last ones.
func publishing(*sweep.World) sweep.Scenario {
	wf := &engine.Workflow[string, string]{Name: "publishing", Func: func(run *engine.Run, _ string) (string, error) {
		many := func(n int) {
			for i := range 20 {
				if err := (&engine.Value[int]{Name: fmt.Sprintf("part %02d", i)}).Set(run, n); err != nil {
					panic(err)
				}
			}
		}
		set(run, "begun", 1)
		if _, err := engine.Step(run, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return "", err
		}
		many(1)
		set(run, "waits", 2)
		v, err := approved.Receive(run)
		if err != nil {
			return "", err
		}
		set(run, v, 3)
		if err := run.Sleep(time.Hour); err != nil {
			return "", err
		}
		set(run, "slept", 4)
		many(2)
		if _, err := engine.Step(run, "two", func(context.Context) (int, error) { return 2, nil }); err != nil {
			return "", err
		}
		many(3)
		set(run, "ended", 5)
		return v, nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"publishing"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "publishing", "")
			if err != nil {
				return "", err
			}
			if _, err := progress.Await(ctx, eng, "publishing", func(n int) bool { return n >= 2 }); err != nil {
				return "", err
			}
			if _, err := approved.Send(ctx, eng, "publishing", "yes", &signal.Options{ID: "click"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			if _, err := h.Result(ctx); err != nil {
				return "", err
			}
			var all bytes.Buffer
			for v, err := range eng.Values(ctx, "publishing") {
				if err != nil {
					return "", err
				}
				fmt.Fprintf(&all, "%s: %s\n", v.Name, json.RawMessage(v.Value.Data))
			}
			return all.String(), nil
		},
	}
}
