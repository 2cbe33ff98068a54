package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/signal"
)

// What an operation is: recorded, and compared on replay.
const (
	ofActivity = "activity"
	ofStep     = "step"
	ofTimer    = "timer"
	ofReceive  = "receive"

	ofTransaction = "transaction" // a step in the transaction of its checkpoint
)

// An operation is something that a branch began and that has, or will have, an
// outcome. It belongs to whoever has the turn.
type operation struct {
	x        *execution
	branch   *branch
	id       string
	of, name string

	done    bool
	outcome outcome

	due time.Time // of a timer, the end of a wait, or an activity's next attempt; zero: never

	// Of an activity or a step.
	call     *activity.Call
	attempt  int // the last that is known
	lost     int // owners since then who may have begun one
	failures int
	working  *attempt // the goroutine, until it has returned
	answer   *answer  // what an attempt came to, until it is durable

	transaction bool // the step's function runs in the transaction of its checkpoint

	// Of a receive.
	wait  *signal.Wait
	found *found // what it is going to consume
}

// An outcome is what an operation's Await returns.
type outcome struct {
	err      error
	result   payload
	signalID string // of a received signal
	received bool
}

// ID returns the operation's place in the workflow: "3".
func (o *operation) ID() string { return o.id }

// settle gives o its outcome, once, and lets its branch go on.
func (o *operation) settle(out outcome) {
	if o.done {
		return
	}
	o.done, o.outcome = true, out
	o.x.ops.remove(o)
	o.stop(ErrCancelled)
	if o.branch.waiting == o {
		o.x.runnable = append(o.x.runnable, o.branch)
	}
}

// stop ends the attempt that is under way. Nothing that it answers is used.
func (o *operation) stop(cause error) {
	if o.working != nil {
		o.working.cancel(cause)
	}
}

// unsettled says that an attempt has begun whose answer is not durable.
func (o *operation) unsettled() bool {
	return o.answer != nil || o.working != nil && o.working.number > o.attempt
}

// failed takes in that an attempt failed and another is due.
func (o *operation) failed(e logged) {
	o.attempt, o.lost, o.answer = e.Attempt, 0, nil
	o.failures++
	o.due = checkpoint.Time(e.Due)
	o.x.ops.time(o)
}

// outcomeOf reads an outcome out of a durable event.
func (o *operation) outcomeOf(e checkpoint.Event) outcome {
	out := outcome{result: payload{e.Codec, e.Result}, signalID: e.SignalID, received: e.Kind == checkpoint.Received}
	if e.Kind == checkpoint.Settled && e.Error != "" {
		out.err = &activity.Error{
			Activity: o.name,
			Attempt:  e.Attempt,
			Message:  e.Error,
			Stack:    e.Stack,
			Sentinel: o.sentinel(e.Sentinel),
		}
	}
	return out
}

// sentinel finds the error that a recorded text stands for.
func (o *operation) sentinel(text string) error {
	switch text {
	case "":
		return nil
	case activity.ErrTimeout.Error():
		return activity.ErrTimeout
	}
	return named(text, o.call.Policy.Errors, o.x.def.errors)
}

// A table is the operations that have no outcome yet.
type table struct {
	byID  map[string]*operation
	order []*operation // as they were begun, with holes
	holes int
	fresh []*operation // not yet set going
	ready []*operation // answered, not yet durable
	timed []*operation // with a due time, or waiting for a signal

	transactions []*operation // to be run, one at a time

	working int // attempts whose goroutine has not returned
}

// begin adds an operation of branch b, at its next place.
func (t *table) begin(b *branch, of, name string) *operation {
	b.begun++
	id := strconv.Itoa(b.begun)
	if b.id != "" {
		id = b.id + "." + id
	}
	o := &operation{x: b.x, branch: b, id: id, of: of, name: name}
	if t.byID == nil {
		t.byID = map[string]*operation{}
	}
	t.byID[id] = o
	t.order = append(t.order, o)
	t.fresh = append(t.fresh, o)
	return o
}

// remove takes out an operation that has its outcome.
func (t *table) remove(o *operation) {
	delete(t.byID, o.id)
	if last := len(t.fresh) - 1; last >= 0 && t.fresh[last] == o {
		t.fresh = t.fresh[:last] // so that a replay does not keep them all
	}
	if t.holes++; t.holes <= len(t.order)/2 {
		return
	}
	kept := t.order[:0]
	for _, p := range t.order {
		if !p.done {
			kept = append(kept, p)
		}
	}
	clear(t.order[len(kept):])
	t.order, t.holes = kept, 0
}

// all are the operations without an outcome, in the order in which they began.
func (t *table) all() []*operation {
	var open []*operation
	for _, o := range t.order {
		if !o.done {
			open = append(open, o)
		}
	}
	return open
}

// lost counts, for each activity, an owner that may have begun an attempt.
func (t *table) lost(at time.Time) {
	for _, o := range t.all() {
		if o.call != nil && !o.due.After(at) {
			o.lost++
		}
	}
}

// time makes o one of those that the clock or the inbox decides.
func (t *table) time(o *operation) { t.timed = append(t.timed, o) }

// transaction takes the next operation that is to run in a transaction.
func (t *table) transaction() *operation {
	for len(t.transactions) > 0 {
		o := t.transactions[0]
		t.transactions = t.transactions[1:]
		if !o.done {
			return o
		}
	}
	return nil
}

// An attempt is one run of an activity's function, in a goroutine.
type attempt struct {
	number int
	cancel context.CancelCauseFunc
}

// An answer is what an attempt came to.
type answer struct {
	attempt int
	result  payload
	failure *failure // nil: it succeeded
	final   bool     // no further attempt
}
