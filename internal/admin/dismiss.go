package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// Dismiss asks the children of a terminated workflow to stop, except those with
// ParentEndAbandon. Then it removes the entry that had it asked, unless only a newer release can
// ask some of them. It may be interrupted anywhere and called again, also after a reset: the workflow
// may have begun other children since.
func Dismiss(ctx context.Context, e *worker.Worker, id, generation string) error {
	_, err := dismiss(ctx, e, id, generation)
	return err
}

// dismiss is Dismiss. It returns why only a newer release can ask some of the children.
func dismiss(ctx context.Context, e *worker.Worker, id, generation string) (newer, _ error) {
	removed := storage.Batch{Ops: []storage.Op{storage.Delete(keys.Dismissal(id, generation))}}
	parent, err := journal.Load(ctx, e.Store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && parent.Generation != generation: // its children are not known any more
		return nil, e.Store.Commit(ctx, removed)
	case err != nil:
		return nil, err
	case !dismisses(parent, generation): // the reset has removed the entry
		return nil, nil
	}
	for entry, err := range journal.Records(ctx, e.Store, keys.ChildrenOf(id)) {
		if err != nil {
			return nil, err
		}
		err = dismissChild(ctx, e, id, generation, entry)
		switch {
		case errors.Is(err, storage.ErrFutureFormat):
			newer = err
		case record.Damaged(err):
			e.Log.Error("weft: child of a terminated workflow cannot be asked to stop", "workflow", id, "error", err)
		case err != nil:
			return nil, err
		}
	}
	if newer != nil {
		return newer, nil
	}
	removed.If = []storage.Condition{parent.Unchanged()} // else it may be the entry of another termination
	if err := e.Store.Commit(ctx, removed); !errors.Is(err, storage.ErrConflict) {
		return nil, err
	}
	return nil, nil // if the entry is needed no more, a later look removes it
}

// dismisses reports whether the children of a generation of wf are to stop because it is terminated.
func dismisses(wf *journal.Workflow, generation string) bool {
	terminated := wf.Status.Terminal() && wf.Cancel != nil && wf.Cancel.Terminated
	return wf.Generation == generation && (terminated || wf.Tombstone())
}

func dismissChild(ctx context.Context, e *worker.Worker, parent, generation string, entry storage.Entry) error {
	operation, err := keys.Last(entry.Key)
	if err != nil {
		return err
	}
	c, err := journal.OpenChild(entry)
	if err != nil || c.Parent != generation || c.End != nil || weft.ParentEnd(c.OnEnd) == weft.ParentEndAbandon {
		return err
	}
	p := &journal.Parent{ID: parent, Generation: generation, Operation: operation}
	change := e.Cancellation(c.ID, p, weft.Actor{Reason: fmt.Sprintf("termination of parent %q", parent)})
	decide := change.Decide
	change.Decide = func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
		d, err := decide(ctx, wf)
		if d == nil || err != nil {
			return nil, err
		}
		now, err := journal.Load(ctx, e.Store, parent)
		if err != nil || !dismisses(now, generation) {
			return nil, err
		}
		// The end of a child that has not begun has this condition already.
		if is := now.Unchanged(); !slices.ContainsFunc(d.Batch.If, func(c storage.Condition) bool { return string(c.Key) == string(is.Key) }) {
			d.Batch.If = append(d.Batch.If, is)
		}
		return d, nil
	}
	err = e.Change(ctx, c.ID, change)
	if errors.Is(err, weft.ErrTerminal) || errors.Is(err, weft.ErrNotFound) {
		return nil
	}
	return err
}
