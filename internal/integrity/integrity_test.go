package integrity_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

var (
	approved = &signal.Signal[string]{Name: "approved"}
	charge   = &activity.Activity[string, string]{
		Name:           "charge",
		IdempotencyKey: func(s string) string { return s },
		Run:            func(_ context.Context, s string) (string, error) { return s, nil },
		Verify: func(context.Context, string) (activity.Verification[string], error) {
			return activity.NotCompleted[string](), nil
		},
	}
	change = &engine.Update[int, int]{Name: "change"}
	quick  = &engine.Workflow[string, string]{Name: "quick", Func: func(*engine.Run, string) (string, error) { return "done", nil }}
	waits  = &engine.Workflow[string, string]{Name: "waits", Func: func(run *engine.Run, in string) (string, error) {
		if _, err := charge.Do(run, in); err != nil {
			return "", err
		}
		if err := change.Handle(run, nil, func(run *engine.Run, n int) (int, error) {
			if n > 1 {
				return n, run.Sleep(time.Hour)
			}
			return n, nil
		}); err != nil {
			return "", err
		}
		return "", run.Sleep(24 * time.Hour)
	}}
	parent = &engine.Workflow[string, string]{Name: "parent", Func: func(run *engine.Run, in string) (string, error) {
		return waits.AsChild(engine.ChildOptions{ID: "child"}).Do(run, in)
	}}
	busy = &engine.Workflow[string, string]{Name: "busy", Func: func(run *engine.Run, _ string) (string, error) {
		return engine.Step(run, "s", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	}}
)

// populated returns a store with records of every family that Check judges: of runs that
// wait, one that is owned, one that has ended, and one that was purged.
func populated(t *testing.T) map[string][]byte {
	s := new(memory.Store)
	e, err := engine.New(engine.Config{
		Storage:   s,
		Workflows: []engine.Definition{quick, waits, parent, busy},
		Queues:    []engine.Queue{{Name: "reports", Concurrency: 1}},
		ParkAfter: time.Millisecond,
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"ended", "purged"} {
		h, err := quick.Start(ctx, e, id, "")
		must(h, err)
		must(h.Result(ctx))
	}
	must(nil, e.Purge(ctx, "purged", engine.Actor{Name: "ann", Reason: "test"}))
	must(busy.Start(ctx, e, "busy", ""))
	must(parent.Start(ctx, e, "parent", "k"))
	queued := waits.With(engine.StartOptions{Queue: "reports"})
	must(queued.Start(ctx, e, "first", "k"))
	time.Sleep(time.Minute)
	must(queued.Start(ctx, e, "second", "k"))
	must(approved.Send(ctx, e, "first", "yes", &signal.Options{ID: "evt_1"}))
	must(change.Call(ctx, e, "first", 1, &engine.UpdateOptions{ID: "one"}))
	for id, n := range map[string]int{"first": 2, "busy": 3} { // one is in progress, the other waits
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		if _, err := change.Call(soon, e, id, n, &engine.UpdateOptions{ID: "other"}); err == nil {
			t.Fatal("the update is answered")
		}
		cancel()
	}
	time.Sleep(time.Minute)
	all := map[string][]byte{}
	for entry, err := range storage.All(ctx, s, storage.Range{}) {
		must(nil, err)
		all[string(entry.Key)] = entry.Value
	}
	cancel()
	must(nil, <-ended)
	must(nil, e.Close())
	return all
}

// problems checks a store with the given entries.
func problems(t *testing.T, all map[string][]byte, now time.Time) []string {
	t.Helper()
	var b storage.Batch
	for key, value := range all {
		b.Ops = append(b.Ops, storage.Put([]byte(key), value))
	}
	s := new(memory.Store)
	if err := s.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return integrity.Check(t.Context(), s, now)
}

// Each property is missed when it does not hold: an entry was lost, or belongs to nothing. What
// the engine stores has them all. SIG-19, SIG-24, SIG-25: the response that is stored names the
// signal of its key, and the key of the payload, which is there.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := populated(t)
		if got := problems(t, all, time.Now()); len(got) > 0 {
			t.Fatalf("nothing was changed, and %q", got)
		}
		key := func(prefix string) string {
			for _, k := range slices.Sorted(maps.Keys(all)) {
				if strings.HasPrefix(k, prefix) {
					return k
				}
			}
			t.Fatalf("no key begins with %q: %q", prefix, slices.Sorted(maps.Keys(all)))
			return ""
		}
		lose := func(prefix string) func(map[string][]byte) {
			return func(m map[string][]byte) { delete(m, key(prefix)) }
		}
		move := func(from, to string) func(map[string][]byte) {
			return func(m map[string][]byte) { m[to] = m[key(from)] }
		}
		change := func(id string, f func(wf *journal.Workflow)) func(map[string][]byte) {
			return func(m map[string][]byte) {
				wf, err := journal.OpenWorkflow(id, m["wf:"+id])
				if err != nil {
					t.Fatal(err)
				}
				f(wf)
				ops, err := journal.Replace(nil, nil, wf)
				if err != nil {
					t.Fatal(err)
				}
				m["wf:"+id] = ops[0].Value
			}
		}
		create := func(d deployment.Record) func(map[string][]byte) {
			return func(m map[string][]byte) {
				b, err := d.Create()
				if err != nil {
					t.Fatal(err)
				}
				m[string(b.Ops[0].Key)] = b.Ops[0].Value
			}
		}
		for _, c := range []struct {
			name   string
			change func(m map[string][]byte)
			want   string
		}{
			{"a list without a workflow", lose("ix:"), "in a list is missing"},
			{"a list with a workflow twice", move("ix:", "ix:0"), "checksum"},
			{"a workflow without an input", lose("wf:busy:in"), "no input"},
			{"an end without an output", lose("wf:ended:out"), "has no output"},
			{"an output without an end", move("wf:ended:out", "wf:busy:out"), "has an output"},
			{"a checkpoint of nothing", move("log:", "log:ghost:1"), "no such workflow"},
			{"a checkpoint under the id of a workflow that has them elsewhere", move("log:", "wf:busy:ckpt:1"), "the checkpoints of the workflow are stored elsewhere"},
			{"a checkpoint of another generation", func(m map[string][]byte) {
				for key := range m {
					if strings.HasPrefix(key, "log:") {
						raw, err := record.Seal([]byte(key), journal.Version, &struct {
							Generation string `cbor:"1,keyasint"`
						}{"G"}, nil)
						if err != nil {
							t.Fatal(err)
						}
						m[key] = raw
						return
					}
				}
			}, "it is of another generation"},
			{"a checkpoint under the id of nothing", move("log:", "wf:ghost:ckpt:1"), "no such workflow"},
			{"an owner without a held entry", lose("held:"), "no held entry"},
			{"a held entry without an owner", move("held:", "held:e:busy"), "does not own"},
			{"a held entry of an ended workflow", move("held:", "held:e:ended"), "does not own"},
			{"a run that nobody finds", lose("todo:"), "entry todo:"},
			{"a place in the line that is lost", lose("op:"), "entry op:"},
			{"a place in the line of a run that does not wait", move("op:", "op:reports:0:first"), "does not wait"},
			{"a slot that is free", lose("slot:"), "slot 1"},
			{"a slot of a run without one", change("first", func(wf *journal.Workflow) { wf.Slot = 0 }), `workflow "first" does not occupy this slot`},
			{"a slot of an ended run", change("first", func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }), `workflow "first" does not occupy this slot`},
			{"a place in the line of an ended run", change("second", func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }), "does not wait in this place"},
			{"a pending run that nobody finds", change("second", func(wf *journal.Workflow) { wf.Todo = nil }), "nothing has an engine find it"},
			{"a list of another generation", change("busy", func(wf *journal.Workflow) { wf.Generation = "G" }), `lists workflow "busy", whose record does not say so`},
			{"a list of a status that is lost", lose("ls:"), "its entry ls:"},
			{"a list of another status", change("busy", func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }), `lists workflow "busy", whose record does not say so`},
			{"a child that is not listed", lose("lp:"), "its entry lp:parent:"},
			{"a list of children of nobody", change("child", func(wf *journal.Workflow) { wf.Parent = nil }), `lists workflow "child", whose record does not say so`},
			{"an Attention that is not listed", change("busy", func(wf *journal.Workflow) { wf.Attention = []journal.Attention{{Reason: "stuck"}} }), "its entry la:"},
			{"a label that is not listed", change("busy", func(wf *journal.Workflow) { wf.Labels = map[string]string{"team": "blue"} }), "its entry ll:team:blue:running:"},
			{"a child that is lost", lose("wf:child"), `no child "child"`},
			{"a child of nothing", lose("wf:parent"), "kid:parent:1: there is no such workflow"},
			{"a child of another generation of the parent", change("parent", func(wf *journal.Workflow) { wf.Generation = "G" }), "of the parent, which has generation G"},
			{"a child with another parent", change("child", func(wf *journal.Workflow) { wf.Parent.Operation = "9" }), `child "child" has another parent`},
			{"a run that keeps its children nowhere", change("parent", func(wf *journal.Workflow) { wf.StartOn("") }), "it has none"},
			{"a child that is not kept", change("parent", func(wf *journal.Workflow) { wf.StartOn("blue") }), `child "child" was not started on deployment "blue"`},
			{"a child whose end is not recorded", change("child", func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }), `child "child" is failed, and its end is not recorded`},
			{"an effect of nothing", lose("wf:child"), "act:child:charge:1:k: there is no such workflow"},
			{"an effect of another generation", change("child", func(wf *journal.Workflow) { wf.Generation = "G" }), "of the workflow, which has generation G"},
			{"a tombstone in the list", func(m map[string][]byte) {
				wf, err := journal.OpenWorkflow("purged", m["wf:purged"])
				if err != nil {
					t.Fatal(err)
				}
				row, err := journal.PutRow(keys.Index(wf.Generation), wf.ID)
				if err != nil {
					t.Fatal(err)
				}
				m[string(row.Key)] = row.Value
			}, `lists workflow "purged", whose record does not say so`},
			{"a tombstone that never expires", func(m map[string][]byte) {
				for k := range m {
					if strings.HasPrefix(k, "exp:") && strings.Contains(k, ":tomb:") {
						delete(m, k)
					}
				}
			}, "no entry says when this tombstone expires"},
			{"a signal that was not accepted", lose("sigres:"), "was not accepted"},
			{"a signal without a place", lose("inbox:"), "0 places"},
			{"a place without a signal", lose("sig:"), "does not wait"},
			{"an acceptance that never expires", func(m map[string][]byte) {
				for k := range m {
					if strings.HasPrefix(k, "exp:") && strings.Contains(k, ":sig:") {
						delete(m, k)
					}
				}
			}, "sigres:first:approved:evt_1: no entry says when it expires"},
			{"an update of nothing", move("upd:", "upd:ghost:x"), "no such workflow"},
			{"an update of another generation", change("busy", func(wf *journal.Workflow) { wf.Generation = "G" }), "upd:busy:other: it is of generation"},
			{"an update that waits and is answered", func(m map[string][]byte) { m["upr:busy:other"] = m["upr:first:one"] }, "the update waits, and was accepted or refused"},
			{"an update that is not noted", change("busy", func(wf *journal.Workflow) { wf.Needs = nil }), "upd:busy:other: the workflow does not say that it has an update"},
			{"an answer that is not noted", change("first", func(wf *journal.Workflow) { wf.Needs = nil }), "upr:first:one: the workflow does not say that it has an update"},
			{"an answer of another generation", change("first", func(wf *journal.Workflow) { wf.Generation = "G" }), "upr:first:one: it is of generation"},
			{"an update that is not answered at the end", change("first", func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }), "accepted and not answered, and the workflow is failed"},
			{"an answer that never expires", func(m map[string][]byte) {
				for k := range m {
					if strings.HasPrefix(k, "exp:") && strings.Contains(k, ":upd:") {
						delete(m, k)
					}
				}
			}, "upr:first:one: no entry says when the answer expires"},
			{"a counter of nothing", move("sigseq:", "sigseq:ghost"), "no such workflow"},
			{"a progress of nothing", func(m map[string][]byte) { m["beat:ghost:1"] = nil }, "no such workflow"},
			{"a deployment that is damaged", func(m map[string][]byte) { m["dep:blue"] = []byte("x") }, "dep:blue"},
			{"a deployment of another name", create(deployment.Record{ID: "active"}), "no deployment may have this id"},
			{"a deployment with half a digest", create(deployment.Record{ID: "blue", Digest: []byte{1}}), "is no SHA-256"},
			{"a deployment with an artifact without a digest", create(deployment.Record{ID: "blue", Artifact: &deployment.Artifact{Size: 1}}), "is no SHA-256"},
			{"another family", func(m map[string][]byte) { m["foo:bar"] = nil }, "no such family"},
			{"another number of components", func(m map[string][]byte) { m["ix:a:b"] = nil }, "components"},
			{"a record that is damaged", func(m map[string][]byte) { m["wf:busy"] = []byte("x") }, "wf:busy"},
		} {
			changed := maps.Clone(all)
			c.change(changed)
			if got := problems(t, changed, time.Now()); !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		if got := problems(t, all, time.Now().Add(1000*24*time.Hour)); !strings.Contains(strings.Join(got, "\n"), "expired") {
			t.Errorf("in 1,000 days: %q, want what has expired", got)
		}
	})
}
