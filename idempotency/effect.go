package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/activity"
)

// Defaults of an Effect.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultWait      = 2 * time.Minute
	DefaultRetention = 48 * time.Hour
)

// An Effect is something that must happen once for each key. Name and Run are required. Fill it
// in before its first use, and do not change it afterwards.
type Effect[In, Out any] struct {
	// Name is the Action of keys that have none, and appears in logs. It never changes.
	Name string

	// Run makes the effect happen. It runs in the caller's goroutine. What it returns decides what is recorded:
	//
	//   - nil: the key is sealed with the result.
	//   - activity.NoEffect(err): nothing happened. The key is released: the next call runs.
	//   - activity.NoEffect(activity.Permanent(err)): nothing happened and never will. The key
	//     has failed.
	//   - Any other error, a panic and a timeout mean that it may have happened. Verify is asked.
	//     Without one, the key is indeterminate.
	//
	// AttemptFrom(ctx) has the key's hash for the external system, and activity.InfoFrom(ctx)
	// the fencing token, the number of the attempt and the deadline.
	Run func(ctx context.Context, in In) (Out, error)

	// Errors are sentinels that callers distinguish: a *FailedError matches them by errors.Is,
	// also when it comes from the record. They are recorded by their text.
	Errors []error

	// OnAbandoned says what follows if the outcome of an attempt is unknown: its process died, or
	// its error did not say. The default is VerifyOrHold.
	OnAbandoned Abandoned

	// Verify finds out whether the effect happened. Its context has the Attempt in question. An
	// error, a panic and a timeout count as activity.Indeterminate.
	Verify func(ctx context.Context, in In) (activity.Verification[Out], error)

	// VerifyFences says that Verify, before it looks, makes the external system refuse late
	// requests of earlier attempts, by their fencing tokens. Then there is no wait for Settle.
	VerifyFences bool

	// Reserve chooses the effect's id, and data of up to 64 KiB, before the first attempt. They are stored with the claim
	// and are the same in every attempt. An error of Reserve is returned, but not as ErrInvalid, and nothing is written.
	// What cannot be stored is a *ConfigError. Its context ends after Timeout. Without Reserve the id is eff_ and a ULID.
	Reserve func(ctx context.Context, in In) (Reservation, error)

	// EffectID returns the final id of an effect that happened. Without it the reserved id is final.
	EffectID func(in In, out Out) string

	// Fingerprint returns what a duplicate must have in common with the first request, compared as
	// canonical JSON. Without it, it is the whole input.
	Fingerprint func(in In) any

	// DiffValues has a *ConflictError contain the values that differ, and not only where.
	DiffValues bool

	// Order, if not nil, has the effects of one source happen one at a time, and none after a newer one.
	Order *Order[In]

	// Timeout limits one call of Run, and one of Reserve before it. Zero is DefaultTimeout.
	Timeout time.Duration

	// VerifyTimeout limits one call of Verify. Zero is activity.DefaultVerifyTimeout.
	VerifyTimeout time.Duration

	// Settle is how long after an attempt's Timeout its effect may still happen: a request may
	// be on its way when its sender dies. Zero is the Timeout.
	Settle time.Duration

	// Wait is how long a call waits for the outcome of another one with the same key. Zero is
	// DefaultWait. If it is negative, the call returns an *InProgressError at once.
	Wait time.Duration

	// Retention is how long a result is kept, from when it was sealed. A call that comes later runs
	// again. Zero is DefaultRetention. It must be longer than the Ledger's Lease.
	Retention time.Duration

	// RetryHorizon is for how long callers may repeat a request, if that is known. Retention must
	// be at least twice that, because wall clocks err.
	RetryHorizon time.Duration
}

// Abandoned says what follows for a key whose attempt has an unknown outcome.
type Abandoned uint8

const (
	VerifyOrHold Abandoned = iota // ask Verify; without one, as Hold
	Hold                          // an *IndeterminateError, until somebody calls Ledger.Resolve
	TakeOver                      // run again: a repetition does no harm
)

func (a Abandoned) String() string {
	switch a {
	case VerifyOrHold:
		return "verify-or-hold"
	case Hold:
		return "hold"
	case TakeOver:
		return "take-over"
	}
	return "invalid"
}

// A Reservation is what Effect.Reserve chose before the first attempt.
type Reservation struct {
	EffectID string // 1 to 200 bytes of UTF-8
	Data     []byte // at most 64 KiB
}

// An Attempt describes a call of Run, of Verify, or of a guarded HTTP handler.
type Attempt struct {
	Key  Key
	Hash string // of Key: give it to the external system as the idempotency key
	Reservation
}

type attemptKey struct{}

// AttemptFrom returns the Attempt that ctx was made for, or the zero Attempt.
func AttemptFrom(ctx context.Context) Attempt {
	if c, ok := ctx.Value(attemptKey{}).(*call); ok {
		return c.attempt()
	}
	return Attempt{}
}

// An Order makes events of one source take effect one at a time, and the older ones not after a newer one. Source and
// Version are of the input; Source has at most 255 bytes of UTF-8, Version at most 255. An empty Version is invalid.
//
// While it is unknown what became of an event, those of its source that come later are *[IndeterminateError]s. Only if
// both have the policy TakeOver does a newer one run.
type Order[In any] struct {
	Source  func(in In) string
	Version func(in In) string
	Compare func(a, b string) (int, error) // CompareInt, CompareTime, or your own

	// Ties says that two events of equal versions are both to happen. Otherwise the second one,
	// if its key differs, is a *ConflictError. Set it for versions that are times.
	Ties bool
}

// A Receipt says what became of a call. Its Decision is set beside an error, too.
type Receipt[Out any] struct {
	EffectID  string // the same in all answers for a key
	Result    Out
	Decision  Decision
	Attempt   int // that led to the result; counted from 1
	FirstSeen time.Time
	SealedAt  time.Time
}

// A Decision says what a call found.
type Decision string

const (
	DecidedNew           Decision = "new"           // this call ran the effect, or found out that it had happened
	DecidedDuplicate     Decision = "duplicate"     // it was sealed before
	DecidedConflict      Decision = "conflict"      // the key belongs to another request
	DecidedInProgress    Decision = "in_progress"   // somebody else is at it
	DecidedStale         Decision = "stale"         // a newer event of the source is sealed
	DecidedIndeterminate Decision = "indeterminate" // nobody knows whether it happened
	DecidedFenceLost     Decision = "fence_lost"    // another holder took it over meanwhile
	DecidedFailed        Decision = "failed"        // it did not happen and never will
	DecidedReleased      Decision = "released"      // it did not happen; the next call runs
)

// Check returns the problems of a definition, joined: each is a *ConfigError.
func (e *Effect[In, Out]) Check() error {
	var errs []error
	bad := func(field, problem string) { errs = append(errs, &ConfigError{"Effect." + field, problem}) }
	if e.Name == "" {
		bad("Name", "is empty")
	} else if err := checkText("Name", e.Name, maxAction); err != nil {
		bad("Name", err.Error())
	}
	if e.Run == nil {
		bad("Run", "is nil")
	}
	if e.OnAbandoned > TakeOver {
		bad("OnAbandoned", "has an unknown value")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Timeout", e.Timeout}, {"VerifyTimeout", e.VerifyTimeout}, {"Settle", e.Settle},
		{"Retention", e.Retention}, {"RetryHorizon", e.RetryHorizon},
	} {
		if d.value < 0 {
			bad(d.field, "is negative")
		}
	}
	if e.RetryHorizon > 0 && e.retention()/2 < e.RetryHorizon {
		bad("Retention", "is less than twice RetryHorizon")
	}
	if e.VerifyFences && e.Verify == nil {
		bad("VerifyFences", "is set, and Verify is nil")
	}
	if o := e.Order; o != nil && (o.Source == nil || o.Version == nil || o.Compare == nil) {
		bad("Order", "lacks Source, Version or Compare")
	}
	for _, s := range e.Errors {
		if s == nil {
			bad("Errors", "contains nil")
		}
	}
	return errors.Join(errs...)
}

func (e *Effect[In, Out]) retention() time.Duration { return orDefault(e.Retention, DefaultRetention) }

func orDefault(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}
