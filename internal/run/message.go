package run

import (
	"fmt"
	"math/rand/v2"

	"github.com/weft-go/weft/internal/acceptance"
)

// A Message is sent by another goroutine to the driver of a run. Each kind has its own type.
type Message interface {
	// read processes the message. The driver calls it.
	read(x *Execution)

	// forward is called instead of read if the execution has ended. It reports whether
	// something was written that the next driver has to look at.
	forward(x *Execution) (look bool)
}

// Written says that another writer wrote something for the run.
type Written struct {
	Inbox    bool // there may be new signals
	Children bool // children may have ended
	Record   bool // the workflow record may have changed
	Updates  bool // there may be new updates
}

// Anything is for senders that do not know what was written.
var Anything = Written{Inbox: true, Children: true, Record: true, Updates: true}

func (m Written) read(x *Execution) {
	if m.Inbox {
		x.Inbox.hinted()
	}
	x.childrenStale = x.childrenStale || m.Children
	x.recordStale = x.recordStale || m.Record
	x.updates.stale = x.updates.stale || m.Updates
}

func (m Written) forward(*Execution) bool { return true }

// Arrived carries new signals in the inbox. Their sequence numbers are consecutive.
type Arrived struct{ Signals []acceptance.Waiting }

func (m Arrived) read(x *Execution)       { x.Inbox.arrived(m.Signals) }
func (m Arrived) forward(*Execution) bool { return true }

// Stopping tells the driver to start nothing new, and to end once no attempt is in progress.
type Stopping struct{}

func (Stopping) read(x *Execution)       { x.stopping = true }
func (Stopping) forward(*Execution) bool { return false }

// waitsFor asks what the run waits for.
type waitsFor struct{ answer chan<- []string }

func (m waitsFor) read(x *Execution)       { m.answer <- x.facing() }
func (m waitsFor) forward(*Execution) bool { return false }

// placeGiven says that the run now has one of the engine's places for attempts.
type placeGiven struct{}

func (placeGiven) read(x *Execution) { x.places++ }

func (placeGiven) forward(x *Execution) bool {
	x.host.Gate.Leave()
	return false
}

// permitGiven says that a permit was granted.
type permitGiven struct{ permit *permit }

func (m permitGiven) read(x *Execution)       { x.permitGranted(m.permit) }
func (m permitGiven) forward(*Execution) bool { return false }

// attemptReturned says that an attempt has its answer and its goroutine is ending.
type attemptReturned struct{ job *job }

func (m attemptReturned) read(x *Execution) {
	o := m.job.op
	o.working = nil
	x.Ops.Working--
	if x.Probation != nil {
		x.Probation.back(o)
	}
	x.heard(o)
	x.readAnswer(o, &m.job.attempt, &m.job.answer, true)
}

func (m attemptReturned) forward(*Execution) bool { return false }

// attemptExpired says that an attempt has timed out.
type attemptExpired struct {
	op      *operation
	attempt *attempt
	answer  *answer
}

func (m attemptExpired) read(x *Execution)       { x.readAnswer(m.op, m.attempt, m.answer, false) }
func (m attemptExpired) forward(*Execution) bool { return false }

// attemptOverdue says that an attempt has not returned although its timeout and Settle
// have passed.
type attemptOverdue struct{ job *job }

func (m attemptOverdue) read(x *Execution)       { x.readOverdue(m.job.op, &m.job.attempt) }
func (m attemptOverdue) forward(*Execution) bool { return false }

// verified carries a verifier's answer.
type verified struct {
	op       *operation
	verdict  *verdict
	returned bool // the verifier's goroutine is ending
}

func (m verified) read(x *Execution)       { x.readVerdict(m.op, m.verdict, m.returned) }
func (m verified) forward(*Execution) bool { return false }

func (d *Delivery) read(x *Execution) { x.delivery = d }

func (d *Delivery) forward(*Execution) bool {
	d.Done <- nil
	return false
}

// merge combines a message with the one before it if both are only about signals. So at
// most one page of signals waits in the mailbox of a busy run.
func merge(last, m Message) (both Message, ok bool) {
	a, onlyA := news(last)
	b, onlyB := news(m)
	if !onlyA || !onlyB {
		return nil, false
	}
	if a == nil || b == nil || len(a)+len(b) > inboxPage {
		return Written{Inbox: true}, true
	}
	return Arrived{append(a, b...)}, true
}

// news returns the signals that m carries, or nil if m does not say which ones are new.
// only reports whether m is about signals and nothing else.
func news(m Message) (signals []acceptance.Waiting, only bool) {
	switch m := m.(type) {
	case Arrived:
		return m.Signals, m.Signals != nil
	case Written:
		return nil, m == Written{Inbox: true}
	}
	return nil, false
}

// returns reports whether m is the last thing that its goroutine does. A driver that runs
// an attempt inline posts such a message itself, and then continues as the driver.
func returns(m Message) bool {
	switch m := m.(type) {
	case attemptReturned:
		return true
	case verified:
		return m.returned
	}
	return false
}

// readAnswer processes an attempt's answer. Each attempt counts once: an answer that comes
// after the attempt has timed out is dropped.
func (x *Execution) readAnswer(o *operation, by *attempt, a *answer, returned bool) {
	if o.keyed != nil {
		x.reconciledAnswer(o, by, a, returned)
		return
	}
	if o.done || o.answer != nil || a.attempt <= o.attempt {
		return
	}
	if u := a.unreadable; u != nil { // not a failed attempt: Compensate was not called
		x.block(o, fmt.Errorf("result of %s, which %s undoes: %w", describe(ofActivity.name, o.name), o.id, u))
		x.blocked.again = false
		return
	}
	a.jitter = rand.Int64()
	o.answer = a
	x.Ops.ready = append(x.Ops.ready, o)
}
