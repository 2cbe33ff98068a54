package engine

import (
	"container/list"
	"sync"
	"time"
)

// A permit lets one attempt begin, as far as its scope and the limits of its
// activity go; room among MaxActivities comes after it. Who waits for one is an
// entry in a line and no more.
//
// It is got at one limit after the other, and what was got is kept meanwhile. All
// meet the limits in the same order, so nobody waits in a circle. The scope is the
// first: the other way round, calls of a busy scope would keep places of the
// activity from those that could go on.
type permit struct {
	op      *operation
	granted bool // as o's driver knows

	// What follows is guarded by limits.mu.
	needs []need        // in their order
	got   int           // so many of them
	place *list.Element // in the line for the next one; nil: it is in none
}

// A need is a limit, and what that lets through for one permit.
type need struct {
	name   limitName
	most   int           // at a time, or in each per
	per    time.Duration // zero: it is held until it is given back
	*limit               // nil: it was not come to
}

// A limitName says what is limited: a scope, or what of an activity.
type limitName struct{ of, name string }

// limits are those of an engine's attempts.
type limits struct {
	mu     sync.Mutex // guards what follows, and every limit
	byName map[limitName]*limit
}

// A limit lets permits through: first come, first served.
type limit struct {
	line list.List // of *permit
	held int       // that came through and were not given back; of a rate: and have not begun

	// Of a rate.
	begun []time.Time // when attempts did that still count
	timer *time.Timer // for when the first in line may come through
}

// needs are what o's next attempt must have.
func (o *operation) needs() (n []need) {
	if scope := o.call.Scope; scope != "" {
		n = append(n, need{name: limitName{"scope", scope}, most: 1})
	}
	if most := o.call.Policy.MaxConcurrent; most > 0 {
		n = append(n, need{name: limitName{"places", o.name}, most: most})
	}
	if r := o.call.Policy.Rate; r.Count > 0 {
		n = append(n, need{name: limitName{"rate", o.name}, most: r.Count, per: r.Per})
	}
	return n
}

// permitted says that o's next attempt may begin when there is room. If not, it
// is in line, and a post tells.
func (x *execution) permitted(o *operation) bool {
	if o.permit == nil {
		needs := o.needs()
		if needs == nil {
			return true
		}
		o.permit = &permit{op: o, needs: needs}
		x.ops.permits++
		o.permit.granted = x.eng.limits.ask(o.permit)
	}
	return o.permit.granted
}

// permitGranted takes in that p is, if o still asks for it.
func (x *execution) permitGranted(p *permit) {
	o := p.op
	if o.permit != p {
		return
	}
	p.granted = true
	if o.keyed != nil {
		x.reconcile(o)
	} else {
		x.ops.queued = append(x.ops.queued, o)
	}
}

// forgo gives back o's permit, or its place in line.
func (o *operation) forgo() { o.x.eng.limits.giveBack(o.takePermit()) }

// takePermit is o's permit, which it has no more. It is nil if there is none.
func (o *operation) takePermit() *permit {
	p := o.permit
	if p != nil {
		o.permit = nil
		o.x.ops.permits--
	}
	return p
}

// ask gets p what it needs, or puts it into line, and says which.
func (l *limits) ask(p *permit) (granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.advance(p)
}

// begin notes that p's attempt begins now. A nil p is none.
func (l *limits) begin(p *permit) {
	if p == nil {
		return
	}
	l.mu.Lock()
	var granted []*permit
	if last := len(p.needs) - 1; p.needs[last].per > 0 {
		rate := p.needs[last].limit
		rate.held--
		rate.begun = append(rate.begun, time.Now())
		p.needs, p.got = p.needs[:last], last
		granted = l.serve(rate)
	}
	l.mu.Unlock()
	announce(granted)
}

// giveBack lets others have what p has got, or its place in line. A nil p is none.
func (l *limits) giveBack(p *permit) {
	if p == nil {
		return
	}
	l.mu.Lock()
	var granted []*permit
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

// announce tells the drivers of permits that they are granted.
func announce(granted []*permit) {
	for _, p := range granted {
		p.op.x.post(post{permit: p})
	}
}

// advance takes p as far as it comes, and says whether it has all.
func (l *limits) advance(p *permit) bool {
	for ; p.got < len(p.needs); p.got++ {
		n := &p.needs[p.got]
		n.limit = l.limit(n.name)
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
func (l *limits) serve(at *limit) (granted []*permit) {
	for at.line.Len() > 0 {
		p := at.line.Front().Value.(*permit)
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
	for len(n.begun) > 0 && now.Sub(n.begun[0]) >= n.per {
		n.begun = n.begun[1:]
	}
	return n.held+len(n.begun) < n.most
}

// await has the first in line looked at again when its rate lets it through. Where
// others must begin or give back before that, they look.
func (l *limits) await(n *need) {
	at := n.limit
	at.rest()
	i := at.held + len(at.begun) - n.most // this one must be over
	if i >= len(at.begun) {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(n.per-time.Since(at.begun[i]), func() {
		var granted []*permit
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

func (l *limits) limit(name limitName) *limit {
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
func (l *limits) forget(n *need) {
	at := n.limit
	if at.line.Len() > 0 {
		return
	}
	at.rest()
	if at.held+len(at.begun) == 0 && l.byName[n.name] == at {
		delete(l.byName, n.name)
	}
}
