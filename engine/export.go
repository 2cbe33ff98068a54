package engine

import (
	"context"
	"io"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
)

// Export writes the history of a workflow to w, for enginetest.Replay and for human
// readers. The format is lines of JSON: the first has the workflow and its input, and
// each further one a checkpoint. Payloads that the JSON codec encoded are readable, and
// may be edited before the file is passed on. Those of another codec are written as
// bytes. Of a workflow that has not ended, Export writes the history up to now.
//
// Errors: ErrNotFound, also if the workflow is purged meanwhile, ErrInvalid,
// ErrClosed, the store's, w's. After an error, w has only a part of the history.
func (e *Engine) Export(ctx context.Context, id string, w io.Writer) error {
	wf, in, err := e.begun(ctx, id)
	if err != nil {
		return err
	}
	p := export.Preamble{
		ID:         id,
		Workflow:   wf.Type,
		Generation: wf.Generation,
		Status:     wf.Status,
		Started:    checkpoint.Time(wf.StartedAt),
		Codec:      in.Codec,
	}
	for _, r := range wf.Retries {
		p.Retries = append(p.Retries, export.RetryOf(r))
	}
	p.Input, p.Data = export.Readable(in.Codec, in.Data)
	return export.Write(w, p, e.history(ctx, wf))
}

// begun reads a workflow's record and the input that belongs to it.
func (e *Engine) begun(ctx context.Context, id string) (*checkpoint.Workflow, *checkpoint.Input, error) {
	for {
		wf, err := e.load(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		in, err := checkpoint.ReadInput(ctx, e.store, wf)
		if err == nil {
			return wf, in, nil
		}
		if err := outdated(ctx, e.store, wf, err); err != nil {
			return nil, nil, err
		}
	}
}
