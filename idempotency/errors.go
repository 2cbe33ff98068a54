package idempotency

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/payload"
)

// Errors to test with errors.Is. The types below wrap the one of their name.
var (
	// ErrInvalid means that a key, an input, a definition or an option is not acceptable.
	// Nothing was written, and nothing was run.
	ErrInvalid = errors.New("idempotency: invalid")

	// ErrNotFound is returned by Resolve and Forget if nothing is known of the key.
	ErrNotFound = errors.New("idempotency: nothing is known of this key")

	// ErrNotSealed is returned by Lookup if the key has no result.
	ErrNotSealed = errors.New("idempotency: the key has no result")

	// ErrNotApplicable is returned by Resolve if the key is neither lapsed nor indeterminate, or has
	// had another attempt since the one that was examined.
	ErrNotApplicable = errors.New("idempotency: not applicable")

	// ErrOtherStore is returned by the methods of a Ledger that In returned, if the transaction
	// is not on the Ledger's own store.
	ErrOtherStore = errors.New("idempotency: the transaction is on another store than the ledger")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("idempotency: ledger is closed")

	ErrConflict          = errors.New("idempotency: the key was used for another request")
	ErrInProgress        = errors.New("idempotency: the effect is in progress")
	ErrIndeterminate     = errors.New("idempotency: it is unknown whether the effect happened")
	ErrFailed            = errors.New("idempotency: the effect did not happen and never will")
	ErrStale             = errors.New("idempotency: a newer event of this source is sealed")
	ErrFenceLost         = errors.New("idempotency: another holder took the key over")
	ErrResultUnavailable = errors.New("idempotency: the effect happened, and its result is not available")
)

// A ConflictError means that the key belongs to a request that differs from this one. Nothing
// was run. The record is unchanged.
type ConflictError struct {
	EffectID string // of the first request

	// Diff says where the requests differ, as the operations of a JSON Patch (RFC 6902) that
	// makes the first request into this one. Operations have no values unless they were asked
	// for. It is empty if the first request is too large to be stored.
	Diff      []Change
	DiffBytes int  // size of the whole diff as JSON, of which Diff may be a part
	Truncated bool // Diff is not the whole diff
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v (effect %s, %d differences)", ErrConflict, e.EffectID, len(e.Diff))
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// An InProgressError means that somebody is at it, or that the result is not durable yet. Call again with the same key.
type InProgressError struct {
	EffectID   string        // reserved
	RetryAfter time.Duration // when to ask again
	Err        error         // why the call did not wait longer: the store's error, or the context's; may be nil
}

func (e *InProgressError) Error() string {
	s := fmt.Sprintf("%v (effect %s); call again after %v", ErrInProgress, e.EffectID, e.RetryAfter)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *InProgressError) Unwrap() []error { return withCause(ErrInProgress, activity.Unmarked(e.Err)) }

// An IndeterminateError means that the effect may have happened, and that nobody knows. It is
// not attempted again, unless the Effect says that this does no harm, or its verifier finds out.
// An operator who finds out says so with [Ledger.Resolve].
//
// It wraps Err without the marks that Run has set: for activity.IsNoEffect and activity.IsPermanent, what Run said of
// itself does not count. A Run that returns the error of another Do thus says that its own effect may have happened.
// An InProgressError is the same in this.
type IndeterminateError struct {
	EffectID string // reserved
	Attempt  int    // the last that began
	Reason   string
	Err      error // what Run returned, if it was run by this call
}

func (e *IndeterminateError) Error() string {
	return fmt.Sprintf("%v (effect %s, attempt %d): %s", ErrIndeterminate, e.EffectID, e.Attempt, e.Reason)
}

func (e *IndeterminateError) Unwrap() []error {
	return withCause(ErrIndeterminate, activity.Unmarked(e.Err))
}

// A FailedError means that the effect did not happen and will not be attempted again with this
// key. Its text is the same in every answer.
type FailedError struct {
	EffectID string // reserved
	Message  string
	Sentinel error // one of Effect.Errors, or nil
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%v (effect %s): %s", ErrFailed, e.EffectID, e.Message)
}

func (e *FailedError) Unwrap() []error { return withCause(ErrFailed, e.Sentinel) }

// A StaleError means that a newer event of the same source is sealed already. Nothing was run.
type StaleError struct {
	Version, Sealed string // of this event, and of the newest that is sealed
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: version %q, sealed %q", ErrStale, e.Version, e.Sealed)
}

func (e *StaleError) Unwrap() error { return ErrStale }

// A FenceLostError means that Run returned after another holder had taken the key over. What Run did may be a second effect:
// EffectID names it. The Receipt beside the error is the winner's, if there is one already.
type FenceLostError struct{ EffectID string }

func (e *FenceLostError) Error() string {
	return fmt.Sprintf("%v (orphan %s)", ErrFenceLost, e.EffectID)
}

func (e *FenceLostError) Unwrap() error { return ErrFenceLost }

// A ResultUnavailableError means that the effect happened, and that its result is lost, was too
// large to be stored, or cannot be decoded. The Receipt beside it has all but the result.
type ResultUnavailableError struct {
	EffectID string
	Reason   string
}

func (e *ResultUnavailableError) Error() string {
	return fmt.Sprintf("%v (effect %s): %s", ErrResultUnavailable, e.EffectID, e.Reason)
}

func (e *ResultUnavailableError) Unwrap() error { return ErrResultUnavailable }

// A ConfigError describes a problem of one field of a Config, a Policies or an Effect. It wraps ErrInvalid.
type ConfigError struct{ Field, Problem string }

func (e *ConfigError) Error() string { return fmt.Sprintf("idempotency: %s %s", e.Field, e.Problem) }

func (e *ConfigError) Unwrap() error { return ErrInvalid }

// panicked returns the error of a panic of user code. The panic may be with the error of another effect, whose marks do not count.
func panicked(p any) error { return activity.Unmarked(payload.Panicked(p)) }

func withCause(sentinel, cause error) []error {
	if cause == nil {
		return []error{sentinel}
	}
	return []error{sentinel, cause}
}
