package checkpoint

import "fmt"

// A Status is the state of a workflow.
type Status string

const (
	StatusPending   Status = "pending"   // nobody has begun it
	StatusRunning   Status = "running"   // begun; also while it waits, or needs a person
	StatusCompleted Status = "completed" // its function returned a result
	StatusFailed    Status = "failed"    // its function returned an error
	StatusCancelled Status = "cancelled" // it was asked to stop, and did; or it was terminated
)

// Terminal reports whether a workflow has ended. A terminal status is final, except that an
// operator can resume a failed workflow, see engine.Engine.Resume, and reset any: see
// engine.Engine.Reset.
func (s Status) Terminal() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// To returns a *TransitionError unless a workflow may change from s to next. Allowed are
// pending → running → completed, failed or cancelled. Also allowed is pending → cancelled, for
// a workflow that was cancelled or terminated before it began.
func (s Status) To(next Status) error {
	switch {
	case s == StatusPending && (next == StatusRunning || next == StatusCancelled), s == StatusRunning && next.Terminal():
		return nil
	}
	return &TransitionError{From: s, To: next}
}

// A TransitionError means that a change of status is not allowed.
type TransitionError struct{ From, To Status }

func (e *TransitionError) Error() string {
	return fmt.Sprintf("Invalid transition from %s to %s", e.From, e.To)
}
