package programs

import (
	"math/rand/v2"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/storagetest"
)

// signals are the names of signals. A program is sent as many of each as it has operations that
// may receive one, so that none waits forever.
var signals = []string{"a", "b"}

// deepest is the maximum nesting depth of bodies.
const deepest = 3

// simple operations may be used anywhere; the others have a body.
var (
	simple   = []Kind{Step, Step, Do, Do, Go, Go, Go, Get, Get, All, Select, Select, Select, Map, Sleep, Receive, Within}
	compound = append([]Kind{Branch, Branch, Branch, Child, Child, Detach, Timeout, Revoke, Shield}, simple...)
)

// times are few, so that events often coincide.
var times = []time.Duration{0, time.Second, time.Minute, time.Hour, time.Hour, 25 * time.Hour}

// dice draw at random.
type dice struct{ *rand.Rand }

func oneOf[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

// once returns true once in n times.
func (d dice) once(n int) bool { return d.IntN(n) == 0 }

// Draw draws a program and faults.
func Draw(seed uint64) (*Program, []Blow) {
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	p := &Program{Main: d.ops(1, 10)}
	switch {
	case d.once(12):
		p.Main = append(p.Main, Op{Kind: Fail})
	case d.once(12):
		p.Main = append(p.Main, Op{Kind: Leave})
	}
	if d.once(6) {
		p.Cancel = time.Second + oneOf(d, times)
		p.Finish = d.once(2)
		for range d.IntN(3) {
			p.Cleanup = append(p.Cleanup, d.op(oneOf(d, []Kind{Step, Do}), deepest))
		}
	}
	v := 0
	number := func(o *Op) {
		v++
		o.V = v
	}
	walk(p.Main, number)
	walk(p.Cleanup, number)
	walk(p.Main, func(o *Op) {
		if o.Signal != "" {
			p.Sends = append(p.Sends, Send{Signal: o.Signal, V: 1000 + len(p.Sends), Pause: oneOf(d, times)})
		}
	})
	d.Shuffle(len(p.Sends), func(i, j int) { p.Sends[i], p.Sends[j] = p.Sends[j], p.Sends[i] })
	p.ParkAfter = oneOf(d, []time.Duration{0, 0, -1, 30 * time.Hour})
	p.MaxRuns, p.MaxActivities = oneOf(d, []int{0, 0, 1, 2}), oneOf(d, []int{0, 0, 1, 2})
	p.MaxConcurrent, p.PerHour = oneOf(d, []int{0, 0, 1, 2}), oneOf(d, []int{0, 0, 1, 5})
	return p, d.blows()
}

// ops draws a body.
func (d dice) ops(depth, most int) (ops []Op) {
	kinds := simple
	if depth < deepest {
		kinds = compound
	}
	for range most/4 + d.IntN(most) {
		ops = append(ops, d.op(oneOf(d, kinds), depth))
	}
	return ops
}

func (d dice) op(kind Kind, depth int) Op {
	o := Op{Kind: kind}
	switch kind {
	case Do, Go:
		o.For = oneOf(d, times)
		o.Fails = oneOf(d, []int{0, 0, 0, 1, 2})
		o.Denied = d.once(8)
		o.Key = oneOf(d, []Keyed{Unkeyed, Unkeyed, Idempotent, Verified})
		o.Scope = oneOf(d, []string{"", "", "s", "t"})
	case Sleep:
		o.For = oneOf(d, times)
	case Receive:
		o.Signal = oneOf(d, signals)
	case Within:
		o.Signal, o.For = oneOf(d, signals), oneOf(d, times)
	case Select:
		o.Signal, o.For = oneOf(d, append([]string{""}, signals...)), oneOf(d, times)
	case Timeout:
		o.For = oneOf(d, times)
		fallthrough
	case Branch, Revoke, Shield:
		o.Body = d.ops(depth+1, 4)
	case Child, Detach:
		o.Body = withoutSignals(d.ops(depth+1, 4))
	}
	if kind == Child {
		o.OnEnd = oneOf(d, []engine.ParentEnd{engine.ParentEndCancel, engine.ParentEndCancel, engine.ParentEndAbandon, engine.ParentEndAwait})
	}
	if (kind == Branch || kind == Child) && d.once(8) {
		o.Body = append(o.Body, Op{Kind: Fail})
	}
	return o
}

// withoutSignals returns a body without signals: only the first workflow gets any.
func withoutSignals(ops []Op) []Op {
	walk(ops, func(o *Op) {
		if o.Kind == Receive || o.Kind == Within {
			o.Kind = Step
		}
		o.Signal = ""
	})
	return ops
}

// A Blow is a fault of a call to the store.
type Blow struct {
	After int // number of calls since the previous fault
	Fault storagetest.Fault
}

// faults are crashes more often than not.
var faults = []storagetest.Fault{
	storagetest.CrashBefore, storagetest.CrashAfter, storagetest.CrashBefore, storagetest.CrashAfter,
	storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle,
}

// blows draws one to five faults. An engine calls its store about ten times before it continues
// with the runs that it finds.
func (d dice) blows() (blows []Blow) {
	for range 1 + d.IntN(5) {
		blows = append(blows, Blow{After: 5 + d.IntN(35), Fault: oneOf(d, faults)})
	}
	return blows
}
