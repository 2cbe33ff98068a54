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

// Replay runs the function of a workflow of this engine against a history that
// Export wrote, from its beginning to where the history ends: the workflow gets
// the outcomes that are recorded. No activity and no step is run, nothing is
// read from the store and nothing written. See enginetest.Replay.
//
// A *NonDeterminismError says that the function does something else than the
// history tells: another operation, an early end, or another end (completed,
// failed, cancelled; results are not compared). A history that has not ended
// says nothing about what comes next. An *InputError says that operations were
// begun with another input than before; the two may come together. Other errors: a workflow that
// Config.Workflows does not have, an input or a result that cannot be decoded,
// storage.ErrCorrupt and storage.ErrFutureFormat for a file that is none.
func (e *Engine) Replay(ctx context.Context, history io.Reader) error {
	p, checkpoints, err := export.Read(history)
	if err != nil {
		return err
	}
	def := e.workflows[p.Workflow]
	if def == nil {
		return fmt.Errorf("engine: replay of %q: Config.Workflows has none of the name %q", p.ID, p.Workflow)
	}
	l := newLife(e.rehearsal())
	defer l.cancel(nil)
	defer context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })()

	wf := &checkpoint.Workflow{ID: p.ID, Type: p.Workflow, Generation: p.Generation, Status: checkpoint.Running, StartedAt: checkpoint.Micro(p.Started)}
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
		err = errors.Join(err, &InputError{p.ID, x.changed})
	}
	return err
}

// rehearsal is an engine that knows what e does, and neither says nor writes
// anything.
func (e *Engine) rehearsal() *Engine {
	r := e.apart()
	r.config.Events = Events{}
	r.store = unwritable{e.store}
	r.log = slog.New(slog.DiscardHandler)
	r.rehearsing = true
	return r
}

// An unwritable store is closed to every write.
type unwritable struct{ storage.Storage }

func (unwritable) Commit(context.Context, storage.Batch) error { return storage.ErrClosed }

// rehearse is drive up to the end of the history, and nothing after it.
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
	x.begin()
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
		case e.Kind == checkpoint.Ended:
			end = e.Event
		case export.TakesEndBack(e.Event):
			end = checkpoint.Event{}
		}
		if err := x.deliver(e); err != nil {
			return err
		}
	}
}

// conclude compares how the function stands at the end of its history with how
// the history ends. The end that somebody else gave to a run tells nothing.
func (x *execution) conclude(end checkpoint.Event) error {
	if end.Kind != checkpoint.Ended || end.By != "" {
		return nil
	}
	return x.endsAs(end)
}

// endsAs compares how the function stands with the end that its history tells: nil,
// or a *NonDeterminismError.
func (x *execution) endsAs(end checkpoint.Event) error {
	n := &NonDeterminismError{ID: x.id, Recorded: inWords(checkpoint.Status(end.Name), end.Error)}
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

// inWords is an end: "failed: card declined".
func inWords(status checkpoint.Status, cause string) string {
	if cause == "" {
		return string(status)
	}
	return string(status) + ": " + cause
}
