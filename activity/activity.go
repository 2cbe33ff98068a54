// Package activity defines the steps of a workflow that act on the outside world:
// functions that take a context and may fail, be retried and time out.
//
// An activity's outcome is durable before the workflow sees it, and from then on the
// activity is not run again. But a process may die between the effect and the record of
// it. Then the outcome is unknown, and the definition decides what follows:
//
//   - Without an IdempotencyKey the activity is run again: at least once.
//   - With one, a record is durable before the first attempt starts. After a crash, a
//     timeout or an error, Verify is called to find out what became of it. The activity
//     is attempted again only if Verify says that the effect did not happen. An outcome
//     that cannot be determined is an *[IndeterminateError], never a success.
//   - Idempotent says that the external system treats a repetition with the same key as
//     the same effect. Without a Verify, the activity is then attempted again. With one,
//     Verify is called first, and its answer counts without the wait for Settle.
//
// None of this alone makes an effect happen exactly once. Give the external system the
// key, and the fencing token if it can refuse a lower one. [InfoFrom] returns both.
package activity

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
)

// An Activity is a function with effects outside the store. Only Name and Run are
// required. Fill it in before the engine starts, and do not change it afterwards.
type Activity[In, Out any] struct {
	// Name is recorded in histories and never changes. Two activities of one engine must not
	// have the same name. If their types differ, a run that calls the second one is held with
	// engine.ReasonBadDefinition.
	Name string

	// Run does the work, once per attempt. Its in is a copy of the call's input as it
	// was when the call started; Verify and Compensate get copies of their own. Its
	// context ends with the attempt's Timeout, when the workflow is cancelled and when
	// the engine stops; context.Cause tells which. A panic in it is a failed attempt.
	// Its goroutine may run other activities afterwards: if Run locks its thread, it
	// must unlock it.
	Run func(ctx context.Context, in In) (Out, error)

	// Errors are sentinels that callers distinguish: if an attempt's error matches one
	// of them by errors.Is, so does the error in the workflow, even after a restart.
	// They are recorded by their text. Do not change it: recorded errors then match none.
	Errors []error

	// Retry says how failed attempts are retried. The count and the time of the next
	// attempt are durable.
	Retry Retry

	// Timeout limits one attempt. Zero is DefaultTimeout, and DefaultKeyedTimeout for
	// an activity with an idempotency key.
	Timeout time.Duration

	// TotalTimeout limits all attempts and the pauses between them, from the first on: no
	// attempt starts later, and none lasts longer. Zero is no limit.
	TotalTimeout time.Duration

	// IdempotencyKey names the effect that in asks for: the same for the same effect,
	// at most 200 bytes of UTF-8, never empty. It makes the activity reconciled: Weft
	// records what is known of the effect. The function is part of the workflow: it
	// must depend on in alone, not modify it, and not change while workflows run.
	IdempotencyKey func(in In) string

	// Idempotent says that a second run with the same key does no harm, because the
	// external system treats it as the first. Without an IdempotencyKey, Weft derives
	// one from the workflow's generation and the operation.
	Idempotent bool

	// Verify finds out the outcome of an attempt that did not return a result. Its
	// context has the Info of that attempt, except for Phase, FencingToken (larger than
	// that of any attempt before) and Deadline. An error, a panic and a timeout count
	// as Indeterminate. It needs a key.
	Verify func(ctx context.Context, in In) (Verification[Out], error)

	// VerifyRetry says how often Verify is called, and when, before an indeterminate
	// outcome is final.
	VerifyRetry Retry

	// VerifyTimeout limits one call of Verify. Zero is DefaultVerifyTimeout.
	VerifyTimeout time.Duration

	// VerifyFences says that Verify, before it looks, makes the external system refuse
	// late requests of earlier attempts, by their fencing tokens. An effect that is not
	// there then can no longer happen, so there is no wait for Settle.
	VerifyFences bool

	// Settle is how long after an attempt's Timeout its effect may still happen: a
	// request may be on its way when its sender dies. A NotCompleted counts only after
	// that. Zero is the Timeout.
	Settle time.Duration

	// SettleAfterError says that Settle also applies after an attempt that returned an
	// error by itself.
	SettleAfterError bool

	// OnIndeterminate says what follows when the outcome cannot be determined:
	// ReturnError or AwaitOperator.
	OnIndeterminate Action

	// Compensate undoes a call whose result is recorded, if its workflow then fails or
	// is cancelled. Such calls are undone one after the other, the last that completed
	// first, before the workflow ends. It runs at least once, with the Retry, the
	// Timeout and the limits of the call, except for its TotalTimeout; a cancellation
	// request does not end it. Its context has the Info of the call, except for Phase,
	// Attempt (of its own, from 1), FencingToken (larger than that of any attempt
	// before) and Deadline. If its last attempt fails, or one with a Permanent error,
	// the workflow waits for an operator, who answers with engine.Engine.Resolve.
	//
	// A call that failed, or whose outcome is unknown, is not undone.
	Compensate func(ctx context.Context, in In, out Out) error

	// ResourceScope names what in acts on: in one engine, attempts of one scope run one
	// at a time, even if they are of different activities. An empty one is no scope.
	// The scope is locked while Run runs, and not between attempts. Engines in other
	// processes do not know of it: to exclude those too, use the FencingToken.
	ResourceScope func(in In) string

	// MaxConcurrent is how many attempts of this activity run at a time in one engine.
	// Zero is no limit except engine.Config.MaxActivities.
	MaxConcurrent int

	// Rate is how many attempts of this activity start within a time in one engine.
	// Zero is no limit.
	Rate Rate
}

// A Rate is Count within Per: in any span of length Per, no more than Count start.
type Rate struct {
	Count int
	Per   time.Duration
}

// The default timeouts of an attempt and of a verifier.
const (
	DefaultTimeout       = time.Minute
	DefaultKeyedTimeout  = 30 * time.Second
	DefaultVerifyTimeout = 30 * time.Second
)

// Retry says how often a failed attempt is retried, and when. Errors made with
// Permanent are not retried at all.
type Retry struct {
	MaxAttempts int           // in all; 0: 5, negative: no limit
	Backoff     time.Duration // before the second attempt, then doubled, each with jitter; 0: 1 s
	MaxBackoff  time.Duration // 0: 1 min
}

// An Action is what follows when the outcome of an attempt cannot be determined.
type Action uint8

const (
	ReturnError   Action = iota // the workflow gets an *IndeterminateError
	AwaitOperator               // the operation waits for an operator, who answers with engine.Engine.Resolve
)

// Options override the definition for one call. A field that is zero changes nothing. A Retry replaces
// the definition's as a whole: its zero fields are the defaults.
type Options struct {
	IdempotencyKey        string
	Retry                 Retry
	Timeout, TotalTimeout time.Duration
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
	if o.TotalTimeout != 0 {
		c.TotalTimeout = o.TotalTimeout
	}
	if o.IdempotencyKey != "" {
		c.IdempotencyKey = func(In) string { return o.IdempotencyKey }
	}
	return &c
}

// Do runs the activity and waits for its outcome. The error is an *Error if all
// attempts failed; engine.ErrCancelled if the workflow was cancelled; engine.ErrTimeout if
// the time of Run.WithTimeout has passed; engine.ErrForeignRun. With an idempotency key it
// may also be an *IndeterminateError, a *ResultUnavailableError or a *ContradictionError.
// Without one, an *Error that wraps engine.ErrInvalid says that in cannot be encoded.
func (a *Activity[In, Out]) Do(run Runner, in In) (Out, error) {
	return future.Await[Out](run, a.begin(run, in))
}

// Go starts the activity and does not wait: Get of its future does. An activity that is
// in progress when the workflow function returns is given up.
func (a *Activity[In, Out]) Go(run Runner, in In) *future.Future[Out] {
	return future.New[Out](a.begin(run, in))
}

func (a *Activity[In, Out]) begin(run Runner, in In) future.Operation {
	if run == nil {
		panic("activity: " + a.Name + " was called with a nil Run: use the one that the workflow function, or its branch, was given")
	}
	c := Call{
		Definition: a,
		Policy:     a.policy(),
		Input:      in,
		Run:        func(ctx context.Context, in any) (any, error) { return a.Run(ctx, as[In](in)) },
	}
	if a.IdempotencyKey != nil {
		key := a.IdempotencyKey(in)
		c.Key = &key
	}
	if a.Verify != nil {
		c.Verify = func(ctx context.Context, in any) (Answer, error) { return a.Verify(ctx, as[In](in)) }
	}
	if a.Compensate != nil {
		c.Compensate = func(ctx context.Context, in any, decode func(out any) error) error {
			var out Out
			if err := decode(&out); err != nil {
				return Permanent(fmt.Errorf("result: %w", err))
			}
			return a.Compensate(ctx, as[In](in), out)
		}
	}
	if a.ResourceScope != nil {
		c.Scope = a.ResourceScope(in)
	}
	return run.RunActivity(c)
}

// as is in as an In; nil is one if In is an interface.
func as[In any](in any) In {
	v, _ := in.(In)
	return v
}

func (a *Activity[In, Out]) policy() Policy {
	p := Policy{
		Name:             a.Name,
		Errors:           a.Errors,
		Retry:            a.Retry,
		VerifyRetry:      a.VerifyRetry,
		Timeout:          a.Timeout,
		TotalTimeout:     a.TotalTimeout,
		Settle:           a.Settle,
		VerifyTimeout:    a.VerifyTimeout,
		Verified:         a.Verify != nil,
		Idempotent:       a.Idempotent,
		VerifyFences:     a.VerifyFences,
		SettleAfterError: a.SettleAfterError,
		OnIndeterminate:  a.OnIndeterminate,
		MaxConcurrent:    a.MaxConcurrent,
		Rate:             a.Rate,
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
		if a.keyed() {
			p.Timeout = DefaultKeyedTimeout
		}
	}
	if p.Settle == 0 {
		p.Settle = p.Timeout
	}
	if p.VerifyTimeout == 0 {
		p.VerifyTimeout = DefaultVerifyTimeout
	}
	return p
}

// keyed says that a is reconciled.
func (a *Activity[In, Out]) keyed() bool { return a.IdempotencyKey != nil || a.Idempotent }

// Check returns a *DefinitionError if a is incomplete or inconsistent.
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
	}
	wrong := func(field, problem string) error { return &DefinitionError{a.Name, field, problem} }
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"Timeout", a.Timeout}, {"TotalTimeout", a.TotalTimeout}, {"Settle", a.Settle}, {"VerifyTimeout", a.VerifyTimeout},
	} {
		if f.value < 0 {
			return wrong(f.name, "is negative")
		}
	}
	for _, f := range []struct {
		name  string
		given bool
		has   bool
		needs string
	}{
		{"Verify", a.Verify != nil, a.keyed(), "an IdempotencyKey"},
		{"OnIndeterminate", a.OnIndeterminate != 0, a.keyed(), "an IdempotencyKey"},
		{"VerifyRetry", a.VerifyRetry != Retry{}, a.Verify != nil, "Verify"},
		{"VerifyTimeout", a.VerifyTimeout != 0, a.Verify != nil, "Verify"},
		{"VerifyFences", a.VerifyFences, a.Verify != nil, "Verify"},
		{"Settle", a.Settle != 0, a.Verify != nil, "Verify"},
		{"SettleAfterError", a.SettleAfterError, a.Verify != nil, "Verify"},
	} {
		if f.given && !f.has {
			return wrong(f.name, "needs "+f.needs)
		}
	}
	switch {
	case a.Retry.Backoff < 0 || a.Retry.MaxBackoff < 0:
		return wrong("Retry", "has a negative backoff")
	case a.VerifyRetry.Backoff < 0 || a.VerifyRetry.MaxBackoff < 0:
		return wrong("VerifyRetry", "has a negative backoff")
	case a.OnIndeterminate > AwaitOperator:
		return wrong("OnIndeterminate", fmt.Sprintf("is unknown: %d", a.OnIndeterminate))
	case a.MaxConcurrent < 0:
		return wrong("MaxConcurrent", "is negative")
	case a.Rate.Count < 0 || a.Rate.Per < 0:
		return wrong("Rate", "is negative")
	case (a.Rate.Count == 0) != (a.Rate.Per == 0):
		return wrong("Rate", "needs a Count and a Per")
	}
	for i, err := range a.Errors {
		if err == nil {
			return wrong("Errors", "has a nil")
		}
		for _, other := range a.Errors[:i] {
			if other != nil && other.Error() == err.Error() {
				return wrong("Errors", "has two with the text "+err.Error())
			}
		}
	}
	return nil
}

// Internal to Weft: what package engine needs.

// A Definition is an *Activity.
type Definition interface {
	Check() error
	Title() string           // its Name
	Accepts(result any) bool // result is of its type
	NewResult() any          // a pointer to a zero value of that type
}

// Title returns a's Name.
func (a *Activity[In, Out]) Title() string { return a.Name }

// Accepts says that result is what Run could return.
func (a *Activity[In, Out]) Accepts(result any) bool {
	_, ok := result.(Out)
	return ok || result == nil && any(*new(Out)) == nil
}

// NewResult returns a pointer into which a recorded result can be decoded.
func (a *Activity[In, Out]) NewResult() any { return new(Out) }

// A Runner is an *engine.Run.
type Runner interface {
	future.Runner
	RunActivity(Call) future.Operation
}

// A Call is one use of an activity: values and closures instead of types. Each closure
// is given its own copy of Input, of the same type.
type Call struct {
	Definition Definition
	Policy     Policy
	Input      any
	Key        *string // nil: none
	Scope      string  // empty: none
	Run        func(ctx context.Context, in any) (any, error)
	Verify     func(ctx context.Context, in any) (Answer, error) // nil: none

	// Compensate undoes the call; decode decodes its result. It may be nil.
	Compensate func(ctx context.Context, in any, decode func(out any) error) error
}

// Undoing is the call that undoes c; decode decodes c's result. It has no key: there is
// no verifier for it, and it is attempted again. It has no TotalTimeout either: there is
// always time to undo.
func (c Call) Undoing(decode func(out any) error) Call {
	return Call{
		Definition: c.Definition,
		Policy: Policy{
			Name:          c.Policy.Name,
			Errors:        c.Policy.Errors,
			Retry:         c.Policy.Retry,
			Timeout:       c.Policy.Timeout,
			Settle:        c.Policy.Settle,
			MaxConcurrent: c.Policy.MaxConcurrent,
			Rate:          c.Policy.Rate,
		},
		Input: c.Input,
		Scope: c.Scope,
		Run:   func(ctx context.Context, in any) (any, error) { return nil, c.Compensate(ctx, in, decode) },
	}
}

// A Policy is the part of an activity that has no type parameter.
type Policy struct {
	Name                                         string
	Errors                                       []error
	Retry, VerifyRetry                           Retry
	Timeout, TotalTimeout, Settle, VerifyTimeout time.Duration
	Verified                                     bool // there is a verifier
	Idempotent                                   bool
	VerifyFences, SettleAfterError               bool
	OnIndeterminate                              Action
	MaxConcurrent                                int
	Rate                                         Rate
}
