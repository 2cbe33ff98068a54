package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
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
			if i := describe(t, p, id); i.Status.Terminal() {
				t.Errorf("before %q: it is %s", before, i.Status)
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

var _ = signal.Options{}
