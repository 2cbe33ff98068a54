package run

import (
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// WakeUp adds to ops an entry that has the owner of wf look at it, or the next owner if it
// has none. A run that waits in a line, or is delayed, needs no entry.
func WakeUp(ops []storage.Op, wf *journal.Workflow, now time.Time, nonce string) []storage.Op {
	switch {
	case wf.Owner != "":
		return append(ops, storage.Put(keys.Wake(wf.Owner, wf.ID, nonce), nil))
	case wf.Waits, wf.Delayed():
		return ops
	}
	return append(ops, storage.Put(keys.TodoNow(0, now, wf.ID, nonce), nil))
}

// Held reports whether wf is held: not executed until an operator has fixed something. With
// the other reasons for attention a run is executed.
func Held(wf *journal.Workflow) bool { return HeldBy(wf) != nil }

// HeldBy returns for what wf is held, or nil.
func HeldBy(wf *journal.Workflow) *journal.Attention {
	for i, a := range wf.Attention {
		if Holds(weft.Reason(a.Reason)) {
			return &wf.Attention[i]
		}
	}
	return nil
}

// Holds reports whether a run that needs attention for the reason r is held.
func Holds(r weft.Reason) bool {
	return r != weft.ReasonStuck && r != weft.ReasonUnresponsive && r != weft.ReasonIndeterminate && r != weft.ReasonUncompensated
}

// HeldFor reports whether wf needs attention for the reason r.
func HeldFor(wf *journal.Workflow, r weft.Reason) bool {
	for _, a := range wf.Attention {
		if a.Reason == string(r) {
			return true
		}
	}
	return false
}
