package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
)

// Go starts a branch: f runs concurrently with the caller, with its own Run. Branches take
// turns: one runs until it waits. So they may share variables, and a replay runs them in the
// same order. Branches must wait for each other only through the engine, with Get, Select
// or All.
//
// An error or a panic of f is the error of the future. When the workflow function returns,
// the remaining branches are ended, and the history records what was given up.
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

// branch starts a branch. The value that body returns is a func(into any).
func (r *Run) branch(name string, body func(run *Run) (any, error)) future.Operation {
	op := r.startOperation(ofBranch, name, nil)
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

// All waits for all of the futures and returns their results in order. The error joins
// theirs. The result of a future with an error is the zero value.
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

// Map calls f for each element of in, each in its own branch, with at most limit branches at
// a time; a limit below one means no limit. It waits for all branches and returns the
// results in the order of in. The error joins the errors of the branches. The result of a
// branch that failed is the zero value. After the workflow was cancelled, or the time limit
// of run has passed, Map starts no further branches.
func Map[In, Out any](run *Run, name string, limit int, in []In, f func(run *Run, in In) (Out, error)) ([]Out, error) {
	if limit < 1 {
		limit = len(in)
	}
	in = slices.Clone(in) // branches that start later must not see changes of the caller
	var begun []*future.Future[Out]
	var under []*operation // branches in progress
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
