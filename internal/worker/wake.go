package worker

import (
	"context"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// wake notifies the runs of this incarnation for which others have written something. It
// deletes the entries of dead incarnations, because the next owner of a run looks anyway.
func (l *Incarnation) wake(ctx context.Context) error {
	if l.takeover.idle {
		return nil
	}
	var read [][]byte
	var last string // whose entry was the last; they are in the order of owners
	var others bool // that one lives and is another, or it is not known
	for entry, err := range storage.All(ctx, l.Worker.Store, keys.Wakes()) {
		if err != nil {
			return err
		}
		id, err := keys.ID(entry.Key)
		if err != nil {
			l.Unreadable(entry.Key, err)
			continue
		}
		owner, _ := keys.Incarnation(entry.Key) // it is before the id
		if owner != last {
			v, err := l.vital(ctx, owner)
			last, others = owner, err != nil || v == membership.Alive && owner != l.name
		}
		if others {
			continue
		}
		// The run looks before it waits, and after a crash its next owner looks. So the entry can be deleted.
		if x := l.Worker.Executing(id); x != nil {
			x.Post(run.Anything)
			l.cutOffLost(ctx, x)
		} else if owner == l.name {
			l.Doubt(id)
		}
		if read = append(read, entry.Key); len(read) == min(250, l.Worker.MaxOps) {
			if err := l.Drop(ctx, nil, read...); err != nil {
				return err
			}
			read = nil
		}
	}
	return l.Drop(ctx, nil, read...)
}
