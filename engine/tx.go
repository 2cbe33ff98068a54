package engine

import (
	"context"
	"fmt"

	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A Tx is an engine's client inside a transaction of the host's. What it starts,
// signals and cancels happens if and only if the host commits; nil from its
// methods means staged. It drives nothing: an engine finds what was staged, once
// it is committed, within a PollInterval.
//
// A Tx locks what it touches until the host's transaction ends, so stage last
// and commit soon.
type Tx struct {
	staging *Engine // on the transaction, without a life
	refused error
}

var _ Client = (*Tx)(nil)

// In returns a client on tx, a transaction on the engine's own store. If it is
// not, or if the engine is a SingleOwner, which all writes must go through, the
// client's methods return ErrNotApplicable.
func (e *Engine) In(tx storage.Tx) *Tx {
	t := &Tx{staging: e.apart()}
	t.staging.store = tx
	switch {
	case e.config.Ownership == SingleOwner:
		t.refused = fmt.Errorf("%w: a transaction beside a %s engine", ErrNotApplicable, SingleOwner)
	case !wraps(e.config.Storage, tx.Base()):
		t.refused = fmt.Errorf("%w: the transaction is on another store than the engine", ErrNotApplicable)
	}
	return t
}

// wraps says that inner is s, or a store that s wraps.
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

// Cancel stages a request to stop.
func (t *Tx) Cancel(ctx context.Context, id, reason string) error {
	if t.refused != nil {
		return t.refused
	}
	return t.staging.Cancel(ctx, id, reason)
}

// Describe tells how a workflow stands, as the transaction sees it.
func (t *Tx) Describe(ctx context.Context, id string) (Info, error) {
	if t.refused != nil {
		return Info{}, t.refused
	}
	return t.staging.Describe(ctx, id)
}

// Result returns ErrNotApplicable: nothing ends inside a transaction.
func (t *Tx) Result(ctx context.Context, workflow, id string, result any) error {
	return fmt.Errorf("%w: result of %q inside a transaction", ErrNotApplicable, id)
}
