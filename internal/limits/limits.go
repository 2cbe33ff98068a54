// Package limits controls when attempts of activities may start: it limits how many run at a
// time, how many start within a period, and which may act on the same thing, one at a time
// ([Limits]). A [Gate] limits how many run at a time in all.
package limits

import (
	"container/list"
	"sync"
	"time"
)

// A Permit allows one attempt to start once all its needs are met. They are met one after the
// other, and those already met are kept meanwhile. All permits have their needs in the same
// order, so there is no deadlock. A scope comes before the limits of the activity: otherwise
// calls that wait for a busy scope would keep places of the activity from calls that could
// start.
type Permit struct {
	tell func() // reports that the permit is granted

	// The fields below are guarded by Limits.mu.
	needs []need
	got   int           // number of needs that are met
	place *list.Element // position in the line for the next need; nil if in none
}

// A Need is what one permit requires of one limit.
type Need struct {
	Of, Name string        // what is limited
	Most     int           // at a time, or within each Per
	Per      time.Duration // zero: a place is occupied until GiveBack
}

type need struct {
	Need
	*limit // nil: not reached yet
}

// New returns a permit for needs, none of which is met yet. They are met in order; only the
// last may be a rate, with a Per. If the permit had to wait, tell is called when it is granted,
// on another goroutine and without a lock.
func New(needs []Need, tell func()) *Permit {
	p := &Permit{tell: tell}
	for _, n := range needs {
		p.needs = append(p.needs, need{Need: n})
	}
	return p
}

// Limits are the limits of one engine's attempts. The zero value is ready for use.
type Limits struct {
	mu     sync.Mutex // guards the fields below and all limits
	byName map[limitName]*limit
}

type limitName struct{ of, name string }

// A limit grants its places to permits in the order of their arrival.
type limit struct {
	line list.List // of *Permit
	held int       // permits that have a place; for a rate: those whose attempt has not begun

	// For rates only.
	begun []time.Time // start times of attempts that still count
	timer *time.Timer // fires when the first in line may proceed
}

// Ask grants p, or puts it into a line, and reports whether it was granted.
func (l *Limits) Ask(p *Permit) (granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.advance(p)
}

// Begin records that p's attempt starts now. p may be nil.
func (l *Limits) Begin(p *Permit) {
	if p == nil {
		return
	}
	l.mu.Lock()
	var granted []*Permit
	if last := len(p.needs) - 1; p.needs[last].Per > 0 {
		rate := p.needs[last].limit
		rate.held--
		rate.begun = append(rate.begun, time.Now())
		p.needs, p.got = p.needs[:last], last
		granted = l.serve(rate)
	}
	l.mu.Unlock()
	announce(granted)
}

// GiveBack releases the places of p, or removes it from its line. p may be nil.
func (l *Limits) GiveBack(p *Permit) {
	if p == nil {
		return
	}
	l.mu.Lock()
	var granted []*Permit
	if p.place != nil {
		n := &p.needs[p.got]
		n.line.Remove(p.place)
		p.place = nil
		granted = l.serve(n.limit)
		l.forget(n)
	}
	for i := range p.needs[:p.got] {
		n := &p.needs[i]
		n.held--
		granted = append(granted, l.serve(n.limit)...)
		l.forget(n)
	}
	p.needs, p.got = nil, 0
	l.mu.Unlock()
	announce(granted)
}

// announce tells the owners of permits that they are granted.
func announce(granted []*Permit) {
	for _, p := range granted {
		p.tell()
	}
}

// advance meets as many needs of p as possible, and reports whether all are met.
func (l *Limits) advance(p *Permit) bool {
	for ; p.got < len(p.needs); p.got++ {
		n := &p.needs[p.got]
		n.limit = l.limit(limitName{n.Of, n.Name})
		first := n.line.Len() == 0
		if !first || !n.open() {
			p.place = n.line.PushBack(p)
			if first {
				l.await(n)
			}
			return false
		}
		n.held++
	}
	return true
}

// serve grants places of a limit to the permits in line, and returns those that are now granted
// completely.
func (l *Limits) serve(at *limit) (granted []*Permit) {
	for at.line.Len() > 0 {
		p := at.line.Front().Value.(*Permit)
		n := &p.needs[p.got]
		if !n.open() {
			l.await(n)
			break
		}
		at.line.Remove(p.place)
		p.place = nil
		at.held++
		p.got++
		if l.advance(p) {
			granted = append(granted, p)
		}
	}
	return granted
}

// open reports whether another permit can get a place.
func (n *need) open() bool {
	now := time.Now()
	for len(n.begun) > 0 && now.Sub(n.begun[0]) >= n.Per {
		n.begun = n.begun[1:]
	}
	return n.held+len(n.begun) < n.Most
}

// await starts a timer for when the rate allows the first in line to proceed. If that depends on
// other permits to begin or be given back, those calls serve the line.
func (l *Limits) await(n *need) {
	at := n.limit
	at.rest()
	i := at.held + len(at.begun) - n.Most // index of the start that must expire first
	if i >= len(at.begun) {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(n.Per-time.Since(at.begun[i]), func() {
		var granted []*Permit
		l.mu.Lock()
		if at.timer == t {
			at.timer = nil
			granted = l.serve(at)
		}
		l.mu.Unlock()
		announce(granted)
	})
	at.timer = t
}

// rest stops the timer.
func (at *limit) rest() {
	if at.timer != nil {
		at.timer.Stop()
		at.timer = nil
	}
}

func (l *Limits) limit(name limitName) *limit {
	at := l.byName[name]
	if at == nil {
		if l.byName == nil {
			l.byName = map[limitName]*limit{}
		}
		at = &limit{}
		l.byName[name] = at
	}
	return at
}

// forget removes a limit that nobody waits for or occupies.
func (l *Limits) forget(n *need) {
	at := n.limit
	if at.line.Len() > 0 {
		return
	}
	at.rest()
	if name := (limitName{n.Of, n.Name}); at.held+len(at.begun) == 0 && l.byName[name] == at {
		delete(l.byName, name)
	}
}
