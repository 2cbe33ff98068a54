package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// queued creates a workflow that waits in the line of a queue.
func queued(t testing.TB, s storage.Storage, id string) *Hold {
	t.Helper()
	wf := &Workflow{ID: id, Generation: "GEN-" + id, ByGeneration: true, Type: "order", Queue: "print"}
	w, err := Create(wf, nil, "", keys.Line("print", noon, id), 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, w.Batch); err != nil {
		t.Fatal(err)
	}
	return find(t, s, id)
}

func admitted(t testing.TB, h *Hold, slot int) *Write {
	t.Helper()
	w, err := h.Admit("me", slot, 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func want(t testing.TB, s storage.Storage, key []byte, there bool) {
	t.Helper()
	if has(t, s, key) != there {
		t.Errorf("%q is there: %v, want %v", key, !there, there)
	}
}

// A run that waits in a line can be claimed only by admitting it. It then takes a slot, which
// no other run gets until it ends.
func TestAdmissionTakesASlotUntilTheEnd(t *testing.T) {
	s := new(memory.Store)
	a, b := queued(t, s, "a"), queued(t, s, "b")
	want(t, s, keys.Line("print", noon, "a"), true)
	if _, err := a.Claim("me", "", 0, noon); err == nil {
		t.Error("claimed without being admitted")
	}
	first, second := admitted(t, a, 1), admitted(t, b, 1)
	held := commit(t, s, first)
	want(t, s, keys.Line("print", noon, "a"), false)
	want(t, s, keys.Slot("print", 1), true)
	if wf := load(t, s, "a"); wf.Waits || wf.Slot != 1 || wf.Todo != nil || wf.Owner != "me" || wf.Status != checkpoint.StatusRunning {
		t.Errorf("admitted: %+v", wf)
	}
	if v, err := Commit(ctx, s, second, nil); v != Refused || err != nil {
		t.Errorf("another run takes the same slot: %v, %v, want refused", v, err)
	}
	held = commit(t, s, claimed(t, held, "you", 0, noon))
	want(t, s, keys.Slot("print", 1), true)
	ended(t, s, held, noon)
	want(t, s, keys.Slot("print", 1), false)
	if wf := load(t, s, "a"); wf.Slot != 0 || wf.Queue != "print" {
		t.Errorf("ended: %+v", wf)
	}
	commit(t, s, admitted(t, b, 1))
}

// A queue without a limit has no slots.
func TestAdmissionWithoutASlot(t *testing.T) {
	s := new(memory.Store)
	h := commit(t, s, admitted(t, queued(t, s, "a"), 0))
	if h.Workflow.Waits || h.Workflow.Slot != 0 {
		t.Errorf("admitted: %+v", h.Workflow)
	}
	for key := range dump(t, s) {
		if strings.HasPrefix(key, "slot:") {
			t.Errorf("there is %q", key)
		}
	}
}

// A run that ends while it waits leaves the line.
func TestEndInTheLine(t *testing.T) {
	s := new(memory.Store)
	h := queued(t, s, "a")
	wf := *h.Workflow
	wf.Status, wf.EndedAt = checkpoint.StatusCancelled, Micro(noon)
	w, err := h.Append(Change{Events: []checkpoint.Event{{Kind: checkpoint.KindEnded, Name: string(checkpoint.StatusCancelled)}}, Workflow: &wf}, noon)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, w)
	want(t, s, keys.Line("print", noon, "a"), false)
	if wf := load(t, s, "a"); wf.Waits || wf.Todo != nil || wf.Status != checkpoint.StatusCancelled {
		t.Errorf("ended: %+v", wf)
	}
}

// A failed run that is retried has lost its slot, and waits for another.
func TestRetryWaitsInTheLine(t *testing.T) {
	s := new(memory.Store)
	h := commit(t, s, admitted(t, queued(t, s, "a"), 2))
	wf := *h.Workflow
	wf.Status, wf.EndedAt = checkpoint.StatusFailed, Micro(noon)
	w, err := h.Append(Change{Events: []checkpoint.Event{{Kind: checkpoint.KindEnded, Name: string(checkpoint.StatusFailed)}}, Workflow: &wf}, noon)
	if err != nil {
		t.Fatal(err)
	}
	h = commit(t, s, w)
	want(t, s, keys.Slot("print", 2), false)
	line := keys.Line("print", noon, "a")
	if w, err = h.Retry(Verb{Name: "retry", By: "ann", Why: "mended"}, line, noon); err != nil {
		t.Fatal(err)
	}
	h = commit(t, s, w)
	want(t, s, line, true)
	if !h.Workflow.Waits || h.Workflow.Parked() {
		t.Errorf("retried: %+v, want that it waits", h.Workflow)
	}
	if _, err := h.Claim("me", "", 0, noon); !errors.Is(err, errWaits) {
		t.Errorf("claimed without being admitted: %v", err)
	}
	commit(t, s, admitted(t, h, 1))
	want(t, s, keys.Slot("print", 1), true)
}
