package checkpoint

import "fmt"

// A Status says how far a workflow has come.
type Status string

const (
	Pending   Status = "pending"   // nobody has begun it
	Running   Status = "running"   // begun; also while it waits, or needs a person
	Completed Status = "completed" // its function returned a result
	Failed    Status = "failed"    // its function returned an error
	Cancelled Status = "cancelled" // it was asked to stop, and did
)

// Terminal says that a workflow has ended. Terminal is final, but for what an
// operator does to a failed one: see Hold.Retry.
func (s Status) Terminal() bool {
	return s == Completed || s == Failed || s == Cancelled
}

// To returns a *TransitionError unless a workflow may go from s to next:
// pending → running → completed, failed or cancelled; or pending → cancelled, of one
// that was asked to stop while it waited in the line of its queue.
func (s Status) To(next Status) error {
	switch {
	case s == Pending && (next == Running || next == Cancelled), s == Running && next.Terminal():
		return nil
	}
	return &TransitionError{From: s, To: next}
}

// A TransitionError is the refusal of a change of status.
type TransitionError struct{ From, To Status }

func (e *TransitionError) Error() string {
	return fmt.Sprintf("Invalid transition from %s to %s", e.From, e.To)
}
