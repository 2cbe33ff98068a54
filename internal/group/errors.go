package group

import "fmt"

// Undone marks an error of an Apply: the transaction certainly wrote nothing, and a single
// batch may be the cause. The batches are then tried in smaller groups. An Apply must not
// use it if COMMIT itself failed, nor if no batch can be the cause: every batch would wait
// while the others fail.
func Undone(err error) error { return &undoneError{err} }

type undoneError struct{ error }

func (e *undoneError) Unwrap() error { return e.error }

// NotBegun marks an error of an Apply that could not begin because others hold a lock:
// nothing was written, and no batch is the cause. The batches are tried again until their
// callers give up. An Apply should return it after a short while, since callers can give up
// only between attempts.
func NotBegun(err error) error { return &notBegunError{err} }

type notBegunError struct{ error }

func (e *notBegunError) Unwrap() error { return e.error }

// A Panic is the error of batches whose Apply panicked, or exited its goroutine (then Value
// is nil). Whether they were written is unknown.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprintf("panic in commit: %v\n%s", e.Value, e.Stack) }
