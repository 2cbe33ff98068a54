package run

import (
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
)

// started is what a replay keeps of an operation that has no outcome yet and may be in no
// table, to say what the function does there now.
type started struct {
	kind  *kind
	name  string
	calls []uintptr
}

// mostStarted is how many of them are kept. A loop may make any number of timers that it never waits for again.
const mostStarted = 1000

func (t *table) noteStart(o *operation) {
	if t.started == nil || len(t.started) == mostStarted {
		t.started = map[string]started{}
	}
	t.started[o.id] = started{o.kind, o.name, o.started}
}

// at returns the operation that the function has started at a place, if the replay knows it.
func (t *table) at(id string) (started, bool) {
	if o, _ := t.find(id); o != nil {
		return started{o.kind, o.name, o.started}, true
	}
	s, ok := t.started[id]
	return s, ok
}

// differs returns nil if e is about o, which the function has started in its place, or nil.
func (x *Execution) differs(o *operation, e logged) *weft.NonDeterminismError {
	if o == nil {
		return x.missing(e)
	}
	was, is := o.differs(e)
	if was == "" {
		return nil
	}
	return &weft.NonDeterminismError{WorkflowID: x.ID, Operation: e.Operation, Recorded: was, Asked: is, Line: o.line()}
}

// missing returns what the function does where the operation of e was started: in its place, or
// in that of a branch around it.
func (x *Execution) missing(e logged) *weft.NonDeterminismError {
	n := &weft.NonDeterminismError{WorkflowID: x.ID, Operation: e.Operation, Recorded: describe(e.Of, e.Name)}
	for i, c := range e.Operation { // the branches that it was in, from the outermost
		if c != '.' {
			continue
		}
		outer := e.Operation[:i]
		s, known := x.Ops.at(outer)
		if known && s.kind.branches() || !known && !x.isToStart(outer) {
			continue
		}
		n.Operation, n.Recorded = outer, describe(branchKind(outer).name, nameAt(e.Branch, strings.Count(outer, ".")))
		return x.asks(n, s)
	}
	s, _ := x.Ops.at(e.Operation)
	return x.asks(n, s)
}

// isToStart reports whether the function has not started the operation with this id yet.
func (x *Execution) isToStart(id string) bool {
	for b := range x.branches {
		if n, inside, ok := b.numberOf(id); ok && !inside && n > b.begun {
			return true
		}
	}
	return false
}

// asks completes n with what the function has started there.
func (x *Execution) asks(n *weft.NonDeterminismError, s started) *weft.NonDeterminismError {
	switch {
	case s.kind != nil:
		n.Asked, n.Line = describe(s.kind.name, s.name), lineOf(s.calls)
	case x.result != nil:
		n.Asked = "not asked for: the function has ended"
	default:
		n.Asked = "not asked for"
	}
	return n
}

// nameAt returns the name of the branch at a depth of a path, or "" if only its digest is known.
func nameAt(path string, depth int) string {
	names := strings.Split(path, "/")
	if strings.HasPrefix(path, "#") || depth >= len(names) {
		return ""
	}
	return names[depth]
}

// firstDifference returns the difference that comes first in the function. Events are in the order in which things happened:
// when n was found, the event of an operation that was started before may still have to come.
func (x *Execution) firstDifference(n *weft.NonDeterminismError) *weft.NonDeterminismError {
	for {
		e, ok, err := x.nextEvent()
		if err != nil || !ok {
			return n
		}
		if !isOutcome(e.Kind) {
			continue
		}
		o, _ := x.Ops.find(e.Operation)
		if other := x.differs(o, e); other != nil && precedes(other.Operation, n.Operation) {
			if _, asked := x.Ops.at(other.Operation); asked { // the others have their outcomes
				n = other
			}
		}
	}
}

// isOutcome reports whether an event of this kind is about an operation that the function has started.
func isOutcome(k checkpoint.Kind) bool {
	switch k {
	case checkpoint.KindStarted, checkpoint.KindDispatched, checkpoint.KindAttempted, checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindReceived, checkpoint.KindMissed, checkpoint.KindOpened, checkpoint.KindDisposed, checkpoint.KindClosed:
		return true
	}
	return false
}

// precedes reports whether a was started before b, or before a branch that b is in, in one and the same branch.
func precedes(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	last := len(as) - 1
	if len(bs) <= last {
		return false
	}
	for i := range last {
		if as[i] != bs[i] {
			return false
		}
	}
	x, err1 := numbered(as[last])
	y, err2 := numbered(bs[last])
	return err1 == nil && err2 == nil && x < y
}
