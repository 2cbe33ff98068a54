package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A Tx is a client of an engine inside a transaction of the host. Its starts, signals,
// cancellation requests and actions of operators take effect if and only if the host commits:
// a nil error means that they are staged. Nothing is logged, and no callback of Events but
// Starting is called, because the host may roll back. It executes no runs: after the commit,
// an engine finds what was staged within a PollInterval, or at once after Engine.Poke.
//
// What is staged belongs to the host's transaction together with what it rests on. This
// includes a call that writes nothing, such as the start of a workflow that exists: the host's
// commit fails if that has changed meanwhile. An error of a method other than those of the store
// stages nothing, and says what was so when the method looked.
//
// A Tx locks what it accesses until the host's transaction ends. So use it last in
// the transaction and commit soon.
//
// Purge, Delete and Restored need several commits, so a Tx does not have them. It also has no
// Protect, Unprotect, lists and schedules.
type Tx struct {
	staging *Engine // on the transaction; it is never run
	refused error
}

var _ Client = (*Tx)(nil)

// In returns a client on tx, which must be a transaction on the engine's own store. If
// it is not, the client's methods return ErrNotApplicable. They also do so if the engine
// has OwnershipSingleOwner, because then all writes must go through the engine.
func (e *Engine) In(tx storage.Tx) *Tx {
	in := e.worker.Env
	in.Store, in.Closing, in.Staged = tx, nil, true
	in.Events = weft.Events{Starting: in.Events.Starting} // the host may roll back
	t := &Tx{staging: assemble(in, e.config, e.worker.Gate)}
	switch {
	case e.config.Ownership == OwnershipSingleOwner:
		t.refused = fmt.Errorf("%w: a transaction of the host with a %s engine", ErrNotApplicable, OwnershipSingleOwner)
	case payload.IsNil(tx):
		t.refused = fmt.Errorf("%w: the transaction is nil", ErrNotApplicable)
	case storage.Innermost(tx.Base()) != storage.Innermost(e.config.Storage):
		t.refused = fmt.Errorf("%w: the transaction is on another store than the engine", ErrNotApplicable)
	}
	return t
}

// StartWorkflow stages a start.
func (t *Tx) StartWorkflow(ctx context.Context, r *StartRequest) (Info, error) {
	if t.refused != nil {
		return Info{}, t.refused
	}
	return t.staging.StartWorkflow(ctx, r)
}

// SendSignal stages a signal.
func (t *Tx) SendSignal(ctx context.Context, m signal.Message) (signal.Accepted, error) {
	if t.refused != nil {
		return signal.Accepted{}, t.refused
	}
	return t.staging.SendSignal(ctx, m)
}

// Cancel stages a cancellation request. Of a workflow that is held, its error is nil too.
func (t *Tx) Cancel(ctx context.Context, id string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	err := t.staging.Cancel(ctx, id, by)
	if errors.Is(err, ErrHeld) {
		return nil // it is staged
	}
	return err
}

// Activate stages an activation. See Engine.Activate.
func (t *Tx) Activate(ctx context.Context, deployment string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Activate(ctx, deployment, by)
}

// Rollback stages a rollback to the deployment that was active before, as the transaction sees
// it. See Engine.Rollback.
func (t *Tx) Rollback(ctx context.Context, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Rollback(ctx, by)
}

// Resume stages that a failed or held workflow continues. See Engine.Resume.
func (t *Tx) Resume(ctx context.Context, id string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Resume(ctx, id, by)
}

// Resolve stages the outcome of an activity. See Engine.Resolve. Of the types of results it knows
// those of Config.Activities.
func (t *Tx) Resolve(ctx context.Context, id, operation string, a activity.Answer, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Resolve(ctx, id, operation, a, by)
}

// ClearSignal stages the removal of a signal that waits. See Engine.ClearSignal.
func (t *Tx) ClearSignal(ctx context.Context, id, name, signalID string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.ClearSignal(ctx, id, name, signalID, by)
}

// Label stages changes of labels. See Engine.Label.
func (t *Tx) Label(ctx context.Context, id string, labels map[string]string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Label(ctx, id, labels, by)
}

// Terminate stages the end of a workflow. See Engine.Terminate. After the commit, an engine asks
// its children to stop. An owner that commits all the time may get ahead of the host's commit
// again and again; Engine.Terminate can interrupt it, and a Tx cannot.
func (t *Tx) Terminate(ctx context.Context, id string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Terminate(ctx, id, by)
}

// Reset stages that a workflow goes back to an earlier point of its history. See Engine.Reset and, of an
// owner that commits all the time, Terminate.
func (t *Tx) Reset(ctx context.Context, id, before string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Reset(ctx, id, before, by)
}

// StartBulk stages a bulk operation. See Engine.StartBulk. It selects the workflows that fit when it is staged.
// After the commit, an engine finds it within ten PollIntervals, or within a minute if that is sooner.
func (t *Tx) StartBulk(ctx context.Context, id string, b Bulk, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.StartBulk(ctx, id, b, by)
}

// StopBulk stages the end of a bulk operation. See Engine.StopBulk. An engine that counts what it has done all the
// time may get ahead of the host's commit.
func (t *Tx) StopBulk(ctx context.Context, id string, by Actor) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.StopBulk(ctx, id, by)
}

// Describe returns the state of a workflow, as the transaction sees it.
func (t *Tx) Describe(ctx context.Context, id string) (Info, error) {
	if t.refused != nil {
		return Info{}, t.refused
	}
	return t.staging.Describe(ctx, id)
}

// Result returns ErrNotApplicable: no workflow ends inside a transaction.
func (t *Tx) Result(ctx context.Context, id, workflow string, result any) error {
	return fmt.Errorf("%w: result of %q inside a transaction: wait for it after the commit", ErrNotApplicable, id)
}

// ReadValue decodes a value that a workflow has published, as the transaction sees it.
func (t *Tx) ReadValue(ctx context.Context, id, name string, value any) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.ReadValue(ctx, id, name, value)
}

// AdmitUpdate stages an update, and with a Start the start of its workflow if that does not exist. The
// workflow executes the update after the commit: Engine.CallUpdate with the same ID and input returns the
// answer. An update that was admitted before, or answered, is no error. Errors: ErrMismatch, a
// *TerminalError, an *ExistsError, ErrNotFound, ErrBusy, ErrInvalid; storage.ErrConflict if the workflow has
// changed meanwhile; those of the store.
func (t *Tx) AdmitUpdate(ctx context.Context, r *UpdateRequest) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.intake.AdmitUpdate(ctx, r)
}

// CallUpdate returns ErrNotApplicable: no workflow answers inside a transaction. See AdmitUpdate.
func (t *Tx) CallUpdate(ctx context.Context, r *UpdateRequest, result any) error {
	return fmt.Errorf("%w: update inside a transaction: admit it there, and call it after the commit", ErrNotApplicable)
}

// AwaitValue returns ErrNotApplicable: no workflow goes on inside a transaction.
func (t *Tx) AwaitValue(ctx context.Context, id, name string, enough func(decode func(value any) error) (bool, error)) error {
	return fmt.Errorf("%w: wait for value %q of %q inside a transaction: wait for it after the commit", ErrNotApplicable, name, id)
}
