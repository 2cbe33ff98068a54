package activity

import (
	"context"
)

// Heartbeat reports how far the attempt has come. The next attempt and the verifier
// read this with [Progress]. It also says whether to continue: its error is the cause
// when the attempt should stop, which is or wraps ErrTimeout, ErrLeaseLost, ErrStopped,
// ErrTerminated, engine.ErrCancelled, or that of the caller's own context. It is another error if
// progress cannot be encoded, or has more than 64 KiB when encoded; such progress is
// not reported.
//
// It does not wait for the store and may be called as often as you like. The last value
// is written every five seconds, and when the attempt ends without a result. Values of
// the last five seconds before a process died are lost. A store that cannot be reached
// is no reason to stop.
//
// With a context that is not an attempt's, and in a verifier, nothing is reported.
func Heartbeat[T any](ctx context.Context, progress T) error {
	var err error
	if h := HeartFrom(ctx); h != nil {
		err = h.Beat(progress)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Progress returns what an earlier attempt reported last; in a verifier, the attempt in
// question or one before it. It reads the store once, and waits for it. It returns
// false if nothing was reported, if the value is not a T, or if ctx ends before the
// store answers. Progress is a hint where to continue, and no proof of what happened.
func Progress[T any](ctx context.Context) (progress T, ok bool) {
	h := HeartFrom(ctx)
	if h == nil || !h.Last(&progress) {
		return *new(T), false
	}
	return progress, true
}

// Internal to Weft: what packages engine and stream, and tests, need.

// HeartFrom returns the engine's side of the attempt of ctx; nil: there is none.
func HeartFrom(ctx context.Context) Heart {
	h, _ := ctx.Value(heartKey{}).(Heart)
	return h
}

// A Heart is the engine's side of Heartbeat and Progress.
type Heart interface {
	Beat(progress any) error // encodes it before it returns
	Last(progress any) bool  // decodes into a pointer
}
