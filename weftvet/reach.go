package weftvet

import (
	"maps"
	"slices"
	"strings"
)

// A summary is the fact about a function: what it does wrong if a workflow calls it, and what of
// its parameters goes where.
type summary struct {
	Hazards      []Hazard
	Begins, Sets bool // as of a wrapper
	Steps, Names []int
}

func (*summary) AFact() {}

func (s *summary) String() string {
	return hazardText(s.Hazards, s.Begins, "begins operations")
}

func hazardText(hazards []Hazard, also bool, what string) string {
	var parts []string
	for _, h := range hazards {
		parts = append(parts, code(h.Code).String()+" "+h.What)
	}
	if also {
		parts = append(parts, what)
	}
	return strings.Join(parts, ", ")
}

// A Hazard is the first finding of a code in a function or in what it calls.
type Hazard struct {
	Code          uint8
	What, Why, At string
}

// reach finds out what workflow code calls, collects the findings there, and exports the
// summaries of all functions.
func (c *checker) reach() {
	c.abroad()
	names := map[*function]string{} // a workflow that reaches a function
	mask := map[*function]uint16{}  // the codes that are not suppressed at every call on the way
	var todo []*function
	enter := func(f *function, name string, open uint16) {
		if f == nil || f.kind != free || mask[f]|open == mask[f] {
			return
		}
		mask[f] |= open
		if names[f] == "" {
			names[f] = name
		}
		todo = append(todo, f)
	}
	const all = 1<<(codes+1) - 1
	for _, f := range c.all {
		if f.kind == workflow {
			mask[f], names[f] = all, f.name
			todo = append(todo, f)
		}
	}
	for _, key := range c.keys {
		enter(c.functions[key], "a key of an activity", all)
	}
	for len(todo) > 0 {
		f := todo[0]
		todo = todo[1:]
		for _, call := range f.calls {
			if !call.given {
				enter(c.functions[call.fn], names[f], mask[f]&^c.suppressed(call))
			}
		}
	}
	for _, f := range c.all {
		for _, x := range f.faults {
			switch {
			case !x.scoped:
				c.found = append(c.found, finding{x.pos, x.code, x.what + ": " + x.why})
			case f.kind == workflow:
				c.found = append(c.found, finding{x.pos, x.code, x.what + " in workflow code: " + x.why})
			case mask[f]&(1<<x.code) != 0:
				c.found = append(c.found, finding{x.pos, x.code, x.what + " in workflow code (" + names[f] + " calls " + f.name + "): " + x.why})
			}
		}
	}
	c.export()
}

func (c *checker) suppressed(x call) (mask uint16) {
	for k := code(1); k <= codes; k++ {
		if c.isIgnored(k, x.pos) {
			mask |= 1 << k
		}
	}
	return mask
}

// abroad makes a fault of each call of a function in another package that has hazards.
func (c *checker) abroad() {
	for _, f := range c.all {
		if f.kind != workflow && f.kind != free {
			continue
		}
		for _, call := range f.calls {
			if call.given || call.fn.Pkg() == c.pass.Pkg {
				continue
			}
			var s summary
			if !c.pass.ImportObjectFact(call.fn, &s) {
				continue
			}
			for _, h := range s.Hazards {
				c.add(f, fault{code: code(h.Code), pos: call.pos, scoped: true, from: &h,
					what: nameOf(call.fn, c.pass.Pkg) + ", which uses " + strings.TrimSuffix(h.What, ",") + " (" + h.At + "),", why: h.Why})
			}
		}
	}
}

// hazard is a fault for other packages.
func (c *checker) hazard(x fault) Hazard {
	if x.from != nil {
		return *x.from
	}
	return Hazard{uint8(x.code), x.what, x.why, c.place(x.pos)}
}

// export writes the summaries. They grow along the calls until nothing is new: a function has
// at most one hazard of each code.
func (c *checker) export() {
	hazards := map[*function]map[code]Hazard{}
	for _, f := range c.functions {
		own := map[code]Hazard{}
		for _, x := range f.faults {
			if _, ok := own[x.code]; ok || !x.scoped || f.kind != free {
				continue
			}
			own[x.code] = c.hazard(x)
		}
		hazards[f] = own
	}
	for changed := true; changed; {
		changed = false
		for _, f := range c.all { // in the order of the source, so that facts are always the same
			if f.fn == nil || f.kind != free {
				continue
			}
			for _, call := range f.calls {
				g := c.functions[call.fn]
				if g == nil || g == f || call.given {
					continue
				}
				suppressed := c.suppressed(call)
				for _, k := range slices.Sorted(maps.Keys(hazards[g])) {
					if _, ok := hazards[f][k]; !ok && suppressed&(1<<k) == 0 {
						hazards[f][k] = hazards[g][k]
						changed = true
					}
				}
			}
		}
	}
	for fn, f := range c.functions {
		s := &summary{}
		for _, k := range slices.Sorted(maps.Keys(hazards[f])) {
			s.Hazards = append(s.Hazards, hazards[f][k])
		}
		if w := c.wrappers[fn]; w != nil {
			s.Begins, s.Sets = w.begins, w.sets
			s.Steps, s.Names = slices.Sorted(maps.Keys(w.steps)), slices.Sorted(maps.Keys(w.names))
		}
		if len(s.Hazards) > 0 || s.Sets || takesRun(fn.Signature()) {
			c.pass.ExportObjectFact(fn, s)
		}
	}
}
