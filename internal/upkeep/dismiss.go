package upkeep

import "github.com/weft-go/weft/internal/admin"

// dismiss asks the children of a terminated workflow to stop, in a goroutine, unless one does that
// already: there may be thousands of children, and the poll must go on. It logs an error, and a later
// look tries again.
func (x *expiry) dismiss(id, generation string) {
	x.mu.Lock()
	busy := x.dismissing[generation]
	x.dismissing[generation] = true
	x.mu.Unlock()
	if busy {
		return
	}
	l := x.incarnation
	over := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.dismissing, generation)
	}
	begun := l.Go(func() {
		err := admin.Dismiss(l.Context(), l.Worker, id, generation)
		over()
		if err != nil && l.Context().Err() == nil {
			l.Worker.Log.Warn("weft: children of a terminated workflow were not asked to stop; trying again", "workflow", id, "error", err)
		}
	})
	if !begun {
		over()
	}
}
