package engine

import (
	"fmt"

	"github.com/weft-go/weft/future"
)

// A Case is what Select waits for: a *future.Future of any type.
type Case interface{ Operation() future.Operation }

// Select waits until one of the cases has an outcome and returns the case that had its
// outcome first. Compare the returned case with your futures in a switch; Get of the chosen future
// returns immediately. A replay chooses the same case.
//
// The other cases are not affected: an activity continues, a signal stays in the inbox, and
// a timer that no branch waits for costs nothing. A future is chosen only once. So a loop
// around Select ends with ErrNoCase when all cases have been chosen. The error is
// ErrCancelled if the workflow was cancelled and run.Cancelled is not one of the cases, and
// ErrTimeout if the time of run.WithTimeout has passed.
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
			return nil, fmt.Errorf("%w: case %d of a Select is not a future of a workflow", ErrInvalid, i+1)
		}
	}
	if len(ops) == 0 {
		return nil, ErrNoCase
	}
	winner, err := run.b.wait(run.scope, ops...)
	if err == nil && winner.outcome.cut {
		err = run.scope.err() // nil if only a scope of the winner has ended: that is its outcome
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
