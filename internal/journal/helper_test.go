package journal

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var (
	ctx  = context.Background()
	noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

// started creates a workflow owned by owner in s, and returns its hold.
func started(t testing.TB, s storage.Storage, id, owner string) *Hold {
	t.Helper()
	return create(t, s, &Workflow{ID: id, Generation: "GEN-" + id, ByGeneration: true, Type: "order"}, nil, owner, noon)
}

func create(t testing.TB, s storage.Storage, wf, on *Workflow, owner string, now time.Time) *Hold {
	t.Helper()
	w, err := Create(wf, on, owner, keys.Todo(0, now, wf.ID, wf.Generation), 0, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, w.Batch); err != nil {
		t.Fatalf("create %q: %v", wf.ID, err)
	}
	return w.Hold()
}

func appended(t testing.TB, h *Hold, now time.Time, events ...checkpoint.Event) *Write {
	t.Helper()
	w, err := h.Append(Change{Events: events}, now)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func claimed(t testing.TB, h *Hold, owner string, floor uint64, now time.Time) *Write {
	t.Helper()
	w, err := h.Claim(owner, "", floor, now)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// commit commits w, expects Done, and returns the hold after it.
func commit(t testing.TB, s storage.Storage, w *Write) *Hold {
	t.Helper()
	if v, err := Commit(ctx, s, w, nil); v != Done || err != nil {
		t.Fatalf("Commit of checkpoint %d = %v, %v, want done", w.Entry.Number, v, err)
	}
	return w.Hold()
}

// ended appends the end of a run.
func ended(t testing.TB, s storage.Storage, h *Hold, now time.Time) *Hold {
	t.Helper()
	wf := *h.Workflow
	wf.Status, wf.EndedAt = checkpoint.StatusCompleted, Micro(now)
	out, err := PutOutput(wf.ID, &Output{Generation: wf.Generation, Status: checkpoint.StatusCompleted})
	if err != nil {
		t.Fatal(err)
	}
	w, err := h.Append(Change{
		Events:   []checkpoint.Event{{Kind: checkpoint.KindEnded, Name: string(checkpoint.StatusCompleted)}},
		Workflow: &wf,
		Ops:      []storage.Op{out},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	return commit(t, s, w)
}

func load(t testing.TB, s storage.Storage, id string) *Workflow {
	t.Helper()
	wf, err := Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	return wf
}

func find(t testing.TB, s storage.Storage, id string) *Hold {
	t.Helper()
	h, err := Find(ctx, s, load(t, s, id))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func history(t testing.TB, s storage.Storage, id string) (cs []checkpoint.Checkpoint) {
	t.Helper()
	for c, err := range History(ctx, s, load(t, s, id)) {
		if err != nil {
			t.Fatalf("history of %q after %d checkpoints: %v", id, len(cs), err)
		}
		cs = append(cs, c)
	}
	return cs
}

// copyOf returns a backup of a store.
func copyOf(t testing.TB, s storage.Storage) *memory.Store {
	t.Helper()
	c := new(memory.Store)
	for e, err := range storage.All(ctx, s, storage.Range{}) {
		if err == nil {
			err = c.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(e.Key, e.Value)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func dump(t testing.TB, s storage.Storage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range storage.All(ctx, s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[string(e.Key)] = string(e.Value)
	}
	return all
}

// remove deletes keys without any owner's knowledge, as if the store had lost writes.
func remove(t testing.TB, s storage.Storage, ks ...[]byte) {
	t.Helper()
	var b storage.Batch
	for _, k := range ks {
		b.Ops = append(b.Ops, storage.Delete(k))
	}
	if err := s.Commit(ctx, b); err != nil {
		t.Fatal(err)
	}
}

func has(t testing.TB, s storage.Storage, key []byte) bool {
	t.Helper()
	_, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}
