// Package activity defines the steps of a workflow that act on the world
// outside: functions that take a context and may fail, be tried again and time
// out.
//
// An activity runs at least once. Its outcome is durable before the workflow
// sees it, and from then on it is not run again; but a process that dies between
// the effect and the record of it leaves nobody who knows, and the activity runs
// again. Give the other side what [InfoFrom] tells: workflow and operation name
// the effect, whatever is repeated.
package activity

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
)

// An Activity is a function with effects outside the store. Only Name and Run
// are required. It is filled in before the engine starts and not changed
// afterwards.
type Activity[In, Out any] struct {
	// Name is recorded in histories and never changes.
	Name string

	// Run does the work, once per attempt. Its context ends with the attempt's
	// Timeout, when the workflow is cancelled and when the engine stops;
	// context.Cause tells which. A panic in it is a failed attempt.
	Run func(ctx context.Context, in In) (Out, error)

	// Errors are sentinels that callers tell apart: an attempt's error that
	// errors.Is one of them is still that in the workflow, also after a restart.
	// They are recorded by their text.
	Errors []error

	// Retry says how a failed attempt is followed by another. The count and the
	// time of the next attempt are durable.
	Retry Retry

	// Timeout bounds one attempt. Zero is DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is the time that an attempt has where none is given.
const DefaultTimeout = time.Minute

// Retry says how often an attempt is followed by another, and when. Errors made
// with Permanent are not retried at all.
type Retry struct {
	Attempts   int           // in all; 0: 5, negative: no bound
	Backoff    time.Duration // before the second attempt, then doubled, each with jitter; 0: 1 s
	MaxBackoff time.Duration // 0: 1 min
}

// An Action is what follows when nobody can tell what became of an attempt.
type Action uint8

const (
	ReturnError Action = iota // the workflow gets an *IndeterminateError
	Park                      // the operation waits for a person, who answers with engine.Engine.Resolve
)

// Options are what may differ for one call. Zero fields leave what the
// definition says.
type Options struct {
	Retry   Retry
	Timeout time.Duration
}

// With returns a copy of a for one call.
func (a *Activity[In, Out]) With(o Options) *Activity[In, Out] {
	c := *a
	if o.Retry != (Retry{}) {
		c.Retry = o.Retry
	}
	if o.Timeout != 0 {
		c.Timeout = o.Timeout
	}
	return &c
}

// Do runs the activity and waits for its outcome. The error is an *Error if all
// attempts failed, and engine.ErrCancelled if the workflow was cancelled.
func (a *Activity[In, Out]) Do(run Runner, in In) (Out, error) {
	return future.Await[Out](run, a.begin(run, in))
}

// Go begins the activity and does not wait: the future does. What is under way
// when the workflow function returns is given up.
func (a *Activity[In, Out]) Go(run Runner, in In) *future.Future[Out] {
	return future.New[Out](a.begin(run, in))
}

func (a *Activity[In, Out]) begin(run Runner, in In) future.Operation {
	return run.RunActivity(Call{
		Definition: a,
		Policy:     Policy{Name: a.Name, Errors: a.Errors, Retry: a.Retry, Timeout: a.Timeout},
		Input:      in,
		Run:        func(ctx context.Context) (any, error) { return a.Run(ctx, in) },
	})
}

// Check returns a *DefinitionError if a is not complete or makes no sense.
func (a *Activity[In, Out]) Check() error {
	switch {
	case a == nil:
		return &DefinitionError{Field: "Activity", Problem: "is nil"}
	case a.Name == "":
		return &DefinitionError{Field: "Name", Problem: "is empty"}
	case len(a.Name) > keys.MaxName || !utf8.ValidString(a.Name):
		return &DefinitionError{Activity: a.Name, Field: "Name", Problem: fmt.Sprintf("is not UTF-8 of at most %d bytes", keys.MaxName)}
	case a.Run == nil:
		return &DefinitionError{Activity: a.Name, Field: "Run", Problem: "is nil"}
	case a.Timeout < 0:
		return &DefinitionError{Activity: a.Name, Field: "Timeout", Problem: "is negative"}
	case a.Retry.Backoff < 0 || a.Retry.MaxBackoff < 0:
		return &DefinitionError{Activity: a.Name, Field: "Retry", Problem: "has a negative backoff"}
	}
	for i, err := range a.Errors {
		if err == nil {
			return &DefinitionError{Activity: a.Name, Field: "Errors", Problem: "has a nil"}
		}
		for _, other := range a.Errors[:i] {
			if other != nil && other.Error() == err.Error() {
				return &DefinitionError{Activity: a.Name, Field: "Errors", Problem: "has two with the text " + err.Error()}
			}
		}
	}
	return nil
}

// The seam to package engine. Users have no business here.

// A Definition is an *Activity.
type Definition interface{ Check() error }

// A Runner is an *engine.Run.
type Runner interface {
	future.Runner
	RunActivity(Call) future.Operation
}

// A Call is one use of an activity: values and closures instead of types.
type Call struct {
	Definition Definition
	Policy     Policy
	Input      any
	Run        func(ctx context.Context) (any, error)
}

// A Policy is the part of an activity that has no type parameter.
type Policy struct {
	Name    string
	Errors  []error
	Retry   Retry
	Timeout time.Duration

	// What follows is of reconciled activities.
	Deadline, Settle, VerifyTimeout time.Duration
	VerifyRetry                     Retry
	Verified                        bool // there is a verifier
	Idempotent                      bool
	VerifyFences, SettleAfterError  bool
	OnIndeterminate                 Action
}
