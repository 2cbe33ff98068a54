package run

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/reconcile"
)

// errStopped ends an execution whose run is released for another engine to continue.
var errStopped = errors.New("engine: run released")

// Limits of one checkpoint. Only its last event may exceed mostBytes. What does not fit goes into further checkpoints.
const (
	mostEvents = 1000
	MostBytes  = 8 << 20
)

// learn waits until something new has happened to the run, and makes it durable. It is
// called when all branches wait and all durable events have been delivered.
func (x *Execution) learn() error {
	if x.Probation != nil {
		x.Probation.list(x)
	}
	for {
		x.letGo() // what the round before has not closed
		if err := x.read(); err != nil {
			return err
		}
		if d := x.delivery; d != nil {
			x.delivery = nil
			if done, err := x.receive(d); done || err != nil {
				return err
			}
		}
		if done, err := x.recordChoices(); done || err != nil {
			return err
		}
		if done, err := x.unstick(); done || err != nil {
			return err
		}
		if err := x.dismissals(); err != nil {
			return err
		}
		x.setGoing()
		x.unneeded() // an attempt that is run inline may take long
		if err := x.setOff(); err != nil {
			return err
		}
		var o *operation
		if !x.transacted {
			o = x.transaction()
		}
		x.transacted = o != nil
		if o != nil || !x.mayBegin() {
			x.stay()
		}
		x.unneeded()
		if o != nil {
			if recorded, err := x.transact(o); recorded || err != nil {
				return err
			}
			continue
		}
		now := x.time() // before it looks: so a time limit passes over nothing that was there when it passed
		x.lookAgain(now)
		if err := x.look(); err != nil {
			if err := x.outdated(err); err != nil {
				return err
			}
			continue
		}
		if err := x.reread(); err != nil {
			return err
		}
		if done, err := x.takeUpdate(); done || err != nil {
			return err
		}
		d := &x.decision
		if err := x.decide(d, now); err != nil {
			return err
		}
		if testHookDecided != nil {
			testHookDecided(x, now, d)
		}
		change := d.Change
		x.recordProbation(&change)
		wait, riders := x.riders.due()
		if len(change.Events) > 0 || riders && wait <= 0 {
			orphans := x.orphanRecords
			if slices.ContainsFunc(d.born, func(b *birth) bool { return b.op.child.found != nil }) {
				orphans = nil // whoever takes up a child may delete the same record
			}
			fit := min(len(orphans), max(x.room(&change), 0))
			change.Ops = append(change.Ops, orphans[:fit]...)
			remove, left := x.remains.remove(x.Hold.Workflow.Log(), max(min(removedAtOnce, x.host.room(&change)-1), 0))
			change.Ops = append(change.Ops, remove...)
			done, err := x.commitBirths(change, d.born)
			if err != nil {
				return err
			}
			if done {
				x.orphanRecords, x.remains = orphans[fit:], left
				x.taken(d)
				return nil
			}
			continue
		}
		x.taken(d) // drops operations that already have their outcome
		if x.blocked != nil && x.Ops.Working == 0 {
			return x.blocked
		}
		if x.stopping && x.Ops.Working == 0 {
			return x.releaseForShutdown()
		}
		if x.takesUpdate() || x.mayBegin() && len(x.Ops.transactions) > 0 {
			continue
		}
		if !x.mayBegin() { // look has found something
			x.stay()
			x.unneeded()
		}
		idle, err := x.rest()
		if err != nil {
			return err
		}
		if idle {
			if err := x.park(); err != nil {
				return err
			}
			x.atRest = time.Time{}
		}
	}
}

// testHookDecided, if set by a test, is called after each decision. Tests use it to check
// that deciding again gives the same decision.
var testHookDecided func(x *Execution, now time.Time, d *decision)

// mayBegin reports whether new work may begin. None begins between a cancellation request and its delivery.
func (x *Execution) mayBegin() bool { return !x.stopping && x.mayDepart() }

// mayDepart is mayBegin for an attempt whose dispatch is recorded. If the engine stops, it begins: its outcome would be unknown.
func (x *Execution) mayDepart() bool {
	return x.blocked == nil && (x.Hold.Workflow.Cancel == nil || x.asked)
}

// setGoing begins the operations that the branches started, and the attempts that are due.
func (x *Execution) setGoing() {
	if x.mayDepart() {
		for _, o := range x.Ops.departing {
			if o.departs() {
				x.attempt(o)
			}
		}
		x.Ops.departing = nil
	}
	if !x.mayBegin() {
		return
	}
	queued := x.Ops.queued
	x.Ops.queued, x.refused = nil, false
	now := x.time()
	for i, o := range queued {
		if x.refused { // leave the rest queued: there may be thousands
			x.Ops.keepQueued(queued[i-1:])
			break
		}
		o.inLine = false
		switch {
		case !o.open || o.answer != nil:
		case o.keyed == nil:
			x.begunBy(o, now)
		case o.keyed.next != reconcile.Dispatch: // its record has changed meanwhile
		case o.idle(): // what happened late may rule the attempt out
			x.Ops.queue(o)
		default:
			x.reconcile(o)
		}
	}
	for _, o := range x.Ops.fresh {
		switch {
		case o.open && o.keyed != nil:
			o.setOut()
		case !o.open || !o.due.IsZero() || o.held(): // has its outcome, or waits
		case o.transaction:
			x.Ops.transactions = append(x.Ops.transactions, o)
		case o.call != nil:
			x.begunBy(o, now)
		case o.child != nil && !o.child.begun:
			x.Ops.toStart = append(x.Ops.toStart, o)
		case o.hook != nil:
			x.hooks.asked = append(x.hooks.asked, o)
		case o.closing != nil:
			x.streams.asked = append(x.streams.asked, o)
		}
	}
	clear(x.Ops.fresh)
	x.Ops.fresh = x.Ops.fresh[:0]

	var due []*operation
	kept := x.Ops.timed[:0]
	for _, o := range x.Ops.timed {
		switch {
		case !o.open:
			o.timed = false
		case o.call != nil && !o.idle() && !o.due.After(now):
			o.due, o.timed = time.Time{}, false
			due = append(due, o)
		default:
			kept = append(kept, o)
		}
	}
	clear(x.Ops.timed[len(kept):])
	x.Ops.timed = kept
	for _, o := range due {
		switch {
		case o.transaction:
			x.Ops.transactions = append(x.Ops.transactions, o)
		case o.keyed != nil:
			x.reconcile(o)
		default:
			x.begunBy(o, now)
		}
	}
}

// keepQueued queues the operations of rest again, behind those in the queue. The first of
// rest is already queued, as the last one.
func (t *table) keepQueued(rest []*operation) {
	if len(t.queued) == 1 {
		t.queued = rest
		return
	}
	t.queued = append(t.queued, rest[1:]...)
}

// begunBy begins o's next attempt. If o's deadline has passed, o times out instead.
func (x *Execution) begunBy(o *operation, now time.Time) {
	if o.limited.IsZero() || now.Before(o.limited) {
		x.attempt(o)
		return
	}
	o.answer = timedOut(x.info(o).Attempt, o.call.Policy.TotalTimeout)
	o.answer.final = true
	x.Ops.ready = append(x.Ops.ready, o)
}

// fires reports whether o is a timer that fires now, or a receive whose time is over.
func (o *operation) fires(now time.Time) bool {
	return o.open && o.call == nil && o.found == nil && !o.due.IsZero() && !o.due.After(now)
}

// lookAgain has look read the signals and children that a time limit may pass over now: nobody may have told of them. A timer
// is a time limit if it ends a scope, or is one of several cases of a Select.
func (x *Execution) lookAgain(now time.Time) {
	all := slices.ContainsFunc(x.Ops.timed, func(o *operation) bool {
		several := func(b *branch) bool { return len(b.waiting) > 1 }
		return o.wait == nil && o.fires(now) && (o.ends != nil || slices.ContainsFunc(o.waiters, several))
	})
	x.childrenStale = x.childrenStale || all
	for _, o := range x.Ops.timed {
		if o.wait != nil && o.open && (all || o.fires(now)) && x.Inbox.lines[o.name] != nil {
			x.Inbox.lines[o.name].more = true
		}
	}
}

// look reads from the store what the run may record next: about children and signals.
func (x *Execution) look() error {
	if err := x.readChildren(); err != nil {
		return err
	}
	if err := x.stopDerived(); err != nil {
		return err
	}
	for _, o := range x.Ops.toStart[:min(len(x.Ops.toStart), mostBirths)] {
		if err := x.examine(o.child); err != nil {
			return err
		}
	}
	if err := x.lookForTokens(); err != nil {
		return err
	}
	if err := x.lookForStreams(); err != nil {
		return err
	}
	if err := x.lookForUpdates(); err != nil {
		return err
	}
	return x.lookForSignals()
}

// A decision is the next checkpoint, and which of the known changes it contains.
type decision struct {
	journal.Change
	answers, births, ends int          // how many were taken from ready, toStart and endedChildren
	born                  []*birth     // the starts of children
	reconciled            []*sealed    // the records of pending operations
	responsiveness        []*operation // attempts that became unresponsive, or returned after all
	hooked                hooked       // what it does to hooks
	closes                int          // how many were taken from streams.asked
	closed                []string     // the streams that it closes
	undone                *operation   // the compensation that failed and needs an operator, or nil
}

// reset empties d and keeps its space for events, if there is little.
func (d *decision) reset() {
	const keep = 16
	events := d.Events
	clear(events)
	if cap(events) > keep {
		events = nil
	}
	*d = decision{Change: journal.Change{Events: events[:0]}}
}

// Spare is more than the conditions and operations that every checkpoint has, with all that
// can change in lists, and those of one child's start, together.
const Spare = 84

// room returns how many more conditions and operations c may have.
func (e *Env) room(c *journal.Change) int { return e.MaxOps - Spare - len(c.If) - len(c.Ops) }

// room is Env.room for a checkpoint of x, which may store values.
func (x *Execution) room(c *journal.Change) int { return x.host.room(c) - len(x.riders.values.pending) }

// taken removes what d has made durable from the table.
func (x *Execution) taken(d *decision) {
	t := &x.Ops
	t.ready = slices.Delete(t.ready, 0, d.answers)
	t.toStart, t.endedChildren = t.toStart[d.births:], t.endedChildren[d.ends:]
	t.responsiveness = t.responsiveness[len(d.responsiveness):]
	x.hooks.changed(&d.hooked)
	x.streams.asked = x.streams.asked[d.closes:]
	x.letGo()
	for _, s := range d.reconciled {
		x.written(s)
	}
	t.tidy()
}

// decide computes the next checkpoint from what was read, and stores it in d. It changes nothing
// else, so the caller may discard the decision.
//
// A checkpoint consumes at most one signal, as its first event. If another event were
// delivered before it, the receiver might go on without the signal, which would be lost.
func (x *Execution) decide(d *decision, now time.Time) error {
	d.reset()
	c := &d.Change
	size := 0
	full := func() bool {
		return len(c.Events) >= mostEvents || size >= x.host.MaxBytes || len(c.Ops) > 0 && x.room(c) <= 0
	}
	add := func(e checkpoint.Event) {
		c.Events = append(c.Events, e)
		size += len(e.Result) + len(e.Error) + len(e.Stack)
	}
	receiver, others := x.Ops.receiver()
	if receiver != nil {
		add(receiver.receives(receiver.found))
		there, ops := acceptance.Consume(x.ID, receiver.found.Waiting)
		c.If, c.Ops = append(c.If, there), append(c.Ops, ops...)
	}
	for _, o := range x.Ops.ready {
		if full() {
			return nil
		}
		if d.answers++; !o.done {
			add(o.answered(now))
		}
	}
	for _, o := range x.updates.open {
		if full() {
			return nil
		}
		if o.update.answer == nil {
			continue
		}
		e, ops, err := o.answers(now)
		if err != nil {
			return err
		}
		add(e)
		c.Ops = append(c.Ops, ops...)
		size += len(o.update.answer.Data)
	}
	for _, o := range x.Ops.endedChildren {
		if full() {
			return nil
		}
		if d.ends++; o.open {
			add(o.grownUp(c))
		}
	}
	for _, o := range x.Ops.pending {
		if full() {
			break
		}
		if s, e := x.recorded(o, now); s != nil {
			if err := s.seal(c); err != nil {
				return err
			}
			add(e)
			size += len(e.Result)
			d.reconciled = append(d.reconciled, s)
		}
	}
	for _, o := range x.Ops.responsiveness {
		if full() {
			break
		}
		add(o.unresponsiveEvent())
		d.responsiveness = append(d.responsiveness, o)
	}
	if o := x.unasked(); o != nil && !full() {
		add(o.asks())
		d.undone = o
	}
	c.Workflow = x.askFor(d, now)
	c.Events = append(c.Events, x.Hold.Workflow.Acted()...)
	if x.blocked != nil {
		return nil // only the outcomes of what is in progress: no timer may fire before what cannot be decoded
	}
	for _, o := range x.Ops.timed {
		if full() {
			return nil
		}
		if !o.fires(now) || others && o.wait == nil {
			continue // a limit passes over no signal that was found
		}
		kind := checkpoint.KindFired
		if o.wait != nil {
			kind = checkpoint.KindMissed
		}
		add(o.event(kind))
	}
	if request := x.Hold.Workflow.Cancel; request != nil && !x.asked {
		add(checkpoint.Event{Kind: checkpoint.KindAsked, By: request.By, Why: request.Reason})
		return nil // nothing begins before the request is delivered
	}
	if x.stopping {
		return nil
	}
	take := func(asked []*operation, decide func(*operation, *decision) (checkpoint.Event, bool, error)) (n int, err error) {
		for _, o := range asked {
			if o.open {
				if full() {
					break
				}
				e, fits, err := decide(o, d)
				if err != nil || !fits {
					return n, err
				}
				add(e)
			}
			n++
		}
		return n, nil
	}
	var err error
	if d.hooked.asked, err = take(x.hooks.asked[:min(len(x.hooks.asked), hooksAtOnce)], x.hook); err != nil {
		return err
	}
	if d.closes, err = take(x.streams.asked[:min(len(x.streams.asked), closesAtOnce)], x.closeStream); err != nil {
		return err
	}
	for _, o := range x.Ops.toStart {
		if full() || d.births == mostBirths || slices.ContainsFunc(d.born, o.namesake) {
			break
		}
		if d.births++; !o.open {
			continue
		}
		b, err := o.born(c)
		if err != nil {
			return err
		}
		d.born = append(d.born, b)
		size += len(o.child.starting.input.Data)
	}
	return nil
}

// receiver returns the operation whose found signal was accepted first, or nil, and whether others have found one.
func (t *table) receiver() (first *operation, others bool) {
	for _, o := range t.timed {
		if !o.open || o.found == nil {
			continue
		}
		others = first != nil
		if first == nil || o.found.Seq < first.found.Seq {
			first = o
		}
	}
	return first, others
}

// answered returns the event for o's answer: its outcome, or a failed attempt.
func (o *operation) answered(now time.Time) checkpoint.Event {
	a := o.answer
	e := o.succeeded(a)
	if a.failure == nil {
		return e
	}
	e.Error, e.Stack, e.Sentinel = a.failure.Message, a.failure.Stack, a.failure.Sentinel
	retry := o.call.Policy.Retry
	due := now.Add(retry.Pause(o.failures+1, drawn(a.jitter)))
	last := !o.limited.IsZero() && !due.Before(o.limited)
	bound := retry.Bound()
	final := a.final || last || bound > 0 && o.failures+1 >= bound
	switch {
	case !final:
		e.Kind, e.Due = checkpoint.KindAttempted, journal.Micro(due)
	case o.undo != nil:
		e.Kind = checkpoint.KindAttempted // an operator decides what follows
	}
	return e
}

// drawn returns a source that yields the random number r, which was drawn earlier, so that a decision is deterministic.
func drawn(r int64) func(n int64) int64 { return func(n int64) int64 { return r % n } }

// succeeded returns the event for an outcome with a result.
func (o *operation) succeeded(a *answer) checkpoint.Event {
	e := o.event(checkpoint.KindSettled)
	e.Attempt, e.Result, e.Codec = a.attempt, a.result.Data, a.result.Codec
	return e
}

// rest waits for a message, for the first due time, or for the end of the run's context.
// idle reports whether nothing came for so long that the run may be parked.
func (x *Execution) rest() (idle bool, _ error) {
	// Let other goroutines run first: a fast one posts its message at once.
	for range 2 {
		if len(x.mailbox.bell) > 0 {
			break
		}
		runtime.Gosched()
	}
	var alarm <-chan time.Time
	if wait, ok := x.untilNext(); ok {
		t := time.NewTimer(max(wait, 0))
		defer t.Stop()
		alarm = t.C
	}
	var enough <-chan time.Time
	patience, ok := x.idle()
	if !ok {
		x.atRest = time.Time{}
	}
	if ok && len(x.mailbox.bell) == 0 {
		left := patience - x.rested()
		if left <= 0 {
			return true, nil
		}
		t := time.NewTimer(left)
		defer t.Stop()
		enough = t.C
	}
	x.expect()
	select {
	case <-x.Ctx.Done():
		return false, errStopped
	case <-x.mailbox.bell:
	case <-alarm:
	case <-enough:
		idle = true
	}
	if x.Ctx.Err() != nil { // select may have chosen another case that was ready
		return false, errStopped
	}
	return idle, nil
}

// rested returns for how long the run has been idle. Messages that change nothing, such as the
// question what it waits for, do not interrupt that.
func (x *Execution) rested() time.Duration {
	if x.atRest.IsZero() {
		x.atRest = time.Now()
	}
	return time.Since(x.atRest)
}

// untilNext returns how long it is until something is due. ok is false if nothing waits for the clock.
func (x *Execution) untilNext() (wait time.Duration, ok bool) {
	wait, ok = x.Probation.rest(x.Hold.Workflow)
	x.shorten()
	if rest, some := x.riders.due(); some && (!ok || rest < wait) {
		wait, ok = rest, true
	}
	if due, some := x.Ops.nextDue(!x.stopping); some && x.blocked == nil {
		if rest := x.until(due); !ok || rest < wait {
			wait, ok = rest, true
		}
	}
	return wait, ok
}

// nextDue returns the first time at which something is due. It includes attempts if attempts is true, but not those that
// must wait for something else, such as the return of an earlier attempt.
func (t *table) nextDue(attempts bool) (first time.Time, ok bool) {
	for _, o := range t.timed {
		if !o.open || o.due.IsZero() || o.call != nil && (o.idle() || !attempts) {
			continue
		}
		if !ok || o.due.Before(first) {
			first, ok = o.due, true
		}
	}
	return first, ok
}

// A pause is a wait for time that is recorded nowhere.
type pause struct {
	until time.Time
	took  time.Duration
}

// dueAfter makes o due after a pause that begins now, or leaves its due time if that is later.
func (x *Execution) dueAfter(o *operation, now time.Time, took time.Duration) {
	until := now.Add(took)
	if o.due.Before(until) {
		o.paused = pause{until, took}
	}
	x.timeAt(o, until)
}

// shorten brings pauses forward that a clock made too long: it was ahead when they began, was
// set right, and nothing was recorded meanwhile. So the run's time went back.
func (x *Execution) shorten() {
	for _, o := range x.Ops.timed {
		if p := &o.paused; !p.until.IsZero() && o.due.Equal(p.until) {
			if latest := x.time().Add(p.took); latest.Before(o.due) {
				o.due, p.until = latest, latest
			}
		}
	}
}

// after returns t plus d, or the last time that records can represent.
func after(t time.Time, d time.Duration) time.Time {
	last := time.UnixMicro(math.MaxInt64 / 2)
	if due := t.Add(d); due.Before(last) {
		return due
	}
	return last
}
