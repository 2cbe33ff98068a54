package run

import (
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/namespace"
)

// named returns the id that the code of the run means by id: in a run of a namespace, one of the
// same namespace. It returns false for an id of another namespace, which the code must not reach:
// the id may come from an input.
//
// Only the record of the run decides this, so that each replay does the same. A run of an earlier
// release, whose id may look as if it were of a namespace, reaches all that it did before.
func (x *Execution) named(id string) (full string, ok bool) {
	wf := x.Hold.Workflow
	if id == "" { // refused, or derived, by the caller
		return id, true
	}
	if name := wf.Namespace(); name != "" {
		return namespace.Within(name, id)
	}
	_, _, before := namespace.Split(wf.ID)
	_, _, of := namespace.Split(id)
	return id, before || !of
}

// foreign is the error of an id of another namespace.
func foreign(id string) error {
	return fmt.Errorf("%w: workflow %q is not of the namespace of the run that names it: leave out what begins with '@'", weft.ErrInvalid, id)
}
