package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// STA-1: nothing of a delayed workflow is executed before its time, also not by a signal, an update or a hint. Then
// it begins, and has received what was sent.
func TestDelayedStart(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		word := &signal.Signal[string]{Name: "word"}
		move := &engine.Update[string, string]{Name: "move"}
		w := &engine.Workflow[string, string]{Name: "w", Func: func(run *engine.Run, _ string) (string, error) {
			began, moved := run.Now(), ""
			if err := move.Handle(run, func(string) error { return nil }, func(_ *engine.Run, to string) (string, error) {
				moved = to
				return to, nil
			}); err != nil {
				return "", err
			}
			got, err := word.Receive(run)
			for err == nil && moved == "" {
				err = run.Sleep(time.Second)
			}
			return got + " " + moved + " " + began.UTC().Format(time.RFC3339), err
		}}
		p := boot(t, s, w, rareLeases)
		begins := time.Now().Add(time.Hour).Truncate(time.Second)
		h := start(t, w.With(engine.StartOptions{StartAt: begins}), p, "later", "")
		i := describe(t, p, "later")
		if i.Status != checkpoint.StatusPending || !slices.ContainsFunc(i.Waiting, func(s string) bool { return strings.HasPrefix(s, "its start at ") }) {
			t.Errorf("got %s, waiting for %q", i.Status, i.Waiting)
		}
		if wf := loaded(t, s, "later"); !slices.Contains(wf.Needs, "delay") {
			t.Errorf("it needs %q", wf.Needs)
		}
		for range 3 {
			if _, err := word.Send(ctx, p, "later", "hello", nil); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, time.Minute)
			if _, err := move.Call(short, p, "later", "home", &engine.UpdateOptions{ID: "click"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("an update before its start: %v", err)
			}
			cancel()
			put(t, s, keys.TodoNow(0, time.Now(), "later", "hint"), nil) // as a release before writes it
			time.Sleep(10 * time.Minute)
			equal(t, "after a signal", describe(t, p, "later").Status, checkpoint.StatusPending)
		}
		equal(t, "entries that lead to it", len(entries(t, s, "todo:")), 1)
		p.stop(t)
		p = boot(t, s, w, rareLeases)
		h = w.Handle(p, h.ID())
		equal(t, "result", result(t, h), "hello home "+begins.UTC().Format(time.RFC3339))
		if late := describe(t, p, "later").StartedAt.Sub(begins); late < 0 || late > 10*time.Second {
			t.Errorf("it began %v late", late)
		}
		if wf := loaded(t, s, "later"); slices.Contains(wf.Needs, "delay") || wf.StartAt != 0 {
			t.Errorf("after its begin it needs %q", wf.Needs)
		}
	})
}

func loaded(t *testing.T, s storage.Storage, id string) *journal.Workflow {
	t.Helper()
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	return wf
}

// STA-1: a delayed workflow that is cancelled is cancelled at once, and its function never called.
func TestCancelledBeforeItsStart(t *testing.T) {
	cancelDelayed(t, func(t *testing.T, _ storage.Storage, p *process, h *engine.Handle[string]) {
		if err := h.Cancel(ctx, audit); err != nil {
			t.Fatal(err)
		}
		equal(t, h.ID(), describe(t, p, h.ID()).Status, checkpoint.StatusCancelled)
		history := historyOf(t, p.Engine, h.ID())
		if len(history) == 0 {
			t.Fatalf("%s: it is not cancelled at once", h.ID())
		}
		end := history[0].Events
		if text := end[len(end)-1].Error; !strings.Contains(text, "before its start at 2000-01-01T01:00:00Z") {
			t.Errorf("%s: its history ends with %q", h.ID(), text)
		}
	})
}

// STA-1: a release that does not know delays records that a delayed workflow is to stop, and leaves an entry to look
// at it. So this release cancels the workflow, before its time.
func TestDelayedStartThatAnOlderReleaseCancels(t *testing.T) {
	cancelDelayed(t, func(t *testing.T, s storage.Storage, p *process, h *engine.Handle[string]) {
		wf := loaded(t, s, h.ID())
		next := *wf
		next.State++
		next.Cancel = &journal.Request{By: "ann", Reason: "sold out", At: journal.Micro(time.Now())}
		ops, err := journal.Replace(nil, wf, &next)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, storage.Put(keys.TodoNow(0, time.Now(), h.ID(), "by-another"), nil))
		if err := s.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: ops}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // several polls
		i := describe(t, p, h.ID())
		if i.Status != checkpoint.StatusCancelled || i.Cancel.Reason != "sold out" {
			t.Errorf("%s: %+v", h.ID(), i)
		}
	})
}

// cancelDelayed has cancel cancel two delayed workflows, one of them with a queue. They end then, their function is never
// called, and nothing is left to do for them.
func cancelDelayed(t *testing.T, cancel func(t *testing.T, s storage.Storage, p *process, h *engine.Handle[string])) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var c tally
		w := flow("w", func(*engine.Run) (string, error) { c.add("called"); return "", nil })
		p := boot(t, s, w, rareLeases, func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q"}} })
		for id, queue := range map[string]string{"a": "", "b": "q"} {
			h := start(t, w.With(engine.StartOptions{StartAt: time.Now().Add(time.Hour), Queue: queue}), p, id, "")
			cancel(t, s, p, h)
			if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
				t.Errorf("%s: got %v", id, err)
			}
			equal(t, "needs", loaded(t, s, id).Needs, "[]")
		}
		time.Sleep(2 * time.Hour)
		equal(t, "calls", c.of("called"), 0)
		equal(t, "entries", append(entries(t, s, "todo:"), entries(t, s, "op:")...), "[]")
	})
}

// STA-1: a delayed workflow with a queue joins the line when its time has come, and behind those that
// wait there already. An engine that does not serve the queue moves it.
func TestDelayedStartInAQueue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		w := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
		other := boot(t, s, rareLeases)
		queued := w.With(engine.StartOptions{Queue: "q"})
		start(t, w.With(engine.StartOptions{Queue: "q", StartAt: time.Now().Add(time.Hour)}), other, "delayed", "")
		time.Sleep(50 * time.Minute)
		start(t, queued, other, "first", "")
		equal(t, "in line", len(entries(t, s, "op:q:")), 1)
		time.Sleep(11 * time.Minute)
		equal(t, "in line at its time", len(entries(t, s, "op:q:")), 2)
		equal(t, "elsewhere", len(entries(t, s, "todo:")), 0)
		p := boot(t, s, w, rareLeases, func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q", Concurrency: 1}} })
		result(t, w.Handle(p, "delayed"))
		a, b := describe(t, p, "first"), describe(t, p, "delayed")
		if b.StartedAt.Before(a.EndedAt) {
			t.Errorf("the delayed one began at %v, and the first one ended at %v", b.StartedAt, a.EndedAt)
		}
	})
}

// A child may be delayed too, a start in the past is not, and one far in the future is refused.
func TestDelayedStarts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		child := flow("child", func(run *engine.Run) (string, error) { return run.Now().UTC().Format(time.RFC3339), nil })
		parent := flow("parent", func(run *engine.Run) (string, error) {
			return child.With(engine.StartOptions{StartAt: midnight.Add(50 * time.Minute)}).Do(run, "")
		})
		p := boot(t, s, child, parent, rareLeases)
		equal(t, "child", result(t, start(t, parent, p, "parent", "")), midnight.Add(50*time.Minute).Format(time.RFC3339))
		now := time.Now()
		result(t, start(t, child.With(engine.StartOptions{StartAt: now.Add(-time.Hour)}), p, "past", ""))
		if took := time.Since(now); took > time.Second {
			t.Errorf("one that was to begin before began %v later", took)
		}
		_, err := p.StartWorkflow(context.Background(), &engine.StartRequest{Workflow: "child", Options: engine.StartOptions{StartAt: now.AddDate(300, 0, 0)}})
		if !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("in 300 years: got %v, want ErrInvalid", err)
		}
	})
}

// delaying has workflows begin at a time, one of them in a queue. Signals come before.
func delaying(*sweep.World) sweep.Scenario {
	begins := midnight.Add(6 * time.Hour)
	wf := &engine.Workflow[string, string]{Name: "delaying", Func: func(run *engine.Run, _ string) (string, error) {
		if now := run.Now(); now.Before(begins) {
			return "", fmt.Errorf("it began at %v", now)
		}
		return approved.Receive(run)
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		Queues:    []engine.Queue{{Name: "q", Concurrency: 1}},
		IDs:       []string{"delayed", "delayed in line"},
		Drive: func(ctx context.Context, eng *engine.Engine) (all string, err error) {
			for id, queue := range map[string]string{"delayed": "", "delayed in line": "q"} {
				if _, err := wf.With(engine.StartOptions{StartAt: begins, Queue: queue}).Start(ctx, eng, id, ""); err != nil {
					return "", err
				}
				if _, err := approved.Send(ctx, eng, id, "yes", &signal.Options{ID: "click"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
					return "", err
				}
			}
			for _, id := range []string{"delayed", "delayed in line"} {
				got, err := wf.Handle(eng, id).Result(ctx)
				if err != nil {
					return "", err
				}
				all += got + "; "
			}
			return all, nil
		},
	}
}
