package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// CK7: pending → running → completed, failed or cancelled, and pending → cancelled; nothing
// else, and nothing after an end.
func TestTransitions(t *testing.T) {
	all := []Status{StatusPending, StatusRunning, StatusCompleted, StatusFailed, StatusCancelled}
	allowed := [][2]Status{{StatusPending, StatusRunning}, {StatusPending, StatusCancelled}, {StatusRunning, StatusCompleted}, {StatusRunning, StatusFailed}, {StatusRunning, StatusCancelled}}
	for _, from := range all {
		for _, to := range all {
			err := from.To(to)
			if slices.Contains(allowed, [2]Status{from, to}) {
				if err != nil {
					t.Errorf("%s to %s: %v, want nil", from, to, err)
				}
				continue
			}
			var refused *TransitionError
			if !errors.As(err, &refused) || *refused != (TransitionError{from, to}) {
				t.Errorf("%s to %s: %v, want a *TransitionError", from, to, err)
				continue
			}
			if want := fmt.Sprintf("Invalid transition from %s to %s", from, to); err.Error() != want {
				t.Errorf("%s to %s: text %q, want %q", from, to, err, want)
			}
		}
		if got, want := from.Terminal(), from != StatusPending && from != StatusRunning; got != want {
			t.Errorf("%s.Terminal() = %v, want %v", from, got, want)
		}
	}
	if got, want := StatusCompleted.To(StatusRunning).Error(), "Invalid transition from completed to running"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
