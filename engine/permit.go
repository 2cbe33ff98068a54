package engine

import "github.com/weft-go/weft/internal/limits"

// A permit lets the next attempt of an operation begin, as far as its scope and the limits
// of its activity go; room among MaxActivities comes after it.
type permit struct {
	*limits.Permit
	op      *operation
	granted bool // as the driver knows
}

// needs are what o's next attempt must have.
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

// permitted says that o's next attempt may begin when there is room. If not, it
// is in line, and a post tells.
func (x *execution) permitted(o *operation) bool {
	if o.permit == nil {
		needs := o.needs()
		if needs == nil {
			return true
		}
		p := &permit{op: o}
		p.Permit = limits.New(needs, func() { x.post(permitGiven{p}) })
		o.permit = p
		x.ops.permits++
		p.granted = x.eng.limits.Ask(p.Permit)
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
func (o *operation) forgo() { o.x.eng.limits.GiveBack(o.takePermit()) }

// takePermit is o's permit, which it has no more. It is nil if there is none.
func (o *operation) takePermit() *limits.Permit {
	p := o.permit
	if p == nil {
		return nil
	}
	o.permit = nil
	o.x.ops.permits--
	return p.Permit
}
