package engine

import (
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// A run can kill the process that executes it, for example by an activity that exhausts the
// memory, and it can do so in every process. Many runs are executed when a process dies. Any
// of them may be the cause, or none: the process may have been killed from outside. So each
// run counts the deaths of its owners, and a run with too many is a suspect. Suspects are
// quarantined: they are executed after all other runs, in groups, those with fewer deaths
// first. Each death halves a group, so the run that kills is soon executed alone. A run whose
// process dies again and again while the run is alone is held.
//
// A run is cleared when it has passed the place where it died: every attempt that may have
// been in flight has been made again and has returned. Recording something else meanwhile,
// such as a timer beside such an attempt, does not clear it.

const (
	// suspectAfter is the number of deaths after which a run is a suspect. So two kills
	// from outside do not affect any run.
	suspectAfter = 3

	// holdAfter is the number of deaths after which a run is held, if it was the only
	// suspect executed in the last aloneAtLeast of them. Once is not enough: the process
	// may have been killed from outside just then.
	holdAfter    = 10
	aloneAtLeast = 3

	// forgetAfter is how long a suspect is executed before its deaths are reset.
	forgetAfter = time.Hour
)

// A probation is the state of a run whose owner has died. It ends when the run has passed
// the place where it died.
type probation struct {
	deaths int
	fresh  bool      // its last owner died; false if it was parked since
	alone  bool      // it is the only suspect in its group
	began  time.Time // by the monotonic clock

	listed   bool         // inFlight is set
	inFlight []*operation // those with an attempt that may have been in flight, and has not returned since
	returned bool         // an attempt has returned, or none was in flight
}

// list sets inFlight: the operations that the branches have started when everything durable
// is delivered. It omits those that wait for an operator, and those that become due only
// after this execution began.
func (t *probation) list(x *execution) {
	if t.listed {
		return
	}
	t.listed = true
	for o := range x.ops.all() {
		if o.call != nil && !o.asksPerson() && !o.due.After(x.begunAt) {
			t.inFlight = append(t.inFlight, o)
		}
	}
	t.returned = t.fresh && len(t.inFlight) == 0
}

// back records that an attempt of o has returned.
func (t *probation) back(o *operation) {
	t.returned = true
	t.inFlight = slices.DeleteFunc(t.inFlight, func(other *operation) bool { return other == o })
}

// shown reports whether the run has passed the place where it died. It ignores an operation
// that has ended without an attempt, for example because the deaths used up its attempts.
func (t *probation) shown() bool {
	t.inFlight = slices.DeleteFunc(t.inFlight, func(o *operation) bool { return !o.open || o.asksPerson() })
	return t.listed && t.returned && len(t.inFlight) == 0
}

// asksPerson reports whether o waits for an operator.
func (o *operation) asksPerson() bool {
	return o.held() || o.keyed != nil && o.keyed.parked
}

// rest returns how much longer the run must be executed until its deaths are reset. If it
// has been claimed alone, it is until the count of such claims is reset. rest returns false
// if the run is no suspect. wf is its record.
func (t *probation) rest(wf *checkpoint.Workflow) (time.Duration, bool) {
	switch {
	case t == nil || t.deaths < suspectAfter:
		return 0, false
	case wf.Alone > 0:
		return longestWait(t.deaths) - time.Since(t.began), true
	}
	return forgetAfter - time.Since(t.began), true
}

// mustHold reports whether the run must be held. wf is its record.
func (t *probation) mustHold(wf *checkpoint.Workflow) bool {
	if t == nil {
		return false
	}
	alone := wf.Alone
	if t.alone {
		alone-- // wf.Alone includes this execution, which has not died
	}
	return wf.Deaths >= holdAfter && alone >= aloneAtLeast
}

// recordProbation adds to c that the run is cleared, if it has passed the place where it
// died or was executed for long enough. If a run that is no suspect has passed that place, it
// only ends the probation and does not reset the deaths in the store.
func (x *execution) recordProbation(c *checkpoint.Change) {
	t := x.probation
	if t == nil {
		return
	}
	shown := t.shown()
	if shown && t.deaths < suspectAfter {
		x.endProbation()
		return
	}
	rest, ok := t.rest(x.hold.Workflow)
	if !shown && (!ok || rest > 0) {
		return
	}
	wf := x.hold.Workflow
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
func (x *execution) endProbation() {
	x.probation = nil
	x.owner.ProbationEnded(x)
}

// parkDeaths sets the deaths in wf, the record with which x is parked. They stay if the run
// is on probation: it may wait for its next attempt, which may be what kills.
func (x *execution) parkDeaths(wf *checkpoint.Workflow) {
	switch t := x.probation; {
	case t == nil:
		wf.Deaths, wf.Alone = 0, 0
	case t.alone && wf.Alone > 0:
		wf.Alone-- // it did not die in this execution
	}
}

// longestWait is how long the next group waits for a suspect with so many deaths. A run
// that takes longer than that to kill its process dies with others once more, and the
// wait doubles.
func longestWait(deaths int) time.Duration {
	return min(time.Second/4<<min(deaths, 20), forgetAfter)
}
