package admin

import (
	"context"
	"errors"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// Delete is Engine.Delete.
func (e *Admin) Delete(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "deletion of workflow", id)
	return call.Explain(e.deleteWorkflow(call, id, by))
}

func (e *Admin) deleteWorkflow(ctx context.Context, id string, by weft.Actor) error {
	if err := errors.Join(CheckActor(by), payload.CheckID(id), e.Refused()); err != nil {
		return err
	}
	generation := ""
	for range settle.MostTries {
		wf, err := journal.Load(ctx, e.Store, id)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return e.purgeWorkflow(ctx, id, "", by, weft.RemovedByDelete) // it says what is so
		case err != nil:
			return err
		case generation != "" && wf.Generation != generation:
			return nil // it was removed by another call, and started again
		}
		if err := e.allowed(ctx, wf); err != nil {
			return err
		}
		generation = wf.Generation
		if !wf.Tombstone() && !wf.Status.Terminal() {
			err := e.terminateWorkflow(ctx, id, generation, by, func(wf *journal.Workflow) error {
				return removable(wf, weft.RemovedByDelete)
			})
			if err != nil && !errors.Is(err, weft.ErrTerminal) && !errors.Is(err, weft.ErrNotFound) {
				return err
			}
		}
		err = e.purgeWorkflow(ctx, id, generation, by, weft.RemovedByDelete)
		if !errors.Is(err, weft.ErrNotApplicable) {
			return err
		}
		// It was resumed after it had failed, or reset.
	}
	return settle.Contradiction(keys.Workflow(id))
}
