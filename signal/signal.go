// Package signal defines typed messages to a workflow. A signal is accepted durably,
// waits in the workflow's inbox in order of acceptance, and is consumed by the
// checkpoint that records its receipt. If it is sent again with the same ID, the sender
// gets the first answer.
package signal

import (
	"context"
	"time"

	"github.com/weft-go/weft/future"
)

// A Signal is a named message of one type. Only Name is required.
type Signal[T any] struct {
	Name string // recorded; never changes

	// ExpiresAfter is the minimum time for which an acceptance is remembered. Zero is
	// the engine's Config.SignalIDRetention.
	ExpiresAfter time.Duration
}

// Options belong to one message.
type Options struct {
	// ID identifies the message among those of its workflow and signal: at most 128
	// bytes of UTF-8, compared byte by byte. Sending it again returns the first
	// acceptance. An empty ID is refused: to send without one, pass no Options.
	ID string
}

// Send sends v to a workflow. When it returns without an error the signal is durable.
//
// A second Send with the same ID and value returns what the first did, even after the
// workflow has ended. Values are the same if their JSON is, whatever the order of members
// and the spelling of numbers. Errors: a *ConflictError for the same ID with another
// value; an *IndeterminateError; engine.ErrInvalid, ErrNotFound, ErrTerminal, ErrClosed; a
// *storage.CapabilityError for an ID on a store without ConditionalBatch. After any
// other error the signal may have been accepted, unless it is an
// *engine.InterruptedError that says otherwise: send it again.
func (s *Signal[T]) Send(ctx context.Context, to Sender, workflowID string, v T, o *Options) (Accepted, error) {
	s.mustNot(to == nil, "sent to a nil engine")
	m := Message{WorkflowID: workflowID, Name: s.Name, Payload: v, ExpiresAfter: s.ExpiresAfter}
	if o != nil {
		m.ID = &o.ID
	}
	return to.SendSignal(ctx, m)
}

// SendWithStart starts a workflow, an *engine.StartRequest, and sends v to it, in one
// commit: the workflow never exists without its signal. If the workflow was started
// before with the same input, it only gets the signal; any other use of its id is an
// *engine.ExistsError. If an acceptance of the ID is remembered, its answer is returned
// and nothing starts. Otherwise it is like Send.
func (s *Signal[T]) SendWithStart(ctx context.Context, to Sender, start Start, v T, o *Options) (Accepted, error) {
	s.mustNot(to == nil, "sent to a nil engine")
	m := Message{Start: start, Name: s.Name, Payload: v, ExpiresAfter: s.ExpiresAfter}
	if o != nil {
		m.ID = &o.ID
	}
	return to.SendSignal(ctx, m)
}

// SendFrom sends v to another workflow, or to its own, and waits until that is durable.
// It is accepted once, whatever is replayed. The error is an *activity.Error which
// wraps engine.ErrNotFound, engine.ErrTerminal, engine.ErrInvalid or ErrConflict; or it is
// engine.ErrCancelled, and then the signal may have been accepted.
func (s *Signal[T]) SendFrom(run Runner, workflowID string, v T) error {
	s.mustNot(run == nil, "used with a nil Run: use the one that the workflow function, or its branch, was given")
	m := Message{WorkflowID: workflowID, Name: s.Name, Payload: v, ExpiresAfter: s.ExpiresAfter}
	return run.Await(run.ForwardSignal(m), nil)
}

// Receive waits for the next signal of this name and consumes it. A payload that cannot
// be decoded into a T is not consumed: the run is held with the reason
// engine.ReasonUndecodable, until code that can decode it continues the run, or an operator
// removes the signal with engine.Engine.ClearSignal. The error is engine.ErrCancelled,
// engine.ErrTimeout if the time of Run.WithTimeout has passed, or engine.ErrForeignRun.
func (s *Signal[T]) Receive(run Runner) (T, error) {
	v, _, err := s.receive(run, nil)
	return v, err
}

// ReceiveWithin waits for at most d, across restarts. With a d of zero or less it does
// not wait. It returns false if no signal came. Errors are those of Receive.
func (s *Signal[T]) ReceiveWithin(run Runner, d time.Duration) (v T, ok bool, err error) {
	return s.receive(run, &d)
}

// Next returns the future of the next signal of this name, for engine.Select. The
// signal is consumed when the workflow waits for the future: when Select chooses it, or
// by Get. Otherwise it stays in the inbox.
func (s *Signal[T]) Next(run Runner) *future.Future[T] {
	s.mustNot(run == nil, "used with a nil Run: use the one that the workflow function, or its branch, was given")
	return future.New[T](run.ReceiveSignal(Wait{Name: s.Name, New: value[T]}))
}

// Drain receives signals, each with a checkpoint of its own, until the inbox has none
// of this name. Errors are those of Receive, and come with what was received before.
func (s *Signal[T]) Drain(run Runner) (all []T, err error) {
	for {
		v, ok, err := s.ReceiveWithin(run, 0)
		if err != nil || !ok {
			return all, err
		}
		all = append(all, v)
	}
}

func (s *Signal[T]) mustNot(misused bool, how string) {
	if misused {
		panic("signal: " + s.Name + " is " + how)
	}
}

func (s *Signal[T]) receive(run Runner, within *time.Duration) (v T, ok bool, err error) {
	s.mustNot(run == nil, "used with a nil Run: use the one that the workflow function, or its branch, was given")
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

// Accepted is the answer to a signal: the same each time an ID is sent, over any
// transport, except for Repeated.
type Accepted struct {
	Accepted         bool      `json:"accepted"` // always true
	WorkflowID       string    `json:"workflowId"`
	SignalName       string    `json:"signalName"`
	SignalID         string    `json:"signalId"`
	AcceptedAt       time.Time `json:"acceptedAt"`       // when it was accepted first
	SignalStorageKey string    `json:"signalStorageKey"` // the key under which its payload was stored

	// Repeated: an earlier call had the ID accepted, so this one enqueued nothing. Of several
	// calls with one ID, one is not Repeated, and it may be one that got an error. Repeated is
	// not part of the canonical answer: to compare two answers, set it to false in both.
	Repeated bool `json:"-"`
}

// Internal to Weft: what package engine and transports need.

// A Sender is an engine.Client.
type Sender interface {
	SendSignal(ctx context.Context, m Message) (Accepted, error)
}

// A Message is a signal without its type. Transports create one.
type Message struct {
	WorkflowID   string
	Start        Start   // instead of WorkflowID: starts it first if there is none
	Token        *string // instead of WorkflowID: of the open hook that gets it, and Name is the hook's
	Name         string
	ID           *string       // nil: one is generated
	Payload      any           // may be json.RawMessage
	ExpiresAfter time.Duration // zero: the engine's Config.SignalIDRetention
}

// A Start is an *engine.StartRequest.
type Start interface{ StartID() string }

// A Runner is an *engine.Run.
type Runner interface {
	future.Runner
	ReceiveSignal(Wait) future.Operation
	ForwardSignal(Message) future.Operation
	OpenHook(name, token string) future.Operation // its result is an Opened
	DisposeHook(name, id string) future.Operation
}

// A Wait is one request to receive. Take is called with the payload, unless nothing
// came in time; without Take the payload is the result of the operation.
type Wait struct {
	Name   string
	Within *time.Duration // nil: for ever
	New    func() any     // a pointer into which a payload is decoded before it is received; nil: it is not decoded
	Take   func(decode func(v any) error) error
}

// value is the New of a Wait for a T.
func value[T any]() any { return new(T) }
