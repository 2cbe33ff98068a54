package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// Purge is Engine.Purge.
func (e *Admin) Purge(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "purge of workflow", id)
	return call.Explain(e.purgeWorkflow(call, id, by))
}

func (e *Admin) purgeWorkflow(ctx context.Context, id string, by weft.Actor) error {
	if err := errors.Join(CheckActor(by), payload.CheckID(id), e.Refused()); err != nil {
		return err
	}
	for range worker.MostTries {
		if again, err := e.purge(ctx, id, by); !again {
			return err
		}
	}
	return worker.Contradiction(keys.Workflow(id))
}

// purge purges the workflow, or reports that another write came first and to try again.
func (e *Admin) purge(ctx context.Context, id string, by weft.Actor) (again bool, err error) {
	wf, err := journal.Load(ctx, e.Store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		_, err := e.Orphaned(ctx, id)
		return err == nil, err // it was started meanwhile
	case err != nil:
		return false, err
	case !wf.Tombstone() && !wf.Status.Terminal():
		return false, fmt.Errorf("%w: purge %q: it has not ended", weft.ErrNotApplicable, id)
	}
	if !wf.Tombstone() {
		if err := e.dismissFirst(ctx, wf); err != nil {
			return false, fmt.Errorf("engine: purge %q: %w", id, err)
		}
		old := wf
		wf, err = e.bury(ctx, old)
		if err != nil {
			err = run.Outdated(ctx, e.Store, old, err)
			again = err == nil
		}
		if again || errors.Is(err, storage.ErrConflict) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("engine: purge %q: %w", id, err)
		}
		e.Purged(id, by)
	}
	err = journal.Sweep(ctx, e.Store, wf)
	if errors.Is(err, storage.ErrConflict) {
		return false, nil // the id was started again, and that start finished the purge
	}
	if err != nil {
		return false, fmt.Errorf("engine: purge %q: %w", id, err)
	}
	return false, nil
}

// dismissFirst asks the children of wf to stop if it was terminated and they have not been
// asked, because the purge removes what is known of them.
func (e *Admin) dismissFirst(ctx context.Context, wf *journal.Workflow) error {
	_, err := e.Store.Get(ctx, keys.Dismissal(wf.ID, wf.Generation))
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return e.Dismiss(ctx, wf.ID, wf.Generation)
}

func (e *Admin) bury(ctx context.Context, wf *journal.Workflow) (*journal.Workflow, error) {
	hold, err := journal.Find(ctx, e.Store, wf)
	if err != nil {
		return nil, err
	}
	now := e.Now()
	w, err := hold.Bury(now, now.Add(e.TombstoneRetention))
	if err != nil {
		return nil, err
	}
	err = settle.Commit(ctx, e.Store, w.Batch, nil, func(ctx context.Context) (bool, error) {
		seen, err := journal.Load(ctx, e.Store, wf.ID)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && string(seen.Raw()) == string(w.After.Raw()), err
	})
	return w.After, err
}
