package worker

import (
	"context"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// CutOff ends x, whose run was terminated. The driver need not notice: it may be blocked in user
// code.
func (e *Worker) CutOff(x *run.Execution) {
	x.Cancel(activity.ErrTerminated)
	e.mu.Lock()
	defer e.mu.Unlock()
	x.Told = true // waiters that register later look at the store
	e.tellAll(x.ID, nil)
}

// An Ending is the end of a workflow without its function.
type Ending struct {
	Next   *journal.Workflow // its record, as it is to be; Ended sets the status
	Output *journal.Output
	Events []checkpoint.Event // before the end itself
	Ops    []storage.Op
}

// Ended returns the change that ends the workflow of h, and its write. The parent is told, and
// an owner is fenced by the same commit.
func (e *Worker) Ended(ctx context.Context, h *journal.Hold, end Ending) (*Changing, *journal.Write, error) {
	wf, next, out := h.Workflow, end.Next, end.Output
	if err := wf.Status.To(out.Status); err != nil {
		return nil, nil, err
	}
	now := e.Now()
	next.Status, next.EndedAt = out.Status, journal.Micro(now)
	next.Attention, next.Awaits, next.Handles, next.Facing, next.Heard = nil, nil, nil, nil, 0
	put, err := journal.PutOutput(wf.ID, out)
	if err != nil {
		return nil, nil, err
	}
	ended := checkpoint.Event{Kind: checkpoint.KindEnded, Name: string(out.Status), Error: out.Error, By: e.EngineName}
	change := journal.Change{Events: append(end.Events, ended), Workflow: next, Ops: append(end.Ops, put)}
	parent, err := e.Report(ctx, e.Store, wf, &change, out)
	if err != nil {
		return nil, nil, err
	}
	if wf.Owner != "" && e.ExecutionOf(wf) == nil {
		change.Ops = run.WakeUp(change.Ops, wf, now, e.NewID())
	}
	w, err := h.Append(change, now)
	if err != nil {
		return nil, nil, err
	}
	return &Changing{w.Batch, func() {
		if x := e.ExecutionOf(wf); x != nil {
			x.Post(run.Written{Record: true})
		}
		e.lookAgain(wf.ID)
		if parent != nil {
			e.Hint(parent, run.Written{Children: true})
		}
	}, wf, next}, w, nil
}
