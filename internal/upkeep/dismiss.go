package upkeep

import (
	"context"
	"errors"

	"github.com/weft-go/weft/internal/admin"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// mostDismissing is of how many terminated workflows an engine asks the children to stop at the same time.
const mostDismissing = 16

// dismiss has the children of terminated workflows asked to stop, where that was interrupted. It does so in goroutines:
// there may be thousands of workflows and of children, and the poll must go on. A later look tries again what has failed.
func (x *expiry) dismiss(ctx context.Context) {
	if !x.dismisses.CompareAndSwap(false, true) {
		return
	}
	l := x.incarnation
	begun := l.Go(func() {
		defer x.dismisses.Store(false)
		for entry, err := range storage.All(ctx, l.Worker.Store, keys.Dismissals()) {
			if err != nil {
				return // the look reports what is wrong with the store
			}
			_, names, err := keys.Expiring(entry.Key)
			if err == nil && !x.dismissChildren(ctx, entry.Key, names[0], names[len(names)-1]) {
				return
			}
		}
	})
	if !begun {
		x.dismisses.Store(false)
	}
}

// dismissChildren asks the children of a terminated workflow to stop, in a goroutine, unless one does that already. If
// there are many, it waits until one of them has ended. It returns false if the engine is to stop.
func (x *expiry) dismissChildren(ctx context.Context, entry []byte, id, generation string) bool {
	l := x.incarnation
	select {
	case x.places <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if _, busy := x.dismissing.LoadOrStore(generation, true); busy {
		<-x.places
		return true
	}
	return l.Go(func() {
		defer func() { <-x.places }()
		defer x.dismissing.Delete(generation)
		err := admin.Dismiss(ctx, l.Worker, id, generation)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, storage.ErrFutureFormat): // an engine of the newer release asks them
		case !record.Damaged(err):
			l.Worker.Log.Warn("weft: children of a terminated workflow were not asked to stop; trying again", "workflow", id, "error", err)
		case l.Once("expired " + string(entry)):
			l.Worker.Log.Error("weft: the record of a terminated workflow is damaged; its children are not asked to stop", "workflow", id, "error", err)
		}
	})
}
