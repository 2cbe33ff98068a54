package run

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
)

// An undoing is the compensation of a run that ends without success. It undoes the completed
// calls of activities with a Compensate, one at a time, the last one first.
//
// Its beginning is an event. From then on no other operation completes, so a replay undoes the same calls in the same order.
type undoing struct {
	calls  []completed       // the calls to be undone, in the order in which they completed
	status checkpoint.Status // status with which the run ends afterwards; "": undoing has not begun
	op     *operation        // the operation that is undoing a call, or nil
}

// A completed is a completed call with its recorded result.
type completed struct {
	op     *operation
	result payload.Payload
}

// An undo is the additional state of an operation that undoes a call. It is attempted like
// an activity without a key. If it fails for good, an operator decides what follows.
type undo struct {
	of   *operation // the call
	held bool       // it waits for an operator
	why  string     // the last error, if held
}

// UndoSuffix is appended to the id of a call to make the id of the operation that undoes it.
const UndoSuffix = ".undo"

// Undoes reports whether operation is the undoing of a call.
func Undoes(operation string) bool { return strings.HasSuffix(operation, UndoSuffix) }

func (o *operation) held() bool { return o.undo != nil && o.undo.held }

// completes adds a call to those to be undone if e says that it has completed. The history
// decides this: the workflow may have seen a timeout instead.
func (x *Execution) completes(o *operation, e logged) {
	if e.Kind == checkpoint.KindSettled && e.Error == "" && e.Category == "" && o.call != nil && o.call.Compensate != nil {
		x.undoing.calls = append(x.undoing.calls, completed{o, payload.Payload{Codec: e.Codec, Data: e.Result}})
	}
}

// mustUndo reports whether the function has ended without success, there are calls to be
// undone, and undoing has not begun. A run that continues as new undoes nothing.
func (x *Execution) mustUndo() bool {
	return len(x.undoing.calls) > 0 && x.undoing.status == "" && !x.continues() && x.ending().Status != checkpoint.StatusCompleted
}

// ending returns the output of the run. A cancellation request that comes during undoing does not change its status.
func (x *Execution) ending() *journal.Output {
	out := x.result.output(x)
	if x.undoing.status != "" {
		out.Status = x.undoing.status
	}
	return out
}

// beginUndoing records that undoing begins, and gives up the unfinished operations. If the
// commit is refused because the record has changed, the caller decides again.
func (x *Execution) beginUndoing() error {
	out := x.ending()
	events := append(x.Ops.givenUp(), checkpoint.Event{Kind: checkpoint.KindCompensating, Name: string(out.Status), Error: out.Error})
	_, err := x.commit(journal.Change{Events: events})
	return err
}

// A noResult is why Compensate was not called: the result that it needs cannot be decoded.
type noResult struct{ error }

func (u *noResult) Unwrap() error { return u.error }

// undoAll applies the event that undoing begins.
func (x *Execution) undoAll(e logged) error {
	if err := x.endsAs(e.Event); err != nil {
		return err
	}
	x.undoing.status = checkpoint.Status(e.Name)
	if !x.endBranches() {
		return x.cause()
	}
	for o := range x.Ops.all() {
		if o.cut(weft.ErrCancelled); o.kind.branches() { // its goroutine was ended and cannot settle it
			o.settle(outcome{err: weft.ErrCancelled, cut: true})
		}
	}
	x.undoNext()
	return nil
}

// undoNext begins to undo the most recently completed of the remaining calls.
func (x *Execution) undoNext() {
	u := &x.undoing
	u.op = nil
	last := len(u.calls) - 1
	if last < 0 {
		return
	}
	c := u.calls[last]
	u.calls = u.calls[:last]
	call := c.op.call.Undoing(func(out any) error {
		if err := x.readable(c.result, out); err != nil {
			return &noResult{err}
		}
		return nil
	})
	u.op = &operation{
		x:       x,
		kind:    ofCompensation,
		id:      c.op.id + UndoSuffix,
		name:    c.op.name,
		scope:   &scope{},
		calling: calling{call: &call, input: c.op.input, undo: &undo{of: c.op}},
	}
	x.Ops.add(u.op)
	x.Ops.fresh = append(x.Ops.fresh, u.op)
}

// unasked returns the operation that waits for an operator and is not in the record's
// attention, or nil. Each new owner of the run asks again.
func (x *Execution) unasked() *operation {
	o, wf := x.undoing.op, x.Hold.Workflow
	if o == nil || !o.held() || len(wf.Verbs) > 0 || slices.ContainsFunc(wf.Attention, o.isAskedIn) {
		return nil
	}
	return o
}

// asks returns the event that o needs an operator.
func (o *operation) asks() checkpoint.Event {
	return checkpoint.Event{Kind: checkpoint.KindHeld, Operation: o.id, Of: o.kind.name, Name: string(weft.ReasonUncompensated), Attempt: o.attempt, Error: o.undo.why}
}

// askIn adds to a workflow record that o needs an operator.
func (o *operation) askIn(wf *journal.Workflow, now time.Time) {
	wf.Attention = append(slices.Clone(wf.Attention), journal.Attention{
		Reason:    string(weft.ReasonUncompensated),
		Operation: o.id,
		Name:      o.name,
		Detail:    o.undo.why,
		Since:     journal.Micro(now),
	})
}

// acted applies an operator's action if it is about the call that is being undone: to try again, or to continue without.
func (x *Execution) acted(e logged) {
	o := x.undoing.op
	if o == nil {
		return
	}
	switch e.Name {
	case Retried, Resolution(o.id, activity.StateNotCompleted):
		if !o.held() {
			return
		}
		o.undo.held, o.failures, o.due = false, 0, e.at
		x.Ops.time(o)
	case Resolution(o.id, activity.StateCompletedWithResult),
		Resolution(o.id, activity.StateCompletedResultUnavailable),
		Resolution(o.id, activity.StateFailed):
		if x.blocked != nil && x.blocked.operation == o.id {
			x.blocked = nil
		}
		o.settle(outcome{})
		x.undoNext()
	}
}
