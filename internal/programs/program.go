// Package programs generates random workflows, kills them at random points, and checks that they
// have the same results as without kills.
//
// A program is data: a tree of operations that a workflow function interprets. The function
// records everything that it sees, with the time and a random number of its run. A later call of
// the function must see the same things in the same order as an earlier one, and so must a
// replay of the history at the end. The result of a program does not depend on timing, so it is
// the same in every run.
package programs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
)

// A Kind is the kind of an operation of a program.
type Kind string

const (
	Step    Kind = "step"    // inline
	Do      Kind = "do"      // an activity, and wait for it
	Go      Kind = "go"      // an activity, without waiting
	Branch  Kind = "branch"  // a branch with a Body, without waiting
	Child   Kind = "child"   // a workflow with a Body, without waiting
	Detach  Kind = "detach"  // a workflow with a Body that is never waited for
	Get     Kind = "get"     // wait for the oldest pending operation
	All     Kind = "all"     // wait for all pending operations
	Select  Kind = "select"  // among these, a signal, a timer and the cancellation request
	Map     Kind = "map"     // a step for each of a few elements
	Sleep   Kind = "sleep"   // for For
	Receive Kind = "receive" // a signal
	Within  Kind = "within"  // a signal, for at most For
	Timeout Kind = "timeout" // a Body with the time limit For
	Revoke  Kind = "revoke"  // a Body that is cancelled midway
	Shield  Kind = "shield"  // a Body that continues when the workflow is cancelled
	Fail    Kind = "fail"    // end a branch or a workflow with an error
	Leave   Kind = "leave"   // end the function while operations are pending
)

// An Op is one operation of a program.
type Op struct {
	Kind   Kind
	V      int           // its unique number and its result
	For    time.Duration // how long it takes or waits
	Fails  int           // failed attempts of an activity
	Denied bool          // the activity fails permanently
	Key    Keyed         // for activities
	Scope  string        // for activities
	Signal string        // the name of a signal; "" for none
	OnEnd  engine.ParentEnd
	Body   []Op
}

// Keyed is what an activity does after an attempt of unknown outcome.
type Keyed string

const (
	Unkeyed    Keyed = ""           // tries again
	Idempotent Keyed = "idempotent" // tries again with the same key
	Verified   Keyed = "verified"   // checks first
)

// A Send is a signal that the client sends.
type Send struct {
	Signal string
	V      int
	Pause  time.Duration // before sending
}

// A Program is a workflow, and what its client does.
type Program struct {
	Main    []Op
	Sends   []Send
	Cancel  time.Duration // after the last Send; 0: never
	Cleanup []Op          // run when it is cancelled
	Finish  bool          // when it is cancelled, it completes

	// Settings of the engines in the run with faults.
	ParkAfter              time.Duration
	MaxRuns, MaxActivities int

	// Limits of its activities.
	MaxConcurrent, PerHour int
}

// walk calls f for each operation below ops.
func walk(ops []Op, f func(*Op)) {
	for i := range ops {
		f(&ops[i])
		walk(ops[i].Body, f)
	}
}

// has reports whether p has an operation of one of the kinds.
func (p *Program) has(kinds ...Kind) (found bool) {
	walk(p.Main, func(o *Op) { found = found || slices.Contains(kinds, o.Kind) })
	return found
}

// find returns the operation with number v.
func (p *Program) find(v int) (found Op) {
	walk(p.Main, func(o *Op) {
		if o.V == v {
			found = *o
		}
	})
	return found
}

// open reports whether the result of p depends on when it is told to stop.
func (p *Program) open() bool { return p.Cancel > 0 || p.has(Leave) }

// cuts reports whether p may abandon operations depending on timing, so that it does not have the
// same operations in every run.
func (p *Program) cuts() bool { return p.open() || p.has(Timeout, Revoke) }

// String formats p in lines.
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
		if o.OnEnd != engine.ParentEndCancel {
			fmt.Fprintf(b, " on parent's end %d", o.OnEnd)
		}
		b.WriteString("\n")
		list(b, indent+"    ", o.Body)
	}
}
