package engine

import (
	"fmt"
	"math/rand/v2"

	"github.com/weft-go/weft/signal"
)

// A message is what another goroutine tells the driver of a run. There is one type for each
// kind.
type message interface {
	// read takes the message in. The driver calls it.
	read(x *execution)

	// forward is called instead if nobody drives the run any more. It reports whether
	// something was written that the next driver has to look at.
	forward(x *execution) (look bool)
}

// written says that something was written for the run.
type written struct {
	inbox    bool // there may be new signals
	children bool // children may have ended
	record   bool // the workflow record may have changed
}

// anything is the message of who does not know what was written.
var anything = written{inbox: true, children: true, record: true}

func (m written) read(x *execution) {
	if m.inbox {
		x.inbox.hinted()
	}
	x.childrenStale = x.childrenStale || m.children
	x.recordStale = x.recordStale || m.record
}

func (m written) forward(*execution) bool { return true }

// arrived says that these signals are new in the inbox. They follow each other.
type arrived struct{ signals []signal.Waiting }

func (m arrived) read(x *execution)       { x.inbox.arrived(m.signals) }
func (m arrived) forward(*execution) bool { return true }

// stopping says that nothing new is to begin, and that the driver is to end when nothing
// is under way.
type stopping struct{}

func (stopping) read(x *execution)       { x.stopping = true }
func (stopping) forward(*execution) bool { return false }

// waitsFor asks what the run waits for.
type waitsFor struct{ answer chan<- []string }

func (m waitsFor) read(x *execution)       { m.answer <- x.facing() }
func (m waitsFor) forward(*execution) bool { return false }

// placeGiven says that one of the places for attempts is the run's now.
type placeGiven struct{}

func (placeGiven) read(x *execution) { x.places++ }

func (placeGiven) forward(x *execution) bool {
	x.eng.leave()
	return false
}

// permitGiven says that a permit is granted.
type permitGiven struct{ permit *permit }

func (m permitGiven) read(x *execution)       { x.permitGranted(m.permit) }
func (m permitGiven) forward(*execution) bool { return false }

// attemptReturned says that an attempt came to its answer, and that its goroutine is over.
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

// attemptExpired says that the time of an attempt is up.
type attemptExpired struct {
	op      *operation
	attempt *attempt
	answer  *answer
}

func (m attemptExpired) read(x *execution)       { x.readAnswer(m.op, m.attempt, m.answer, false) }
func (m attemptExpired) forward(*execution) bool { return false }

// attemptOverdue says that an attempt has not returned when it should have.
type attemptOverdue struct{ job *job }

func (m attemptOverdue) read(x *execution)       { x.readOverdue(m.job.op, &m.job.attempt) }
func (m attemptOverdue) forward(*execution) bool { return false }

// verified says what a verifier answered.
type verified struct {
	op       *operation
	verdict  *verdict
	returned bool // its goroutine is over
}

func (m verified) read(x *execution)       { x.readVerdict(m.op, m.verdict, m.returned) }
func (m verified) forward(*execution) bool { return false }

func (d *delivery) read(x *execution) { x.delivery = d }

func (d *delivery) forward(*execution) bool {
	d.done <- nil
	return false
}

// merge adds a message to the one before, if both tell of signals only: a run that is
// busy keeps no more than a page of them in memory.
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

// news are the signals that m tells of, and nil if it does not say which; only reports
// whether it tells of nothing else.
func news(m message) (signals []signal.Waiting, only bool) {
	switch m := m.(type) {
	case arrived:
		return m.signals, m.signals != nil
	case written:
		return nil, m == written{inbox: true}
	}
	return nil, false
}

// returns reports whether m comes from a goroutine that is over with it: the driver that
// ran an attempt itself has it back.
func returns(m message) bool {
	switch m := m.(type) {
	case attemptReturned:
		return true
	case verified:
		return m.returned
	}
	return false
}

// readAnswer takes in an attempt's answer. Each attempt counts once: what comes
// after its time was up is dropped.
func (x *execution) readAnswer(o *operation, by *attempt, a *answer, returned bool) {
	if o.keyed != nil {
		x.reconciledAnswer(o, by, a, returned)
		return
	}
	if o.done || o.answer != nil || a.attempt <= o.attempt {
		return
	}
	if u := a.unreadable; u != nil { // that is no failure: nothing was tried
		x.block(o, fmt.Errorf("result of %s, which %s undoes: %w", describe(ofActivity, o.name), o.id, u))
		x.blocked.again = false
		return
	}
	a.jitter = rand.Int64()
	o.answer = a
	x.ops.ready = append(x.ops.ready, o)
}
