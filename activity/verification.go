package activity

import (
	"fmt"
)

// A Verification is a verifier's answer: the outcome of an attempt. One of four
// functions makes it; the zero value is invalid and is rejected.
type Verification[Out any] struct {
	state  State
	result Out
	reason string
}

// NotCompleted says that the effect did not happen and will not: the activity may be
// attempted again. If a request may still be on its way, or the target cannot tell,
// answer Indeterminate.
func NotCompleted[Out any]() Verification[Out] {
	return Verification[Out]{state: StateNotCompleted}
}

// CompletedWithResult says that the effect happened, with this result. The workflow
// continues with it.
func CompletedWithResult[Out any](result Out) Verification[Out] {
	return Verification[Out]{state: StateCompletedWithResult, result: result}
}

// CompletedResultUnavailable says that the effect happened, and that its result is
// lost. The workflow gets a *ResultUnavailableError.
func CompletedResultUnavailable[Out any]() Verification[Out] {
	return Verification[Out]{state: StateCompletedResultUnavailable}
}

// Indeterminate says that the outcome cannot be determined yet. The verifier is called
// again, as VerifyRetry says.
func Indeterminate[Out any](reason string) Verification[Out] {
	return Verification[Out]{state: StateIndeterminate, reason: reason}
}

// Failed is an operator's answer, for engine.Engine.Resolve: the effect did not happen,
// and must not be attempted again. A verifier cannot give it.
func Failed(reason string) Answer { return Verdict{State: StateFailed, Reason: reason} }

// Internal to Weft: what package engine needs.

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

// A State is what an answer says. The zero value is no answer.
type State uint8

const (
	_ State = iota
	StateNotCompleted
	StateCompletedWithResult
	StateCompletedResultUnavailable
	StateIndeterminate
	StateFailed // only an operator's
)

var stateNames = [...]string{"none", "not-completed", "completed-with-result", "completed-result-unavailable", "indeterminate", "failed"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}
