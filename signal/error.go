package signal

import (
	"errors"
	"fmt"
)

// ErrConflict says that a signal ID is taken by another payload.
var ErrConflict = errors.New("signal: conflict")

// A ConflictError is ErrConflict with what it is about. It never shows a payload.
type ConflictError struct{ WorkflowID, SignalName, SignalID string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("signal: send %q of %s to %q: this ID was accepted with another payload", e.SignalID, e.SignalName, e.WorkflowID)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// A PayloadError says that a payload is not of the receiver's type. The signal
// is consumed all the same.
type PayloadError struct {
	WorkflowID, SignalName, SignalID string
	Err                              error
}

func (e *PayloadError) Error() string {
	return fmt.Sprintf("signal: receive %q of %s in %q: %v", e.SignalID, e.SignalName, e.WorkflowID, e.Err)
}

func (e *PayloadError) Unwrap() error { return e.Err }
