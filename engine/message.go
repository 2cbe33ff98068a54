package engine

import (
	"fmt"
	"math/rand/v2"

	"github.com/weft-go/weft/signal"
)

// A message is sent by another goroutine to the driver of a run. Each kind has its own type.
type message interface {
	// read processes the message. The driver calls it.
	read(x *execution)

	// forward is called instead of read if the execution has ended. It reports whether
	// something was written that the next driver has to look at.
	forward(x *execution) (look bool)
}

// written says that another writer wrote something for the run.
type written struct {
	inbox    bool // there may be new signals
	children bool // children may have ended
	record   bool // the workflow record may have changed
}

// anything is for senders that do not know what was written.
var anything = written{inbox: true, children: true, record: true}

func (m written) read(x *execution) {
	if m.inbox {
		x.inbox.hinted()
	}
	x.childrenStale = x.childrenStale || m.children
	x.recordStale = x.recordStale || m.record
}

func (m written) forward(*execution) bool { return true }

// arrived carries new signals in the inbox. Their sequence numbers are consecutive.
type arrived struct{ signals []signal.Waiting }

func (m arrived) read(x *execution)       { x.inbox.arrived(m.signals) }
func (m arrived) forward(*execution) bool { return true }

// stopping tells the driver to start nothing new, and to end once no attempt is in progress.
type stopping struct{}

func (stopping) read(x *execution)       { x.stopping = true }
func (stopping) forward(*execution) bool { return false }

// waitsFor asks what the run waits for.
type waitsFor struct{ answer chan<- []string }

func (m waitsFor) read(x *execution)       { m.answer <- x.facing() }
func (m waitsFor) forward(*execution) bool { return false }

// placeGiven says that the run now has one of the engine's places for attempts.
type placeGiven struct{}

func (placeGiven) read(x *execution) { x.places++ }

func (placeGiven) forward(x *execution) bool {
	x.host.gate.Leave()
	return false
}

// permitGiven says that a permit was granted.
type permitGiven struct{ permit *permit }

func (m permitGiven) read(x *execution)       { x.permitGranted(m.permit) }
func (m permitGiven) forward(*execution) bool { return false }

// attemptReturned says that an attempt has its answer and its goroutine is ending.
type attemptReturned struct{ job *job }

func (m attemptReturned) read(x *execution) {
	o := m.job.op
	o.working = nil
	x.ops.working--
	if x.probation != nil {
		x.probation.back(o)
	}
	x.heard(o)
	x.readAnswer(o, &m.job.attempt, &m.job.answer, true)
}

func (m attemptReturned) forward(*execution) bool { return false }

// attemptExpired says that an attempt has timed out.
type attemptExpired struct {
	op      *operation
	attempt *attempt
	answer  *answer
}

func (m attemptExpired) read(x *execution)       { x.readAnswer(m.op, m.attempt, m.answer, false) }
func (m attemptExpired) forward(*execution) bool { return false }

// attemptOverdue says that an attempt has not returned although its timeout and Settle
// have passed.
type attemptOverdue struct{ job *job }

func (m attemptOverdue) read(x *execution)       { x.readOverdue(m.job.op, &m.job.attempt) }
func (m attemptOverdue) forward(*execution) bool { return false }

// verified carries a verifier's answer.
type verified struct {
	op       *operation
	verdict  *verdict
	returned bool // the verifier's goroutine is ending
}

func (m verified) read(x *execution)       { x.readVerdict(m.op, m.verdict, m.returned) }
func (m verified) forward(*execution) bool { return false }

func (d *delivery) read(x *execution) { x.delivery = d }

func (d *delivery) forward(*execution) bool {
	d.done <- nil
	return false
}

// merge combines a message with the one before it if both are only about signals. So at
// most one page of signals waits in the mailbox of a busy run.
func merge(last, m message) (both message, ok bool) {
	a, onlyA := news(last)
	b, onlyB := news(m)
	if !onlyA || !onlyB {
		return nil, false
	}
	if a == nil || b == nil || len(a)+len(b) > inboxPage {
		return written{inbox: true}, true
	}
	return arrived{append(a, b...)}, true
}

// news returns the signals that m carries, or nil if m does not say which ones are new.
// only reports whether m is about signals and nothing else.
func news(m message) (signals []signal.Waiting, only bool) {
	switch m := m.(type) {
	case arrived:
		return m.signals, m.signals != nil
	case written:
		return nil, m == written{inbox: true}
	}
	return nil, false
}

// returns reports whether m is the last thing that its goroutine does. A driver that runs
// an attempt inline posts such a message itself, and then continues as the driver.
func returns(m message) bool {
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
func (x *execution) readAnswer(o *operation, by *attempt, a *answer, returned bool) {
	if o.keyed != nil {
		x.reconciledAnswer(o, by, a, returned)
		return
	}
	if o.done || o.answer != nil || a.attempt <= o.attempt {
		return
	}
	if u := a.unreadable; u != nil { // not a failed attempt: Compensate was not called
		x.block(o, fmt.Errorf("result of %s, which %s undoes: %w", describe(ofActivity, o.name), o.id, u))
		x.blocked.again = false
		return
	}
	a.jitter = rand.Int64()
	o.answer = a
	x.ops.ready = append(x.ops.ready, o)
}
