package limits

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/weft-go/weft/internal/lock"
)

// A Gate limits how many attempts run at a time: to a maximum, and to what the
// processors can run without delaying everything else. A Visitor that finds no place gets
// one later, in the order of arrival. So each place is free, or taken by an attempt, or
// reserved for a Visitor that will use it or give it back.
//
// Go has no goroutine priorities. Attempts that compute compete for processors with
// everything else in the process, including the lease renewal. A goroutine that returns from
// the network or the disk is scheduled after them. So the gate measures the scheduling delay:
// how long a runnable goroutine waits for a processor. A few attempts may always run. Beyond
// that the gate starts that many more, then measures. Attempts that wait for something
// outside do not cause a delay, so the next start immediately, and more of them each time.
// If the delay is too long, none start until it is short again.
type Gate struct {
	log *slog.Logger

	mu lock.Mutex // guards what follows
	places
	hurry   func() // renews the lease early; nil: no engine runs
	waiting []*Visitor
	probing bool      // a measurement is in progress or scheduled
	told    time.Time // when the delay was last logged
}

// A Visitor waits at a gate on behalf of somebody, such as an execution.
type Visitor struct {
	For interface {
		// PlaceGiven is called when there is a place for which the visitor has waited, on
		// any goroutine and without a lock.
		PlaceGiven()
	}

	waits bool // guarded by Gate.mu
}

// places decides whether an attempt may start. It measures nothing itself.
type places struct {
	most     int           // attempts at a time
	few      int           // number of attempts that may run whatever the delay is
	tooLate  time.Duration // delays above this are too long
	bound    int           // maximum number of attempts: most, or fewer after a lease was lost
	busy     int           // places that are taken
	lot      int           // number of attempts that may start after an acceptable delay
	credit   int           // number of these that have not started yet
	trickled time.Time     // when an attempt was last allowed to start despite the delay
}

const (
	// fewPerProcessor attempts that compute cause a delay of less than tooLate, because
	// the scheduler preempts a goroutine after 10 to 20 ms.
	fewPerProcessor = 4

	// tooLate is the longest acceptable scheduling delay, unless a hundredth of the time
	// that a lease lasts
	// is shorter. A renewal waits for a processor a handful of times.
	tooLate = 100 * time.Millisecond

	// mostLots limits how many attempts start between two measurements, as a multiple of
	// places.few. More than places.few start only while delays are at most tooLate/mostLots.
	mostLots = 16

	// patienceWithLoad is how many delays pass until one attempt starts although they are
	// too long. Other programs may keep the processors busy for days.
	patienceWithLoad = 20

	// recoveries is the number of lease renewals after which the maximum number of
	// attempts is again what it was, after a lease was lost.
	recoveries = 20
)

// newPlaces returns places for most attempts, of which few may run whatever the delay is.
func newPlaces(few, most int, tooLate time.Duration) places {
	return places{most: most, few: min(few, most), bound: most, tooLate: tooLate}
}

// take takes a place, and reports whether there was one.
func (p *places) take() bool {
	switch {
	case p.busy >= p.bound:
		return false
	case p.busy < p.few:
	case p.credit > 0:
		p.credit--
	default:
		return false
	}
	p.busy++
	return true
}

// measured processes a measured delay. If it was too long, it returns the pause until the
// next measurement, otherwise 0.
func (p *places) measured(late time.Duration, now time.Time) (pause time.Duration) {
	if late <= p.tooLate {
		p.lot = max(p.few, min(2*p.lot, mostLots*p.few))
		if late > p.tooLate/mostLots || p.credit > 0 {
			p.lot = p.few
		}
		p.credit = p.lot
		return 0
	}
	p.lot, p.credit = p.few, 0
	if now.Sub(p.trickled) > patienceWithLoad*late {
		p.credit, p.trickled = 1, now
	}
	return min(late, time.Second)
}

// NewGate returns a gate for most attempts at a time, in an engine whose leases last ttl. It
// measures nothing until Open is called.
func NewGate(most int, ttl time.Duration, log *slog.Logger) *Gate {
	return &Gate{log: log, places: newPlaces(fewPerProcessor*runtime.GOMAXPROCS(0), most, min(tooLate, ttl/100))}
}

// Open allows the gate to measure delays. It calls hurry when they are too long.
func (g *Gate) Open(hurry func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hurry = hurry
}

// Shut has the gate measure nothing any more. Places are given as before.
func (g *Gate) Shut() { g.Open(nil) }

// Enter takes a place for v and returns true. If there is none it returns false, and v gets
// one later.
func (g *Gate) Enter(v *Visitor) bool {
	g.mu.Lock()
	if g.take() {
		g.mu.Unlock()
		return true
	}
	if !v.waits {
		v.waits = true
		g.waiting = append(g.waiting, v)
	}
	g.serve()
	return false
}

// Leave frees a place and gives it to the next visitor that waits.
func (g *Gate) Leave() {
	g.mu.Lock()
	g.busy--
	g.serve()
}

// serve gives places to waiting visitors, and starts a measurement if they wait only for
// that. The caller holds g.mu, and serve unlocks it.
func (g *Gate) serve() {
	var served []*Visitor
	for len(g.waiting) > 0 && g.take() {
		v := g.waiting[0]
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
		v.waits = false
		served = append(served, v)
	}
	probe := len(g.waiting) > 0 && g.busy < g.bound && !g.probing && g.hurry != nil
	g.probing = g.probing || probe
	g.mu.Unlock()
	for _, v := range served {
		v.For.PlaceGiven()
	}
	if probe {
		go g.probe()
	}
}

// probe measures the scheduling delay. It yields its processor and so joins the end of the
// run queue, like a goroutine that returns from the network. If the delay is too long, it
// measures again, but only while the gate is open and has attempts that wait or may be the
// cause.
func (g *Gate) probe() {
	left := time.Now()
	runtime.Gosched()
	now := time.Now()
	late := now.Sub(left)
	g.mu.Lock()
	pause := g.measured(late, now)
	g.probing = pause > 0 && g.hurry != nil && (len(g.waiting) > 0 || g.busy > g.few)
	again := g.probing
	tell := again && now.Sub(g.told) > time.Minute
	if tell {
		g.told = now
	}
	busy, waiting, hurry := g.busy, len(g.waiting), g.hurry
	g.serve()
	if !again {
		return
	}
	time.AfterFunc(pause, g.probe)
	hurry()
	if tell {
		g.log.Warn("weft: goroutines wait long for a processor; activities start more slowly", "delay", late, "attempts", busy, "waiting", waiting)
	}
}

// MeasureLoad starts a measurement if more than a few attempts are in progress. They may
// have waited so far and compute now.
func (g *Gate) MeasureLoad() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy > g.few && !g.probing {
		g.probing = true
		go g.probe()
	}
}

// SlowDown limits the attempts to half of those in progress, but allows a few, after a lease
// was lost: they may have been too much. The limit stays until Recover has raised it.
func (g *Gate) SlowDown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bound = max(g.few, min(g.bound, g.busy)/2)
}

// Recover raises the maximum number of attempts a little after a successful renewal.
func (g *Gate) Recover() {
	g.mu.Lock()
	if g.bound == g.most {
		g.mu.Unlock()
		return
	}
	g.bound = min(g.most, g.bound+(g.most+recoveries-1)/recoveries)
	g.serve()
}
