package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Dismiss asks the children of a terminated workflow to stop, except those with
// ParentEndAbandon. Then it removes the entry that had it asked, unless only a newer release can
// ask some of them. It may be interrupted anywhere and called again.
func (e *Worker) Dismiss(ctx context.Context, id, generation string) error {
	newer := false
	for entry, err := range storage.All(ctx, e.Store, keys.ChildrenOf(id)) {
		if err != nil {
			return err
		}
		err = e.dismissChild(ctx, id, generation, entry)
		switch {
		case errors.Is(err, storage.ErrFutureFormat):
			newer = true
		case record.Damaged(err):
			e.Log.Error("weft: child of a terminated workflow cannot be asked to stop", "workflow", id, "error", err)
		case err != nil:
			return err
		}
	}
	if newer {
		return nil
	}
	return e.Store.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(keys.Dismissal(id, generation))}})
}

func (e *Worker) dismissChild(ctx context.Context, parent, generation string, entry storage.Entry) error {
	operation, err := keys.Last(entry.Key)
	if err != nil {
		return err
	}
	c, err := journal.OpenChild(entry)
	if err != nil || c.Parent != generation || c.End != nil || weft.ParentEnd(c.OnEnd) == weft.ParentEndAbandon {
		return err
	}
	p := &journal.Parent{ID: parent, Generation: generation, Operation: operation}
	err = e.RequestCancel(ctx, c.ID, p, weft.Actor{Reason: fmt.Sprintf("termination of parent %q", parent)})
	if errors.Is(err, weft.ErrTerminal) || errors.Is(err, weft.ErrNotFound) {
		return nil
	}
	return err
}
