package engine

import (
	"context"

	"github.com/weft-go/weft/checkpoint"
)

// Cancel requests the cancellation of a workflow. A nil error means that the request is
// durable, not that the workflow will end cancelled: its function may already have
// returned, or may still return a result. Result returns how the workflow ended. Describe
// returns the request in Info.Cancel, also if the workflow completed. A second request
// changes nothing, and its error is nil too. Both fields of by may be empty.
//
// If a request and the end of the workflow race, the one that is committed first counts.
// If that is the end, the error is a *TerminalError, and Info.Cancel stays nil. Other
// errors: ErrNotFound, ErrInvalid, ErrClosed, the store's.
func (e *Engine) Cancel(ctx context.Context, id string, by Actor) error {
	if err := checkActorText(by); err != nil {
		return err
	}
	call := waiting(ctx, "cancel of workflow", id)
	return call.explain(e.cancel(call, id, nil, by))
}

// cancel requests the cancellation of a workflow. With a parent, it does so only if the
// workflow is a child of that parent, and not another workflow that uses the id now.
func (e *Engine) cancel(ctx context.Context, id string, parent *checkpoint.Parent, by Actor) error {
	mine := checkpoint.Request{By: by.Name, Reason: by.Reason, At: checkpoint.Micro(e.now())}
	return e.change(ctx, id, change{
		name: "cancel",
		landed: func(_ context.Context, wf *checkpoint.Workflow) (bool, error) {
			return wf.Cancel != nil && *wf.Cancel == mine, nil
		},
		decide: func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &TerminalError{WorkflowID: id, Status: wf.Status}
			case wf.Cancel != nil || parent != nil && (wf.Parent == nil || *wf.Parent != *parent):
				return nil, nil
			}
			next := *wf
			next.Cancel = &mine
			if wf.Waits && wf.Status == checkpoint.StatusPending {
				return e.turnAway(ctx, wf, &next)
			}
			return e.rewritten(wf, &next)
		},
	})
}
