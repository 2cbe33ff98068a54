package run

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A run that was reset has, in the middle of its history, events that a replay passes over: see
// journal.Reset. What the function begins behind the point to which it was reset has an id of its
// own, "3~1" for operation 3 after the first reset. So nothing that belongs to what was passed over
// is met: no record, no child, and no key or id that is derived from the operation's.

// Why an execution ends from which a reset, or another engine, has taken the run.
var (
	ErrReset     = fmt.Errorf("%w: the run was reset", activity.ErrLeaseLost)
	ErrTakenOver = fmt.Errorf("%w: the run was taken over", activity.ErrLeaseLost)
)

// GoesOn reports whether an event of this kind may have had the function go on, or says what an
// operation of it has come to. A reset goes back to directly behind such an event. Code that ran
// before that event is fixed by it: a checkpoint that counts stands behind.
func GoesOn(k checkpoint.Kind) bool {
	switch k {
	case checkpoint.KindAsked, checkpoint.KindCompensating, checkpoint.KindAccepted, checkpoint.KindAnswered:
		return true
	}
	return isOutcome(k)
}

// again returns the id of the operation that the function begins now in the place id, and the number
// of the reset that it belongs to; 0 is none. It belongs to the last one behind whose point it
// begins, or that begins it again.
func (x *Execution) again(place string) (id string, reset int) {
	id = place
	for i, r := range x.Hold.Workflow.Resets {
		if !r.Point.After(x.Ops.learnt) || id == r.Before {
			reset = i + 1
			id = fmt.Sprintf("%s~%d", place, reset)
		}
	}
	return id, reset
}

// Place returns the place of an operation in its branch, without the resets that it belongs to.
func Place(operation string) string {
	if i := strings.LastIndexByte(operation, '~'); i > strings.LastIndexByte(operation, '.') {
		return operation[:i]
	}
	return operation
}

// numbered returns the number of an operation in its branch, of the last part of its id.
func numbered(part string) (int, error) {
	part, _, _ = strings.Cut(part, "~")
	return strconv.Atoi(part)
}

// begins returns the time from which a time limit of o counts: now or, if o was begun again by a
// reset, the time of the reset if that is later.
func (o *operation) begins() time.Time {
	x := o.x
	if o.reset > 0 {
		if at := journal.Time(x.Hold.Workflow.Resets[o.reset-1].At); at.After(x.now) {
			return at
		}
	}
	return x.now
}

// stands reports whether a replay delivers anything of c.
func (x *Execution) stands(c checkpoint.Checkpoint) bool {
	return !x.Hold.Workflow.PassedWhole(c.Number)
}

// coveredBy returns the number of the last reset that has a replay pass over e; 0 is none.
func (x *Execution) coveredBy(e logged) (reset int) {
	for i, r := range x.Hold.Workflow.Resets {
		if r.Covers(e.place) {
			reset = i + 1
		}
	}
	return reset
}

// passOver notes of e, which the reset of this number has a replay pass over, what is still of use:
// how many attempts were made of what has begun before, and which children were started.
func (x *Execution) passOver(e logged, reset int) {
	x.beyond.note(e.Operation)
	switch e.Kind {
	case checkpoint.KindClaimed:
		if x.claims++; x.claims > 1 && e.Why != checkpoint.HandedOver {
			x.Ops.ownerLost(e.at, reset)
		}
	case checkpoint.KindStarted:
		if x.left == nil {
			x.left, x.strays = map[string]string{}, map[string]*stray{}
		}
		x.left[e.Child] = e.Operation
	case checkpoint.KindAttempted, checkpoint.KindSettled:
		switch o := x.Ops.byID[e.Operation]; {
		case o == nil || o.call == nil:
		case o.keyed == nil:
			o.attempt, o.ownersLost = max(o.attempt, e.Attempt), 0
		default:
			o.keyed.kept = e.Kind == checkpoint.KindSettled && !x.takesBack(e)
		}
	}
}

// numbers are the highest ones of operations of the function, and of updates. The next life numbers
// its own from there on.
type numbers struct{ operation, update int }

// note takes in the number of an operation, or of the branch that it is in.
func (n *numbers) note(id string) {
	first, _, _ := strings.Cut(id, ".")
	most := &n.operation
	if update, ok := strings.CutPrefix(first, journal.UpdatePrefix); ok {
		first, most = update, &n.update
	}
	if i, err := numbered(first); err == nil {
		*most = max(*most, i)
	}
}

// noteBeyond takes in the operations that have a record and, if they were passed over, perhaps nothing
// in the history.
func (x *Execution) noteBeyond() error {
	if len(x.Hold.Workflow.Resets) == 0 {
		return nil
	}
	for _, r := range recordRanges(x.ID) {
		for e, err := range journal.Records(x.Ctx, x.store, r) {
			if err != nil {
				return err
			}
			operation, err := keys.Operation(e.Key)
			if err != nil {
				return err
			}
			x.beyond.note(operation)
		}
	}
	return nil
}

// goBack is called when c was read. If c is a reset, the owner before it may have begun an attempt of
// what has no outcome, and values that the function has set by now are stored again: others may have
// replaced them.
func (x *Execution) goBack(c checkpoint.Checkpoint) {
	for i, r := range x.Hold.Workflow.Resets {
		if r.To != c.Number {
			continue
		}
		for o := range x.Ops.all() {
			if o.call != nil && o.keyed == nil && !o.held() && o.reset <= i {
				o.ownersLost++
			}
		}
		if vs := &x.riders.values; len(vs.latest) > 0 {
			vs.pending = slices.Clone(vs.latest)
			x.riders.asked()
		}
	}
}

// An adoption is a workflow that the run had started before it was reset, and that an operation with
// the same id, type and input takes up.
type adoption struct {
	wf  *journal.Workflow
	kid *journal.Child  // the record that the run has of it; nil: none
	end *journal.Output // how it ended; nil: it has not ended
}

// adopts returns how c takes up the workflow there, or nil if it does not: c's id is taken.
func (x *Execution) adopts(c *child, there *journal.Workflow) (*adoption, error) {
	s := c.starting.Workflow
	if _, left := x.left[s.ID]; !left || there.Unmet() != "" || there.Type != s.Type || !there.Identity().Same(s.Identity()) {
		return nil, nil
	}
	if p, is := s.Parent, there.Parent; p == nil || is == nil {
		if p != nil || is != nil {
			return nil, nil
		}
		return &adoption{wf: there}, nil
	} else if p.ID != is.ID || p.Generation != is.Generation {
		return nil, nil
	}
	kid, err := ChildOf(x.Ctx, x.store, there)
	if err != nil {
		return nil, err
	}
	a := &adoption{wf: there, kid: kid}
	switch {
	case kid != nil && kid.End != nil:
		a.end = kid.End
	case there.Status.Terminal():
		a.end, err = journal.ReadOutput(x.Ctx, x.store, there)
	}
	return a, err
}

// take adds to c that o has a for its child.
func (a *adoption) take(o *operation, c *journal.Change) (err error) {
	p := o.child.starting.Workflow.Parent
	c.If = append(c.If, a.wf.Unchanged())
	if p == nil {
		return nil
	}
	if *a.wf.Parent != *p {
		next := *a.wf
		next.Parent = p
		next.State++
		if c.Ops, err = journal.Replace(c.Ops, a.wf, &next); err != nil {
			return err
		}
	}
	if a.kid != nil {
		c.If = append(c.If, a.kid.Unchanged())
		if *a.wf.Parent != *p {
			c.Ops = append(c.Ops, a.kid.Delete())
		}
	}
	kid := journal.NewChild(*p, a.wf.ID, uint8(o.child.onEnd))
	kid.End = a.end
	put, err := kid.Put()
	c.Ops = append(c.Ops, put)
	return err
}

// A stray is a child that was started behind the point to which the run was reset.
type stray struct {
	child   *journal.Child
	derived bool // nobody can take it up: its id is derived from its operation's
	asked   bool // to stop
}

// isStray reports whether c, the record of the operation, is of a child that the run has left
// behind, and notes it.
func (x *Execution) isStray(operation string, c *journal.Child) bool {
	if x.left[c.ID] != operation || x.Ops.byID[operation] != nil {
		return false
	}
	if x.strays[operation] == nil {
		id, _ := x.named(x.derived("wrun_", operation))
		x.strays[operation] = &stray{child: c, derived: id == c.ID}
	}
	return true
}

// stopDerived asks the children to stop that nobody can take up.
func (x *Execution) stopDerived() error {
	return x.stop(func(s *stray) bool { return s.derived })
}

// stopStrays asks all children to stop that the run has left behind: the function has ended, and has
// not taken them up.
func (x *Execution) stopStrays() error {
	if len(x.left) == 0 {
		return nil
	}
	if err := x.readChildren(); err != nil {
		return err
	}
	return x.stop(func(s *stray) bool { return x.left[s.child.ID] != "" })
}

// stop asks those of the strays to stop that are chosen, except those that are to outlive the run.
func (x *Execution) stop(chosen func(*stray) bool) error {
	if len(x.strays) == 0 { // nearly always; to sort nothing would allocate
		return nil
	}
	for _, operation := range slices.Sorted(maps.Keys(x.strays)) {
		s := x.strays[operation]
		if s.asked || weft.ParentEnd(s.child.OnEnd) == weft.ParentEndAbandon || !chosen(s) {
			continue
		}
		parent := &journal.Parent{ID: x.ID, Generation: x.Hold.Workflow.Generation, Operation: operation}
		if err := x.askToStop(s.child.ID, parent, "reset"); err != nil {
			return err
		}
		s.asked = true
	}
	return nil
}

// Again returns what stores again the record of a child that the run of p has begun before the point
// of a reset, and the condition that there is none.
func Again(p journal.Parent, id string, end *journal.Output) (*journal.Child, storage.Condition) {
	c := journal.NewChild(p, id, 0)
	c.End = end
	return c, storage.Absent(keys.Child(p.ID, p.Operation))
}

// ResetTo is the name of the verb in histories.
func ResetTo(before string) string { return export.ResetTo(before) }
