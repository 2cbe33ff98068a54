package inspect

import (
	"context"
	"io"
	"iter"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
)

// Export is Engine.Export.
func (e *Reader) Export(ctx context.Context, id string, w io.Writer) error {
	out := &counting{Writer: w}
	return readLife(func() (begun bool, err error) {
		err = e.exportLife(ctx, id, out)
		return out.written, err
	})
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
func (e *Reader) exportLife(ctx context.Context, id string, w io.Writer) error {
	s, err := e.snapshot(ctx, id)
	if err != nil {
		return err
	}
	return e.export(ctx, s, w)
}

// export writes s.
func (e *Reader) export(ctx context.Context, s *snapshot, w io.Writer) error {
	return export.Write(w, s.preamble(), e.historyOf(ctx, s))
}

// A snapshot is the beginning of a workflow and of its history, up to a checkpoint.
type snapshot struct {
	wf   *journal.Workflow
	in   *journal.Input
	head uint64
}

// snapshot reads the state of a workflow that may be in progress. The record has all choices,
// retries and resets up to the head.
func (e *Reader) snapshot(ctx context.Context, id string) (*snapshot, error) {
	for {
		wf, in, err := e.begun(ctx, id)
		if err != nil {
			return nil, err
		}
		hold, err := journal.FindUnread(ctx, e.Store, wf)
		if err != nil {
			return nil, err
		}
		now, err := e.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		if now.Generation == wf.Generation && now.Life == wf.Life && len(now.Versions) == len(wf.Versions) && len(now.Retries) == len(wf.Retries) && len(now.Resets) == len(wf.Resets) {
			return &snapshot{wf, in, hold.Head}, nil
		}
	}
}

// historyOf yields the checkpoints of s.
func (e *Reader) historyOf(ctx context.Context, s *snapshot) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		for c, err := range e.lifeOf(ctx, s.wf) {
			if err == nil && c.Number > s.head || !yield(c, err) {
				return
			}
		}
	}
}

// preamble returns what an export of s says of it beside its history.
func (s *snapshot) preamble() export.Preamble {
	wf, in := s.wf, s.in
	p := export.Preamble{
		ID:         wf.ID,
		Workflow:   wf.Type,
		Generation: wf.Generation,
		Status:     wf.Status,
		Needs:      wf.Needs,
		Started:    wf.Began(),
		Life:       wf.Life,
		First:      wf.First,
		Updates:    wf.Updates,
		Codec:      in.Codec,
	}
	for _, r := range wf.Retries {
		p.Retries = append(p.Retries, export.RetryOf(r))
	}
	for _, c := range wf.Versions {
		p.Versions = append(p.Versions, export.ChoiceOf(c))
	}
	for _, r := range wf.Resets {
		p.Resets = append(p.Resets, export.ResetOf(r))
	}
	p.Input, p.Data = export.Readable(in.Codec, in.Data)
	return p
}

// begun reads a workflow's record and the input that belongs to it.
func (e *Reader) begun(ctx context.Context, id string) (*journal.Workflow, *journal.Input, error) {
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
