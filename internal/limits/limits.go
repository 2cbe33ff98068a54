// Package limits lets attempts of activities begin: so many at a time, so many in a span of
// time, one at a time for each thing that they act on.
package limits

import (
	"container/list"
	"sync"
	"time"
)

// A Permit lets one attempt begin, as far as its needs go. It is got at one limit after the
// other, and what was got is kept meanwhile. Needs are always in the same order, so nobody
// waits in a circle: a scope comes before what belongs to the activity, or calls of a busy
// scope would keep places of the activity from those that could go on.
type Permit struct {
	tell func() // that it is granted

	// What follows is guarded by Limits.mu.
	needs []need
	got   int           // so many of them
	place *list.Element // in the line for the next one; nil: it is in none
}

// A Need is what one limit must let through for one permit.
type Need struct {
	Of, Name string        // what is limited
	Most     int           // at a time, or in each Per
	Per      time.Duration // zero: a place is held until it is given back
}

type need struct {
	Need
	*limit // nil: it was not come to
}

// New returns a permit that has nothing yet. Its needs are met in their order; only the
// last may be a rate, with a Per. tell is called by another goroutine, without a lock, when
// a permit is granted that had to wait.
func New(needs []Need, tell func()) *Permit {
	p := &Permit{tell: tell}
	for _, n := range needs {
		p.needs = append(p.needs, need{Need: n})
	}
	return p
}

// Limits are those of the attempts of one engine. The zero value is ready.
type Limits struct {
	mu     sync.Mutex // guards what follows, and every limit
	byName map[limitName]*limit
}

type limitName struct{ of, name string }

// A limit lets permits through: first come, first served.
type limit struct {
	line list.List // of *Permit
	held int       // that came through and were not given back; of a rate: and have not begun

	// Of a rate.
	begun []time.Time // when attempts did that still count
	timer *time.Timer // for when the first in line may come through
}

// Ask gets p what it needs, or puts it into line, and says which.
func (l *Limits) Ask(p *Permit) (granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.advance(p)
}

// Begin notes that p's attempt begins now. A nil p is none.
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

// GiveBack lets others have what p has got, or its place in line. A nil p is none.
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

// advance takes p as far as it comes, and says whether it has all.
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

// serve lets through who may, and returns those that have all now.
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

// open says that one more may come through.
func (n *need) open() bool {
	now := time.Now()
	for len(n.begun) > 0 && now.Sub(n.begun[0]) >= n.Per {
		n.begun = n.begun[1:]
	}
	return n.held+len(n.begun) < n.Most
}

// await has the first in line looked at again when its rate lets it through. Where
// others must begin or give back before that, they look.
func (l *Limits) await(n *need) {
	at := n.limit
	at.rest()
	i := at.held + len(at.begun) - n.Most // this one must be over
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

// forget drops a limit for which nobody is in line, and which nobody holds.
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
