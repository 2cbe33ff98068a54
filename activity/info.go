package activity

import (
	"context"
	"time"
)

// Info is what an attempt may know of itself, a verifier of the attempt, and a
// Compensate of the call that it undoes.
type Info struct {
	Phase Phase

	WorkflowID, Workflow string
	Activity             string
	Operation            string // its place in the workflow

	// IdempotencyKey names the effect, the same in every attempt. It is for the
	// other side. It is empty for an activity without one.
	IdempotencyKey string

	// Attempt counts from 1. Where a process died and nobody knows whether it
	// had begun an attempt, that one is counted. With an idempotency key every one
	// is recorded before it begins, and counted exactly.
	Attempt int

	// FencingToken rises with every recorded attempt and every time that the
	// workflow changes hands. A target that refuses a token lower than it has
	// seen cannot be reached by an attempt that was given up.
	FencingToken uint64

	Deadline time.Time // of this attempt
}

// A Phase says what a function is called for.
type Phase string

const (
	PhaseRun        Phase = "run"
	PhaseVerify     Phase = "verify"
	PhaseCompensate Phase = "compensate"
)

type (
	infoKey  struct{}
	heartKey struct{}
)

// InfoFrom returns the Info of the attempt that ctx was made for, or the zero
// Info for any other context.
func InfoFrom(ctx context.Context) Info {
	i, _ := ctx.Value(infoKey{}).(*Info)
	if i == nil {
		return Info{}
	}
	return *i
}

// NewContext returns a context with i, whose deadline is said to be i.Deadline
// if there is one: for tests of an activity's Run, Verify and Compensate. It does
// not end by itself. With a nil h nothing can be told, and nothing was.
func NewContext(ctx context.Context, i Info, h Heart) context.Context {
	return &attempt{ctx, i, h}
}

// An attempt is the context of one. It is cancelled by the engine, which has the
// timer.
type attempt struct {
	context.Context
	info  Info
	heart Heart
}

func (a *attempt) Value(key any) any {
	switch key.(type) {
	case infoKey:
		return &a.info
	case heartKey:
		return a.heart
	}
	return a.Context.Value(key)
}

func (a *attempt) Deadline() (time.Time, bool) {
	if a.info.Deadline.IsZero() {
		return a.Context.Deadline()
	}
	return a.info.Deadline, true
}

// Err tells the end of the attempt's time from other ends, as contexts do.
func (a *attempt) Err() error {
	err := a.Context.Err()
	if err != nil && context.Cause(a.Context) == ErrTimeout {
		return context.DeadlineExceeded
	}
	return err
}
