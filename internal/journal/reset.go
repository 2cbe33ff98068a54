package journal

import (
	"bytes"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// resets is the ability to execute a run that was reset: a replay passes over a part of its history.
const resets = "resets"

// A Reset says which events a replay passes over: those after Point, up to the checkpoint To by
// which the run was reset. What begins behind Point belongs to the reset: see run.Execution.again.
type Reset struct {
	Before string `cbor:"1,keyasint,omitempty"` // the operation that is begun again; "" is all of them
	Point  Place  `cbor:"2,keyasint"`           // of the last event on which the function went on
	To     uint64 `cbor:"3,keyasint"`
	At     int64  `cbor:"4,keyasint"`
}

// Covers reports whether a replay passes over an event at p.
func (r Reset) Covers(p Place) bool { return p.After(r.Point) && p.Checkpoint <= r.To }

// PassedOver reports whether a replay passes over an event at p.
func (w *Workflow) PassedOver(p Place) bool {
	return slices.ContainsFunc(w.Resets, func(r Reset) bool { return r.Covers(p) })
}

// PassedWhole reports whether a replay passes over the whole checkpoint n.
func (w *Workflow) PassedWhole(n uint64) bool {
	return slices.ContainsFunc(w.Resets, func(r Reset) bool { return r.Point.Checkpoint < n && n <= r.To })
}

// ResetBy returns the reset that the checkpoint n is, or nil.
func (w *Workflow) ResetBy(n uint64) *Reset {
	if i := slices.IndexFunc(w.Resets, func(r Reset) bool { return r.To == n }); i >= 0 {
		return &w.Resets[i]
	}
	return nil
}

// A Rewind is what a run is reset with.
type Rewind struct {
	Before string
	Point  Place
	Cancel *Request // that stays; nil is none
	Untold *Request // that does not stay, and that the run was never told of; nil is none
	By     Verb
	Todo   []byte // the key by which the run is found, or its place in the line of its queue
}

// Reset decides that a run goes on from an earlier point of its history, without an owner. The
// generation, the life and the numbers continue, and nothing of the history is removed. An owner is
// fenced by the same commit.
func (h *Hold) Reset(to Rewind, now time.Time) (*Write, error) {
	w := &Write{Before: h.Workflow}
	wf := *h.Workflow
	events := append(wf.Acted(), to.By.event())
	if r := to.Untold; r != nil { // no replay delivers it, but the history has it
		events = append(events, checkpoint.Event{Kind: checkpoint.KindAsked, By: r.By, Why: r.Reason})
	}
	if err := w.append(h, events, 0, Reading{Wall: now}); err != nil {
		return nil, err
	}
	wf.Resets = append(slices.Clip(wf.Resets), Reset{Before: to.Before, Point: to.Point, To: w.Entry.Number, At: Micro(w.Entry.Time)})
	wf.Versions = slices.DeleteFunc(slices.Clone(wf.Versions), func(c Choice) bool { return !to.Point.After(c.From) })
	if len(wf.Versions) == 0 {
		wf.Versions = nil
	}
	if wf.Owner != "" {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Held(wf.Owner, wf.ID)))
	}
	if len(wf.Todo) > 0 && !bytes.Equal(wf.Todo, to.Todo) {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(wf.Todo))
	}
	if wf.Slot > 0 {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Slot(wf.Queue, wf.Slot)))
	}
	w.Batch.Ops = append(w.Batch.Ops, storage.Put(to.Todo, nil))
	wf.Owner, wf.Slot, wf.Todo, wf.Waits = "", 0, to.Todo, wf.Queue != ""
	wf.Status, wf.EndedAt, wf.Quiet, wf.Compensated = checkpoint.StatusRunning, 0, nil, false
	wf.Cancel, wf.Verbs, wf.Attention, wf.Deaths, wf.Alone = to.Cancel, nil, nil, 0, 0
	wf.Awaits, wf.Handles, wf.Facing, wf.Heard = nil, nil, nil, 0
	wf.State++
	wf.need(resets)
	return w, w.rewrite(&wf)
}
