package activity

import (
	"context"
	"time"
)

// Info is what an attempt may know of itself.
type Info struct {
	WorkflowID, Workflow string
	Activity             string
	Operation            string // its place in the workflow

	// Attempt counts from 1. Where a process died and nobody knows whether it
	// had begun an attempt, that one is counted.
	Attempt int

	// FencingToken rises with every recorded attempt and every time that the
	// workflow changes hands. A target that refuses a token lower than it has
	// seen cannot be reached by an attempt that was given up.
	FencingToken uint64

	Deadline time.Time // of this attempt
}

type infoKey struct{}

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
// if there is one: for tests of an activity's Run. It does not end by itself.
func NewContext(ctx context.Context, i Info) context.Context {
	return &attempt{ctx, i}
}

// An attempt is the context of one. It is cancelled by the engine, which has the
// timer.
type attempt struct {
	context.Context
	info Info
}

func (a *attempt) Value(key any) any {
	if _, ok := key.(infoKey); ok {
		return &a.info
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
