package engine

import (
	"runtime"
	"time"
)

// A gate lets attempts begin: so many at a time, and no more than the processors can
// bear. Executions that found it closed are given a place when there is one, in the order
// in which they came. So a place is free, or an attempt has it, or an execution that will
// use it or give it back.
//
// Go has no priorities. Attempts that compute take their turns with all else of the
// process, a renewal of the lease too, and whatever waits for the network or the disk
// waits for a turn of each of them. So a few may be under way without a question; beyond
// that, as many begin as are few, and then the gate measures how long a goroutine waits
// for its turn. An attempt that waits for something outside does not delay that, and the
// next begin at once, and more of them each time. Where it takes too long, nothing more
// begins until it does not.
type gate struct {
	most     int           // MaxActivities
	few      int           // may be under way whatever is measured
	tooLate  time.Duration // a turn
	bound    int           // of those under way: most, or less after a lease was lost
	busy     int           // places that are taken
	lot      int           // so many begin after a turn that was in time
	credit   int           // how many of them have not
	waiting  []*execution
	probing  bool      // a turn is being measured, or will be
	trickled time.Time // when one began although turns were late
	told     time.Time // when people were
}

const (
	// fewPerProcessor attempts that compute have a turn come round in less than
	// tooLate: the scheduler takes a processor away after 10 to 20 ms.
	fewPerProcessor = 4

	// tooLate is the time in which a turn should come, or the hundredth part of a
	// lease if that is shorter: a renewal needs a handful of them.
	tooLate = 100 * time.Millisecond

	// mostLots is how many times a few begin at most between two measurements, while
	// turns come that much sooner than they must.
	mostLots = 16

	// patienceWithLoad is after how many late turns one attempt begins all the same.
	// Others than the engine may keep the processors busy, and for days.
	patienceWithLoad = 20

	// recoveries is after how many renewals as much is under way again as before a
	// lease was lost.
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

// take takes a place, if there is one.
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

// measured takes in how late a turn was, and returns after what time the next is to be
// measured, if it was too late.
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

// enter takes one place, or has x given one later.
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

// leave gives a place to the next that waits for one.
func (e *Engine) leave() {
	e.mu.Lock()
	e.gate.busy--
	e.serve()
}

// serve gives places to those that wait, and has a turn measured if that is all they wait
// for. The caller has e.mu, and has it no more when serve returns.
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

// lives says that e runs and is not closed. The caller has e.mu.
func (e *Engine) lives() bool { return e.life != nil && !e.closed }

// probe measures how long a goroutine waits for its turn. It goes to the end of the
// line in which one that comes back from the network stands. A late turn is measured
// again only while the engine runs and its attempts may be the reason, or wait.
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
	busy, waiting, l := g.busy, len(g.waiting), e.life
	e.serve()
	if !again {
		return
	}
	time.AfterFunc(pause, e.probe)
	l.hurryUp()
	if tell {
		e.log.Warn("weft: goroutines wait long for a processor; activities begin more slowly", "delay", late, "under way", busy, "workflows that wait", waiting)
	}
}

// measureLoad has a turn measured while more than a few attempts are under way: they may
// have waited until now, and compute.
func (e *Engine) measureLoad() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := &e.gate; g.busy > g.few && !g.probing {
		g.probing = true
		go e.probe()
	}
}

// slowDown has less under way after a lease was lost: half of what was. What begins again
// in the next life was perhaps too much for this one.
func (e *Engine) slowDown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &e.gate
	g.bound = max(g.few, min(g.bound, g.busy)/2)
}

// recover has a little more under way, as long as renewals are in time.
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

// unneeded gives back the places that x was given and has no use for.
func (x *execution) unneeded() {
	for ; x.places > 0; x.places-- {
		x.eng.leave()
	}
}
