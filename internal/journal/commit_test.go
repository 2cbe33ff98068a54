package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// TestJudge is the table of everything that a refused write can find: the record, whether the
// last checkpoint exists, and what is at the number of the next one.
//
// OWN-2, OWN-3, OWN-6, OWN-7, CK2, CK4, CK5.
func TestJudge(t *testing.T) {
	wf := &Workflow{ID: "o", Generation: "G", ByGeneration: true, Status: checkpoint.StatusRunning, Owner: "me", Claim: 5, Base: 5, raw: []byte("mine")}
	w := appended(t, &Hold{Workflow: wf, Head: 6, HeadTime: noon}, noon, checkpoint.Event{Kind: checkpoint.KindFired})
	with := func(change func(*Workflow)) *Workflow {
		c := *wf
		c.raw = []byte("other")
		change(&c)
		return &c
	}
	records := map[string]*Workflow{
		"the same":     wf,
		"asked":        with(func(w *Workflow) { w.State++ }),
		"taken over":   with(func(w *Workflow) { w.Owner, w.Claim = "you", 7 }),
		"claimed anew": with(func(w *Workflow) { w.Claim = 7 }),
		"released":     with(func(w *Workflow) { w.Owner = "" }),
		"ended":        with(func(w *Workflow) { w.Status = checkpoint.StatusCancelled }),
		"another life": with(func(w *Workflow) { w.Generation = "H" }),
		"buried":       with(func(w *Workflow) { w.Next, w.Status, w.Owner, w.Claim = 9, "", "", 0 }),
		"gone":         nil,
	}
	mine := w.Entry
	theirs := mine
	theirs.commit = NewCommitID()
	for record, seen := range records {
		fenced := record != "the same" && record != "asked"
		for next, c := range map[string]*Entry{"nothing": nil, "mine": &mine, "another's": &theirs} {
			for _, last := range []bool{true, false} {
				var want Verdict
				switch {
				case next == "mine" && !fenced:
					want = Done
				case fenced: // also if mine landed before: interleaving 4
					want = Fenced
				case next == "another's":
					want = Overtaken
				case !last:
					want = Rewound
				case record == "asked":
					want = Refreshed
				default:
					want = Refused
				}
				if got := Judge(w, Seen{Workflow: seen, Last: last, Next: c}); got != want {
					t.Errorf("record %s, next %s, last there %v: %v, want %v", record, next, last, got, want)
				}
			}
		}
	}
}

// An end that was applied is Done, whatever happened to the record since.
func TestJudgeOfAnEnd(t *testing.T) {
	wf := &Workflow{ID: "o", Generation: "G", ByGeneration: true, Status: checkpoint.StatusRunning, Owner: "me", Claim: 5, Base: 5, raw: []byte("mine")}
	done := *wf
	done.Status = checkpoint.StatusCompleted
	w, err := (&Hold{Workflow: wf, Head: 6}).Append(Change{Workflow: &done}, noon)
	if err != nil {
		t.Fatal(err)
	}
	tomb := &Workflow{ID: "o", Generation: "G", ByGeneration: true, Next: 8}
	for name, seen := range map[string]*Workflow{"ended": w.After, "buried": tomb, "gone": nil} {
		if got := Judge(w, Seen{Workflow: seen, Next: &w.Entry}); got != Done {
			t.Errorf("the record is %s: %v, want done", name, got)
		}
	}
}

func TestVerdictsHaveNames(t *testing.T) {
	want := []string{"unresolved", "done", "fenced", "refreshed", "overtaken", "rewound", "refused"}
	for v := Unresolved; v <= Refused; v++ {
		if v.String() != want[v] {
			t.Errorf("verdict %d is %q, want %q", v, v, want[v])
		}
	}
}

// OWN-2, OWN-6, OWN-7, OWN-8, OWN-26, FMT-2: what an append compares, byte for byte, and that it
// is one batch.
func TestAppendComparesRecordHeadAndNext(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	stored, err := s.Get(ctx, keys.Workflow("o"))
	if err != nil {
		t.Fatal(err)
	}
	extraIf, extraOp := storage.Present([]byte("x")), storage.Delete([]byte("y"))
	next := *h.Workflow
	next.State++
	w, err := h.Append(Change{Events: []checkpoint.Event{{Kind: checkpoint.KindFired}}, Workflow: &next, If: []storage.Condition{extraIf}, Ops: []storage.Op{extraOp}}, noon)
	if err != nil {
		t.Fatal(err)
	}
	wantIf := []storage.Condition{
		storage.Equal(keys.Workflow("o"), stored),
		storage.Present(h.Workflow.Log().Checkpoint(h.Head)),
		storage.Absent(h.Workflow.Log().Checkpoint(h.Head + 1)),
		extraIf,
	}
	if len(w.Batch.If) != len(wantIf) {
		t.Fatalf("%d conditions, want %d", len(w.Batch.If), len(wantIf))
	}
	for i, c := range w.Batch.If {
		if c.Kind != wantIf[i].Kind || !bytes.Equal(c.Key, wantIf[i].Key) || !bytes.Equal(c.Value, wantIf[i].Value) {
			t.Errorf("condition %d is %d %q = %x, want %d %q = %x", i, c.Kind, c.Key, c.Value, wantIf[i].Kind, wantIf[i].Key, wantIf[i].Value)
		}
	}
	var puts []string
	for _, o := range w.Batch.Ops {
		puts = append(puts, fmt.Sprint(o.Kind, " ", string(o.Key)))
	}
	want := []string{"1 " + string(h.Workflow.Log().Checkpoint(h.Head+1)), "1 wf:o", "2 y"}
	if !slices.Equal(puts, want) {
		t.Errorf("operations %q, want %q", puts, want)
	}
	if err := w.Batch.Check(storage.Size{}); err != nil {
		t.Errorf("the batch is invalid: %v", err)
	}
	if plain := appended(t, h, noon); len(plain.Batch.Ops) != 1 || plain.After != h.Workflow {
		t.Errorf("a step writes %d records, want its checkpoint alone", len(plain.Batch.Ops))
	}
}

// UPG-3: the bytes that were read are compared, even if they contain fields of a later release that
// this one does not know. These fields survive a rewrite.
func TestAppendComparesBytesAsRead(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	raw := withUnknownField(t, h.Workflow)
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(keys.Workflow("o"), raw)}}); err != nil {
		t.Fatal(err)
	}
	h = find(t, s, "o")
	next := *h.Workflow
	next.State++
	w, err := h.Append(Change{Workflow: &next}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w.Batch.If[0].Value, raw) {
		t.Errorf("compared: %x, want the bytes read %x", w.Batch.If[0].Value, raw)
	}
	commit(t, s, w)
	if got := load(t, s, "o"); len(got.unknown) != 1 || got.State != 1 {
		t.Errorf("after a rewrite: state %d, unknown fields %v", got.State, got.unknown)
	}
}

// OWN-2, OWN-3, OWN-21, CK2: if two writers append to the same head, one succeeds, and the other
// is told that it was overtaken.
func TestTwoCannotAppendToOneHead(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	a, b := appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired, Operation: "a"}), appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired, Operation: "b"})
	commit(t, s, a)
	before := dump(t, s)
	if v, err := Commit(ctx, s, b, nil); v != Overtaken || err != nil {
		t.Errorf("the second = %v, %v, want overtaken", v, err)
	}
	if after := dump(t, s); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the loser has written something")
	}
}

// OWN-26: a checkpoint and all that belongs to it, such as the record, the entries of indexes and
// what is deleted, are given to the store in one batch.
func TestCheckpointIsOneBatch(t *testing.T) {
	inner := new(memory.Store)
	h := started(t, inner, "o", "me")
	var batches []storage.Batch
	s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
		if c.Method == "Commit" {
			batches = append(batches, c.Batch)
		}
		return storagetest.None
	})
	next := *h.Workflow
	next.State++
	w, err := h.Append(Change{
		Events:   []checkpoint.Event{{Kind: checkpoint.KindFired}},
		Workflow: &next,
		Ops:      []storage.Op{storage.Put(keys.Todo(0, noon, "o", "N"), nil), storage.Delete(keys.Inbox("o", 1))},
	}, noon)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, w)
	if len(batches) != 1 || len(batches[0].Ops) != 4 || len(batches[0].If) != 3 {
		t.Errorf("%d batches, the first with %d operations and %d conditions, want one with 4 and 3", len(batches), len(batches[0].Ops), len(batches[0].If))
	}
}

// CK5: an error before or after applying is not a conflict, however often it occurs.
func TestCommitResolvesUnknownOutcomes(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		for _, method := range []string{"Commit", "Get"} {
			t.Run(fmt.Sprintf("%d %s", fault, method), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := new(memory.Store)
					h := started(t, inner, "o", "me")
					faults := 3
					first := true
					s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
						if first && c.Method == "Commit" {
							first = false
							return storagetest.ErrorAfter // so that the batch is looked for
						}
						if c.Method != method || faults == 0 {
							return storagetest.None
						}
						faults--
						return fault
					})
					heard := 0
					w := appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired})
					v, err := Commit(ctx, s, w, func(error) { heard++ })
					if v != Done || err != nil || heard == 0 || faults > 0 {
						t.Errorf("%v, %v after %d unknown outcomes, %d faults left; want done", v, err, heard, faults)
					}
					if n := len(history(t, inner, "o")); n != 2 {
						t.Errorf("%d checkpoints, want 2", n)
					}
				})
			})
		}
	}
}

// Interleaving 4: my checkpoint was applied without my knowledge, and another owner took over.
// When I read my own checkpoint, I am fenced nevertheless.
func TestLandedAndTakenOverIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		h := started(t, inner, "o", "me")
		w := appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired})
		s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			if c.N == 1 {
				return storagetest.ErrorAfter
			}
			return storagetest.None
		})
		v, err := Commit(ctx, s, w, func(error) { // between two tries
			commit(t, inner, claimed(t, find(t, inner, "o"), "you", 0, noon))
		})
		if v != Fenced || err != nil {
			t.Errorf("%v, %v, want fenced", v, err)
		}
	})
}

// The outcome was unknown, nothing had been applied, and another owner is faster.
func TestNotLandedAndTakenOverIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		h := started(t, inner, "o", "me")
		s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			if c.N == 1 {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		v, err := Commit(ctx, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}), func(error) {
			commit(t, inner, claimed(t, find(t, inner, "o"), "you", 0, noon))
		})
		if v != Fenced || err != nil {
			t.Errorf("%v, %v, want fenced", v, err)
		}
		for _, c := range history(t, inner, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindFired {
					t.Error("the fenced write is in the history")
				}
			}
		}
	})
}

func TestOtherVerdictsOfCommit(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(t *testing.T, s *memory.Store, h *Hold) // what happened between reading and writing
		change Change
		want   Verdict
	}{
		{"asked", func(t *testing.T, s *memory.Store, h *Hold) {
			wf := *h.Workflow
			wf.State, wf.Cancel = 1, &Request{Reason: "r"}
			put, err := wf.seal()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{put}}); err != nil {
				t.Fatal(err)
			}
		}, Change{}, Refreshed},
		{"lost its head", func(t *testing.T, s *memory.Store, h *Hold) {
			remove(t, s, h.Workflow.Log().Checkpoint(h.Head))
		}, Change{}, Rewound},
		{"gone", func(t *testing.T, s *memory.Store, h *Hold) {
			remove(t, s, keys.Workflow("o"))
		}, Change{}, Fenced},
		{"own condition", func(*testing.T, *memory.Store, *Hold) {},
			Change{If: []storage.Condition{storage.Present([]byte("nothing"))}}, Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := new(memory.Store)
			h := started(t, s, "o", "me")
			c.before(t, s, h)
			w, err := h.Append(c.change, noon)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := Commit(ctx, s, w, nil); v != c.want || err != nil {
				t.Errorf("%v, %v, want %v", v, err, c.want)
			}
		})
	}
}

func TestCommitGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		h := started(t, inner, "o", "me")
		s := storagetest.NewFaulty(inner, func(storagetest.Call) storagetest.Fault { return storagetest.ErrorBefore })
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		tries := 0
		begun := time.Now()
		v, err := Commit(ctx, s, appended(t, h, noon), func(error) { tries++ })
		if v != Unresolved || !errors.Is(err, storagetest.ErrInjected) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v, want unresolved, the store's error and the context's", v, err)
		}
		if took := time.Since(begun); took != time.Minute || tries > 100 {
			t.Errorf("gave up after %v and %d tries", took, tries)
		}
	})
}

// Settle stops at once at a permanent error.
func TestSettleKnowsHopelessErrors(t *testing.T) {
	for _, hopeless := range []error{storage.ErrInvalidBatch, storage.ErrClosed, storage.ErrCorrupt, storage.ErrFutureFormat, errors.ErrUnsupported} {
		calls := 0
		err := settle.Commit(ctx, answering{func() error { calls++; return fmt.Errorf("disk: %w", hopeless) }}, storage.Batch{}, func(error) {
			t.Errorf("%v was called unknown", hopeless)
		}, nil)
		if !errors.Is(err, hopeless) || calls != 1 {
			t.Errorf("%v: %v after %d calls, want it after one", hopeless, err, calls)
		}
	}
}

func TestSettleOfAConflict(t *testing.T) {
	conflict := answering{func() error { return storage.ErrConflict }}
	for _, c := range []struct {
		landed bool
		want   error
	}{{true, nil}, {false, storage.ErrConflict}} {
		err := settle.Commit(ctx, conflict, storage.Batch{}, nil, func(context.Context) (bool, error) { return c.landed, nil })
		if !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Errorf("landed %v: %v, want %v", c.landed, err, c.want)
		}
	}
	err := settle.Commit(ctx, conflict, storage.Batch{}, nil, func(context.Context) (bool, error) { return false, storage.ErrCorrupt })
	if !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrConflict) {
		t.Errorf("a conflict that cannot be looked into: %v, want ErrCorrupt alone", err)
	}
}

// An answering store returns from Commit what it is told to.
type answering struct{ commit func() error }

func (a answering) Commit(context.Context, storage.Batch) error                { return a.commit() }
func (answering) Get(context.Context, []byte) ([]byte, error)                  { return nil, storage.ErrNotFound }
func (answering) Scan(context.Context, storage.Range) ([]storage.Entry, error) { return nil, nil }
func (answering) Capabilities() storage.Capabilities                           { return storage.Capabilities{} }
func (answering) Close() error                                                 { return nil }

// OWN-25, interleaving 5: a claimer has read the history up to n, and the old owner commits n+1. The
// claim is refused, so that n+1 is not executed twice.
func TestClaimOnAnOldHead(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	read := find(t, s, "o")
	commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
	for _, floor := range []uint64{0, h.Head + 100} {
		if v, err := Commit(ctx, s, claimed(t, read, "you", floor, noon), nil); v == Done || err != nil {
			t.Errorf("floor %d: %v, %v, want it refused", floor, v, err)
		}
	}
	if wf := load(t, s, "o"); wf.Owner != "me" {
		t.Errorf("owner %q", wf.Owner)
	}
	commit(t, s, claimed(t, find(t, s, "o"), "you", 0, noon))
}

// LV4: writers whose commits fail together in an outage do not retry together.
func TestSettleComesBackAtItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		begun := time.Now()
		var mu sync.Mutex
		tried := map[time.Duration]int{}
		s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			since := time.Since(begun)
			mu.Lock()
			defer mu.Unlock()
			if tried[since]++; since > time.Minute {
				return storagetest.None
			}
			return storagetest.ErrorBefore
		})
		const many = 50
		var done sync.WaitGroup
		for i := range many {
			b := storage.Batch{Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "k%d", i), nil)}}
			done.Go(func() {
				if err := settle.Commit(ctx, s, b, nil, nil); err != nil {
					t.Errorf("Settle: %v", err)
				}
			})
		}
		done.Wait()
		most, all := 0, 0
		for at, n := range tried {
			if at > 0 {
				most, all = max(most, n), all+n
			}
		}
		if most > many/4 || all > many*100 {
			t.Errorf("%d tries after the first, %d of them at one moment; want at most %d, and %d", all, most, many*100, many/4)
		}
	})
}
