package journal

import (
	"errors"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Slot is the record slot:{queue}:{n}: a run of the queue that was admitted and has not
// ended. The claim that admits the run writes it, if the slot is free. The run's end deletes
// it.
type Slot struct {
	ID         string `cbor:"1,keyasint"`
	Generation string `cbor:"2,keyasint"`
}

// Admit decides the claim of a run that waits in the line of its queue and has no owner. slot,
// from 1, is the slot that it takes; 0 means none. See Claim.
func (h *Hold) Admit(owner string, slot int, floor uint64, now time.Time) (*Write, error) {
	wf := *h.Workflow
	wf.Waits, wf.Slot = false, slot
	admitted := *h
	admitted.Workflow = &wf
	w, err := admitted.Claim(owner, checkpoint.HandedOver, floor, now)
	if err != nil || slot == 0 {
		return w, err
	}
	key := keys.Slot(wf.Queue, slot)
	raw, err := record.Seal(key, Version, &Slot{wf.ID, wf.Generation}, nil)
	w.Batch.If = append(w.Batch.If, storage.Absent(key))
	w.Batch.Ops = append(w.Batch.Ops, storage.Put(key, raw))
	return w, err
}

var errWaits = errors.New("checkpoint: claim of a run that was not admitted to its queue")

// depart removes an ended run from the lists by which it is found, and from its slot. If a schedule
// has started it, an engine looks at the schedule next.
func (w *Write) depart(wf *Workflow) {
	if wf.Owner != "" {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Held(wf.Owner, wf.ID)))
	}
	if len(wf.Todo) > 0 {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(wf.Todo))
		wf.Waits, wf.Todo = false, nil
	}
	if wf.Slot > 0 {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Slot(wf.Queue, wf.Slot)))
		wf.Slot = 0
	}
	wf.undelay()
	if wf.Schedule != "" {
		w.Batch.Ops = append(w.Batch.Ops, storage.Put(keys.ScheduleHint(wf.Schedule), nil))
	}
}
