package engine

import (
	"context"

	"github.com/weft-go/weft/checkpoint"
)

// Cancel asks a workflow to stop. A nil error says that the request is durable, and not
// that the workflow will end cancelled: its function may have returned already, or return
// a result all the same. Result tells how the workflow ended. Describe tells the request
// in Info.Cancel, also of a workflow that completed. A second request changes nothing, and
// its error is nil too.
//
// Of a request and an end that meet, the one that is committed first decides: after the
// end, the error is a *TerminalError, and Info.Cancel stays nil. Other errors:
// ErrNotFound, ErrInvalid, ErrClosed, the store's.
func (e *Engine) Cancel(ctx context.Context, id, reason string) error {
	if reason != "" {
		if err := checkName("reason", reason, maxReason); err != nil {
			return err
		}
	}
	call := waiting(ctx, "cancel of workflow", id)
	return call.explain(e.cancel(call, id, nil, reason))
}

// cancel asks a workflow to stop; with a parent only if it is that one's child,
// and not another that has the id by now.
func (e *Engine) cancel(ctx context.Context, id string, parent *checkpoint.Parent, reason string) error {
	mine := checkpoint.Request{Reason: reason, At: checkpoint.Micro(e.now())}
	return e.change(ctx, id, change{
		name: "cancel",
		landed: func(_ context.Context, wf *checkpoint.Workflow) (bool, error) {
			return wf.Cancel != nil && *wf.Cancel == mine, nil
		},
		decide: func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &TerminalError{id, wf.Status}
			case wf.Cancel != nil || parent != nil && (wf.Parent == nil || *wf.Parent != *parent):
				return nil, nil
			}
			next := *wf
			next.Cancel = &mine
			if wf.Waits && wf.Status == checkpoint.Pending {
				return e.turnAway(ctx, wf, &next)
			}
			return e.rewritten(wf, &next)
		},
	})
}
