package worker

import (
	"context"
	"maps"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
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

// Purged tells that a workflow, which is wf no more, was purged. It logs that with others.
func (e *Worker) Purged(wf *journal.Workflow, cause weft.Removal, by weft.Actor) {
	id := wf.ID
	if f := e.Events.Removed; f != nil {
		f(weft.RemovedEvent{WorkflowID: id, Workflow: wf.Type, Status: wf.Status, Cause: cause, Kept: max(e.Now().Sub(journal.Time(wf.EndedAt)), 0)})
	}
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
