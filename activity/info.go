package activity

import (
	"context"
	"time"
)

// Info describes an attempt. A verifier gets that of the attempt in question, and a
// Compensate that of the call that it undoes.
type Info struct {
	Phase Phase

	WorkflowID, Workflow string
	Activity             string
	Operation            string // its place in the workflow

	// IdempotencyKey names the effect, the same in every attempt. It is for the
	// external system. It is empty for an activity without one.
	IdempotencyKey string

	// Attempt counts from 1. If a process died and it is unknown whether it had started
	// an attempt, that one is counted. With an idempotency key every attempt is
	// recorded before it starts, and the count is exact.
	Attempt int

	// FencingToken rises with every recorded attempt and every time that the workflow
	// changes owners. If a target refuses tokens lower than the highest it has seen,
	// attempts that were given up cannot affect it.
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

// NewContext returns a context with i, for tests of an activity's Run, Verify and
// Compensate. It reports i.Deadline as its deadline if there is one, but does not end
// by itself. With a nil h, Heartbeat reports nothing and Progress finds nothing.
func NewContext(ctx context.Context, i Info, h Heart) context.Context {
	return &attempt{ctx, i, h}
}

// An attempt is the context of one. The engine cancels it, and has the timer.
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

// Err distinguishes a timeout from other ends, as contexts do.
func (a *attempt) Err() error {
	err := a.Context.Err()
	if err != nil && context.Cause(a.Context) == ErrTimeout {
		return context.DeadlineExceeded
	}
	return err
}
