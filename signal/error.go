package signal

import (
	"errors"
	"fmt"
)

// ErrConflict says that a signal ID is taken. The error is a *ConflictError or an
// *IndeterminateError.
var ErrConflict = errors.New("signal: conflict")

// A ConflictError is ErrConflict with the names of the signal. It never shows a
// payload.
type ConflictError struct{ WorkflowID, SignalName, SignalID string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("signal: send %q of %s to %q: this ID was accepted with another payload", e.SignalID, e.SignalName, e.WorkflowID)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// An IndeterminateError has the Code SignalAcceptanceIndeterminate: the payload of this ID exists
// and its acceptance does not, as in a damaged or partly restored store. Nothing was
// enqueued. Sending again does not help until an operator has looked
// (engine.Engine.Signals) and cleared it (ClearSignal), or the workflow was purged. It
// wraps ErrConflict and never shows a payload.
type IndeterminateError struct {
	WorkflowID, SignalName, SignalID string

	CorrelationID string // of this error in the engine's log
}

func (e *IndeterminateError) Error() string {
	return fmt.Sprintf("signal: send %q of %s to %q: %s: its payload is there and its acceptance is not (%s)",
		e.SignalID, e.SignalName, e.WorkflowID, e.Code(), e.CorrelationID)
}

// Code returns the name of the error that every transport uses: SignalAcceptanceIndeterminate.
func (e *IndeterminateError) Code() string { return "SignalAcceptanceIndeterminate" }

func (e *IndeterminateError) Unwrap() error { return ErrConflict }

// A PayloadError says that today's code cannot decode a payload into the receiver's
// type. No workflow function gets one: it is the reason for holding a run, and
// engine.Engine.Replay returns it.
type PayloadError struct {
	WorkflowID, SignalName, SignalID string
	Err                              error
}

func (e *PayloadError) Error() string {
	return fmt.Sprintf("signal: receive %q of %s in %q: %v", e.SignalID, e.SignalName, e.WorkflowID, e.Err)
}

func (e *PayloadError) Unwrap() error { return e.Err }
