// Package programs makes random workflows, kills them at random points, and checks
// that they come to the same as when nobody kills them.
//
// A program is data: a tree of operations that a workflow function interprets. It
// notes each thing that it sees, with the time and a random number of its run, so
// that its lives can be compared: what one life has seen, the next one sees in the
// same order, and so does a replay of the history when all is over. What a program
// returns does not depend on who was faster, so that it is the same in every play.
package programs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
)

// A Kind is what an operation of a program does.
type Kind string

const (
	Step    Kind = "step"    // inline
	Do      Kind = "do"      // an activity, and wait for it
	Go      Kind = "go"      // an activity, without waiting
	Branch  Kind = "branch"  // a branch with a Body, without waiting
	Child   Kind = "child"   // a workflow with a Body, without waiting
	Detach  Kind = "detach"  // a workflow with a Body, and never waited for
	Get     Kind = "get"     // the outcome of what was begun first and is not got
	All     Kind = "all"     // the outcomes of all that was begun and is not got
	Select  Kind = "select"  // among these, a signal, a timer and the request to stop
	Map     Kind = "map"     // a step for each of a few elements
	Sleep   Kind = "sleep"   // for For
	Receive Kind = "receive" // a signal
	Within  Kind = "within"  // a signal, for at most For
	Timeout Kind = "timeout" // a Body that has For
	Revoke  Kind = "revoke"  // a Body that is cancelled in its middle
	Shield  Kind = "shield"  // a Body that goes on when the workflow is cancelled
	Fail    Kind = "fail"    // ends a branch or a workflow with an error
	Leave   Kind = "leave"   // ends the function with what is under way
)

// An Op is one operation of a program.
type Op struct {
	Kind   Kind
	V      int           // names it among all; its result
	For    time.Duration // how long it takes or waits
	Fails  int           // attempts of an activity
	Denied bool          // an activity that fails for good
	Key    Keyed         // of an activity
	Scope  string        // likewise
	Signal string        // its name; "" for none
	OnEnd  engine.ParentEnd
	Body   []Op
}

// Keyed says what an activity does about an attempt of unknown fate.
type Keyed string

const (
	Unkeyed    Keyed = ""           // attempts it again
	Idempotent Keyed = "idempotent" // likewise, with the same key
	Verified   Keyed = "verified"   // asks
)

// A Send is a signal of the client's.
type Send struct {
	Signal string
	V      int
	Pause  time.Duration // before it
}

// A Program is a workflow, and what its client does.
type Program struct {
	Main    []Op
	Sends   []Send
	Cancel  time.Duration // after the last Send; 0: never
	Cleanup []Op          // when it is cancelled
	Finish  bool          // when it is cancelled it completes

	// Of the engines, when the program is struck.
	ParkAfter              time.Duration
	MaxRuns, MaxActivities int

	// Of its activities.
	MaxConcurrent, PerHour int
}

// walk calls f for each operation below ops.
func walk(ops []Op, f func(*Op)) {
	for i := range ops {
		f(&ops[i])
		walk(ops[i].Body, f)
	}
}

// has says whether p has an operation of one of the kinds.
func (p *Program) has(kinds ...Kind) (found bool) {
	walk(p.Main, func(o *Op) { found = found || slices.Contains(kinds, o.Kind) })
	return found
}

// find returns the operation that V names.
func (p *Program) find(v int) (found Op) {
	walk(p.Main, func(o *Op) {
		if o.V == v {
			found = *o
		}
	})
	return found
}

// open says that what p comes to depends on when it is told to stop.
func (p *Program) open() bool { return p.Cancel > 0 || p.has(Leave) }

// cuts says that p may give up operations, by who is faster, and so has not the
// same ones in every play.
func (p *Program) cuts() bool { return p.open() || p.has(Timeout, Revoke) }

// String is p in lines.
func (p *Program) String() string {
	var b strings.Builder
	list(&b, "    ", p.Main)
	for _, s := range p.Sends {
		fmt.Fprintf(&b, "    client: after %v signal %s: %d\n", s.Pause, s.Signal, s.V)
	}
	if p.Cancel > 0 {
		fmt.Fprintf(&b, "    client: after %v cancel\n", p.Cancel)
		b.WriteString("    when cancelled:\n")
		list(&b, "        ", p.Cleanup)
		fmt.Fprintf(&b, "        finish: %v\n", p.Finish)
	}
	if p.ParkAfter != 0 || p.MaxRuns != 0 || p.MaxActivities != 0 {
		fmt.Fprintf(&b, "    engine: ParkAfter %v, MaxRuns %d, MaxActivities %d\n", p.ParkAfter, p.MaxRuns, p.MaxActivities)
	}
	if p.MaxConcurrent != 0 || p.PerHour != 0 {
		fmt.Fprintf(&b, "    activities: %d at a time, %d an hour\n", p.MaxConcurrent, p.PerHour)
	}
	return b.String()
}

func list(b *strings.Builder, indent string, ops []Op) {
	for _, o := range ops {
		fmt.Fprintf(b, "%s%d %s", indent, o.V, o.Kind)
		if o.For > 0 {
			fmt.Fprintf(b, " %v", o.For)
		}
		if o.Signal != "" {
			fmt.Fprintf(b, " signal %s", o.Signal)
		}
		if o.Fails > 0 {
			fmt.Fprintf(b, " fails %d times", o.Fails)
		}
		if o.Key != Unkeyed {
			fmt.Fprintf(b, " %s", o.Key)
		}
		if o.Scope != "" {
			fmt.Fprintf(b, " scope %s", o.Scope)
		}
		if o.Denied {
			b.WriteString(" is denied")
		}
		if o.OnEnd != engine.CancelChild {
			fmt.Fprintf(b, " on parent's end %d", o.OnEnd)
		}
		b.WriteString("\n")
		list(b, indent+"    ", o.Body)
	}
}
