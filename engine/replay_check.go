package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/storage"
)

// Replay is Engine.Replay.
func (e *admin) Replay(ctx context.Context, history io.Reader) error {
	p, checkpoints, err := export.Read(history)
	if err != nil {
		return err
	}
	def := e.workflows[p.Workflow]
	if def == nil {
		return fmt.Errorf("engine: replay of %q: Config.Workflows has none of the name %q", p.ID, p.Workflow)
	}
	l := newIncarnation(e.rehearsal())
	defer l.cancel(nil)
	defer context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })()

	wf := &checkpoint.Workflow{ID: p.ID, Type: p.Workflow, Generation: p.Generation, Status: checkpoint.StatusRunning, StartedAt: checkpoint.Micro(p.Started)}
	for _, a := range p.Retries {
		wf.Retries = append(wf.Retries, a.Recorded())
	}
	hold := &checkpoint.Hold{Workflow: wf}
	if last := len(checkpoints) - 1; last >= 0 {
		hold.Head, hold.HeadTime = checkpoints[last].Number, checkpoints[last].Time
	}
	x := newExecution(l.eng.host, l, def, hold)
	x.input = payload{codec: p.Codec, data: p.Data}
	if p.Input != nil {
		x.input.data = p.Input
	}
	err = x.rehearse(checkpoints)
	if ctx.Err() != nil {
		return fmt.Errorf("engine: replay of %q: %w", p.ID, context.Cause(ctx))
	}
	if len(x.changed) > 0 {
		err = errors.Join(err, &InputChangedError{WorkflowID: p.ID, Operations: x.changed})
	}
	return err
}

// rehearsal returns a worker with the configuration of e that logs nothing, reports no
// events and writes nothing.
func (e *admin) rehearsal() *worker {
	r := e.env
	r.events = Events{}
	r.store = unwritable{e.store}
	r.log = slog.New(slog.DiscardHandler)
	r.rehearsing = true
	return newWorker(newHost(r, e.gate))
}

// An unwritable store refuses every write.
type unwritable struct{ storage.Storage }

func (unwritable) Commit(context.Context, storage.Batch) error { return storage.ErrClosed }
