package engine

import (
	"context"
	"errors"
)

// A Workflow is a durable function. Only Name and Func are required.
type Workflow[In, Out any] struct {
	// Name is recorded with every run and never changes.
	Name string

	// Func is the workflow. It is run again from its beginning after a restart,
	// and then gets from its history what it learnt before, so it must do the
	// same: everything that may differ (time, chance, the world) comes through
	// run, an activity, a step or a signal.
	Func func(run *Run, in In) (Out, error)

	// Pinned keeps a run on the deployment on which it began: it is driven by engines
	// of that Config.Deployment only, and waits while there is none. It begins on the
	// one that is active, see Engine.Activate; a child of a pinned run, on its parent's.
	// Runs of other workflows go on in any engine that has the workflow.
	Pinned bool

	// Defaults are the options of every start.
	Defaults StartOptions

	// Errors are sentinels that callers of Result tell apart with errors.Is,
	// also after a restart. They are recorded by their text.
	Errors []error
}

// A Definition is a *Workflow.
type Definition interface{ define() *definition }

// A definition is a workflow without its types.
type definition struct {
	name   string
	pinned bool
	queue  string // where its runs wait by default
	errors []error
	run    func(run *Run, decode func(v any) error) (any, error)
}

func (w *Workflow[In, Out]) define() *definition {
	d := &definition{name: w.Name, pinned: w.Pinned, queue: w.Defaults.Queue, errors: w.Errors}
	if w.Func != nil {
		d.run = func(run *Run, decode func(v any) error) (any, error) {
			var in In
			if err := decode(&in); err != nil {
				return nil, err
			}
			return w.Func(run, in)
		}
	}
	return d
}

// Start starts the workflow under an id of the caller's choice; an empty id
// mints one. When it returns without an error the start is durable.
//
// An id that is taken by the same workflow with the same input gives the same
// handle, whether it runs or has ended: a start may be repeated until it is
// answered. Errors: ErrExists for any other use of a taken id; ErrInvalid;
// ErrNoActiveDeployment, if c is an engine that has it as a Pinned workflow;
// ErrClosed. Any other error leaves open whether it was started: try again with
// the same id.
func (w *Workflow[In, Out]) Start(ctx context.Context, c Client, id string, in In) (*Handle[Out], error) {
	info, err := c.StartWorkflow(ctx, &StartRequest{Workflow: w.Name, ID: id, Input: in, Options: w.Defaults})
	if err != nil {
		return nil, err
	}
	return w.Handle(c, info.ID), nil
}

// Request returns the start as a value, for signal.Signal.SendWithStart. Give it
// an id: with an empty one every sending starts another workflow.
func (w *Workflow[In, Out]) Request(id string, in In) *StartRequest {
	return &StartRequest{Workflow: w.Name, ID: id, Input: in, Options: w.Defaults}
}

// Handle returns the handle of a workflow that was started before. It reads
// nothing.
func (w *Workflow[In, Out]) Handle(c Client, id string) *Handle[Out] {
	return &Handle[Out]{c, w.Name, id, w.Errors}
}

// A Handle is one workflow, seen from outside.
type Handle[Out any] struct {
	client       Client
	workflow, id string
	errors       []error
}

// ID returns the workflow's id.
func (h *Handle[Out]) ID() string { return h.id }

// Result waits until the workflow has ended and returns what its function did.
// Errors: a *WorkflowError if it failed, ErrCancelled, ErrNotFound (also if the
// id belongs to a workflow of another name, or if it was purged meanwhile), the
// context's.
func (h *Handle[Out]) Result(ctx context.Context) (Out, error) {
	var out Out
	err := h.client.Result(ctx, h.workflow, h.id, &out)
	var failed *WorkflowError
	if errors.As(err, &failed) && failed.Sentinel == nil {
		failed.Sentinel = named(failed.sentinel, h.errors)
	}
	return out, err
}

// Cancel asks the workflow to stop. A nil error says that the request is durable, and
// not that the workflow will end cancelled: Result tells that. A *TerminalError says that
// it had ended before. See Engine.Cancel.
func (h *Handle[Out]) Cancel(ctx context.Context, reason string) error {
	return h.client.Cancel(ctx, h.id, reason)
}

// Describe tells how the workflow stands.
func (h *Handle[Out]) Describe(ctx context.Context) (Info, error) {
	return h.client.Describe(ctx, h.id)
}
