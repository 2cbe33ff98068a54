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
	"github.com/weft-go/weft/storage"
)

// Purge is Engine.Purge.
func (e *Admin) Purge(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "purge of workflow", id)
	return call.Explain(e.purgeWorkflow(call, id, "", by, weft.RemovedByPurge))
}

// purgeWorkflow purges a generation of a workflow; "" is the one that is there at the first look.
func (e *Admin) purgeWorkflow(ctx context.Context, id, generation string, by weft.Actor, cause weft.Removal) error {
	if err := errors.Join(CheckActor(by), payload.CheckID(id), e.Refused()); err != nil {
		return err
	}
	for range settle.MostTries {
		if again, err := e.purge(ctx, id, &generation, by, cause); !again {
			return err
		}
	}
	return settle.Contradiction(keys.Workflow(id))
}

// purge purges the workflow, or reports that another write came first and to try again. If generation is "", it
// becomes the one that is there.
func (e *Admin) purge(ctx context.Context, id string, generation *string, by weft.Actor, cause weft.Removal) (again bool, err error) {
	wf, err := journal.Load(ctx, e.Store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		_, err := e.Orphaned(ctx, id)
		return err == nil, err // it was started meanwhile
	case err != nil:
		return false, err
	case *generation != "" && wf.Generation != *generation:
		return false, nil // it was removed, and started again
	case !wf.Tombstone() && !wf.Status.Terminal():
		return false, fmt.Errorf("%w: %s %q: it has not ended: Cancel or Terminate it first, or Delete it", weft.ErrNotApplicable, cause, id)
	}
	if err := e.allowed(ctx, wf); err != nil {
		return false, err
	}
	*generation = wf.Generation
	if wf.Tombstone() {
		return false, e.sweep(ctx, wf, cause)
	}
	var r *Removal
	has, err := journal.FeaturesOf(ctx, e.Store, wf)
	if err == nil {
		r, err = e.Removing(ctx, wf, has, cause)
	}
	if err == nil {
		err = e.Remove(ctx, r)
	}
	if err != nil {
		err = run.Outdated(ctx, e.Store, wf, err)
		again = err == nil
	}
	switch {
	case again, errors.Is(err, storage.ErrConflict):
		return true, nil
	case errors.Is(err, weft.ErrProtected):
		return false, err
	case err != nil:
		return false, fmt.Errorf("engine: %s %q: %w", cause, id, err)
	}
	return false, e.Removed(ctx, r, by)
}

// A Removal is a decision to remove a workflow.
type Removal struct {
	Batch     storage.Batch
	Cause     weft.Removal
	was, tomb *journal.Workflow
	whole     bool // nothing is left after the batch
}

// mostAtOnce is how many records of a workflow are deleted by the commit that removes it. If there
// are more, further commits follow.
const mostAtOnce = 200

// Removing decides to remove wf, which has ended; has is what journal.FeaturesOf has returned. Its
// children are asked to stop first, if it was terminated and they have not been asked, because what
// is known of them is removed too. Then it is archived, unless it is to be deleted. An error wraps
// ErrProtected, or storage.ErrFutureFormat if only a newer release may remove wf, or is an
// *inspect.ArchiveError. An error that run.Outdated explains means that wf has changed.
func (e *Admin) Removing(ctx context.Context, wf *journal.Workflow, has keys.Features, cause weft.Removal) (*Removal, error) {
	if err := errors.Join(wf.Understood(), removable(wf, cause)); err != nil {
		return nil, err
	}
	if err := e.dismissFirst(ctx, wf); err != nil {
		return nil, err
	}
	if cause != weft.RemovedByDelete {
		if err := e.Reader.ArchiveEnded(ctx, wf); err != nil {
			return nil, err
		}
	}
	most := min(mostAtOnce, max(e.MaxOps/2, 1))
	now := e.Now()
	w, whole, err := journal.Remove(ctx, e.Store, wf, has, most, now, now.Add(e.TombstoneRetention))
	if err != nil {
		return nil, err
	}
	return &Removal{w.Batch, cause, wf, w.After, whole}, nil
}

// dismissFirst asks the children of wf to stop if it was terminated and they have not been
// asked, because the purge removes what is known of them. It returns storage.ErrFutureFormat if only a newer release can ask.
func (e *Admin) dismissFirst(ctx context.Context, wf *journal.Workflow) error {
	if wf.Cancel == nil || !wf.Cancel.Terminated {
		return nil
	}
	_, err := e.Store.Get(ctx, keys.Dismissal(wf.ID, wf.Generation))
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	newer, err := dismiss(ctx, e.Worker, wf.ID, wf.Generation)
	if newer != nil {
		return fmt.Errorf("a child that is to be asked to stop: %w", newer)
	}
	return err
}

// Remove commits several decisions at once: all of them, or, after storage.ErrConflict, none.
func (e *Admin) Remove(ctx context.Context, rs ...*Removal) error {
	var all storage.Batch
	for _, r := range rs {
		all.If, all.Ops = append(all.If, r.Batch.If...), append(all.Ops, r.Batch.Ops...)
	}
	return settle.Commit(ctx, e.Store, all, nil, func(ctx context.Context) (bool, error) {
		for _, r := range rs { // an id may have been started again since
			seen, err := journal.Load(ctx, e.Store, r.was.ID)
			switch {
			case err == nil && string(seen.Raw()) == string(r.tomb.Raw()):
				return true, nil
			case err != nil && !errors.Is(err, storage.ErrNotFound):
				return false, err
			}
		}
		return false, nil
	})
}

// Removed tells that r was committed, and deletes what is left of the workflow.
func (e *Admin) Removed(ctx context.Context, r *Removal, by weft.Actor) error {
	e.Purged(r.was, r.Cause, by)
	if r.whole {
		return nil
	}
	return e.sweep(ctx, r.tomb, r.Cause)
}

// sweep deletes what is left of a workflow, unless its id was started again: that start has done so.
func (e *Admin) sweep(ctx context.Context, tomb *journal.Workflow, cause weft.Removal) error {
	err := journal.Sweep(ctx, e.Store, tomb)
	if err == nil || errors.Is(err, storage.ErrConflict) {
		return nil
	}
	return fmt.Errorf("engine: %s %q: %w", cause, tomb.ID, err)
}
