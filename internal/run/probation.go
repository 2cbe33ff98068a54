package run

import (
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
)

// A run can kill the process that executes it, for example by an activity that exhausts the memory, and it can do so in
// every process. Many runs are executed when a process dies. Any of them may be the cause, or none: the process may have
// been killed from outside. So each run counts the deaths of its owners, and a run with too many is a suspect. Suspects are
// quarantined: they are executed after all other runs, in groups, those with fewer deaths first. Each death halves a group,
// so the run that kills is soon executed alone. A run whose process dies again and again while the run is alone is held.
//
// A run is cleared when it has passed the place where it died: every attempt that may have been in flight has been made
// again and has returned. Recording something else meanwhile, such as a timer beside such an attempt, does not clear it.

const (
	// SuspectAfter is the number of deaths after which a run is a suspect. So two kills from outside do not affect any run.
	SuspectAfter = 3

	// holdAfter is the number of deaths after which a run is held, if it was the only suspect executed in the last
	// aloneAtLeast of them. Once is not enough: the process may have been killed from outside just then.
	holdAfter    = 10
	aloneAtLeast = 3

	// ForgetAfter is how long a suspect is executed before its deaths are reset.
	ForgetAfter = time.Hour
)

// A Probation is the state of a run whose owner has died. It ends when the run has passed the place where it died.
type Probation struct {
	Deaths int
	Fresh  bool      // its last owner died; false if it was parked since
	Alone  bool      // it is the only suspect in its group
	Began  time.Time // by the monotonic clock

	listed   bool         // inFlight is set
	inFlight []*operation // those with an attempt that may have been in flight, and has not returned since
	returned bool         // an attempt has returned, or none was in flight
}

// list sets inFlight: the operations that the branches have started when everything durable is delivered. It omits those
// that wait for an operator, and those that become due only after this execution began.
func (t *Probation) list(x *Execution) {
	if t.listed {
		return
	}
	t.listed = true
	for o := range x.Ops.all() {
		if o.call != nil && !o.asksPerson() && !o.due.After(x.begunAt) {
			t.inFlight = append(t.inFlight, o)
		}
	}
	t.returned = t.Fresh && len(t.inFlight) == 0
}

// back records that an attempt of o has returned.
func (t *Probation) back(o *operation) {
	t.returned = true
	t.inFlight = slices.DeleteFunc(t.inFlight, func(other *operation) bool { return other == o })
}

// shown reports whether the run has passed the place where it died. It ignores an operation
// that has ended without an attempt, for example because the deaths used up its attempts.
func (t *Probation) shown() bool {
	t.inFlight = slices.DeleteFunc(t.inFlight, func(o *operation) bool { return !o.open || o.asksPerson() })
	return t.listed && t.returned && len(t.inFlight) == 0
}

// asksPerson reports whether o waits for an operator.
func (o *operation) asksPerson() bool { return o.held() || o.keyed != nil && o.keyed.parked }

// rest returns how much longer the run must be executed until its deaths are reset. If it has been claimed alone, it is
// until the count of such claims is reset. rest returns false if the run is no suspect. wf is its record.
func (t *Probation) rest(wf *journal.Workflow) (time.Duration, bool) {
	switch {
	case t == nil || t.Deaths < SuspectAfter:
		return 0, false
	case wf.Alone > 0:
		return LongestWait(t.Deaths) - time.Since(t.Began), true
	}
	return ForgetAfter - time.Since(t.Began), true
}

// mustHold reports whether the run must be held. wf is its record.
func (t *Probation) mustHold(wf *journal.Workflow) bool {
	if t == nil {
		return false
	}
	alone := wf.Alone
	if t.Alone {
		alone-- // wf.Alone includes this execution, which has not died
	}
	return wf.Deaths >= holdAfter && alone >= aloneAtLeast
}

// recordProbation adds to c that the run is cleared, if it has passed the place where it
// died or was executed for long enough. If a run that is no suspect has passed that place, it
// only ends the probation and does not reset the deaths in the store.
func (x *Execution) recordProbation(c *journal.Change) {
	t := x.Probation
	if t == nil {
		return
	}
	shown := t.shown()
	if shown && t.Deaths < SuspectAfter {
		x.endProbation()
		return
	}
	rest, ok := t.rest(x.Hold.Workflow)
	if !shown && (!ok || rest > 0) {
		return
	}
	wf := x.Hold.Workflow
	if c.Workflow != nil {
		wf = c.Workflow
	}
	next := *wf
	if shown || next.Alone == 0 {
		next.Deaths = 0
	}
	next.Alone = 0
	c.Workflow = &next
	c.Events = append(c.Events, checkpoint.Event{Kind: checkpoint.KindSurvived})
}

// endProbation ends the probation of x, if there is one. Suspects no longer wait for x.
func (x *Execution) endProbation() {
	x.Probation = nil
	x.Owner.ProbationEnded(x)
}

// parkDeaths sets the deaths in wf, the record with which x is parked. They stay if the run
// is on probation: it may wait for its next attempt, which may be what kills.
func (x *Execution) parkDeaths(wf *journal.Workflow) {
	switch t := x.Probation; {
	case t == nil:
		wf.Deaths, wf.Alone = 0, 0
	case t.Alone && wf.Alone > 0:
		wf.Alone-- // it did not die in this execution
	}
}

// LongestWait is how long the next group waits for a suspect with so many deaths. A run that takes longer than that to kill
// its process dies with others once more, and the wait doubles.
func LongestWait(deaths int) time.Duration {
	return min(time.Second/4<<min(deaths, 20), ForgetAfter)
}
