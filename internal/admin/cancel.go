package admin

import (
	"context"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/waiting"
)

// Cancel is Engine.Cancel.
func (e *Admin) Cancel(ctx context.Context, id string, by weft.Actor) error {
	if err := checkActorText(by); err != nil {
		return err
	}
	call := waiting.New(ctx, "cancel of workflow", id)
	return call.Explain(e.RequestCancel(call, id, nil, by))
}
