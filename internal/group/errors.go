package group

import "fmt"

// Undone marks an error of an Apply: the transaction certainly wrote nothing,
// and one batch may be to blame. The batches are then tried in smaller groups.
// An Apply must not say so when COMMIT itself failed, nor when no batch can be
// the reason: everybody would wait for the others' failures.
func Undone(err error) error { return &undoneError{err} }

type undoneError struct{ error }

func (e *undoneError) Unwrap() error { return e.error }

// A Panic is the answer of batches whose Apply panicked, or left its goroutine
// (then Value is nil). Whether they were written is unknown.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprintf("panic in commit: %v\n%s", e.Value, e.Stack) }
