package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Load reads the record of a workflow. It returns ErrNotFound if there is none, or only a
// tombstone.
func (e *Env) Load(ctx context.Context, id string) (*journal.Workflow, error) {
	if err := payload.CheckID(id); err != nil {
		return nil, err
	}
	if err := e.Refused(); err != nil {
		return nil, err
	}
	wf, err := journal.Load(ctx, e.Store, id)
	if errors.Is(err, storage.ErrNotFound) {
		wf, err = e.Orphaned(ctx, id)
	}
	switch {
	case err != nil:
		return nil, err
	case wf.Tombstone():
		return nil, payload.NotFound(id)
	}
	return wf, nil
}

// Orphaned distinguishes a workflow that never existed from one whose record was lost, of
// which the input remains. It returns a workflow that was started meanwhile.
func (e *Env) Orphaned(ctx context.Context, id string) (*journal.Workflow, error) {
	_, err := e.Store.Get(ctx, keys.Input(id))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, payload.NotFound(id)
	}
	if err != nil {
		return nil, err
	}
	wf, err := journal.Load(ctx, e.Store, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: record %q is missing", storage.ErrCorrupt, keys.Workflow(id))
	}
	return wf, err
}

// Outdated returns nil if cause, a read error for a part of wf or a refusal because of one, only means
// that wf is out of date: the workflow was purged or has changed since. The caller then reads its record
// again. If the record is unchanged, the part is damaged, or the refusal holds: Outdated returns cause.
func Outdated(ctx context.Context, s storage.Storage, wf *journal.Workflow, cause error) error {
	if !errors.Is(cause, storage.ErrCorrupt) && !errors.Is(cause, weft.ErrNotApplicable) && !errors.Is(cause, signal.ErrTokenTaken) {
		return cause
	}
	switch raw, err := s.Get(ctx, keys.Workflow(wf.ID)); {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case bytes.Equal(raw, wf.Raw()):
		return cause
	}
	return nil
}

// SameGeneration returns ErrNotFound if the generation of wf has been purged since it was read.
func (e *Env) SameGeneration(ctx context.Context, wf *journal.Workflow) error {
	_, err := e.again(ctx, wf)
	return err
}

// sameLife returns ErrNotFound as SameGeneration does, and ErrBusy if wf has continued as new since
// it was read.
func (e *Env) sameLife(ctx context.Context, wf *journal.Workflow) error {
	now, err := e.again(ctx, wf)
	if err == nil && now.Life != wf.Life {
		return fmt.Errorf("%w: workflow %q has continued as new while the history of its life before was read; read again", weft.ErrBusy, wf.ID)
	}
	return err
}

// again reads the record of wf again. The error is ErrNotFound if its generation has been purged.
func (e *Env) again(ctx context.Context, wf *journal.Workflow) (*journal.Workflow, error) {
	now, err := e.Load(ctx, wf.ID)
	if err == nil && now.Generation != wf.Generation {
		err = payload.NotFound(wf.ID)
	}
	if errors.Is(err, weft.ErrNotFound) {
		err = fmt.Errorf("%w: it was purged while it was read", err)
	}
	return now, err
}

// HistoryOf yields the checkpoints of the life in which wf was read, as journal.History does. If
// wf is purged meanwhile, it ends with ErrNotFound, because the rest of a history is neither
// damaged nor complete. If wf continues as new meanwhile and the rest is gone, it ends with ErrBusy.
func (e *Env) HistoryOf(ctx context.Context, wf *journal.Workflow) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		ended := false
		for c, err := range journal.History(ctx, e.Store, wf) {
			if err != nil {
				if Outdated(ctx, e.Store, wf, err) == nil {
					if gone := e.sameLife(ctx, wf); gone != nil {
						err = gone
					}
				}
				yield(checkpoint.Checkpoint{}, err)
				return
			}
			for _, ev := range c.Events {
				ended = ev.Kind == checkpoint.KindEnded || ended && !export.TakesEndBack(ev)
			}
			if !yield(c, nil) {
				return
			}
		}
		if ended {
			return // the history is complete
		}
		if err := e.SameGeneration(ctx, wf); err != nil {
			yield(checkpoint.Checkpoint{}, err)
		}
	}
}
