package run

import (
	"github.com/weft-go/weft/internal/limits"
	"github.com/weft-go/weft/internal/reconcile"
)

// A permit allows the next attempt of an operation to start, as far as its resource scope
// and the limits of its activity are concerned. It then still needs a place of the gate.
type permit struct {
	*limits.Permit
	op      *operation
	granted bool // as known to the goroutine that executes the run
}

// needs returns what o's next attempt requires.
func (o *operation) needs() (n []limits.Need) {
	if scope := o.call.Scope; scope != "" {
		n = append(n, limits.Need{Of: "scope", Name: scope, Most: 1})
	}
	if most := o.call.Policy.MaxConcurrent; most > 0 {
		n = append(n, limits.Need{Of: "places", Name: o.name, Most: most})
	}
	if r := o.call.Policy.Rate; r.Count > 0 {
		n = append(n, limits.Need{Of: "rate", Name: o.name, Most: r.Count, Per: r.Per})
	}
	return n
}

// permitted reports whether o's next attempt has its permit. If not, it is in line, and a
// permitGiven message follows.
func (x *Execution) permitted(o *operation) bool {
	if o.permit == nil {
		needs := o.needs()
		if needs == nil {
			return true
		}
		p := &permit{op: o}
		p.Permit = limits.New(needs, func() { x.Post(permitGiven{p}) })
		o.permit = p
		x.Ops.permits++
		p.granted = x.host.limits.Ask(p.Permit)
	}
	return o.permit.granted
}

// permitGranted records that p is granted and starts or queues its operation, unless that
// has given p up.
func (x *Execution) permitGranted(p *permit) {
	o := p.op
	if o.permit != p {
		return
	}
	p.granted = true
	if o.keyed != nil {
		x.reconcile(o)
	} else {
		x.Ops.queue(o)
	}
}

// forgo gives back o's permit, or removes it from its line, and o's place.
func (o *operation) forgo() {
	o.x.host.limits.GiveBack(o.takePermit())
	o.leavePlace()
}

// leavePlace leaves o's place, if o has one, to other operations. If o's dispatch is not recorded yet, it is not to be.
func (o *operation) leavePlace() {
	if o.placed {
		o.placed, o.keyed.leaving = false, false
		o.x.places++
	}
}

// stay takes back the dispatches that are not recorded yet. Their places are for others while the run does something else.
func (x *Execution) stay() {
	for _, o := range x.Ops.pending {
		if o.placed && o.keyed.leaving {
			o.leavePlace()
			o.keyed.next = reconcile.Dispatch
			x.Ops.queue(o)
		}
	}
}

// takePermit removes o's permit from o and returns it, or nil if there is none.
func (o *operation) takePermit() *limits.Permit {
	p := o.permit
	if p == nil {
		return nil
	}
	o.permit = nil
	o.x.Ops.permits--
	return p.Permit
}

// enter takes a place for an attempt of x and returns true. If there is none it returns
// false, and x gets one later: see placeGiven.
func (x *Execution) enter() bool {
	if x.places > 0 {
		x.places--
		return true
	}
	if x.host.Gate.Enter(&x.visitor) {
		return true
	}
	x.refused = true
	return false
}

// PlaceGiven tells the driver that it has got a place for an attempt.
func (x *Execution) PlaceGiven() { x.Post(placeGiven{}) }

// unneeded gives back the places that x has and does not need.
func (x *Execution) unneeded() {
	for ; x.places > 0; x.places-- {
		x.host.Gate.Leave()
	}
}
