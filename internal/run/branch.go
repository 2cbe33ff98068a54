package run

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
)

// Go starts a branch. See engine.Go.
func Go[T any](run *Handle, name string, f func(run *Handle) (T, error)) *future.Future[T] {
	return future.New[T](run.branch(name, func(run *Handle) (any, error) {
		v, err := f(run)
		return func(into any) {
			if p, ok := into.(*T); ok {
				*p = v
			}
		}, err
	}))
}

// branch starts a branch. The value that body returns is a func(into any).
func (r *Handle) branch(name string, body func(run *Handle) (any, error)) future.Operation {
	op := r.startOperation(ofBranch, name, nil)
	o, ok := op.(*operation)
	if !ok || o.done {
		return op
	}
	if depth(o.id) >= keys.MaxBranchDepth {
		o.settle(outcome{err: fmt.Errorf("%w: branches are nested deeper than %d", weft.ErrInvalid, keys.MaxBranchDepth)})
		return op
	}
	r.x.turns.branch(o, r.scope, body)
	return op
}

// All is engine.All.
func All[T any](run *Handle, fs ...*future.Future[T]) ([]T, error) {
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

// Map is engine.Map.
func Map[In, Out any](run *Handle, name string, limit int, in []In, f func(run *Handle, in In) (Out, error)) ([]Out, error) {
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
		future := Go(run, name, func(run *Handle) (Out, error) { return f(run, v) })
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
