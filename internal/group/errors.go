package group

import "fmt"

// Undone marks an error of an Apply: the transaction certainly wrote nothing,
// and one batch may be to blame. The batches are then tried in smaller groups.
// An Apply must not say so when COMMIT itself failed, nor when no batch can be
// the reason: everybody would wait for the others' failures.
func Undone(err error) error { return &undoneError{err} }

type undoneError struct{ error }

func (e *undoneError) Unwrap() error { return e.error }

// NotBegun marks an error of an Apply that could not begin, as others have a lock: nothing
// was written, and no batch is to blame. The batches are tried again, unless their callers
// give up; an Apply returns it after a short while, which is how soon they can.
func NotBegun(err error) error { return &notBegunError{err} }

type notBegunError struct{ error }

func (e *notBegunError) Unwrap() error { return e.error }

// A Panic is the answer of batches whose Apply panicked, or left its goroutine
// (then Value is nil). Whether they were written is unknown.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprintf("panic in commit: %v\n%s", e.Value, e.Stack) }
