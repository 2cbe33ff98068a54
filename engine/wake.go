package engine

import (
	"context"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// wake notifies the runs of this incarnation for which others have written something. It
// deletes the entries of dead incarnations, because the next owner of a run looks anyway.
func (l *incarnation) wake(ctx context.Context) error {
	if l.takeover.idle {
		return nil
	}
	for entry, err := range storage.All(ctx, l.eng.store, keys.Wakes()) {
		if err != nil {
			return err
		}
		owner, err := keys.Incarnation(entry.Key)
		if err != nil {
			return err
		}
		if v, err := l.vital(ctx, owner); err != nil || v == alive && owner != l.name {
			continue
		}
		id, err := keys.ID(entry.Key)
		if err != nil {
			return err
		}
		// The run looks before it waits, and after a crash its next owner looks. So the
		// entry can be deleted.
		if x := l.eng.driven(id); x != nil {
			x.post(anything)
		} else if owner == l.name {
			l.Doubt(id)
		}
		if err := l.drop(ctx, entry.Key); err != nil {
			return err
		}
	}
	return nil
}
