package admin

import (
	"context"

	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/worker"
)

// An Admin changes workflows and deployments for clients and operators.
type Admin struct {
	*worker.Worker
	Reader *inspect.Reader // hands what is purged to Config.Archive

	may func(ctx context.Context, wf *journal.Workflow) error // see Only; nil: everything may be done
}

// Only returns an Admin whose verbs are done only if may returns nil for the workflow's record. The
// commit has the condition that this record is unchanged. Otherwise a verb returns the error of may.
func (e *Admin) Only(may func(ctx context.Context, wf *journal.Workflow) error) *Admin {
	return &Admin{Worker: e.Worker, Reader: e.Reader, may: may}
}

// allowed returns the error of may for wf.
func (e *Admin) allowed(ctx context.Context, wf *journal.Workflow) error {
	if e.may == nil {
		return nil
	}
	return e.may(ctx, wf)
}

// Change is Worker.Change, as far as it is allowed.
func (e *Admin) Change(ctx context.Context, id string, c worker.Change) error {
	if decide := c.Decide; e.may != nil {
		c.Decide = func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
			if err := e.may(ctx, wf); err != nil {
				return nil, err
			}
			return decide(ctx, wf)
		}
	}
	return e.Worker.Change(ctx, id, c)
}
