package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
)

// An undoing is what a run has to undo if it ends without success: the calls of
// activities with a Compensate that completed, one after the other, the last first.
//
// That it begins is an event. From then on nothing completes but what undoes, so a
// replay undoes the same calls in the same order.
type undoing struct {
	calls  []completed       // in the order in which they completed; those to be undone
	status checkpoint.Status // with which the run then ends; "": it undoes nothing
	op     *operation        // that undoes one of them; nil: none does
}

// A completed call, and its result as it is recorded.
type completed struct {
	op     *operation
	result payload
}

// An undo is what an operation that undoes a call has besides. It is attempted as
// an activity without a key. If that fails for good, a person says what follows.
type undo struct {
	of   *operation // the call
	held bool       // a person is asked
	why  string
}

// undoSuffix makes the id of an operation that of the one which undoes it.
const undoSuffix = ".undo"

func undoes(operation string) bool { return strings.HasSuffix(operation, undoSuffix) }

func (o *operation) held() bool { return o.undo != nil && o.undo.held }

// completes notes a call that can be undone, if e says that it has completed. What
// counts is the history: the workflow may have been told of a time limit instead.
func (x *execution) completes(o *operation, e logged) {
	if e.Kind == checkpoint.Settled && e.Error == "" && e.Category == "" && o.call != nil && o.call.Compensate != nil {
		x.undoing.calls = append(x.undoing.calls, completed{o, payload{e.Codec, e.Result}})
	}
}

// mustUndo says that the function has ended without success, and is still to undo
// what it did.
func (x *execution) mustUndo() bool {
	return len(x.undoing.calls) > 0 && x.undoing.status == "" && x.ending().Status != checkpoint.Completed
}

// ending is what the end of the function comes to. A request to stop that comes
// while the run undoes does not change that.
func (x *execution) ending() *checkpoint.Output {
	out := x.result.output(x)
	if x.undoing.status != "" {
		out.Status = x.undoing.status
	}
	return out
}

// beginUndoing makes it durable that the run undoes what it did, and gives up what
// is under way. If something else is to be known first, its caller decides anew.
func (x *execution) beginUndoing() error {
	out := x.ending()
	events := append(x.ops.givenUp(), checkpoint.Event{Kind: checkpoint.Compensating, Name: string(out.Status), Error: out.Error})
	_, err := x.commit(checkpoint.Change{Events: events})
	return err
}

// A noResult is why Compensate was not called: the result that it needs cannot be decoded.
type noResult struct{ error }

func (u *noResult) Unwrap() error { return u.error }

// undoAll takes in that the run undoes what it did.
func (x *execution) undoAll(e logged) error {
	if err := x.endsAs(e.Event); err != nil {
		return err
	}
	x.undoing.status = checkpoint.Status(e.Name)
	if !x.endBranches() {
		return x.cause()
	}
	for o := range x.ops.all() {
		if o.cut(ErrCancelled); o.of == ofBranch { // which has ended, and cannot settle it
			o.settle(outcome{err: ErrCancelled, cut: true})
		}
	}
	x.undoNext()
	return nil
}

// undoNext begins to undo the call that completed last of those that are left.
func (x *execution) undoNext() {
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
		x:     x,
		id:    c.op.id + undoSuffix,
		of:    ofCompensation,
		name:  c.op.name,
		scope: &scope{},
		call:  &call,
		input: c.op.input,
		undo:  &undo{of: c.op},
	}
	x.ops.add(u.op)
	x.ops.fresh = append(x.ops.fresh, u.op)
}

// unasked is the operation about which a person is to be asked, and is not, or nil.
// Whoever claims the run asks anew.
func (x *execution) unasked() *operation {
	o, wf := x.undoing.op, x.hold.Workflow
	if o == nil || !o.held() || len(wf.Verbs) > 0 || slices.ContainsFunc(wf.Attention, o.isAskedIn) {
		return nil
	}
	return o
}

// asks is the event that a person is asked about o.
func (o *operation) asks() checkpoint.Event {
	return checkpoint.Event{Kind: checkpoint.Held, Operation: o.id, Of: o.of, Name: string(Uncompensated), Attempt: o.attempt, Error: o.undo.why}
}

// askIn has a workflow record say so.
func (o *operation) askIn(wf *checkpoint.Workflow, now time.Time) {
	wf.Attention = append(slices.Clone(wf.Attention), checkpoint.Attention{
		Reason:    string(Uncompensated),
		Operation: o.id,
		Name:      o.name,
		Detail:    o.undo.why,
		Since:     checkpoint.Micro(now),
	})
}

// acted takes in what an operator did, if it answers what a person is asked: to try
// again, or to go on.
func (x *execution) acted(e logged) {
	o := x.undoing.op
	if o == nil {
		return
	}
	switch e.Name {
	case retried, resolution(o.id, activity.StateNotCompleted):
		if !o.held() {
			return
		}
		o.undo.held, o.failures, o.due = false, 0, e.at
		x.ops.time(o)
	case resolution(o.id, activity.StateCompletedWithResult),
		resolution(o.id, activity.StateCompletedResultUnavailable),
		resolution(o.id, activity.StateFailed):
		if x.blocked != nil && x.blocked.operation == o.id {
			x.blocked = nil
		}
		o.settle(outcome{})
		x.undoNext()
	}
}
