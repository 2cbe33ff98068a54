package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A Tx is a client of an engine inside a transaction of the host. Its starts, signals
// and cancellation requests take effect if and only if the host commits: a nil error
// means that they are staged. It executes no runs: after the commit, an engine finds
// what was staged within a PollInterval.
//
// A Tx locks what it accesses until the host's transaction ends. So use it last in
// the transaction and commit soon.
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
	in.Store, in.Closing = tx, nil
	in.Events.Started, in.Events.Ended, in.Events.SignalAccepted = nil, nil, nil // the host may roll back
	t := &Tx{staging: assemble(in, e.config, e.worker.Gate)}
	switch {
	case e.config.Ownership == OwnershipSingleOwner:
		t.refused = fmt.Errorf("%w: a transaction of the host with a %s engine", ErrNotApplicable, OwnershipSingleOwner)
	case !wraps(e.config.Storage, tx.Base()):
		t.refused = fmt.Errorf("%w: the transaction is on another store than the engine", ErrNotApplicable)
	}
	return t
}

// wraps reports whether inner is s, or a store that s wraps.
func wraps(s, inner storage.Storage) bool {
	for s != inner {
		w, ok := s.(storage.Wrapper)
		if !ok {
			return false
		}
		s = w.Unwrap()
	}
	return true
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
