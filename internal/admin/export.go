package admin

import (
	"context"
	"io"

	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
)

// Export is Engine.Export.
func (e *Admin) Export(ctx context.Context, id string, w io.Writer) error {
	wf, in, err := e.begun(ctx, id)
	if err != nil {
		return err
	}
	return e.export(ctx, wf, in, w)
}

// export writes the history of wf, which was started with in.
func (e *Admin) export(ctx context.Context, wf *journal.Workflow, in *journal.Input, w io.Writer) error {
	p := export.Preamble{
		ID:         wf.ID,
		Workflow:   wf.Type,
		Generation: wf.Generation,
		Status:     wf.Status,
		Needs:      wf.Needs,
		Started:    journal.Time(wf.StartedAt),
		Codec:      in.Codec,
	}
	for _, r := range wf.Retries {
		p.Retries = append(p.Retries, export.RetryOf(r))
	}
	p.Input, p.Data = export.Readable(in.Codec, in.Data)
	return export.Write(w, p, e.HistoryOf(ctx, wf))
}

// begun reads a workflow's record and the input that belongs to it.
func (e *Admin) begun(ctx context.Context, id string) (*journal.Workflow, *journal.Input, error) {
	for {
		wf, err := e.Load(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		in, err := journal.ReadInput(ctx, e.Store, wf)
		if err == nil {
			return wf, in, nil
		}
		if err := run.Outdated(ctx, e.Store, wf, err); err != nil {
			return nil, nil, err
		}
	}
}
