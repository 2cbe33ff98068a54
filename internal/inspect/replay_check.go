package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// Replay is Engine.Replay.
func (e *Reader) Replay(ctx context.Context, history io.Reader) error {
	p, checkpoints, err := export.Read(history)
	if err != nil {
		return err
	}
	return replay(ctx, e.rehearsal(), p, checkpoints)
}

// replay compares a history with the function of its workflow. w is a rehearsal.
func replay(ctx context.Context, w *worker.Worker, p export.Preamble, checkpoints []checkpoint.Checkpoint) error {
	def := w.Workflows[p.Workflow]
	if def == nil {
		return fmt.Errorf("engine: replay of %q: Config.Workflows has none of the name %q", p.ID, p.Workflow)
	}
	l := worker.NewIncarnation(w)
	defer l.Cancel(nil)
	defer context.AfterFunc(ctx, func() { l.Cancel(context.Cause(ctx)) })()

	wf := &journal.Workflow{ID: p.ID, Type: p.Workflow, Generation: p.Generation, Status: checkpoint.StatusRunning, StartedAt: journal.Micro(p.Started), Needs: p.Needs,
		Life: p.Life, First: p.First, Updates: p.Updates, LifeAt: journal.Micro(p.Started)}
	if err := wf.Understood(); err != nil {
		return fmt.Errorf("engine: replay: %w", err)
	}
	for _, a := range p.Retries {
		wf.Retries = append(wf.Retries, a.Recorded())
	}
	for _, r := range p.Resets {
		wf.Resets = append(wf.Resets, r.Recorded())
	}
	for _, c := range p.Versions {
		wf.Versions = append(wf.Versions, c.Recorded())
	}
	if unknown := def.Unknown(wf); unknown != nil {
		return unknown
	}
	hold := &journal.Hold{Workflow: wf}
	if last := len(checkpoints) - 1; last >= 0 {
		hold.Head, hold.HeadTime = checkpoints[last].Number, checkpoints[last].Time
	}
	x := run.New(l.Worker.Host, l, def, hold)
	x.Input = payload.Payload{Codec: p.Codec, Data: p.Data}
	if p.Input != nil {
		x.Input.Data = p.Input
	}
	err := x.Rehearse(checkpoints)
	if ctx.Err() != nil {
		return fmt.Errorf("engine: replay of %q: %w", p.ID, context.Cause(ctx))
	}
	if len(x.Changed) > 0 {
		err = errors.Join(err, &weft.InputChangedError{WorkflowID: p.ID, Operations: x.Changed})
	}
	return err
}

// rehearsal returns a worker with the configuration of e that logs nothing, reports no
// events and writes nothing.
func (e *Reader) rehearsal() *worker.Worker {
	r := e.Env
	r.Events = weft.Events{}
	r.Store = unwritable{e.Store}
	r.Log = slog.New(slog.DiscardHandler)
	r.Rehearsing = true
	return worker.New(run.NewHost(r, e.Gate))
}

// An unwritable store refuses every write.
type unwritable struct{ storage.Storage }

func (unwritable) Commit(context.Context, storage.Batch) error { return storage.ErrClosed }
