package engine

import (
	"context"
	"io"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
)

// Export writes the history of a workflow to w, for enginetest.Replay and for
// people: lines of JSON, the first about the workflow and its input, then one
// for each checkpoint. What is encoded by JSON stands there as it is, and may be
// edited before the file is shown to anybody; of another codec there are the
// bytes. A workflow that has not ended is exported as far as it has come.
//
// Errors: ErrNotFound, also if the workflow is purged meanwhile, ErrInvalid,
// ErrClosed, the store's, w's. What has been written to w before an error is a part.
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
