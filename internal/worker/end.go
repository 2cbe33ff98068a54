package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// CutOff ends x, whose run was terminated, or taken from it. The driver need not notice: it may be blocked in user code.
func (e *Worker) CutOff(x *run.Execution, cause error) {
	x.Cancel(cause)
	e.mu.Lock()
	defer e.mu.Unlock()
	x.Told = true // waiters that register later look at the store
	e.tellAll(x.ID, nil, nil)
}

// An Ending is the end of a workflow without its function.
type Ending struct {
	Next   *journal.Workflow // its record, as it is to be; Ended sets the status and takes the verbs
	Output *journal.Output
	Events []checkpoint.Event // before the end itself, behind those of the verbs
	Ops    []storage.Op
}

// Ended returns the change that ends the workflow of h, and its write. The parent is told, an owner
// is fenced, and the tokens of hooks are freed by the same commit. No hook is opened in between,
// because a condition is that the head of h is still the last checkpoint.
func (e *Worker) Ended(ctx context.Context, h *journal.Hold, end Ending) (*Changing, *journal.Write, error) {
	wf, next, out := h.Workflow, end.Next, end.Output
	if err := wf.Status.To(out.Status); err != nil {
		return nil, nil, err
	}
	now := e.Now()
	next.Status, next.EndedAt = out.Status, journal.Micro(now)
	next.Verbs, next.Attention, next.Awaits, next.Handles, next.Facing, next.Heard = nil, nil, nil, nil, nil, 0
	put, err := journal.PutOutput(wf.ID, out)
	if err != nil {
		return nil, nil, err
	}
	frees, err := freed(ctx, e.Store, wf)
	if err != nil {
		return nil, nil, err
	}
	ended := checkpoint.Event{Kind: checkpoint.KindEnded, Name: string(out.Status), Error: out.Error, By: e.EngineName}
	change := journal.Change{Events: slices.Concat(wf.Acted(), end.Events, []checkpoint.Event{ended}), Workflow: next, Ops: slices.Concat(end.Ops, frees, []storage.Op{put})}
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

// freed returns the operations that free the tokens of the hooks of wf, which was read before. If the record of a hook is
// damaged, it looks at the tokens of all runs: what is damaged must not keep an operator from ending the run.
func freed(ctx context.Context, s storage.Storage, wf *journal.Workflow) (ops []storage.Op, err error) {
	hooks, err := journal.Hooks(ctx, s, wf)
	if errors.Is(err, storage.ErrCorrupt) {
		return journal.TokensOf(ctx, s, wf)
	}
	for _, h := range hooks {
		ops = append(ops, h.Free())
	}
	return ops, err
}
