package run

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/storage"
)

// An operation is something that a branch started and that has, or will have, an outcome.
// Only whoever has the turn may use it.
//
// Timers, receives and the cancellation request are passive: one gets an outcome only while a branch waits for it. So a
// signal that loses a Select stays in the inbox, and a timer that no branch waits for costs nothing.
type operation struct {
	x        *Execution
	kind     *kind
	id, name string
	reset    int    // the number of the reset behind whose point it has begun; 0 is none
	branch   string // path of the branch that started it
	which    string // what else identifies it: see checkpoint.Event
	scope    *scope

	waiters    []*branch
	waiter     [1]*branch // space for waiters
	settled    uint64     // position of its outcome among those of the run
	outcome    outcome
	prev, next *operation // in the table

	done         bool
	chosen       bool // a Select has returned it
	open         bool // in the table
	timed        bool // in table.timed
	unresponsive bool // its attempt has not returned, although its timeout and Settle have passed
	transaction  bool // the step's function runs in the transaction of its checkpoint

	started []uintptr // the calls that started it, in a replay

	due    time.Time           // of a timer, the end of a wait, or an activity's next attempt; zero: never
	digest payload.Fingerprint // of its input; zero: there is none, or keyed has it

	// What only some kinds have.
	calling
	receiving
	timing
	child   *child    // set if it starts a workflow
	hook    *hooking  // set if it opens a hook, or disposes of one
	closing *closing  // set if it closes a stream
	update  *updating // set if it executes an update
}

// An outcome is what an operation's Await returns.
type outcome struct {
	err      error
	result   payload.Payload
	value    any    // of a branch: a func(into any)
	signalID string // of a received signal
	received bool
	cut      bool      // err is the error of a scope that ended
	at       time.Time // when the outcome was recorded
}

// ID returns the operation's place in the workflow: "3", or "3.1" in the branch that operation 3 started.
func (o *operation) ID() string { return o.id }

// passive reports whether o can get an outcome only while a branch waits for it.
func (o *operation) passive() bool { return o.kind.passive }

// settle sets o's outcome, once, and makes the branches that wait for it runnable.
func (o *operation) settle(out outcome) {
	if o.done {
		return
	}
	x := o.x
	x.Ops.settled++
	o.done, o.outcome, o.settled = true, out, x.Ops.settled
	x.Ops.remove(o)
	delete(x.Ops.started, o.id)
	o.stop(weft.ErrCancelled)
	for _, b := range o.waiters {
		x.queue(b)
	}
	if o.ends != nil && !out.cut { // if cut, the outer scope has ended, and this one with it
		x.end(o.ends, weft.ErrTimeout)
	}
}

// cut settles o because its scope has ended.
func (o *operation) cut(err error) {
	if o.kind.branches() {
		return // the operations in the branch are cut instead
	}
	if o.open {
		o.x.Ops.overtaken(o)
	}
	o.x.dismiss(o)
	o.x.Ops.lastCut = o.x.Ops.learnt
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
	case o.kind == ofCancellation && o.x.cancelled != nil:
		o.settle(outcome{})
	case o.passive() && o.scope.err() != nil:
		o.cut(o.scope.err())
	}
}

// want puts a passive operation into the table, because a branch waits for it.
func (o *operation) want() {
	if o.done || o.open || !o.passive() {
		return
	}
	o.x.Ops.add(o)
	if o.kind != ofCancellation {
		o.x.Ops.time(o)
	}
}

// unwant takes a passive operation out of the table if no branch waits for it any more.
func (o *operation) unwant() {
	if o.done || !o.open || !o.passive() || len(o.waiters) > 0 || o.ends != nil && o.ends.busy > 0 {
		return
	}
	o.x.Ops.overtaken(o)
	o.x.Ops.remove(o)
}

// stop cancels the attempt in progress, and the verifier's call. Their answers are not used.
func (o *operation) stop(cause error) {
	if o.working != nil {
		o.working.cancel(cause)
	}
	if o.keyed != nil && o.keyed.asking != nil {
		o.keyed.asking.cancel(cause)
	}
}

// unsettled reports whether an attempt has started whose answer is not durable.
func (o *operation) unsettled() bool {
	return o.answer != nil || o.working != nil && o.working.number > o.attempt
}

// depth returns how many branches an operation is nested in, not counting the main branch.
func depth(id string) int { return strings.Count(id, ".") }

// outcomeOf returns the outcome that a durable event records.
func (o *operation) outcomeOf(e logged) outcome {
	out := outcome{result: payload.Payload{Codec: e.Codec, Data: e.Result}, signalID: e.SignalID, received: e.Kind == checkpoint.KindReceived, at: e.at}
	if o.child != nil {
		out.err = o.endOfChild(e)
		return out
	}
	if o.hook != nil {
		out.err = o.refusedHook(e)
		return out
	}
	if e.Kind == checkpoint.KindSettled && (e.Error != "" || e.Category != "") {
		f := reconcile.Failure{Category: activity.Category(e.Category), Message: e.Error, Other: e.Other, Stack: e.Stack, Attempt: e.Attempt}
		key := ""
		if o.keyed != nil {
			key = o.keyed.key
		}
		out.err = f.Err(o.name, o.id, key, o.sentinel(e.Sentinel))
	}
	return out
}

// sentinel returns the error for a recorded text.
func (o *operation) sentinel(text string) error {
	switch text {
	case "":
		return nil
	case activity.ErrTimeout.Error():
		return activity.ErrTimeout
	case weft.ErrInvalid.Error():
		return weft.ErrInvalid // for an invalid input: see call
	case storage.ErrTransactionRefused.Error():
		return storage.ErrTransactionRefused
	}
	return payload.SentinelOf(text, o.call.Policy.Errors, o.x.Definition.Errors)
}

// A table holds the operations that have no outcome yet and can get one.
type table struct {
	byID        map[string]*operation
	first, last *operation   // in the order in which they were added
	settled     uint64       // number of outcomes so far
	fresh       []*operation // added, not yet begun
	ready       []*operation // have an answer that is not yet durable
	timed       []*operation // wait for the clock or the inbox

	// late holds operations that were removed without their event while events were
	// still to be delivered: their event may be among those.
	late map[string]*operation

	transactions  []*operation // to be run, one at a time
	queued        []*operation // their next attempt is made, or dispatched, when there is a place for it
	departing     []*operation // their next attempt is dispatched, and has a place
	toStart       []*operation // children to be started
	endedChildren []*operation // children whose end was read

	responsiveness []*operation // became unresponsive, or returned after all; to be recorded
	pending        []*operation // reconciled, with something to be recorded
	outdated       []*operation // reconciled, with a record to be read

	// started has the branches and what is passive, of a replay, until it has its outcome.
	started map[string]started

	permits int // operations that have a permit for their next attempt, or wait for one
	Working int // goroutines of attempts and verifiers that have not returned

	learnt  journal.Place // place of the event delivered last
	quiet   journal.Place // learnt, when the last operation was added
	lastCut journal.Place // learnt, when an operation was last cut
}

// newOperation makes an operation of branch b, and gives it its id.
func (t *table) newOperation(b *branch, s *scope, k *kind, name string) *operation {
	b.begun++
	id := strconv.Itoa(b.begun)
	if b.id != "" {
		id = b.id + "." + id
	}
	id, reset := b.x.again(id)
	o := &operation{x: b.x, kind: k, id: id, reset: reset, name: name, branch: b.path, scope: s}
	if b.x.delivering() {
		o.started = callers()
		if k == ofBranch || o.passive() {
			t.noteStart(o)
		}
	}
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

// remove takes out an operation that has its outcome, or that no branch waits for.
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
	if n := len(t.fresh); n > 64 && n > 2*len(t.byID) { // during a replay, fresh only grows
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

// putBack returns the signal that o is not going to consume after all. It also returns the later signals of that name that
// other operations have found, so that all of them are assigned again in order.
func (t *table) putBack(o *operation) {
	from := o.found.Seq
	for _, other := range t.timed {
		if f := other.found; f != nil && f.Name == o.name && f.Seq >= from {
			o.x.Inbox.putBack(f.Waiting)
			other.found = nil
		}
	}
}

// all iterates over the operations in the table. The loop's body may remove any of them.
// Operations added meanwhile are not visited.
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

// overtaken records that o leaves the table without its event.
func (t *table) overtaken(o *operation) {
	if !o.x.delivering() {
		return
	}
	if t.late == nil {
		t.late = map[string]*operation{}
	}
	t.late[o.id] = o
}

// find returns the operation that an event is about, or nil. late reports that it is not in
// the table any more and does not need the event.
func (t *table) find(id string) (o *operation, late bool) {
	if o := t.byID[id]; o != nil {
		return o, false
	}
	return t.late[id], true
}

// ownerLost counts, for each operation with a call that was due at the time at, that the previous owner may have started an
// attempt. It leaves out those that begin with the reset of the number before, or with a later one; 0 leaves out none.
func (t *table) ownerLost(at time.Time, before int) {
	for o := range t.all() {
		if o.call != nil && !o.held() && !o.due.After(at) && (before == 0 || o.reset < before) {
			o.ownersLost++
		}
	}
}

// time adds o to the operations that wait for the clock or the inbox.
func (t *table) time(o *operation) {
	if !o.timed {
		o.timed = true
		t.timed = append(t.timed, o)
	}
}

// queue puts o in the line of those that wait for a place.
func (t *table) queue(o *operation) {
	if !o.inLine {
		o.inLine = true
		t.queued = append(t.queued, o)
	}
}

// transaction takes the next operation to run in a transaction now, or returns nil.
func (x *Execution) transaction() *operation {
	for t := &x.Ops; x.mayBegin() && len(t.transactions) > 0; {
		o := t.transactions[0]
		t.transactions = t.transactions[1:]
		if !o.done {
			return o
		}
	}
	return nil
}
