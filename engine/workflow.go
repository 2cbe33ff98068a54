package engine

import (
	"context"
	"errors"
	"maps"
	"reflect"

	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/payload"
	inner "github.com/weft-go/weft/internal/run"
)

// A Workflow is a durable function. Only Name and Func are required.
type Workflow[In, Out any] struct {
	// Name is recorded with every run and never changes.
	Name string

	// Func is the workflow. After a restart it is called again from its beginning
	// and gets the recorded outcomes from its history. So it must be deterministic:
	// everything that may differ (time, random numbers, the world outside) comes
	// through run, an activity, a step or a signal.
	Func func(run *Run, in In) (Out, error)

	// Pinned keeps a run on the deployment on which it started: only engines of that
	// Config.Deployment execute it, and it waits while there is none. It starts on the
	// active deployment, see Engine.Activate. A child of a pinned run starts on its
	// parent's. Runs of other workflows continue in any engine that has the workflow. A
	// run, Pinned or not, whose StartOptions have a Deployment starts on that one.
	Pinned bool

	// Defaults are the options of every start.
	Defaults StartOptions

	// Retention is how long runs are kept after they have ended. Times that are zero are those of
	// Config.Retention. A negative one means for ever.
	Retention Retention

	// Errors are sentinels that callers of Result can test for with errors.Is,
	// also after a restart. They are recorded by their text. Do not change it: recorded
	// errors then match none.
	Errors []error

	// Versions are the changes of Func that Run.Version is asked for, and the newest version of
	// each, from 1. At most 32, with names of 1 to 64 bytes of UTF-8. A change stays here until no
	// run goes by it any more: an engine that does not have it, or only an earlier version of it,
	// leaves such runs to others.
	Versions map[string]int

	child ChildOptions
}

// With returns a copy of w that is started with the options o. A field of o that is zero leaves that of
// w.Defaults; its Labels replace those of w.Defaults as a whole. NoQueue starts it without the queue of w.Defaults.
func (w *Workflow[In, Out]) With(o StartOptions) *Workflow[In, Out] {
	c := *w
	d := &c.Defaults
	if o.Queue != "" || o.NoQueue {
		d.Queue, d.NoQueue = o.Queue, o.NoQueue
	}
	if o.Deployment != "" {
		d.Deployment = o.Deployment
	}
	if o.Labels != nil {
		d.Labels = o.Labels
	}
	if !o.StartAt.IsZero() {
		d.StartAt = o.StartAt
	}
	return &c
}

// A Definition is a *Workflow.
type Definition interface{ define() *inner.Definition }

func (w *Workflow[In, Out]) define() *inner.Definition {
	d := &inner.Definition{
		Name:   w.Name,
		Pinned: w.Pinned,
		Queue:  w.Defaults.Queue,
		Kept:   w.Retention,
		Errors: w.Errors,
		In:     reflect.TypeFor[In](),
		Out:    reflect.TypeFor[Out](),

		Versions: maps.Clone(w.Versions),
	}
	if w.Func != nil {
		d.Run = func(run *inner.Handle, decode func(v any) error) (any, error) {
			var in In
			if err := decode(&in); err != nil {
				return nil, err
			}
			return w.Func((*Run)(run), in)
		}
	}
	return d
}

// Start starts the workflow under the given id. If the id is empty, one is
// generated. When Start returns without an error, the start is durable.
//
// Start is idempotent: if the id is in use by the same workflow with the same
// input, running or ended, Start returns a handle of it. Inputs are the same if their
// JSON is, whatever the order of members and the spelling of numbers. Errors: an *ExistsError
// for any other use of an id that is in use; ErrInvalid; ErrNoActiveDeployment, if c is an
// engine that has it as a Pinned workflow; ErrClosed. After any other error it is
// unknown whether the workflow was started: try again with the same id.
func (w *Workflow[In, Out]) Start(ctx context.Context, c Client, id string, in In) (*Handle[Out], error) {
	checkClient(c, "the start", w.Name)
	info, err := c.StartWorkflow(ctx, &StartRequest{Workflow: w.Name, ID: id, Input: in, Options: w.options()})
	if err != nil {
		return nil, err
	}
	return w.Handle(c, info.ID), nil
}

// Request returns the start as a value, for signal.Signal.SendWithStart. Give it
// an id: with an empty one, every send starts another workflow.
func (w *Workflow[In, Out]) Request(id string, in In) *StartRequest {
	return &StartRequest{Workflow: w.Name, ID: id, Input: in, Options: w.options()}
}

// options returns w.Defaults. They are complete: if they name no queue, there is none.
func (w *Workflow[In, Out]) options() StartOptions {
	o := w.Defaults
	o.NoQueue = o.NoQueue || o.Queue == ""
	return o
}

// Handle returns the handle of a workflow that was started before. It does not
// access the store.
func (w *Workflow[In, Out]) Handle(c Client, id string) *Handle[Out] {
	checkClient(c, "a handle", w.Name)
	return &Handle[Out]{c, w.Name, id, w.Errors}
}

// checkClient panics if c is nil.
func checkClient(c Client, what, workflow string) {
	if payload.IsNil(c) {
		panic("engine: " + what + " of workflow " + workflow + " needs a client, such as an *engine.Engine, and got nil")
	}
}

// A Handle refers to one started workflow.
type Handle[Out any] struct {
	client       Client
	workflow, id string
	errors       []error
}

// ID returns the workflow's id.
func (h *Handle[Out]) ID() string { return h.id }

// Result waits until the workflow has ended and returns its result. Errors: a
// *WorkflowError if it failed; ErrCancelled; ErrNotFound, also if the id belongs
// to a workflow of another name, or if it was purged meanwhile; a *DecodeError if the result is not
// an Out; an *InterruptedError if ctx ends; ErrInvalid, ErrClosed, the store's.
//
// Without an engine that runs, Result waits. Info.Waiting of Describe then has "an engine: none runs".
func (h *Handle[Out]) Result(ctx context.Context) (Out, error) {
	var out Out
	err := h.client.Result(ctx, h.id, h.workflow, &out)
	var failed *WorkflowError
	if errors.As(err, &failed) && failed.Sentinel == nil {
		failed.Sentinel = payload.SentinelOf(failed.SentinelText, h.errors)
	}
	return out, err
}

// Cancel requests the cancellation of the workflow. A nil error means that the request
// is durable, not that the workflow will end cancelled: see Result. A *TerminalError
// means that it had already ended, and a *HeldError that it is held. See Engine.Cancel.
func (h *Handle[Out]) Cancel(ctx context.Context, by Actor) error {
	return h.client.Cancel(ctx, h.id, by)
}

// Describe returns the state of the workflow, without waiting for it. Errors: ErrNotFound, an
// *InterruptedError if ctx ends, ErrInvalid, ErrClosed, the store's.
func (h *Handle[Out]) Describe(ctx context.Context) (Info, error) {
	return h.client.Describe(ctx, h.id)
}

// AsChild returns a copy of w that Do and Go start with the options o. Start, Request and
// Detach ignore them. A second AsChild replaces the first; With keeps them.
func (w *Workflow[In, Out]) AsChild(o ChildOptions) *Workflow[In, Out] {
	c := *w
	c.child = o
	return &c
}

// Do starts the workflow as a child of run and waits for its result. The child's start
// and the parent's checkpoint are one commit. The error is
//
//   - a *WorkflowError if the child failed or was cancelled; it wraps ErrCancelled if the
//     child was cancelled;
//   - an *ExistsError if its ChildOptions.ID is taken;
//   - ErrCancelled if the parent is cancelled. Then the child is cancelled too, unless
//     OnParentEnd is ParentEndAbandon;
//   - ErrTimeout if the time of Run.WithTimeout has passed.
func (w *Workflow[In, Out]) Do(run *Run, in In) (Out, error) {
	return w.Go(run, in).Get(run)
}

// Go starts the workflow as a child and returns the future of its result.
func (w *Workflow[In, Out]) Go(run *Run, in In) *future.Future[Out] {
	return future.New[Out](run.handle().StartChild(w.Name, w.Defaults, w.child, in, w.Errors))
}

// Detach starts the workflow without a parent and returns its id. An empty id stands for
// one that is derived from the run and the operation. The run and the workflow end
// independently of each other. Errors: an *ExistsError if the id is taken, whatever the input;
// ErrInvalid; ErrCancelled; ErrTimeout if the time of Run.WithTimeout has passed.
func (w *Workflow[In, Out]) Detach(run *Run, id string, in In) (string, error) {
	op := run.handle().StartDetached(w.Name, w.Defaults, id, in)
	if err := run.Await(op, nil); err != nil {
		return "", err
	}
	return inner.ChildID(op), nil
}
