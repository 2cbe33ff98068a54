// Package future holds the outcome of an operation that a workflow has started.
// Packages activity, signal and engine share it; users rarely write its name.
package future

// A Future is the outcome of an operation that was started.
type Future[T any] struct{ op Operation }

// New returns the future of op.
func New[T any](op Operation) *Future[T] { return &Future[T]{op} }

// Get waits for the outcome. It may be called any number of times.
func (f *Future[T]) Get(run Runner) (T, error) { return Await[T](run, f.op) }

// Operation returns what f is the outcome of.
func (f *Future[T]) Operation() Operation { return f.op }

// Internal to Weft: what package engine needs.

// An Operation is something that a workflow started.
type Operation interface {
	ID() string // its place in the workflow: "3", or "3.1" in the branch that 3 started
}

// A Runner is an *engine.Run.
type Runner interface {
	// Await waits for op and decodes its result into result, a pointer.
	Await(op Operation, result any) error
}

// Await waits for op in a typed way.
func Await[T any](run Runner, op Operation) (T, error) {
	var v T
	err := run.Await(op, &v)
	return v, err
}
