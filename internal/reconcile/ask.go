package reconcile

import (
	"context"
	"fmt"

	"github.com/weft-go/weft/activity"
)

// Ask calls a verifier, once. The result is always one of a verifier's four answers: an
// error, a panic, a Goexit, an invalid answer and one after the timeout are
// indeterminate.
//
// Goexit ends the calling goroutine: then Ask has called tell and does not return.
func Ask(ctx context.Context, verify func(context.Context) (activity.Answer, error), tell func(activity.Verdict)) {
	v := unsure("the verifier called runtime.Goexit")
	defer func() { tell(v) }()
	defer func() {
		if p := recover(); p != nil {
			v = unsure(fmt.Sprintf("the verifier panicked: %v", p)) // the text of p is user code, too
		}
	}()
	v = ask(ctx, verify)
}

// unsure returns a verdict that leaves the outcome open.
func unsure(reason string) activity.Verdict {
	return activity.Verdict{State: activity.StateIndeterminate, Reason: reason}
}

func ask(ctx context.Context, verify func(context.Context) (activity.Answer, error)) activity.Verdict {
	a, err := verify(ctx)
	switch {
	case context.Cause(ctx) == activity.ErrTimeout:
		return unsure("the verifier timed out") // whatever it answers now
	case err != nil:
		return unsure("the verifier failed: " + err.Error())
	case a == nil:
		return unsure("the verifier gave no answer")
	}
	switch v := a.Verdict(); v.State {
	case activity.StateNotCompleted, activity.StateCompletedWithResult, activity.StateCompletedResultUnavailable, activity.StateIndeterminate:
		return v
	default:
		return unsure(fmt.Sprintf("the verifier gave an answer that is none: %v", v.State))
	}
}
