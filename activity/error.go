package activity

import (
	"errors"
	"fmt"
)

var (
	// ErrTimeout is the cause of an attempt's context when its Timeout is over,
	// and in the tree of the *Error if that was the last attempt.
	ErrTimeout = errors.New("activity: timed out")

	// ErrLeaseLost is the cause of an attempt's context when its engine lost the
	// right to drive the workflow: somebody else will.
	ErrLeaseLost = errors.New("activity: lease lost")

	// ErrStopped is the cause of an attempt's context when the engine stops.
	// The activity will run again where the workflow goes on.
	ErrStopped = errors.New("activity: engine stops")
)

// An Error is how an activity's or a step's last attempt failed. It reads the
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

// A DefinitionError says what is wrong with an Activity.
type DefinitionError struct{ Activity, Field, Problem string }

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("activity %q: %s %s", e.Activity, e.Field, e.Problem)
}

// Permanent marks err: no retry will help.
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
