package enginetest

import (
	"fmt"
	"strings"
)

// A report is what a sweep has found: each kind of problem once, at the first place
// where it occurs, preferably at a step of a workflow.
type report struct {
	plays, calls int
	entries      []*entry
	known        map[string]*entry
}

// An entry is a problem, and where it was found.
type entry struct {
	finding
	places []place
}

func (r *report) empty() bool { return len(r.entries) == 0 }

func (r *report) add(at place, fs []finding) {
	if r.known == nil {
		r.known = map[string]*entry{}
	}
	for _, f := range fs {
		e := r.known[f.about]
		if e == nil {
			e = &entry{finding: f}
			r.known[f.about] = e
			r.entries = append(r.entries, e)
		}
		switch n := len(e.places); {
		case n > 0 && e.places[n-1] == at:
		case n > 0 && at.telling && !e.places[0].telling:
			e.finding, e.places = f, append([]place{at}, e.places...)
		default:
			e.places = append(e.places, at)
		}
	}
}

// mostPlaces is how many further places of one problem are named.
const mostPlaces = 3

// String is the report as a test prints it; empty if there is nothing to report.
func (r *report) String() string {
	var b strings.Builder
	heading := ""
	for _, e := range r.entries {
		if e.places[0].words != heading {
			heading = e.places[0].words
			fmt.Fprintf(&b, "\n%s:\n", heading)
		}
		for _, l := range e.lines {
			fmt.Fprintf(&b, "    %s\n", l)
		}
		more := e.places[1:]
		if len(more) > 0 {
			fmt.Fprintf(&b, "    Likewise at %s:\n", counted(len(more)))
		}
		for i, p := range more {
			if i == mostPlaces {
				b.WriteString("        ...\n")
				break
			}
			fmt.Fprintf(&b, "        %s\n", p.words)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func counted(n int) string {
	if n == 1 {
		return "one other place"
	}
	return fmt.Sprintf("%d other places", n)
}
