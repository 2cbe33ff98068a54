package journal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// withUnknownField encodes wf as a later release might.
func withUnknownField(t *testing.T, wf *Workflow) []byte {
	t.Helper()
	later := struct {
		Workflow
		Later string `cbor:"99,keyasint"`
	}{*wf, "something new"}
	raw, err := record.Seal(keys.Workflow(wf.ID), Version, &later, nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Time never decreases, whatever the wall clock does.
func TestTimeNeverDecreases(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	last := h.HeadTime
	for _, d := range []time.Duration{time.Hour, -time.Hour, 0, -1000 * time.Hour, 2 * time.Hour} {
		h = commit(t, s, appended(t, h, noon.Add(d), checkpoint.Event{Kind: checkpoint.KindFired}))
		if h.HeadTime.Before(last) {
			t.Errorf("the clock shows %v, the checkpoint %v, the one before %v", noon.Add(d), h.HeadTime, last)
		}
		last = h.HeadTime
	}
	h = commit(t, s, claimed(t, find(t, s, "o"), "you", h.Head+1000, noon.Add(-time.Hour)))
	if h.HeadTime.Before(last) {
		t.Errorf("a claim went back from %v to %v", last, h.HeadTime)
	}
	var before time.Time
	for _, c := range history(t, s, "o") {
		if c.Time.Before(before) {
			t.Errorf("checkpoint %d is of %v, the one before of %v", c.Number, c.Time, before)
		}
		before = c.Time
	}
}

// Starting a workflow with an owner claims it in the same batch.
func TestCreateWithOwner(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	wf := load(t, s, "o")
	if wf.Status != checkpoint.StatusRunning || wf.Owner != "me" || wf.Base != First(noon) || wf.Claim != wf.Base || h.Head != wf.Base || Time(wf.StartedAt) != noon {
		t.Errorf("record %+v, head %d", wf, h.Head)
	}
	if !has(t, s, keys.Held("me", "o")) || has(t, s, keys.Todo(0, noon, "o", wf.Generation)) {
		t.Error("want it held, and not to be picked up")
	}
	cs := history(t, s, "o")
	if len(cs) != 1 || cs[0].Number != wf.Base || cs[0].Events[0].Kind != checkpoint.KindClaimed || cs[0].Owner != "me" || cs[0].Epoch != wf.Base {
		t.Errorf("history %+v", cs)
	}
	w, err := Create(&Workflow{ID: "o", Generation: "other", ByGeneration: true}, nil, "you", nil, 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, w.Batch); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("a second start: %v, want ErrConflict", err)
	}
}

// A workflow started without an owner has no checkpoint, but a todo entry, which its claim
// deletes.
func TestCreateWithoutOwnerThenClaim(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "")
	wf := load(t, s, "o")
	if wf.Status != checkpoint.StatusPending || wf.Owner != "" || h.Head != 0 || !bytes.Equal(wf.Todo, keys.Todo(0, noon, "o", wf.Generation)) || !has(t, s, wf.Todo) {
		t.Errorf("record %+v, head %d", wf, h.Head)
	}
	todo := wf.Todo
	h = commit(t, s, claimed(t, find(t, s, "o"), "me", 0, noon))
	wf = load(t, s, "o")
	if wf.Status != checkpoint.StatusRunning || wf.Owner != "me" || wf.Claim != wf.Base || wf.Todo != nil || wf.Deaths != 0 {
		t.Errorf("claimed: %+v", wf)
	}
	if has(t, s, todo) || !has(t, s, keys.Held("me", "o")) {
		t.Error("want it held, and its todo gone")
	}
	if h.Head != wf.Base {
		t.Errorf("head %d, want %d", h.Head, wf.Base)
	}
}

// A takeover moves the held entry, and the number of the claim increases.
func TestClaimTakesOver(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	next := commit(t, s, claimed(t, find(t, s, "o"), "you", 0, noon))
	if next.Workflow.Claim <= h.Workflow.Claim || next.Workflow.Owner != "you" {
		t.Errorf("claim %d after %d, owner %q", next.Workflow.Claim, h.Workflow.Claim, next.Workflow.Owner)
	}
	if has(t, s, keys.Held("me", "o")) || !has(t, s, keys.Held("you", "o")) {
		t.Error("what is held did not move")
	}
	if v, err := Commit(ctx, s, appended(t, h, noon), nil); v != Fenced || err != nil {
		t.Errorf("the old owner appends: %v, %v, want fenced", v, err)
	}
}

// A claim skips numbers up to its floor and records this; the history explains the gap.
func TestClaimWithAFloor(t *testing.T) {
	for _, c := range []struct {
		name  string
		owner string // of the run before; "" is a fresh one
		floor func(h *Hold) uint64
		skips bool
	}{
		{"below", "me", func(h *Hold) uint64 { return h.Head }, false},
		{"next", "me", func(h *Hold) uint64 { return h.Head + 1 }, false},
		{"above", "me", func(h *Hold) uint64 { return h.Head + 1000 }, true},
		{"just above", "me", func(h *Hold) uint64 { return h.Head + 2 }, true},
		{"fresh", "", func(h *Hold) uint64 { return First(noon) + 77 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := new(memory.Store)
			h := started(t, s, "o", c.owner)
			floor := c.floor(h)
			w := claimed(t, h, "you", floor, noon)
			h2 := commit(t, s, w)
			if h2.Workflow.Claim < floor || h2.Head != h2.Workflow.Claim || h2.Head <= h.Head {
				t.Errorf("claim %d, head %d, floor %d, head before %d", h2.Workflow.Claim, h2.Head, floor, h.Head)
			}
			h2 = commit(t, s, appended(t, h2, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
			var skipped bool
			for _, cp := range history(t, s, "o") { // fails on a gap
				for _, e := range cp.Events {
					skipped = skipped || e.Kind == checkpoint.KindSkipped
				}
			}
			if skipped != c.skips {
				t.Errorf("skip recorded: %v, want %v", skipped, c.skips)
			}
			if got := find(t, s, "o"); got.Head != h2.Head {
				t.Errorf("Find: head %d, want %d", got.Head, h2.Head)
			}
		})
	}
}

// A gap that no checkpoint explains is an error that names the missing checkpoint.
func TestUnexplainedGapIsCorrupt(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	for range 5 {
		h = commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
	}
	for _, lost := range []uint64{h.Head - 2, h.Workflow.Base} {
		c := copyOf(t, s)
		remove(t, c, h.Workflow.Log().Checkpoint(lost))
		var last error
		n := 0
		for _, err := range History(ctx, c, load(t, c, "o")) {
			if last = err; err == nil {
				n++
			}
		}
		if !errors.Is(last, storage.ErrCorrupt) || !strings.Contains(last.Error(), `"o"`) || uint64(n) != lost-h.Workflow.Base {
			t.Errorf("checkpoint %d is missing: %d checkpoints and %v, want ErrCorrupt naming the workflow after %d", lost, n, last, lost-h.Workflow.Base)
		}
	}
}

// Checkpoints of another generation are ignored.
func TestAnotherLifeIsNotSeen(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	stray := Entry{Checkpoint: checkpoint.Checkpoint{Number: h.Head + 1, Time: noon, Events: []checkpoint.Event{{Kind: checkpoint.KindFired}}}, generation: "another", commit: NewCommitID()}
	key := h.Workflow.Log().Checkpoint(stray.Number)
	raw, err := stray.seal(key, new(stored))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, raw)}}); err != nil {
		t.Fatal(err)
	}
	if n := len(history(t, s, "o")); n != 1 {
		t.Errorf("%d checkpoints, want 1", n)
	}
	if _, err := Find(ctx, s, load(t, s, "o")); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Find = %v, want ErrCorrupt: such a head cannot be appended to", err)
	}
}

// LV2: the error of a damaged checkpoint names it.
func TestDamagedCheckpointIsNamed(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	h = commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
	key := h.Workflow.Log().Checkpoint(h.Head)
	raw, _ := s.Get(ctx, key)
	for name, bad := range map[string][]byte{"flipped": flip(raw), "empty": {}, "another's": nil} {
		if bad == nil {
			bad, _ = s.Get(ctx, h.Workflow.Log().Checkpoint(h.Workflow.Base))
		}
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, bad)}}); err != nil {
			t.Fatal(err)
		}
		_, finding := Find(ctx, s, load(t, s, "o"))
		_, reading := Read(ctx, s, h.Workflow, h.Head)
		var telling error
		for _, err := range History(ctx, s, load(t, s, "o")) {
			telling = err
		}
		for what, err := range map[string]error{"Find": finding, "Read": reading, "History": telling} {
			if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), string(key)) {
				t.Errorf("%s: %s = %v, want ErrCorrupt naming %q", name, what, err, key)
			}
		}
	}
}

func flip(raw []byte) []byte {
	bad := bytes.Clone(raw)
	bad[len(bad)/2] ^= 4
	return bad
}

// X-3, OW1: the number of successive owners that crashed. Checkpoints that they appended do not
// reset it: these may come from another branch than the one that crashed them.
func TestDeaths(t *testing.T) {
	s := new(memory.Store)
	started(t, s, "o", "life-1")
	for i := range 5 {
		h := find(t, s, "o")
		if got := h.Deaths(false); got != i+1 {
			t.Errorf("after %d deaths at the claim: %d", i+1, got)
		}
		if got := h.Deaths(true); got != 0 {
			t.Errorf("handed over: %d deaths, want none", got)
		}
		h = commit(t, s, claimed(t, h.Apart(), "life", 0, noon))
		if h.Workflow.Deaths != i+1 || h.Workflow.Alone != i+1 {
			t.Errorf("recorded: %d deaths, %d alone, want %d", h.Workflow.Deaths, h.Workflow.Alone, i+1)
		}
		commit(t, s, appended(t, h, noon, checkpoint.Event{Kind: checkpoint.KindFired}))
	}
	w, err := find(t, s, "o").Claim("heir", checkpoint.HandedOver, 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	if h := commit(t, s, w); h.Workflow.Deaths != 0 || h.Workflow.Alone != 0 {
		t.Errorf("handed over: %d deaths, %d alone are recorded, want none", h.Workflow.Deaths, h.Workflow.Alone)
	}
}

// The next claim records the actions of operators.
func TestClaimRecordsVerbs(t *testing.T) {
	s := new(memory.Store)
	h := started(t, s, "o", "me")
	wf := *h.Workflow
	wf.State, wf.Verbs = 1, []Verb{{"retry", "ann", "mended"}}
	put, err := wf.seal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{put}}); err != nil {
		t.Fatal(err)
	}
	commit(t, s, claimed(t, find(t, s, "o"), "you", 0, noon))
	cs := history(t, s, "o")
	got := cs[len(cs)-1].Events
	if len(got) != 2 || got[1].Kind != checkpoint.KindActed || got[1].Name != "retry" || got[1].By != "ann" || got[1].Why != "mended" {
		t.Errorf("events %+v, want the claim and the verb", got)
	}
	if wf := load(t, s, "o"); wf.Verbs != nil {
		t.Errorf("verbs are still in the record: %v", wf.Verbs)
	}
}

// CK7: a terminal status is final, except for the retry of a failed run. The retry is a
// checkpoint after the end, and then the run has no owner.
func TestRetry(t *testing.T) {
	by := Verb{Name: "retry", By: "ann", Why: "the bank is open"}
	for _, status := range []checkpoint.Status{checkpoint.StatusPending, checkpoint.StatusRunning, checkpoint.StatusCompleted, checkpoint.StatusCancelled, checkpoint.StatusFailed} {
		s := new(memory.Store)
		h := started(t, s, "o", "me")
		wf := *h.Workflow
		wf.Status, wf.EndedAt, wf.Quiet = status, Micro(noon), &Place{Checkpoint: h.Head, Event: 3}
		w, err := h.Append(Change{Events: []checkpoint.Event{{Kind: checkpoint.KindEnded}}, Workflow: &wf}, noon)
		if err != nil {
			t.Fatal(err)
		}
		end := w.Hold()
		if err := s.Commit(ctx, w.Batch); err != nil {
			t.Fatal(err)
		}
		todo := keys.Todo(0, noon, "o", "N")
		again, err := end.Retry(by, todo, noon.Add(time.Hour))
		if status != checkpoint.StatusFailed {
			if e := new(checkpoint.TransitionError); !errors.As(err, &e) || e.From != status || e.To != checkpoint.StatusRunning {
				t.Errorf("%s: %v, want a *TransitionError", status, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		other, err := end.Retry(by, keys.Todo(0, noon, "o", "M"), noon)
		if err != nil {
			t.Fatal(err)
		}
		commit(t, s, again)
		if v, err := Commit(ctx, s, other, nil); v == Done || err != nil {
			t.Errorf("two retries at once: %v, %v", v, err)
		}
		got := load(t, s, "o")
		if got.Status != checkpoint.StatusRunning || got.EndedAt != 0 || got.Owner != "" || got.Quiet != nil || string(got.Todo) != string(todo) || got.StartedAt != wf.StartedAt || got.Generation != wf.Generation {
			t.Errorf("retried, the record is %+v", got)
		}
		if len(got.Retries) != 1 || got.Retries[0].End != end.Head || got.Retries[0].At != Micro(noon.Add(time.Hour)) {
			t.Errorf("its retries are %+v", got.Retries)
		}
		for p, want := range map[Place]bool{{}: false, {h.Head, 3}: false, {h.Head, 4}: true, {end.Head, 0}: true, {end.Head + 1, 0}: false} {
			if got.Retries[0].Covers(p) != want {
				t.Errorf("the retry covers %+v: %v, want %v", p, !want, want)
			}
		}
		claim := commit(t, s, claimed(t, find(t, s, "o"), "you", 0, noon.Add(time.Hour)))
		if claim.Workflow.Claim != end.Head+2 || claim.Workflow.Owner != "you" {
			t.Errorf("claimed after it: %+v", claim.Workflow)
		}
		for w, want := range map[*Write]bool{again: true, other: false} {
			if landed, err := Landed(ctx, s, w); landed != want || err != nil {
				t.Errorf("Landed = %v, %v, want %v, also if somebody has claimed it since", landed, err, want)
			}
		}
	}
}
