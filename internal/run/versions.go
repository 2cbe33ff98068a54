package run

import (
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
)

// Version is engine.Run.Version.
//
// The function is at the place of the event that was delivered last. A choice that was made there or
// before holds. If there is none, and a checkpoint that counts follows the place, then the
// function has passed the place before, without the change. If none follows, nothing that it did behind
// the place is durable, and it goes on by the newest version. That choice is a rider. What leaves
// without a record waits until it is stored: see recordChoices.
func (r *Handle) Version(change string) int {
	if err := r.enter("Version " + change); err != nil {
		panic(err)
	}
	x := r.x
	newest := x.Definition.Versions[change]
	if newest == 0 {
		r.hold(weft.ReasonBadDefinition, fmt.Errorf("workflow %s asks for the version of the change %q, which its Versions do not have", x.Definition.Name, change))
	}
	if c := x.Hold.Workflow.Chosen(change); c != nil {
		if c.From.After(x.Ops.learnt) {
			return 0
		}
		return c.Version
	}
	v := &x.riders.versions
	if i := slices.IndexFunc(v.pending, func(c journal.Choice) bool { return c.Change == change }); i >= 0 {
		return v.pending[i].Version
	}
	if x.passed() {
		return 0
	}
	v.pending = append(v.pending, journal.Choice{Change: change, Version: newest, From: x.Ops.learnt})
	x.riders.asked()
	return newest
}

// versions are the choices of a run that are not stored.
type versions struct{ pending []journal.Choice }

func (v *versions) waits() bool { return len(v.pending) > 0 }

func (v *versions) stored() { v.pending = nil }

func (v *versions) ride(x *Execution, c *journal.Change) {
	x.rewriting(c).Choose(v.pending...)
	var events []checkpoint.Event
	for _, p := range v.pending {
		events = append(events, checkpoint.Event{Kind: checkpoint.KindVersioned, Name: p.Change, Version: p.Version})
	}
	at := len(c.Events)
	if at > 0 && c.Events[at-1].Kind == checkpoint.KindEnded {
		at-- // the end of a run is its last event
	}
	c.Events = slices.Concat(c.Events[:at], events, c.Events[at:])
}

// recordChoices stores the choices that are not stored, if something is about to leave that the
// history does not record before: an attempt without a key, a signal, or a request to cancel a
// child. If the run crashed after that and an older build without the choice took it, it could go
// another way.
func (x *Execution) recordChoices() (done bool, err error) {
	if !x.riders.versions.waits() || !x.leaves() {
		return false, nil
	}
	return x.commit(journal.Change{})
}

// leaves reports whether something is about to leave that the history does not record before.
func (x *Execution) leaves() bool {
	return len(x.dismissed) > 0 || x.mayBegin() && slices.ContainsFunc(x.Ops.fresh, func(o *operation) bool {
		return o.open && o.call != nil && o.keyed == nil
	})
}
