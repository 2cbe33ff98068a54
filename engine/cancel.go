package engine

import (
	"context"
)

// Cancel is Engine.Cancel.
func (e *admin) Cancel(ctx context.Context, id string, by Actor) error {
	if err := checkActorText(by); err != nil {
		return err
	}
	call := waiting(ctx, "cancel of workflow", id)
	return call.explain(e.cancel(call, id, nil, by))
}
