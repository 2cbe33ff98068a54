package run

import (
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/future"
)

// Select waits until one of the cases has an outcome. See engine.Select.
func Select[C interface{ Operation() future.Operation }](run *Handle, cases []C) (chosen C, err error) {
	if err := run.enter("select"); err != nil {
		return chosen, err
	}
	var ops []*operation
	for i, c := range cases {
		var op future.Operation
		if any(c) != nil {
			op = c.Operation()
		}
		switch o := op.(type) {
		case refusal:
			return chosen, o.err
		case *operation:
			if o.x != run.x {
				return chosen, fmt.Errorf("%w: case %d of a Select in workflow %q is a future of another workflow", weft.ErrForeignRun, i+1, run.x.ID)
			}
			if !o.chosen {
				ops = append(ops, o)
			}
		default:
			return chosen, fmt.Errorf("%w: case %d of a Select is not a future of a workflow", weft.ErrInvalid, i+1)
		}
	}
	if len(ops) == 0 {
		return chosen, weft.ErrNoCase
	}
	winner, err := run.b.wait(run.scope, ops...)
	if err == nil && winner.outcome.cut && run.scope.err() != nil { // else only a scope of the winner has ended: that is its outcome
		err = run.scope.err()
		if o := first(slices.DeleteFunc(ops, func(o *operation) bool { return o.outcome.cut })); o != nil {
			winner, err = o, nil // such as the request that has cut the others
		}
	}
	if err != nil {
		return chosen, err
	}
	winner.chosen = true
	for _, c := range cases {
		if c.Operation() == future.Operation(winner) {
			return c, nil
		}
	}
	panic("unreachable")
}
