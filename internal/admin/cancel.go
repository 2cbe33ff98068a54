package admin

import (
	"context"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
)

// Cancel is Engine.Cancel.
func (e *Admin) Cancel(ctx context.Context, id string, by weft.Actor) error {
	if err := checkActorText(by); err != nil {
		return err
	}
	call := waiting.New(ctx, "cancel of workflow", id)
	return call.Explain(e.cancel(call, id, by))
}

func (e *Admin) cancel(ctx context.Context, id string, by weft.Actor) error {
	if err := e.Change(ctx, id, e.Cancellation(id, nil, by)); err != nil {
		return err
	}
	wf, err := e.Load(ctx, id)
	if err != nil || wf.Status.Terminal() {
		return nil // the request is durable all the same
	}
	if a := run.HeldBy(wf); a != nil {
		return &weft.HeldError{WorkflowID: id, Reason: weft.Reason(a.Reason), Detail: a.Detail}
	}
	return nil
}
