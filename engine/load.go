package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// load reads the record of a workflow. It returns ErrNotFound if there is none, or only a
// tombstone.
func (e *env) load(ctx context.Context, id string) (*checkpoint.Workflow, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := e.refused(); err != nil {
		return nil, err
	}
	wf, err := checkpoint.Load(ctx, e.store, id)
	if errors.Is(err, storage.ErrNotFound) {
		wf, err = e.orphaned(ctx, id)
	}
	switch {
	case err != nil:
		return nil, err
	case wf.Tombstone():
		return nil, notFound(id)
	}
	return wf, nil
}

// orphaned distinguishes a workflow that never existed from one whose record was lost, of
// which the input remains. It returns a workflow that was started meanwhile.
func (e *env) orphaned(ctx context.Context, id string) (*checkpoint.Workflow, error) {
	_, err := e.store.Get(ctx, keys.Input(id))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	wf, err := checkpoint.Load(ctx, e.store, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: record %q is missing", storage.ErrCorrupt, keys.Workflow(id))
	}
	return wf, err
}

// outdated returns nil if a read error for a part of wf only means that wf is out of date:
// the workflow was purged or has changed since. The caller then reads its record again. A
// part that is missing, or belongs to another generation, is damage only if the record of
// the workflow is unchanged. Then outdated returns cause.
func outdated(ctx context.Context, s storage.Storage, wf *checkpoint.Workflow, cause error) error {
	if !errors.Is(cause, storage.ErrCorrupt) {
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

// sameLife returns ErrNotFound if the generation of wf has been purged since it was read.
func (e *env) sameLife(ctx context.Context, wf *checkpoint.Workflow) error {
	now, err := e.load(ctx, wf.ID)
	if err == nil && now.Generation != wf.Generation {
		err = notFound(wf.ID)
	}
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: it was purged while it was read", err)
	}
	return err
}

// history yields the checkpoints of wf, as checkpoint.History does. If wf is purged
// meanwhile, it ends with ErrNotFound, because the rest of a history is neither damaged nor
// complete.
func (e *env) history(ctx context.Context, wf *checkpoint.Workflow) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		ended := false
		for c, err := range checkpoint.History(ctx, e.store, wf) {
			if err != nil {
				if outdated(ctx, e.store, wf, err) == nil {
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
		if err := e.sameLife(ctx, wf); err != nil {
			yield(checkpoint.Checkpoint{}, err)
		}
	}
}
