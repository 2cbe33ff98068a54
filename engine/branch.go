package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
)

// Go begins a branch: f goes on beside the caller, with a Run of its own. Branches
// take turns: one runs until it waits, so they may share variables, and a replay
// runs them in the same order. They must not wait for each other but through the
// engine: by Get, Select, All.
//
// The error or the panic of f is the error of the future. A workflow function
// that returns ends the branches that are left; its history tells what was given
// up.
func Go[T any](run *Run, name string, f func(run *Run) (T, error)) *future.Future[T] {
	return future.New[T](run.branch(name, func(run *Run) (any, error) {
		v, err := f(run)
		return func(into any) {
			if p, ok := into.(*T); ok {
				*p = v
			}
		}, err
	}))
}

// branch begins a branch. Its body's value is a func(into any).
func (r *Run) branch(name string, body func(run *Run) (any, error)) future.Operation {
	op := r.begin(ofBranch, name, nil)
	o, ok := op.(*operation)
	if !ok || o.done {
		return op
	}
	if depth(o.id) >= keys.MaxBranchDepth {
		o.settle(outcome{err: fmt.Errorf("%w: branches are nested deeper than %d", ErrInvalid, keys.MaxBranchDepth)})
		return op
	}
	r.x.turns.branch(o, r.scope, body)
	return op
}

// All waits for every one of the futures and returns their results in order. The
// error joins theirs; the result of one that failed is zero.
func All[T any](run *Run, fs ...*future.Future[T]) ([]T, error) {
	results := make([]T, len(fs))
	var errs []error
	for i, f := range fs {
		v, err := f.Get(run)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		results[i] = v
	}
	return results, errors.Join(errs...)
}

// Map runs f for each element, in a branch each, at most limit at a time; a limit
// below one is none. It waits for all and returns the results in the order of in.
// The error joins those of f; the result of a branch that failed is zero. Once
// the workflow is asked to stop, or the time of run is up, no further one begins.
func Map[In, Out any](run *Run, name string, limit int, in []In, f func(run *Run, in In) (Out, error)) ([]Out, error) {
	if limit < 1 {
		limit = len(in)
	}
	in = slices.Clone(in) // as it is now, also for branches that begin later
	var begun []*future.Future[Out]
	var under []*operation // way
	for _, v := range in {
		if err := run.enter(); err != nil {
			return nil, err
		}
		for len(under) == limit && run.scope.err() == nil {
			_, _ = run.b.wait(run.scope, under...)
			under = slices.DeleteFunc(under, func(o *operation) bool { return o.done })
		}
		if run.scope.err() != nil {
			break
		}
		future := Go(run, name, func(run *Run) (Out, error) { return f(run, v) })
		begun = append(begun, future)
		if o, ok := future.Operation().(*operation); ok {
			under = append(under, o)
		}
	}
	results, err := All(run, begun...)
	if missing := len(in) - len(begun); missing > 0 {
		results = append(results, make([]Out, missing)...)
		err = errors.Join(err, run.scope.err())
	}
	return results, err
}
