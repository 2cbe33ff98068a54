package worker

import (
	"context"
	"maps"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/lock"
)

// purges are the workflows purged through an engine and not yet logged. Purging is done for
// thousands of workflows at a time, so there is one line for each poll and actor.
type purges struct {
	mu lock.Mutex
	by map[string]*purged // by the name of the actor
}

type purged struct {
	count   int
	id, why string // of the first
}

// Purged logs that a workflow was purged, now or with others.
func (e *Worker) Purged(id string, by weft.Actor) {
	e.Log.Debug("weft: workflow purged", "workflow", id, "by", by.Name, "why", by.Reason)
	e.purges.mu.Lock()
	defer e.purges.mu.Unlock()
	if e.purges.by == nil {
		e.purges.by = map[string]*purged{}
	}
	p := e.purges.by[by.Name]
	if p == nil {
		p = &purged{id: id, why: by.Reason}
		e.purges.by[by.Name] = p
	}
	p.count++
}

// logPurges logs the purges since the last call. It is a duty of the poll, and done by Close.
func (e *Worker) logPurges(context.Context) error {
	e.purges.mu.Lock()
	by := e.purges.by
	e.purges.by = nil
	e.purges.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(by)) {
		p := by[name]
		e.Log.Info("weft: workflows purged", "count", p.count, "workflow", p.id, "by", name, "why", p.why)
	}
	return nil
}
