package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Purge is Engine.Purge.
func (e *admin) Purge(ctx context.Context, id string, by Actor) error {
	call := waiting(ctx, "purge of workflow", id)
	return call.explain(e.purgeWorkflow(call, id, by))
}

func (e *admin) purgeWorkflow(ctx context.Context, id string, by Actor) error {
	if err := errors.Join(checkActor(by), checkID(id), e.refused()); err != nil {
		return err
	}
	for range mostTries {
		if again, err := e.purge(ctx, id, by); !again {
			return err
		}
	}
	return contradiction(keys.Workflow(id))
}

// purge purges the workflow, or reports that another write came first and to try again.
func (e *admin) purge(ctx context.Context, id string, by Actor) (again bool, err error) {
	wf, err := checkpoint.Load(ctx, e.store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		_, err := e.orphaned(ctx, id)
		return err == nil, err // it was started meanwhile
	case err != nil:
		return false, err
	case !wf.Tombstone() && !wf.Status.Terminal():
		return false, fmt.Errorf("%w: purge %q: it has not ended", ErrNotApplicable, id)
	}
	if !wf.Tombstone() {
		old := wf
		wf, err = e.bury(ctx, old)
		if err != nil {
			err = outdated(ctx, e.store, old, err)
			again = err == nil
		}
		if again || errors.Is(err, storage.ErrConflict) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("engine: purge %q: %w", id, err)
		}
		e.log.Info("weft: workflow purged", "workflow", id, "by", by.Name, "why", by.Reason)
	}
	err = checkpoint.Sweep(ctx, e.store, wf)
	if errors.Is(err, storage.ErrConflict) {
		return false, nil // the id was started again, and that start finished the purge
	}
	return false, err
}

func (e *admin) bury(ctx context.Context, wf *checkpoint.Workflow) (*checkpoint.Workflow, error) {
	hold, err := checkpoint.Find(ctx, e.store, wf)
	if err != nil {
		return nil, err
	}
	now := e.now()
	w, err := hold.Bury(now, now.Add(e.tombstoneRetention))
	if err != nil {
		return nil, err
	}
	err = checkpoint.Settle(ctx, e.store, w.Batch, nil, func(ctx context.Context) (bool, error) {
		seen, err := checkpoint.Load(ctx, e.store, wf.ID)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && string(seen.Raw()) == string(w.After.Raw()), err
	})
	return w.After, err
}
