package engine

import (
	"runtime"
	"time"
)

// A gate limits how many attempts run at a time: to MaxActivities, and to what the
// processors can run without delaying everything else. An execution that finds no place gets
// one later, in the order of arrival. So each place is free, or taken by an attempt, or
// reserved for an execution that will use it or give it back.
//
// Go has no goroutine priorities. Attempts that compute compete for processors with
// everything else in the process, including the lease renewal. A goroutine that returns from
// the network or the disk is scheduled after them. So the gate measures the scheduling delay:
// how long a runnable goroutine waits for a processor. A few attempts may always run. Beyond
// that the gate starts that many more, then measures. Attempts that wait for something
// outside do not cause a delay, so the next start immediately, and more of them each time.
// If the delay is too long, none start until it is short again.
type gate struct {
	most     int           // MaxActivities
	few      int           // number of attempts that may run whatever the delay is
	tooLate  time.Duration // delays above this are too long
	bound    int           // maximum number of attempts: most, or fewer after a lease was lost
	busy     int           // places that are taken
	lot      int           // number of attempts that may start after an acceptable delay
	credit   int           // number of these that have not started yet
	waiting  []*execution
	probing  bool      // a measurement is in progress or scheduled
	trickled time.Time // when an attempt was last allowed to start despite the delay
	told     time.Time // when the delay was last logged
}

const (
	// fewPerProcessor attempts that compute cause a delay of less than tooLate, because
	// the scheduler preempts a goroutine after 10 to 20 ms.
	fewPerProcessor = 4

	// tooLate is the longest acceptable scheduling delay, unless a hundredth of LeaseTTL
	// is shorter. A renewal waits for a processor a handful of times.
	tooLate = 100 * time.Millisecond

	// mostLots limits how many attempts start between two measurements, as a multiple of
	// gate.few. More than gate.few start only while delays are at most tooLate/mostLots.
	mostLots = 16

	// patienceWithLoad is how many delays pass until one attempt starts although they are
	// too long. Other programs may keep the processors busy for days.
	patienceWithLoad = 20

	// recoveries is the number of lease renewals after which the maximum number of
	// attempts is again MaxActivities, after a lease was lost.
	recoveries = 20
)

func newGate(c *Config) gate {
	return gate{
		most:    c.MaxActivities,
		few:     min(fewPerProcessor*runtime.GOMAXPROCS(0), c.MaxActivities),
		tooLate: min(tooLate, c.LeaseTTL/100),
		bound:   c.MaxActivities,
	}
}

// take takes a place, and reports whether there was one.
func (g *gate) take() bool {
	switch {
	case g.busy >= g.bound:
		return false
	case g.busy < g.few:
	case g.credit > 0:
		g.credit--
	default:
		return false
	}
	g.busy++
	return true
}

// measured processes a measured delay. If it was too long, it returns the pause until the
// next measurement, otherwise 0.
func (g *gate) measured(late time.Duration, now time.Time) (pause time.Duration) {
	if late <= g.tooLate {
		g.lot = max(g.few, min(2*g.lot, mostLots*g.few))
		if late > g.tooLate/mostLots || g.credit > 0 {
			g.lot = g.few
		}
		g.credit = g.lot
		return 0
	}
	g.lot, g.credit = g.few, 0
	if now.Sub(g.trickled) > patienceWithLoad*late {
		g.credit, g.trickled = 1, now
	}
	return min(late, time.Second)
}

// enter takes a place for an attempt of x and returns true. If there is none it returns
// false, and x gets one later: see placeGiven.
func (x *execution) enter() bool {
	if x.places > 0 {
		x.places--
		return true
	}
	e := x.eng
	e.mu.Lock()
	if e.gate.take() {
		e.mu.Unlock()
		return true
	}
	x.refused = true
	if !x.atGate {
		x.atGate = true
		e.gate.waiting = append(e.gate.waiting, x)
	}
	e.serve()
	return false
}

// endAttempt frees a place and gives it to the next execution that waits.
func (e *Engine) endAttempt() {
	e.mu.Lock()
	e.gate.busy--
	e.serve()
}

// serve gives places to waiting executions, and starts a measurement if they wait only for
// that. The caller holds e.mu, and serve unlocks it.
func (e *Engine) serve() {
	g := &e.gate
	var served []*execution
	for len(g.waiting) > 0 && g.take() {
		x := g.waiting[0]
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
		x.atGate = false
		served = append(served, x)
	}
	probe := len(g.waiting) > 0 && g.busy < g.bound && !g.probing && e.lives()
	g.probing = g.probing || probe
	e.mu.Unlock()
	for _, x := range served {
		x.post(placeGiven{})
	}
	if probe {
		go e.probe()
	}
}

// lives reports whether e runs and is not closed. The caller holds e.mu.
func (e *Engine) lives() bool { return e.incarnation != nil && !e.closed }

// probe measures the scheduling delay. It yields its processor and so joins the end of the
// run queue, like a goroutine that returns from the network. If the delay is too long, it
// measures again, but only while the engine runs and has attempts that wait or may be the
// cause.
func (e *Engine) probe() {
	left := time.Now()
	runtime.Gosched()
	now := time.Now()
	late := now.Sub(left)
	e.mu.Lock()
	g := &e.gate
	pause := g.measured(late, now)
	g.probing = pause > 0 && e.lives() && (len(g.waiting) > 0 || g.busy > g.few)
	again := g.probing
	tell := again && now.Sub(g.told) > time.Minute
	if tell {
		g.told = now
	}
	busy, waiting, l := g.busy, len(g.waiting), e.incarnation
	e.serve()
	if !again {
		return
	}
	time.AfterFunc(pause, e.probe)
	l.hurryUp()
	if tell {
		e.log.Warn("weft: goroutines wait long for a processor; activities start more slowly", "delay", late, "under way", busy, "workflows that wait", waiting)
	}
}

// measureLoad starts a measurement if more than g.few attempts are in progress. They may
// have waited so far and compute now.
func (e *Engine) measureLoad() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := &e.gate; g.busy > g.few && !g.probing {
		g.probing = true
		go e.probe()
	}
}

// slowDown limits the attempts to half of those in progress, at least g.few, after a lease
// was lost: they may have been too much. The limit also applies to the next incarnation.
func (e *Engine) slowDown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &e.gate
	g.bound = max(g.few, min(g.bound, g.busy)/2)
}

// recover raises the maximum number of attempts a little after a successful renewal.
func (e *Engine) recover() {
	e.mu.Lock()
	g := &e.gate
	if g.bound == g.most {
		e.mu.Unlock()
		return
	}
	g.bound = min(g.most, g.bound+(g.most+recoveries-1)/recoveries)
	e.serve()
}

// unneeded gives back the places that x has and does not need.
func (x *execution) unneeded() {
	for ; x.places > 0; x.places-- {
		x.eng.endAttempt()
	}
}
