package admin

import (
	"context"
	"errors"
	"io"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
)

// Export is Engine.Export.
func (e *Admin) Export(ctx context.Context, id string, w io.Writer) error {
	out := &counting{Writer: w}
	for tries := 1; ; tries++ {
		if err := e.exportLife(ctx, id, out); !errors.Is(err, weft.ErrBusy) || out.written || tries == mostTries {
			return err
		}
	}
}

// A counting writer notes whether anything was written.
type counting struct {
	io.Writer
	written bool
}

func (c *counting) Write(p []byte) (int, error) {
	c.written = true
	return c.Writer.Write(p)
}

// exportLife writes the history of the present life of a workflow.
func (e *Admin) exportLife(ctx context.Context, id string, w io.Writer) error {
	wf, in, err := e.begun(ctx, id)
	if err != nil {
		return err
	}
	p := export.Preamble{
		ID:         id,
		Workflow:   wf.Type,
		Generation: wf.Generation,
		Status:     wf.Status,
		Needs:      wf.Needs,
		Started:    wf.Began(),
		Life:       wf.Life,
		First:      wf.First,
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
