package activity

import (
	"context"
	"fmt"
)

// A Verification is a verifier's answer: what became of an attempt. It is made by
// one of four functions; the zero value is no answer, and is rejected.
type Verification[Out any] struct {
	state  State
	result Out
	reason string
}

// NotCompleted answers that the effect did not happen and will not: the activity
// may be attempted again. A request that is still on its way is not "will not":
// where the target cannot tell, answer Indeterminate.
func NotCompleted[Out any]() Verification[Out] {
	return Verification[Out]{state: StateNotCompleted}
}

// CompletedWithResult answers that the effect happened, and that this is the
// result. The workflow goes on with it.
func CompletedWithResult[Out any](result Out) Verification[Out] {
	return Verification[Out]{state: StateCompletedWithResult, result: result}
}

// CompletedResultUnavailable answers that the effect happened, and that nobody can
// tell the result any more. The workflow gets a *ResultUnavailableError.
func CompletedResultUnavailable[Out any]() Verification[Out] {
	return Verification[Out]{state: StateCompletedResultUnavailable}
}

// Indeterminate answers that nobody can tell yet. The verifier is asked again, as
// VerifyRetry says.
func Indeterminate[Out any](reason string) Verification[Out] {
	return Verification[Out]{state: StateIndeterminate, reason: reason}
}

// Failed is a person's answer, for engine.Engine.Resolve: the effect did not
// happen, and is not to be tried again. A verifier cannot give it.
func Failed(reason string) Answer { return Verdict{State: StateFailed, Reason: reason} }

// The seam to package engine. Users have no business here.

// An Answer is a Verification of any type, or what Failed returns.
type Answer interface{ Verdict() Verdict }

// Verdict is the answer without its type.
func (v Verification[Out]) Verdict() Verdict {
	w := Verdict{State: v.state, Reason: v.reason}
	if v.state == StateCompletedWithResult {
		w.Result = v.result
	}
	return w
}

// A Verdict is an answer without its type.
type Verdict struct {
	State  State
	Result any // of StateCompletedWithResult
	Reason string
}

// Verdict returns v: it is an Answer itself.
func (v Verdict) Verdict() Verdict { return v }

// A State is what an answer says. The zero value is none.
type State uint8

const (
	_ State = iota
	StateNotCompleted
	StateCompletedWithResult
	StateCompletedResultUnavailable
	StateIndeterminate
	StateFailed // only a person's
)

var stateNames = [...]string{"none", "not-completed", "completed-with-result", "completed-result-unavailable", "indeterminate", "failed"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}

// Ask calls a verifier, once. Whatever it does ends in one of a verifier's four
// answers: an error, a panic, a Goexit, an answer that is none of them and one that
// comes when the time is up tell nothing, and so are indeterminate.
//
// Goexit ends the calling goroutine: then tell was called and Ask does not return.
func Ask(ctx context.Context, verify func(context.Context) (Answer, error), tell func(Verdict)) {
	v := unsure("the verifier called runtime.Goexit")
	defer func() {
		if p := recover(); p != nil {
			v = unsure(fmt.Sprintf("the verifier panicked: %v", p))
		}
		tell(v)
	}()
	v = ask(ctx, verify)
}

func ask(ctx context.Context, verify func(context.Context) (Answer, error)) Verdict {
	a, err := verify(ctx)
	switch {
	case context.Cause(ctx) == ErrTimeout:
		return unsure("the verifier timed out") // whatever it says now
	case err != nil:
		return unsure("the verifier failed: " + err.Error())
	case a == nil:
		return unsure("the verifier gave no answer")
	}
	switch v := a.Verdict(); v.State {
	case StateNotCompleted, StateCompletedWithResult, StateCompletedResultUnavailable, StateIndeterminate:
		return v
	default:
		return unsure(fmt.Sprintf("the verifier gave an answer that is none: %v", v.State))
	}
}

func unsure(reason string) Verdict { return Verdict{State: StateIndeterminate, Reason: reason} }
