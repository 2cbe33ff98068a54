package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
)

// ability is one that only a newer release has.
const ability = "reset"

// needs makes ability a need of a run, as a newer release would.
func needs(t *testing.T, s storage.Storage, id string) {
	t.Helper()
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	next := *wf
	next.Needs = []string{ability}
	ops, err := journal.Replace(nil, wf, &next)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: ops}); err != nil {
		t.Fatal(err)
	}
}

// FMT-13, FMT-15, UPG-1, UPG-2, UPG-9: a run in which a newer release has used something that this one does not know
// is claimed on no path: not by the poll, not from the line of a queue, not with a signal, and
// not from an engine that died. Reading it, a signal and a request to cancel it work, and
// what would change more of it is refused. The runs beside it are executed.
func TestRunOfANewerRelease(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		queued := wf.With(engine.StartOptions{Queue: "reports"})
		settings := func(c *engine.Config) {
			leases(c)
			c.ParkAfter = time.Millisecond
			c.Queues = []engine.Queue{{Name: "reports", Concurrency: 1}}
		}

		p := boot(t, s, wf, settings)
		start(t, wf, p, "parked", "")
		start(t, wf, p, "held", "")
		time.Sleep(time.Second)
		p.stop(t)
		client := made(t, s, wf, func(c *engine.Config) { c.Workflows = nil })
		start(t, wf, client, "due", "")
		start(t, queued, client, "in line", "")
		start(t, queued, client, "behind", "")
		client.Close()
		all := []string{"parked", "held", "due", "in line"}
		for _, id := range all {
			needs(t, s, id)
		}
		ownedByTheDead(t, s, "held")

		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		p = boot(t, s, wf, settings)
		time.Sleep(time.Minute)
		for _, id := range all {
			send(t, yes, p, id, "ann", "evt_1")
		}
		send(t, yes, p, "behind", "ann", "evt_1")
		if got := result(t, wf.Handle(p, "behind")); got != "ann" {
			t.Errorf("the run behind it in the line: %q", got)
		}
		time.Sleep(10 * time.Minute)
		before := map[string][]byte{}
		for _, id := range all {
			i := describe(t, p, id)
			if len(i.Attention) != 1 || i.Attention[0].Reason != engine.ReasonNewerRelease || i.Attention[0].Name != ability {
				t.Errorf("%s: %+v, want that a newer release is needed", id, i.Attention)
			}
			if got := kinds(historyOf(t, p.Engine, id)); slices.Contains(got, checkpoint.KindReceived) || i.Status.Terminal() {
				t.Errorf("%s is %s: %v", id, i.Status, got)
			}
			var exported bytes.Buffer
			if err := p.Export(ctx, id, &exported); err != nil {
				t.Errorf("export of %s: %v", id, err)
			}
			if err := p.Replay(ctx, &exported); !errors.Is(err, storage.ErrFutureFormat) {
				t.Errorf("replay of %s: %v, want that only a newer release understands it", id, err)
			}
			before[id] = get(t, s, keys.Workflow(id))
			for what, err := range map[string]error{
				"resume":       p.Resume(ctx, id, audit),
				"resolve":      p.Resolve(ctx, id, "1", activity.Failed("no"), audit),
				"clear signal": p.ClearSignal(ctx, id, yes.Name, "evt_1", audit),
				"terminate":    p.Terminate(ctx, id, audit),
				"reset":        p.Reset(ctx, id, "", audit),
				"label":        p.Label(ctx, id, map[string]string{"team": "blue"}, audit),
				"protect":      p.Protect(ctx, id, audit),
				"unprotect":    p.Unprotect(ctx, id, audit),
				"delete":       p.Delete(ctx, id, audit),
			} {
				if !errors.Is(err, storage.ErrFutureFormat) || !strings.Contains(err.Error(), ability) {
					t.Errorf("%s of %s: %v, want that only a newer release knows %q", what, id, err, ability)
				}
			}
			if now := get(t, s, keys.Workflow(id)); string(now) != string(before[id]) {
				t.Errorf("%s was rewritten", id)
			}
			if err := wf.Handle(p, id).Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
				t.Errorf("cancel of %s: %v", id, err)
			}
		}
		time.Sleep(time.Minute)
		for _, id := range all {
			if i := describe(t, p, id); i.Cancel == nil || i.Status.Terminal() {
				t.Errorf("%s: %+v, want the request recorded and the run as it is", id, i)
			}
		}
	})
}

// FMT-15, UPG-9: a run that gets a need while this engine executes it is put down.
func TestRunThatANewerReleaseChanges(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var ended error
		wf := flow("w", func(run *engine.Run) (string, error) {
			engine.Step(run, "s", func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
					ended = ctx.Err()
				case <-time.After(time.Minute):
				}
				return 1, nil
			})
			return "done", nil
		})
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		needs(t, s, "o")
		time.Sleep(10 * time.Minute)
		if i := describe(t, p, "o"); i.Status.Terminal() || len(i.Attention) != 1 || i.Attention[0].Reason != engine.ReasonNewerRelease {
			t.Errorf("%+v, want it put down, and that a newer release is needed", i)
		}
		if got := kinds(historyOf(t, p.Engine, "o")); slices.Contains(got, checkpoint.KindSettled) {
			t.Errorf("%v: it went on; its step ended with %v", got, ended)
		}
		p.stop(t)
	})
}

// A tombstone with a need is of a purge that a newer release began: it alone knows what belongs
// to the run. Nobody else sweeps it, starts over it, or lets it expire.
func TestTombstoneOfANewerRelease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(*engine.Run) (string, error) { return "done", nil })
		log := new(lines)
		p := boot(t, s, wf, log.logger(), func(c *engine.Config) { c.PollInterval, c.TombstoneRetention = time.Minute, time.Hour })
		for _, id := range []string{"o", "z"} {
			result(t, start(t, wf, p, id, ""))
			if err := p.Purge(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
		}
		needs(t, s, "o")
		put(t, s, keys.Beat("o", "1"), []byte("left by the purge"))
		for what, do := range map[string]func() error{
			"purge": func() error { return p.Purge(ctx, "o", audit) },
			"start": func() error { _, err := wf.Start(ctx, p, "o", ""); return err },
		} {
			if err := do(); !errors.Is(err, storage.ErrFutureFormat) {
				t.Errorf("%s: %v", what, err)
			}
		}
		time.Sleep(5 * time.Hour)
		want := []string{"beat:o:1", "wf:o"} // and nothing of the tombstone after it
		if got := append(entries(t, s, "beat:"), recordsOfRuns(t, s)...); !slices.Equal(got, want) {
			t.Errorf("%q is left, want %q", got, want)
		}
		if n := log.count("level=ERROR"); n > 0 {
			t.Errorf("%d errors are logged, want none: nothing is damaged", n)
		}
	})
}

// UPG-2: an ended run with a need is not purged, and its failure is not taken back.
func TestEndedRunOfANewerRelease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(*engine.Run) (string, error) { return "", errBroke })
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		if _, err := outcome(h); err == nil {
			t.Error("it has not failed")
		}
		needs(t, s, "o")
		raw := get(t, s, keys.Workflow("o"))
		for what, err := range map[string]error{
			"purge":   p.Purge(ctx, "o", audit),
			"resume":  p.Resume(ctx, "o", audit),
			"reset":   p.Reset(ctx, "o", "", audit),
			"label":   p.Label(ctx, "o", map[string]string{"team": "blue"}, audit),
			"protect": p.Protect(ctx, "o", audit),
			"delete":  p.Delete(ctx, "o", audit),
		} {
			if !errors.Is(err, storage.ErrFutureFormat) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if now := get(t, s, keys.Workflow("o")); string(now) != string(raw) {
			t.Error("it was rewritten")
		}
		if _, err := outcome(h); err == nil || errors.Is(err, storage.ErrFutureFormat) {
			t.Errorf("result: %v, want the failure", err)
		}
	})
}

// FMT-13, UPG-4: an event or an operation of a kind that this release does not know is not passed over:
// the run is held, and continues when its history is understood.
func TestHistoryOfANewerRelease(t *testing.T) {
	for what, change := range map[string]func(*checkpoint.Event){
		"event":     func(e *checkpoint.Event) { e.Kind = "rewound" },
		"operation": func(e *checkpoint.Event) { e.Of = "teleport" },
	} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			called := 0
			wf := flow("w", func(run *engine.Run) (string, error) {
				engine.Step(run, "s", func(context.Context) (int, error) { called++; return 1, nil })
				return yes.Receive(run)
			})
			p := boot(t, s, wf, parking)
			start(t, wf, p, "o", "")
			time.Sleep(time.Second)
			p.stop(t)
			changeSettled(t, s, "o", change)
			p = boot(t, s, wf, parking)
			send(t, yes, p, "o", "ann", "evt_1")
			time.Sleep(time.Minute)
			i := describe(t, p, "o")
			if len(i.Attention) != 1 || i.Attention[0].Reason != engine.ReasonDamaged || !strings.Contains(i.Attention[0].Detail, "newer release") || called != 1 {
				t.Errorf("%s of an unknown kind: %+v, called %d times", what, i, called)
			}
			p.stop(t)
			changeSettled(t, s, "o", func(e *checkpoint.Event) { e.Kind, e.Of = checkpoint.KindSettled, "step" })
			p = boot(t, s, wf, parking)
			if got := result(t, wf.Handle(p, "o")); got != "ann" || called != 1 {
				t.Errorf("%s of a known kind again: %q, called %d times", what, got, called)
			}
		})
	}
}

// ownedByTheDead makes a parked run one of an incarnation that died.
func ownedByTheDead(t *testing.T, s storage.Storage, id string) {
	t.Helper()
	const dead = "host-00000000000000000000000000"
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	next := *wf
	next.Owner = dead
	ops, err := journal.Replace(nil, wf, &next)
	if err != nil {
		t.Fatal(err)
	}
	b := storage.Batch{Ops: append(ops, storage.Put(keys.Held(dead, id), nil))}
	if wf.Todo != nil {
		b.Ops = append(b.Ops, storage.Delete(wf.Todo))
	}
	if err := s.Commit(ctx, b); err != nil {
		t.Fatal(err)
	}
}

// changeSettled changes the event of a workflow that settles its first operation, a step.
func changeSettled(t *testing.T, s storage.Storage, id string, change func(*checkpoint.Event)) {
	t.Helper()
	changed := 0
	for _, key := range logged(t, s, id) {
		var c struct {
			Events []checkpoint.Event `cbor:"4,keyasint,omitempty"`
		}
		rest, err := record.Open([]byte(key), get(t, s, []byte(key)), journal.Version, &c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Events {
			if c.Events[i].Operation == "1" {
				change(&c.Events[i])
				changed++
			}
		}
		raw, err := record.Seal([]byte(key), journal.Version, &c, rest)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, []byte(key), raw)
	}
	if changed != 1 {
		t.Fatalf("%d events are of operation 1, want 1", changed)
	}
}
