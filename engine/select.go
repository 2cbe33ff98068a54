package engine

import (
	"fmt"

	"github.com/weft-go/weft/future"
)

// A Case is something that Select waits for: a *future.Future of any type.
type Case interface{ Operation() future.Operation }

// Select waits for the first of the cases that has an outcome and returns it, to
// be compared in a switch; its Get then does not wait. A replay chooses the same.
//
// A case that was not chosen goes on: an activity stays under way, a signal stays
// in the inbox, a timer that nobody waits for any more leaves nothing behind. A
// future is chosen once, so that a loop around Select comes to an end: with
// nothing left to wait for the error is ErrNoCase. It is ErrCancelled when the
// workflow is asked to stop and run.Cancelled is no case, ErrTimeout after the
// time of run.WithTimeout.
func Select(run *Run, cases ...Case) (Case, error) {
	if err := run.enter(); err != nil {
		return nil, err
	}
	var ops []*operation
	for i, c := range cases {
		var op future.Operation
		if c != nil {
			op = c.Operation()
		}
		switch o := op.(type) {
		case refusal:
			return nil, o.err
		case *operation:
			if o.x != run.x {
				return nil, ErrForeignRun
			}
			if !o.chosen {
				ops = append(ops, o)
			}
		default:
			return nil, fmt.Errorf("%w: case %d of a Select is nobody's future", ErrInvalid, i+1)
		}
	}
	if len(ops) == 0 {
		return nil, ErrNoCase
	}
	winner, err := run.b.wait(run.scope, ops...)
	if err == nil && winner.outcome.cut {
		err = run.scope.err() // else it was cut by a scope of its own, and that is its outcome
	}
	if err != nil {
		return nil, err
	}
	winner.chosen = true
	for _, c := range cases {
		if c.Operation() == future.Operation(winner) {
			return c, nil
		}
	}
	panic("unreachable")
}
