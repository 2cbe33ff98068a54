package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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
	in = slices.Clone(in) // branches that start later must not see changes of the caller
	var begun []*future.Future[Out]
	var under []*operation // branches in progress
	for len(begun) < len(in) {
		if err := run.enter("map " + name); err != nil {
			return nil, err
		}
		if run.scope.err() != nil {
			break
		}
		if limit > 0 && len(under) >= limit && !run.b.full(run.scope, under) {
			under = slices.DeleteFunc(under, func(o *operation) bool { return o.done })
			continue
		}
		v := in[len(begun)]
		future := Go(run, name, func(run *Handle) (Out, error) { return f(run, v) })
		begun = append(begun, future)
		if o, ok := future.Operation().(*operation); ok {
			under = append(under, o)
		}
	}
	results := make([]Out, len(in))
	failed := &weft.MapError{Name: name, Of: len(in), NotStarted: len(in) - len(begun)}
	for i, branch := range begun {
		v, err := branch.Get(run)
		if err != nil {
			failed.Items = append(failed.Items, weft.ItemError{Index: i, Operation: branch.Operation().ID(), Err: err})
			continue
		}
		results[i] = v
	}
	if failed.NotStarted > 0 {
		failed.Cause = run.scope.err()
	}
	if len(failed.Items) > 0 || failed.NotStarted > 0 {
		return results, failed
	}
	return results, nil
}

// full waits until one of under, the branches that a Map has in progress, is done. It returns true if the Map must start
// another one instead, because its history says that it did so at this point: the limit was higher then.
func (b *branch) full(s *scope, under []*operation) (needed bool) {
	t := &b.x.turns
	b.atLimit, b.needed = true, false
	t.full++
	defer func() {
		b.atLimit = false
		t.full--
	}()
	_, _ = b.wait(s, under...)
	return b.needed
}

// makeRoom has a Map that waits at its limit start one more branch, if the operation with this
// id is in a branch that it has not started yet. It reports whether there is one.
func (x *Execution) makeRoom(id string) bool {
	if x.full == 0 {
		return false
	}
	for b := range x.branches {
		if n, inside, ok := b.numberOf(id); ok && inside && n > b.begun && b.atLimit && !b.needed {
			b.needed = true
			x.queue(b)
			return true
		}
	}
	return false
}

// numberOf returns the number that an operation has in b. If the operation is in a branch that b
// starts, inside is true, and the number is that of the branch.
func (b *branch) numberOf(id string) (n int, inside, ok bool) {
	if b.id != "" {
		if id, ok = strings.CutPrefix(id, b.id+"."); !ok {
			return 0, false, false
		}
	}
	number, _, inside := strings.Cut(id, ".")
	n, err := numbered(number)
	return n, inside, err == nil
}
