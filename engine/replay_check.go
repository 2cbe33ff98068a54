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

// Replay checks whether the function of a workflow of this engine agrees with a
// history that Export wrote. It calls the function from its beginning and delivers
// the recorded outcomes until the history ends. It runs no activity and no step, and
// neither reads nor writes the store. See enginetest.Replay.
//
// A *NonDeterminismError means that the function does not do what the history has
// recorded: another operation, an early end, or another end (completed, failed,
// cancelled; results are not compared). If the workflow has not ended, Replay does
// not check what comes after the history. An *InputChangedError means that operations were
// started with an input that differs from the recorded one. Both errors may be
// joined. Other errors: a workflow that Config.Workflows does not have, an input or a
// result that cannot be decoded, storage.ErrCorrupt and storage.ErrFutureFormat for a
// file that is not such a history.
func (e *Engine) Replay(ctx context.Context, history io.Reader) error {
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
	x := newExecution(l, def, hold)
	x.input = payload{p.Codec, p.Data}
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

// rehearsal returns an engine with the configuration of e that logs nothing, reports no
// events and writes nothing.
func (e *Engine) rehearsal() *Engine {
	r := e.apart()
	r.config.Events = Events{}
	r.store = unwritable{e.store}
	r.log = slog.New(slog.DiscardHandler)
	r.rehearsing = true
	return r
}

// An unwritable store refuses every write.
type unwritable struct{ storage.Storage }

func (unwritable) Commit(context.Context, storage.Batch) error { return storage.ErrClosed }

// rehearse is drive, but stops at the end of the history.
func (x *execution) rehearse(history []checkpoint.Checkpoint) error {
	defer x.cancel(nil)
	defer x.unwind()
	next := 0
	x.endHistory = func() {}
	x.history = func() (c checkpoint.Checkpoint, err error, ok bool) {
		if next == len(history) {
			return c, nil, false
		}
		next++
		return history[next-1], nil, true
	}
	x.noteReplay()
	x.startFunction()
	var end checkpoint.Event
	for {
		err := x.runBranches()
		if x.fault != nil {
			return fmt.Errorf("engine: replay of %q: %w", x.id, x.fault.cause)
		}
		if err != nil {
			return err
		}
		e, ok, err := x.nextEvent()
		if err != nil {
			return err
		}
		if !ok {
			return x.conclude(end)
		}
		switch {
		case e.Kind == checkpoint.KindEnded:
			end = e.Event
		case export.TakesEndBack(e.Event):
			end = checkpoint.Event{}
		}
		if err := x.deliverEvent(e); err != nil {
			return err
		}
	}
}

// conclude compares the state of the function at the end of its history with the end that
// the history has recorded. An end that did not come from the function is not compared.
func (x *execution) conclude(end checkpoint.Event) error {
	if end.Kind != checkpoint.KindEnded || end.By != "" {
		return nil
	}
	return x.endsAs(end)
}

// endsAs compares the state of the function with the recorded end. It returns nil or a
// *NonDeterminismError.
func (x *execution) endsAs(end checkpoint.Event) error {
	n := &NonDeterminismError{WorkflowID: x.id, Recorded: inWords(checkpoint.Status(end.Name), end.Error)}
	if x.result == nil {
		n.Asked = "still to come"
		if o := x.ops.first; o != nil {
			n.Asked = fmt.Sprintf("after operation %s, %s", o.id, describe(o.of, o.name))
		}
		return n
	}
	out := x.ending()
	if string(out.Status) == end.Name {
		return nil
	}
	n.Asked = inWords(out.Status, out.Error)
	return n
}

// inWords describes an end: "failed: card declined".
func inWords(status checkpoint.Status, cause string) string {
	if cause == "" {
		return string(status)
	}
	return string(status) + ": " + cause
}
