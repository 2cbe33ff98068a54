package signal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/future"
)

// A Hook lets somebody resume a workflow whose id he does not know: he has a token. A workflow opens
// a hook, and passes the token on, for example in the address of a web hook. Only Name is required.
//
// A token that is minted is hard to guess. One that the workflow chooses, such as "invoice/7", is an
// address and no secret: check who resumes it.
type Hook[T any] struct {
	Name string // recorded; never changes

	// ExpiresAfter is the minimum time for which an acceptance is remembered. Zero is
	// the engine's Config.SignalIDRetention.
	ExpiresAfter time.Duration
}

// HookOptions belong to one Open.
type HookOptions struct {
	// Token is at most 512 bytes of UTF-8 and does not begin with '@'. An empty Token mints one of
	// 128 random bits. If the run belongs to a namespace, the token begins with it.
	Token string
}

// ErrTokenTaken says that another hook has the token. The error is a *TokenError.
var ErrTokenTaken = errors.New("signal: token is taken")

// A TokenError is ErrTokenTaken with the workflow whose open hook has the token. It never shows the
// token.
type TokenError struct{ WorkflowID string }

func (e *TokenError) Error() string {
	return fmt.Sprintf("%v: an open hook of %q has it", ErrTokenTaken, e.WorkflowID)
}

func (e *TokenError) Unwrap() error { return ErrTokenTaken }

// Open opens a hook, and waits until that is durable. From then on the hook can be resumed: what it
// gets waits until it is received. The hook is open until Dispose, or the end of the run, which
// frees the token in the same commit.
//
// If the run continues as new, its hooks stay open. An Open of the same token in the next life takes
// the hook over, with its ID and with what waits in it.
//
// The errors are a *TokenError; engine.ErrBusy if the run has 1,000 open hooks, or as many as half
// of the store's largest batch holds; engine.ErrInvalid; engine.ErrCancelled or ErrTimeout; a
// *storage.CapabilityError on a store without ConditionalBatch.
func (h *Hook[T]) Open(run Runner, o *HookOptions) (*OpenHook[T], error) {
	h.mustNot(run == nil, "used with a nil Run: use the one that the workflow function, or its branch, was given")
	token := ""
	if o != nil {
		token = o.Token
	}
	var is Opened
	if err := run.Await(run.OpenHook(h.Name, token), &is); err != nil {
		return nil, err
	}
	return &OpenHook[T]{h.Name, is}, nil
}

// Resume sends v to the open hook that has the token. When it returns without an error the signal
// is durable. It is like Signal.Send, with the token instead of the id of a workflow.
//
// A second Resume of the token with the same ID and value returns what the first did, for as long
// as the acceptance is remembered: also if the workflow has ended, was purged, or another one
// has the token by now. engine.ErrNotFound means that no open hook has the token.
func (h *Hook[T]) Resume(ctx context.Context, to Sender, token string, v T, o *Options) (Accepted, error) {
	h.mustNot(to == nil, "resumed with a nil engine")
	m := Message{Token: &token, Name: h.Name, Payload: v, ExpiresAfter: h.ExpiresAfter}
	if o != nil {
		m.ID = &o.ID
	}
	return to.SendSignal(ctx, m)
}

func (h *Hook[T]) mustNot(misused bool, how string) {
	if misused {
		panic("signal: hook " + h.Name + " is " + how)
	}
}

// An OpenHook is a hook that a run has opened.
type OpenHook[T any] struct {
	name string
	is   Opened
}

// ID identifies the hook. It is no secret: without the token nobody can resume the hook.
func (o *OpenHook[T]) ID() string { return o.is.ID }

// Token is what Resume needs. If the run belongs to a namespace, it begins with the namespace.
func (o *OpenHook[T]) Token() string { return o.is.Token }

// Receive waits until the hook is resumed, and consumes what it got. See Signal.Receive.
func (o *OpenHook[T]) Receive(run Runner) (T, error) { return o.signal().Receive(run) }

// ReceiveWithin waits for at most d. See Signal.ReceiveWithin.
func (o *OpenHook[T]) ReceiveWithin(run Runner, d time.Duration) (v T, ok bool, err error) {
	return o.signal().ReceiveWithin(run, d)
}

// Next returns the future of what the hook gets next, for engine.Select. See Signal.Next.
func (o *OpenHook[T]) Next(run Runner) *future.Future[T] { return o.signal().Next(run) }

// Dispose closes the hook, and waits until its token is free. What it got before can still be
// received. To dispose of a hook twice does nothing. The error is engine.ErrCancelled or ErrTimeout,
// and then the hook may still be open.
func (o *OpenHook[T]) Dispose(run Runner) error {
	if run == nil {
		panic("signal: hook " + o.name + " is used with a nil Run: use the one that the workflow function, or its branch, was given")
	}
	return run.Await(run.DisposeHook(o.name, o.is.ID), nil)
}

// signal is the signal by which the hook gets what it is resumed with.
func (o *OpenHook[T]) signal() *Signal[T] { return &Signal[T]{Name: HookPrefix + o.is.ID} }

// Internal to Weft: what package engine and transports need.

// HookPrefix is how the names of the signals to hooks begin. A hook's ID follows.
const HookPrefix = "hook/"

// Opened is what a run records of a hook that it has opened.
type Opened struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}
