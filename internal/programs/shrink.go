package programs

import "slices"

// A trial is a program and faults.
type trial struct {
	p     *Program
	blows []Blow
}

// shrink removes as much as it can while fails still reports a failure. It tries at most plays
// trials.
func shrink(c trial, plays int, fails func(trial) bool) trial {
	for {
		smaller := slices.IndexFunc(c.smaller(), func(s trial) bool {
			plays--
			return plays > 0 && fails(s)
		})
		if smaller < 0 {
			return c
		}
		c = c.smaller()[smaller]
	}
}

// smaller returns the trials that have one thing less.
func (c trial) smaller() (all []trial) {
	for i := range c.blows {
		all = append(all, trial{c.p, slices.Delete(slices.Clone(c.blows), i, i+1)})
	}
	add := func(p *Program) { all = append(all, trial{p, c.blows}) }
	for i := range c.p.size() {
		add(c.p.edited(i, func(Op) []Op { return nil }))
		add(c.p.edited(i, func(o Op) []Op { return o.Body }))
	}
	for i := range c.p.size() {
		add(c.p.edited(i, func(o Op) []Op {
			o.For, o.Fails, o.Denied, o.Scope = 0, 0, false, ""
			return []Op{o}
		}))
	}
	if c.p.Cancel > 0 {
		p := *c.p
		p.Cancel, p.Cleanup = 0, nil
		add(&p)
	}
	for _, f := range []func(p *Program){
		func(p *Program) { p.ParkAfter = 0 },
		func(p *Program) { p.MaxRuns = 0 },
		func(p *Program) { p.MaxActivities = 0 },
		func(p *Program) { p.MaxConcurrent = 0 },
		func(p *Program) { p.PerHour = 0 },
	} {
		p := *c.p
		f(&p)
		add(&p)
	}
	return slices.DeleteFunc(all, func(s trial) bool { return s.p != c.p && s.p.String() == c.p.String() })
}

// size returns the number of p's operations.
func (p *Program) size() (n int) {
	walk(p.Main, func(*Op) { n++ })
	return n
}

// edited returns a copy of p with its i-th operation replaced, and with as many signals as it
// can receive.
func (p *Program) edited(i int, by func(Op) []Op) *Program {
	c := *p
	c.Main = edited(p.Main, &i, by)
	left := map[string]int{}
	walk(c.Main, func(o *Op) { left[o.Signal]++ })
	c.Sends = nil
	for _, s := range p.Sends {
		if left[s.Signal]--; left[s.Signal] >= 0 {
			c.Sends = append(c.Sends, s)
		}
	}
	return &c
}

func edited(ops []Op, i *int, by func(Op) []Op) (c []Op) {
	for _, o := range ops {
		here := *i == 0
		*i--
		o.Body = edited(o.Body, i, by)
		if here {
			c = append(c, by(o)...)
			continue
		}
		c = append(c, o)
	}
	return c
}
