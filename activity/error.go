package activity

import (
	"errors"
	"fmt"
)

var (
	// ErrTimeout is the cause of an attempt's context when its Timeout has passed, and
	// is wrapped by the *Error if that was the last attempt.
	ErrTimeout = errors.New("activity: timed out")

	// ErrLeaseLost is the cause of an attempt's context when its engine has lost the
	// right to run the workflow: another engine takes over, or the workflow was reset. A cause that
	// wraps it says which.
	ErrLeaseLost = errors.New("activity: lease lost")

	// ErrStopped is the cause of an attempt's context when the engine stops. The
	// activity will run again where the workflow continues.
	ErrStopped = errors.New("activity: engine stops")

	// ErrTerminated is the cause of an attempt's context when an operator has terminated
	// the workflow. Nobody looks at the attempt's outcome any more.
	ErrTerminated = errors.New("activity: workflow terminated")
)

// An Error is the failure of an activity's or a step's last attempt. Its text is the
// same before and after a restart.
type Error struct {
	Activity string
	Attempt  int
	Message  string
	Stack    string // of a panic
	Sentinel error  // one of Activity.Errors, ErrTimeout, or nil
}

func (e *Error) Error() string {
	return fmt.Sprintf("activity %s: attempt %d: %s", e.Activity, e.Attempt, e.Message)
}

func (e *Error) Unwrap() error { return e.Sentinel }

// An IndeterminateError says that an activity with an idempotency key may have had its
// effect, and that this could not be determined. It was not attempted again. If the workflow
// has failed because of it, an operator who finds out can call engine.Engine.Resume, and then
// say so with engine.Engine.Resolve. While the workflow goes on, Resolve does not change this
// outcome. With OnIndeterminate AwaitOperator the call waits for Resolve instead, and there is
// no such error.
type IndeterminateError struct {
	Activity, Operation, IdempotencyKey string
	Attempt                             int // the last that started
	Reason                              string
}

func (e *IndeterminateError) Error() string {
	return fmt.Sprintf("activity %s: operation %s, key %q: outcome of attempt %d is unknown: %s", e.Activity, e.Operation, e.IdempotencyKey, e.Attempt, e.Reason)
}

// A ResultUnavailableError says that an activity had its effect, and that its
// result is lost. It is not attempted again.
type ResultUnavailableError struct{ Activity, Operation, IdempotencyKey, Reason string }

func (e *ResultUnavailableError) Error() string {
	return fmt.Sprintf("activity %s: operation %s, key %q: completed, and its result is lost: %s", e.Activity, e.Operation, e.IdempotencyKey, e.Reason)
}

// A ContradictionError says that two sources contradict each other about whether an
// activity had its effect, or with which result. Weft trusts neither, and the activity is
// not attempted again. First and Second say what was observed. The activity's Record has
// the results, as SeenResult and VerifiedResult.
type ContradictionError struct{ Activity, Operation, IdempotencyKey, First, Second string }

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("activity %s: operation %s, key %q: contradiction: %s; %s", e.Activity, e.Operation, e.IdempotencyKey, e.First, e.Second)
}

// A DefinitionError says what is wrong with an Activity.
type DefinitionError struct{ Activity, Field, Problem string }

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("activity %q: %s %s", e.Activity, e.Field, e.Problem)
}

// Permanent marks err: a retry will not help.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// IsPermanent says that err, or one that it wraps, was made with Permanent.
func IsPermanent(err error) bool {
	var p *permanent
	return errors.As(err, &p)
}

type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

// NoEffect marks err: nothing happened outside, so an activity with an idempotency key
// may be attempted again without calling its verifier.
func NoEffect(err error) error {
	if err == nil {
		return nil
	}
	return &noEffect{err}
}

// IsNoEffect says that err, or one that it wraps, was made with NoEffect.
func IsNoEffect(err error) bool {
	var n *noEffect
	return errors.As(err, &n)
}

type noEffect struct{ error }

func (n *noEffect) Unwrap() error { return n.error }

// A Category says what kind of failure it is.
type Category string

const (
	CategoryFailed            Category = ""                   // Run returned an error, or panicked
	CategoryTimedOut          Category = "timed-out"          // its timeout passed
	CategoryLost              Category = "lost"               // its process died
	CategoryIndeterminate     Category = "indeterminate"      // the outcome cannot be determined
	CategoryResultUnavailable Category = "result-unavailable" // it happened, and its result is lost
	CategoryContradiction     Category = "contradiction"      // two sources contradict each other
	CategoryResolved          Category = "resolved"           // an operator's answer
)

// Internal to Weft: what package idempotency needs.

// Unmarked returns err without its marks: IsPermanent and IsNoEffect are false for it. It is for what an error of
// unknown effect wraps, whose marks say nothing about that error. All else that err wraps is found in it.
func Unmarked(err error) error {
	if err == nil {
		return nil
	}
	return &unmarked{err}
}

type unmarked struct{ error }

func (u *unmarked) Is(target error) bool { return errors.Is(u.error, target) }

func (u *unmarked) As(target any) bool {
	switch target.(type) {
	case **permanent, **noEffect:
		return false
	}
	return errors.As(u.error, target)
}
