package engine

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
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
	ofSend     = "send"

	ofTransaction  = "transaction" // a step in the transaction of its checkpoint
	ofBranch       = "branch"
	ofChild        = "child"
	ofDetached     = "detached"     // a workflow that is nobody's child
	ofCancellation = "cancellation" // the request to stop, as a case
	ofCompensation = "compensation" // of an activity
)

// An operation is something that a branch began and that has, or will have, an
// outcome. It belongs to whoever has the turn.
//
// Timers and receives are passive: only one that somebody waits for can be
// decided. So a signal that loses a Select stays in the inbox, and a timer that
// nobody waits for any more costs nothing.
type operation struct {
	x        *execution
	id       string
	of, name string
	branch   string // in which it was begun, by its path
	which    string // what else identifies it: see checkpoint.Event
	scope    *scope

	waiters    []*branch
	settled    uint64 // in which place
	outcome    outcome
	prev, next *operation // in the table

	done         bool
	chosen       bool // by a Select
	open         bool // in the table
	timed        bool // among those that the clock or the inbox decides
	unresponsive bool // the attempt that works should have returned
	transaction  bool // the step's function runs in the transaction of its checkpoint

	due  time.Time // of a timer, the end of a wait, or an activity's next attempt; zero: never
	ends *scope    // when this timer fires

	// Of an activity or a step.
	call     *activity.Call
	input    *snapshot   // nil: that of the call, which nobody shares
	digest   fingerprint // of the input; zero: it has none, or reconciliation has it
	attempt  int         // the last that is known
	lost     int         // owners since then who may have begun one
	failures int
	working  *attempt // the goroutine, until it has returned
	answer   *answer  // what an attempt came to, until it is durable

	permit  *permit         // for the next attempt; nil: it was not asked for
	keyed   *reconciliation // nil: without an idempotency key
	undo    *undo           // nil: it undoes nothing
	limited time.Time       // no attempt begins after this; zero: no limit

	interrupted int // how often the transaction of the step's function was lost

	child *child // of the start of a workflow

	// Of a receive.
	wait  *signal.Wait
	found *found // what it is going to consume
}

// An outcome is what an operation's Await returns.
type outcome struct {
	err      error
	result   payload
	value    any    // of a branch: a func(into any)
	signalID string // of a received signal
	received bool
	cut      bool      // err is that of a scope that ended
	at       time.Time // at which it was learnt
}

// ID returns the operation's place in the workflow: "3", or "3.1" in the branch
// that operation 3 began.
func (o *operation) ID() string { return o.id }

// passive says that o can be decided only while somebody waits for it.
func (o *operation) passive() bool {
	return o.of == ofTimer || o.of == ofReceive || o.of == ofCancellation
}

// settle gives o its outcome, once, and lets those who wait for it go on.
func (o *operation) settle(out outcome) {
	if o.done {
		return
	}
	x := o.x
	x.ops.settled++
	o.done, o.outcome, o.settled = true, out, x.ops.settled
	x.ops.remove(o)
	o.stop(ErrCancelled)
	for _, b := range o.waiters {
		x.queue(b)
	}
	if o.ends != nil && !out.cut { // else it ends with the scope around it
		x.end(o.ends, ErrTimeout)
	}
}

// cut settles o because its scope has ended.
func (o *operation) cut(err error) {
	if o.of == ofBranch {
		return // its own operations are cut
	}
	if o.open {
		o.x.ops.overtaken(o)
	}
	o.x.dismiss(o)
	sent := o.open && o.keyed != nil && o.keyed.sent
	o.settle(outcome{err: err, cut: true})
	if sent {
		o.abandon()
	}
}

// consider settles o if its outcome needs no event.
func (o *operation) consider() {
	switch {
	case o.done:
	case o.of == ofCancellation && o.x.cancelled != nil:
		o.settle(outcome{})
	case o.passive() && o.scope.err() != nil:
		o.cut(o.scope.err())
	}
}

// want puts a passive operation into the table: somebody waits for it.
func (o *operation) want() {
	if o.done || o.open || !o.passive() {
		return
	}
	o.x.ops.add(o)
	if o.of != ofCancellation {
		o.x.ops.time(o)
	}
}

// unwant takes it out when nobody does any more.
func (o *operation) unwant() {
	if o.done || !o.open || !o.passive() || len(o.waiters) > 0 || o.ends != nil && o.ends.busy > 0 {
		return
	}
	o.x.ops.overtaken(o)
	o.x.ops.remove(o)
}

// stop ends the attempt that is under way. Nothing that it answers is used.
func (o *operation) stop(cause error) {
	if o.working != nil {
		o.working.cancel(cause)
	}
	if o.keyed != nil && o.keyed.asking != nil {
		o.keyed.asking.cancel(cause)
	}
}

// unsettled says that an attempt has begun whose answer is not durable.
func (o *operation) unsettled() bool {
	return o.answer != nil || o.working != nil && o.working.number > o.attempt
}

// depth is how many branches an operation is inside of.
func depth(id string) int { return strings.Count(id, ".") }

// failed takes in that an attempt failed and another is due.
func (o *operation) failed(e logged) {
	o.attempt, o.lost, o.answer = e.Attempt, 0, nil
	o.failures++
	o.due = checkpoint.Time(e.Due)
	if o.undo != nil && e.Due == 0 {
		o.undo.held, o.undo.why = true, e.Error
		return
	}
	o.x.ops.time(o)
}

// outcomeOf reads an outcome out of a durable event.
func (o *operation) outcomeOf(e logged) outcome {
	out := outcome{result: payload{e.Codec, e.Result}, signalID: e.SignalID, received: e.Kind == checkpoint.Received, at: e.at}
	if o.child != nil {
		out.err = o.endOfChild(e)
		return out
	}
	if e.Kind == checkpoint.Settled && (e.Error != "" || e.Category != "") {
		f := activity.Failure{Category: activity.Category(e.Category), Message: e.Error, Other: e.Other, Stack: e.Stack, Attempt: e.Attempt}
		key := ""
		if o.keyed != nil {
			key = o.keyed.key
		}
		out.err = f.Err(o.name, o.id, key, o.sentinel(e.Sentinel))
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
	case ErrInvalid.Error():
		return ErrInvalid // its input: see call
	}
	return named(text, o.call.Policy.Errors, o.x.def.errors)
}

// A table is the operations that have no outcome yet and can get one.
type table struct {
	byID        map[string]*operation
	first, last *operation   // in the order in which they were put in
	settled     uint64       // outcomes so far
	fresh       []*operation // not yet set going
	ready       []*operation // answered, not yet durable
	timed       []*operation // decided by the clock or the inbox

	// late are those that were taken out for another reason than their event,
	// while events were still to be delivered: theirs may be among these.
	late map[string]*operation

	transactions  []*operation // to be run, one at a time
	queued        []*operation // attempts for which there was no room, or no permit
	toStart       []*operation // children to be started
	endedChildren []*operation // children whose end was read

	responsiveness []*operation // of which it is to be recorded that they are deaf, or not any more
	pending        []*operation // reconciled, with something to be recorded
	outdated       []*operation // reconciled, with a record to be read

	permits int // operations that have a permit for their next attempt, or wait for one
	working int // attempts whose goroutine has not returned

	learnt checkpoint.Place // of the event that was delivered last
	quiet  checkpoint.Place // of the one before the last operation was put in
}

// begin gives an operation of branch b its place.
func (t *table) begin(b *branch, s *scope, of, name string) *operation {
	b.begun++
	id := strconv.Itoa(b.begun)
	if b.id != "" {
		id = b.id + "." + id
	}
	o := &operation{x: b.x, id: id, of: of, name: name, branch: b.path, scope: s}
	if !o.passive() {
		t.add(o)
		t.fresh = append(t.fresh, o)
	}
	return o
}

func (t *table) add(o *operation) {
	if t.byID == nil {
		t.byID = map[string]*operation{}
	}
	t.byID[o.id] = o
	if o.prev = t.last; o.prev != nil {
		o.prev.next = o
	} else {
		t.first = o
	}
	t.last, o.open = o, true
	t.quiet = t.learnt
	o.scope.busier(1)
}

// remove takes out an operation that has its outcome, or that nobody wants.
func (t *table) remove(o *operation) {
	if !o.open {
		return
	}
	o.open = false
	o.forgo()
	delete(t.byID, o.id)
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		t.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		t.last = o.prev
	}
	o.prev, o.next = nil, nil
	if o.found != nil {
		t.putBack(o)
	}
	if n := len(t.fresh); n > 64 && n > 2*len(t.byID) { // a replay sets nothing going
		t.fresh = slices.DeleteFunc(t.fresh, func(o *operation) bool { return o.done })
	}
	if n := len(t.timed); n > 64 && n > 2*len(t.byID) {
		t.timed = slices.DeleteFunc(t.timed, func(o *operation) bool {
			o.timed = o.open
			return !o.open
		})
	}
	o.scope.busier(-1)
}

// putBack returns the signal that o is not going to consume after all, and those of
// its name that others were to get after it: they are given out anew, in order.
func (t *table) putBack(o *operation) {
	from := o.found.Seq
	for _, other := range t.timed {
		if f := other.found; f != nil && f.Name == o.name && f.Seq >= from {
			o.x.inbox.putBack(f.Waiting)
			other.found = nil
		}
	}
}

// all are the operations in the table. The loop may take out the one it is at,
// and others; those that come in are not met.
func (t *table) all() iter.Seq[*operation] {
	var open []*operation
	for o := t.first; o != nil; o = o.next {
		open = append(open, o)
	}
	return func(yield func(*operation) bool) {
		for _, o := range open {
			if o.open && !yield(o) {
				return
			}
		}
	}
}

// overtaken notes that o leaves the table without its event.
func (t *table) overtaken(o *operation) {
	if !o.x.delivering() {
		return
	}
	if t.late == nil {
		t.late = map[string]*operation{}
	}
	t.late[o.id] = o
}

// find is the operation that an event is about. late says that it has left the
// table, and has no use for it.
func (t *table) find(id string) (o *operation, late bool) {
	if o := t.byID[id]; o != nil {
		return o, false
	}
	return t.late[id], true
}

// lost counts, for each activity, an owner that may have begun an attempt.
func (t *table) lost(at time.Time) {
	for o := range t.all() {
		if o.call != nil && !o.held() && !o.due.After(at) {
			o.lost++
		}
	}
}

// time makes o one of those that the clock or the inbox decides.
func (t *table) time(o *operation) {
	if !o.timed {
		o.timed = true
		t.timed = append(t.timed, o)
	}
}

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
	told   bool // it has given its answer
}

// An answer is what an attempt came to.
type answer struct {
	attempt int
	at      time.Time // it returned, or its time was up
	result  payload
	failure *failure // nil: it succeeded
	final   bool     // no further attempt
	jitter  int64    // of the pause before one; drawn when it was read

	timedOut bool // its time was up
	noEffect bool // it says that nothing happened outside
	lost     bool // it succeeded, with a result that cannot be stored

	unreadable error // it was to undo a call, and was not called: the call's result cannot be decoded
}
