// Package signal defines typed messages to a workflow. A signal is accepted
// durably, waits in the workflow's inbox in order of acceptance, and is consumed
// by the checkpoint that records its receipt. Sent again with the same ID it is
// answered as the first time.
package signal

import (
	"context"
	"time"

	"github.com/weft-go/weft/future"
)

// A Signal is a named message of one type. Only Name is required.
type Signal[T any] struct {
	Name string // recorded; never changes

	// ExpiresAfter is how long an acceptance is remembered, at least. Zero is
	// the engine's Config.SignalMemory.
	ExpiresAfter time.Duration
}

// Options belong to one message.
type Options struct {
	// ID names the message among those of its workflow and signal: at most 128
	// bytes of UTF-8, compared byte by byte. Sending it again returns the first
	// acceptance. An empty ID is refused: to send without one, give no Options.
	ID string
}

// Send delivers v to a workflow. When it returns without an error the signal is
// durable.
//
// A second Send with the same ID and value returns what the first did, also
// after the workflow has ended. Errors: a *ConflictError for the same ID with
// another value; an *IndeterminateError; engine.ErrInvalid, ErrNotFound,
// ErrTerminal, ErrClosed; a *storage.CapabilityError for an ID on a store without ConditionalBatch. Any
// other error leaves open whether the signal was accepted, unless it is an
// *engine.InterruptedError that says otherwise: send it again.
func (s *Signal[T]) Send(ctx context.Context, to Sender, workflowID string, v T, o *Options) (Accepted, error) {
	m := Message{WorkflowID: workflowID, Name: s.Name, Payload: v, ExpiresAfter: s.ExpiresAfter}
	if o != nil {
		m.ID = &o.ID
	}
	return to.SendSignal(ctx, m)
}

// SendWithStart starts a workflow, an *engine.StartRequest, and delivers v to it,
// in one commit: there is no workflow without its signal. A workflow that was
// started before with the same input is only sent to; any other use of its id is
// engine.ErrExists. An ID of which an acceptance is remembered is answered and
// starts nothing. Else it is as Send.
func (s *Signal[T]) SendWithStart(ctx context.Context, to Sender, start Start, v T, o *Options) (Accepted, error) {
	m := Message{Start: start, Name: s.Name, Payload: v, ExpiresAfter: s.ExpiresAfter}
	if o != nil {
		m.ID = &o.ID
	}
	return to.SendSignal(ctx, m)
}

// SendFrom delivers v to another workflow, or to its own, and waits until that is
// durable. It is accepted once, whatever is replayed. The error is an
// *activity.Error which wraps engine.ErrNotFound, ErrTerminal or ErrInvalid; or
// it is engine.ErrCancelled, and then it may have been accepted.
func (s *Signal[T]) SendFrom(run Runner, workflowID string, v T) error {
	m := Message{WorkflowID: workflowID, Name: s.Name, Payload: v, ExpiresAfter: s.ExpiresAfter}
	return run.Await(run.ForwardSignal(m), nil)
}

// Receive waits for the next signal of this name and consumes it. A payload that
// cannot be decoded into a T is not consumed: the run is held with the reason
// engine.Undecodable, until code that can decode it goes on, or a person takes the
// signal away with engine.Engine.ClearSignal.
func (s *Signal[T]) Receive(run Runner) (T, error) {
	v, _, err := s.receive(run, nil)
	return v, err
}

// ReceiveWithin waits for at most d, through restarts. A d of zero or less takes
// only what is there. It returns false if nothing came.
func (s *Signal[T]) ReceiveWithin(run Runner, d time.Duration) (v T, ok bool, err error) {
	return s.receive(run, &d)
}

// Next returns the future of the next signal of this name, for engine.Select. The
// signal is consumed while somebody waits for the future: when it is selected, or
// got. Otherwise it stays in the inbox.
func (s *Signal[T]) Next(run Runner) *future.Future[T] {
	return future.New[T](run.ReceiveSignal(Wait{Name: s.Name, New: value[T]}))
}

// Drain takes all that are there, each with a checkpoint of its own, until none is.
func (s *Signal[T]) Drain(run Runner) (all []T, err error) {
	for {
		v, ok, err := s.ReceiveWithin(run, 0)
		if err != nil || !ok {
			return all, err
		}
		all = append(all, v)
	}
}

func (s *Signal[T]) receive(run Runner, within *time.Duration) (v T, ok bool, err error) {
	op := run.ReceiveSignal(Wait{
		Name:   s.Name,
		Within: within,
		New:    value[T],
		Take: func(decode func(v any) error) error {
			ok = true
			return decode(&v)
		},
	})
	err = run.Await(op, nil)
	return v, ok, err
}

// Accepted is the answer to a signal: the same for every sending of an ID,
// over whatever transport.
type Accepted struct {
	Accepted                         bool
	WorkflowID, SignalName, SignalID string
	AcceptedAt                       time.Time
	SignalStorageKey                 string
}

// The seam to package engine and to transports.

// A Sender is an engine.Client.
type Sender interface {
	SendSignal(ctx context.Context, m Message) (Accepted, error)
}

// A Message is a signal without its type. Transports make one.
type Message struct {
	WorkflowID   string
	Start        Start // instead of WorkflowID: starts it first if there is none
	Name         string
	ID           *string       // nil mints one
	Payload      any           // may be json.RawMessage
	ExpiresAfter time.Duration // zero: the engine's Config.SignalMemory
}

// A Start is an *engine.StartRequest.
type Start interface{ StartID() string }

// A Runner is an *engine.Run.
type Runner interface {
	future.Runner
	ReceiveSignal(Wait) future.Operation
	ForwardSignal(Message) future.Operation
}

// A Wait is one wish to receive. Take is called with the payload, unless nothing
// came in time; without Take the payload is the result of the operation.
type Wait struct {
	Name   string
	Within *time.Duration // nil: for ever
	New    func() any     // a pointer into which a payload is decoded before it is received; nil: it is not
	Take   func(decode func(v any) error) error
}

// value is the New of a Wait for a T.
func value[T any]() any { return new(T) }
