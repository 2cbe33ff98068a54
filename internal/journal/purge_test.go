package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// buried returns the tombstone of an ended workflow with many checkpoints, which were not swept
// yet.
func buried(t *testing.T, s *memory.Store, id string, steps int) *Workflow {
	t.Helper()
	h := started(t, s, id, "me")
	for range steps {
		h = commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
	}
	h = ended(t, s, h, noon)
	w, err := h.Bury(noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, w.Batch); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s, id); !got.Tombstone() || got.Next != h.Head+1 || got.Generation != h.Workflow.Generation {
		t.Fatalf("tombstone %+v, want next %d", got, h.Head+1)
	}
	return w.After
}

// children counts the keys that belong to a workflow, besides its record.
func children(t *testing.T, s storage.Storage, id string) (n int) {
	t.Helper()
	for _, r := range load(t, s, id).children(keys.AllFeatures) {
		for _, err := range storage.All(ctx, s, r) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	return n
}

// GC2, GC4: a purge deletes what belongs to the workflow and nothing of other workflows, and may
// be interrupted at any commit.
func TestSweepCanBeResumed(t *testing.T) {
	for cut := range 4 {
		s := new(memory.Store)
		tomb := buried(t, s, "a", 2*purgePage+10)
		started(t, s, "a:b", "me")
		started(t, s, "ab", "me")
		others := children(t, s, "a:b") + children(t, s, "ab")
		commits := 0
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" {
				if commits++; commits > cut {
					return storagetest.CrashAfter
				}
			}
			return storagetest.None
		})
		if err := Sweep(ctx, f, tomb); cut < 3 && !errors.Is(err, storagetest.ErrCrashed) {
			t.Fatalf("cut after %d commits: %v", cut, err)
		}
		if err := Sweep(ctx, s, load(t, s, "a")); err != nil {
			t.Errorf("cut after %d commits, again: %v", cut, err)
		}
		if n := children(t, s, "a"); n != 0 {
			t.Errorf("cut after %d commits: %d records left", cut, n)
		}
		if n := children(t, s, "a:b") + children(t, s, "ab"); n != others {
			t.Errorf("cut after %d commits: neighbours have %d records, had %d", cut, n, others)
		}
	}
}

// A widest notes the most rows of a scan.
type widest struct {
	storage.Storage
	rows int
}

func (w *widest) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := w.Storage.Scan(ctx, r)
	w.rows = max(w.rows, len(page))
	return page, err
}

// Who removes a workflow needs the keys alone, and the values may be large: few are read at once.
func TestRemovalReadsFewPayloadsAtOnce(t *testing.T) {
	s := &widest{Storage: new(memory.Store)}
	h := started(t, s, "a", "me")
	for range 100 {
		h = commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
	}
	h = ended(t, s, h, noon)
	s.rows = 0
	if _, whole, err := Remove(ctx, s, h.Workflow, keys.Features{}, 200, noon, noon); !whole || err != nil {
		t.Fatalf("whole %v, %v", whole, err)
	}
	if s.rows > keys.PayloadPage {
		t.Errorf("Remove has read %d rows at once", s.rows)
	}
	inner := new(memory.Store)
	tomb := buried(t, inner, "b", 2*purgePage)
	s = &widest{Storage: inner}
	if err := Sweep(ctx, s, tomb); err != nil {
		t.Fatal(err)
	}
	if n := children(t, inner, "b"); n > 0 || s.rows > keys.PayloadPage {
		t.Errorf("Sweep has read %d rows at once, and left %d", s.rows, n)
	}
}

// Interleaving 3: a purge is interrupted, the id is started again, and the old purge continues.
// The new generation sees nothing of the old one and loses nothing of its own.
func TestNewLifeAfterHalfAPurge(t *testing.T) {
	s := new(memory.Store)
	tomb := buried(t, s, "o", purgePage+10)
	commits := 0
	f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if c.Method == "Commit" {
			commits++
			return storagetest.CrashAfter
		}
		return storagetest.None
	})
	Sweep(ctx, f, tomb)
	if commits != 1 || children(t, s, "o") == 0 {
		t.Fatalf("want half a purge: %d commits, %d records left", commits, children(t, s, "o"))
	}

	// Even without finishing the purge, the new generation has its own history.
	h := create(t, s, &Workflow{ID: "o", Generation: "GEN-2", ByGeneration: true, Type: "order"}, load(t, s, "o"), "you", noon)
	commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired, Operation: "new"}))
	before := dump(t, s)
	if err := Sweep(ctx, s, tomb); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the old purge goes on: %v, want ErrConflict", err)
	}
	if fmt.Sprint(dump(t, s)) != fmt.Sprint(before) {
		t.Error("the old purge has changed something")
	}
	cs := history(t, s, "o")
	if len(cs) != 2 || cs[1].Events[0].Operation != "new" || cs[0].Number < tomb.Next {
		t.Errorf("the new life's history: %d checkpoints from %d, want 2 from at least %d", len(cs), cs[0].Number, tomb.Next)
	}
}

// Interleaving 35, OW1, X-3: however a new generation of an id comes about, its numbers are
// above all that were used before.
func TestNumbersNeverComeAgain(t *testing.T) {
	second := noon.Add(time.Second)
	t.Run("tombstone", func(t *testing.T) {
		s := new(memory.Store)
		tomb := buried(t, s, "o", 5)
		h := create(t, s, &Workflow{ID: "o", Generation: "G2", ByGeneration: true}, tomb, "you", noon) // in the same second
		if h.Head < tomb.Next {
			t.Errorf("the new life begins at %d, the tombstone says %d", h.Head, tomb.Next)
		}
	})
	t.Run("tombstone of the future", func(t *testing.T) {
		s := new(memory.Store)
		tomb := buried(t, s, "o", 5)
		h := create(t, s, &Workflow{ID: "o", Generation: "G2", ByGeneration: true}, tomb, "you", noon.Add(-24*time.Hour)) // the clock went back
		if h.Head < tomb.Next {
			t.Errorf("the new life begins at %d, the tombstone says %d", h.Head, tomb.Next)
		}
	})
	t.Run("tombstone expired", func(t *testing.T) {
		s := new(memory.Store)
		tomb := buried(t, s, "o", 5)
		if err := Sweep(ctx, s, tomb); err != nil {
			t.Fatal(err)
		}
		remove(t, s, keys.Workflow("o"))
		h := create(t, s, &Workflow{ID: "o", Generation: "G2", ByGeneration: true}, nil, "you", second)
		if h.Head < tomb.Next {
			t.Errorf("the new life begins at %d, %d was to be next", h.Head, tomb.Next)
		}
	})
	t.Run("restored backup", func(t *testing.T) {
		s := new(memory.Store)
		h := started(t, s, "o", "me")
		backup := copyOf(t, s)
		for range 100 {
			h = commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
		}
		old := find(t, backup, "o")
		got := commit(t, backup, claimed(t, old, "you", First(second), second))
		if got.Workflow.Claim <= h.Head {
			t.Errorf("after the restore the claim is %d, %d was given away", got.Workflow.Claim, h.Head)
		}
		if n := len(history(t, backup, "o")); n != 3 {
			t.Errorf("%d checkpoints, want start, skip and claim", n)
		}
	})
}

func TestFirst(t *testing.T) {
	if a, b := First(noon), First(noon.Add(time.Second)); b-a != 1<<20 {
		t.Errorf("a second is %d numbers, want %d", b-a, 1<<20)
	}
	if got := First(time.Unix(-5, 0)); got != 0 {
		t.Errorf("before 1970: %d, want 0", got)
	}
}

// If a record is missing that must exist because the workflow does, that is damage.
func TestInputAndOutputBelong(t *testing.T) {
	s := new(memory.Store)
	wf := started(t, s, "o", "me").Workflow
	if _, err := ReadInput(ctx, s, wf); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("missing input: %v, want ErrCorrupt", err)
	}
	for _, c := range []struct {
		generation string
		want       error
	}{{wf.Generation, nil}, {"another", storage.ErrCorrupt}} {
		put, err := PutInput("o", &Input{Generation: c.generation, Data: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
		out, err := PutOutput("o", &Output{Generation: c.generation, Status: checkpoint.StatusCompleted, Data: []byte("2")})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{put, out}}); err != nil {
			t.Fatal(err)
		}
		in, err := ReadInput(ctx, s, wf)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || string(in.Data) != "1") {
			t.Errorf("input of %q: %+v, %v, want %v", c.generation, in, err, c.want)
		}
		o, err := ReadOutput(ctx, s, wf)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || string(o.Data) != "2") {
			t.Errorf("output of %q: %+v, %v, want %v", c.generation, o, err, c.want)
		}
	}
}

// FMT-26: a record of a newer release is refused.
func TestFutureRecordsAreRefused(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	for _, r := range []struct {
		key []byte
		v   any
	}{
		{keys.Workflow("o"), h.Workflow},
		{h.Workflow.Log().Checkpoint(h.Head), &stored{Generation: h.Workflow.Generation}},
	} {
		raw, err := record.Seal(r.key, Version+1, r.v, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := copyOf(t, s)
		if err := c.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(r.key, raw)}}); err != nil {
			t.Fatal(err)
		}
		_, loading := Load(ctx, c, "o")
		_, reading := Read(ctx, c, h.Workflow, h.Head)
		if err := errors.Join(loading, reading); !errors.Is(err, storage.ErrFutureFormat) || !strings.Contains(err.Error(), string(r.key)) {
			t.Errorf("%v, want ErrFutureFormat naming %q", err, r.key)
		}
	}
}

// A small workflow is removed with all that belongs to it in one batch. Of a large one only the
// record is replaced, and what is left is swept. Both leave the same tombstone.
func TestRemove(t *testing.T) {
	for _, steps := range []int{0, 5, 40} {
		s := new(memory.Store)
		h := started(t, s, "a", "me")
		for range steps {
			h = commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
		}
		h = ended(t, s, h, noon)
		started(t, s, "a:b", "me")
		n, other := children(t, s, "a"), children(t, s, "a:b")
		for _, most := range []int{n - 1, n} {
			wantWhole := most == n
			w, whole, err := removed(ctx, s, load(t, s, "a"), most, noon, noon.Add(time.Hour))
			if err != nil || whole != wantWhole {
				t.Fatalf("%d records, at most %d: whole %t, %v", n, most, whole, err)
			}
			alone, err := h.Bury(noon, noon.Add(time.Hour))
			if err != nil || string(alone.After.Raw()) != string(w.After.Raw()) {
				t.Errorf("%d records, at most %d: tombstone %+v, %v; want %+v", n, most, w.After, err, alone.After)
			}
			if !whole {
				continue
			}
			if err := s.Commit(ctx, w.Batch); err != nil {
				t.Fatal(err)
			}
			if left := children(t, s, "a"); left != 0 {
				t.Errorf("%d records are left", left)
			}
			if left := children(t, s, "a:b"); left != other {
				t.Errorf("of another workflow %d records are left, want %d", left, other)
			}
		}
	}
}

// A removal reads what the workflow may have, and that is everything it has.
func TestRemoveReadsWhatThereMayBe(t *testing.T) {
	for name, c := range map[string]struct {
		has  func(*Workflow)
		keys [][]byte
	}{
		"signals": {func(*Workflow) {}, [][]byte{keys.SignalCounter("a"), keys.Signal("a", "n", "s"), keys.Inbox("a", 1), keys.Accepted("a", "n", "s")}},
		"updates": {(*Workflow).Update, [][]byte{keys.Update("a", "u"), keys.Answer("a", "v")}},
		"hooks":   {(*Workflow).OpensHook, [][]byte{keys.Hook("a", "h")}},
		"others":  {func(*Workflow) {}, [][]byte{keys.Activity("a", "charge", "1", "k"), keys.Beat("a", "1"), keys.Child("a", "2")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(memory.Store)
			wf := &Workflow{ID: "a", Generation: "G", ByGeneration: true, Type: "order"}
			c.has(wf)
			ended(t, s, create(t, s, wf, nil, "me", noon), noon)
			var b storage.Batch
			for _, k := range c.keys {
				b.Ops = append(b.Ops, storage.Put(k, []byte("x")))
			}
			if err := s.Commit(ctx, b); err != nil {
				t.Fatal(err)
			}
			w, whole, err := removed(ctx, s, load(t, s, "a"), 100, noon, noon.Add(time.Hour))
			if err != nil || !whole {
				t.Fatalf("whole %t, %v", whole, err)
			}
			if err := s.Commit(ctx, w.Batch); err != nil {
				t.Fatal(err)
			}
			if left := children(t, s, "a"); left != 0 {
				t.Errorf("%d records are left", left)
			}
		})
	}
}

// withStreams returns an ended workflow that has streams, with so many chunks each.
func withStreams(t *testing.T, s *memory.Store, id string, counts ...int) *Workflow {
	t.Helper()
	h := started(t, s, id, "me")
	wf, ops, err := h.Workflow.Streaming()
	if err != nil {
		t.Fatal(err)
	}
	if again, more, err := wf.Streaming(); again != wf || len(more) > 0 || err != nil {
		t.Errorf("a run that has streams: %v, %v, %v", again, more, err)
	}
	if err := s.Commit(ctx, storage.Batch{If: []storage.Condition{h.Workflow.Unchanged()}, Ops: ops}); err != nil {
		t.Fatal(err)
	}
	for i, n := range counts {
		head, err := chunks.Of(id, fmt.Sprint("stream ", i), wf.Generation).Read(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		a, err := head.Append(make([]chunks.Chunk, n))
		if err == nil {
			err = s.Commit(ctx, a.Batch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return ended(t, s, h.With(wf), noon).Workflow
}

// A purge deletes the streams of a workflow. It reads the payload of one chunk for each commit at most, a commit has a
// bounded number of operations, and the purge may be interrupted at any of them. Streams of other workflows stay.
func TestPurgeOfStreams(t *testing.T) {
	for _, c := range []struct {
		counts []int
		whole  bool
	}{{nil, true}, {[]int{3, 5}, true}, {[]int{150, 100}, false}, {[]int{3, 3*purgePage + 7, 1}, false}} {
		for cut := range 12 {
			s := new(memory.Store)
			wf := withStreams(t, s, "a", c.counts...)
			withStreams(t, s, "a:b", 3)
			withStreams(t, s, "ab", 3)
			commits, read := 0, 0
			f := storagetest.NewFaulty(s, func(call storagetest.Call) storagetest.Fault {
				switch call.Method {
				case "Scan":
					if strings.HasPrefix(string(call.Range.Start), "chunk:") {
						read += call.Range.Limit
					}
				case "Commit":
					if n := len(call.Batch.Ops) + len(call.Batch.If); n > purgePage+1 {
						t.Errorf("%v: a commit of %d operations", c.counts, n)
					}
					if commits++; commits > cut {
						return storagetest.CrashAfter
					}
				}
				return storagetest.None
			})
			w, whole, err := removed(ctx, f, wf, 200, noon, noon.Add(time.Hour))
			if err != nil || whole != c.whole {
				t.Fatalf("%v: whole %v, %v", c.counts, whole, err)
			}
			if err := f.Commit(ctx, w.Batch); err == nil {
				err = Sweep(ctx, f, w.After)
				if cut == 11 && err != nil || err != nil && !errors.Is(err, storagetest.ErrCrashed) {
					t.Fatalf("%v: %v", c.counts, err)
				}
			}
			if err := Sweep(ctx, s, w.After); err != nil {
				t.Fatal(err)
			}
			left, err := s.Scan(ctx, storage.Prefix([]byte("chunk:a:")))
			heads, err2 := s.Scan(ctx, storage.Prefix([]byte("stream:a:")))
			others, err3 := s.Scan(ctx, storage.Prefix([]byte("chunk:a")))
			if err := errors.Join(err, err2, err3); err != nil || len(left)+len(heads) > 0 || len(others) != 6 {
				t.Errorf("%v, cut after %d commits: %d chunks and %d heads are left, others have %d, %v", c.counts, cut, len(left), len(heads), len(others), err)
			}
			if most := commits + 1; read > most {
				t.Errorf("%v: %d payloads were read in %d commits", c.counts, read, commits)
			}
		}
	}
}

// removed is Remove of what FeaturesOf says.
func removed(ctx context.Context, s storage.Storage, wf *Workflow, most int, now, expires time.Time) (*Write, bool, error) {
	has, err := FeaturesOf(ctx, s, wf)
	if err != nil {
		return nil, false, err
	}
	return Remove(ctx, s, wf, has, most, now, expires)
}
