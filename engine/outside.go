package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// load reads the record of a workflow that is there.
func (e *Engine) load(ctx context.Context, id string) (*checkpoint.Workflow, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := e.refused(); err != nil {
		return nil, err
	}
	wf, err := checkpoint.Load(ctx, e.store, id)
	if errors.Is(err, storage.ErrNotFound) {
		wf, err = e.orphaned(ctx, id)
	}
	switch {
	case err != nil:
		return nil, err
	case wf.Tombstone():
		return nil, notFound(id)
	}
	return wf, nil
}

// orphaned tells a workflow that never was from one whose record is lost: the
// latter has left its input. One that was started meanwhile is returned.
func (e *Engine) orphaned(ctx context.Context, id string) (*checkpoint.Workflow, error) {
	_, err := e.store.Get(ctx, keys.Input(id))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	wf, err := checkpoint.Load(ctx, e.store, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: record %q is missing", storage.ErrCorrupt, keys.Workflow(id))
	}
	return wf, err
}

// outdated judges an error that came up when a part of wf was read. A part that is
// missing, or is of another life, is damage only if the workflow's own record is still
// the one that was read before: if not, the workflow was purged meanwhile, or has gone
// on. Then the error is nil, and the caller reads the record again.
func outdated(ctx context.Context, s storage.Storage, wf *checkpoint.Workflow, cause error) error {
	if !errors.Is(cause, storage.ErrCorrupt) {
		return cause
	}
	switch raw, err := s.Get(ctx, keys.Workflow(wf.ID)); {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case bytes.Equal(raw, wf.Raw()):
		return cause
	}
	return nil
}

// sameLife returns ErrNotFound if the life of wf that was read has been purged since.
func (e *Engine) sameLife(ctx context.Context, wf *checkpoint.Workflow) error {
	now, err := e.load(ctx, wf.ID)
	if err == nil && now.Generation != wf.Generation {
		err = notFound(wf.ID)
	}
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: it was purged while it was read", err)
	}
	return err
}

// history yields the checkpoints of wf, as checkpoint.History does. If wf is purged
// meanwhile, the last thing that it yields is ErrNotFound: what is left of a history is
// neither damage nor all of it.
func (e *Engine) history(ctx context.Context, wf *checkpoint.Workflow) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		ended := false
		for c, err := range checkpoint.History(ctx, e.store, wf) {
			if err != nil {
				if outdated(ctx, e.store, wf, err) == nil {
					if gone := e.sameLife(ctx, wf); gone != nil {
						err = gone
					}
				}
				yield(checkpoint.Checkpoint{}, err)
				return
			}
			for _, ev := range c.Events {
				ended = ev.Kind == checkpoint.Ended || ended && !takesEndBack(ev)
			}
			if !yield(c, nil) {
				return
			}
		}
		if ended {
			return // nothing comes after that
		}
		if err := e.sameLife(ctx, wf); err != nil {
			yield(checkpoint.Checkpoint{}, err)
		}
	}
}

// Result waits for the end of a workflow and decodes its result into result, a
// pointer or nil. See Handle.Result.
func (e *Engine) Result(ctx context.Context, workflow, id string, result any) error {
	ctx, explain := waiting(ctx, "result of workflow", id)
	waitingFor(ctx, "the store to read")
	return explain(e.awaitResult(ctx, workflow, id, result))
}

func (e *Engine) awaitResult(ctx context.Context, workflow, id string, result any) error {
	if err := checkID(id); err != nil {
		return err
	}
	ended, local, release := e.await(workflow, id)
	defer release()
	for {
		if !local { // or its end has been told meanwhile
			wf, err := e.load(ctx, id)
			switch {
			case err != nil:
				return err
			case workflow != "" && workflow != wf.Type:
				return fmt.Errorf("%w: %q is a %s", ErrNotFound, id, wf.Type)
			case wf.Status.Terminal():
				out, err := checkpoint.ReadOutput(ctx, e.store, wf)
				if err == nil {
					return e.result(wf.Type, id, out, result)
				}
				if err := outdated(ctx, e.store, wf, err); err != nil {
					return err
				}
				continue // it was purged, or retried
			}
		}
		waitingFor(ctx, "its end")
		out, err := e.hear(ctx, ended, id)
		if err != nil {
			return err
		}
		if x := out; x != nil && (workflow == "" || workflow == x.workflow) {
			return e.result(x.workflow, id, x.Output, result)
		}
		local = false
	}
}

// hear waits for the end of a run, or for the time to look whether it ended
// elsewhere.
func (e *Engine) hear(ctx context.Context, ended <-chan *ending, id string) (*ending, error) {
	var look <-chan time.Time
	if !e.tells(id) {
		t := time.NewTimer(e.config.PollInterval)
		defer t.Stop()
		look = t.C
	}
	select {
	case out := <-ended:
		return out, nil
	case <-look:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.closing:
		return nil, ErrClosed
	}
}

// result is what an output means to a caller.
func (e *Engine) result(workflow, id string, out *checkpoint.Output, result any) error {
	switch out.Status {
	case checkpoint.Completed:
		if result == nil {
			return nil
		}
		if err := e.codecs.decode(payload{out.Codec, out.Data}, result); err != nil {
			return fmt.Errorf("engine: result of %q: %w", id, err)
		}
		return nil
	case checkpoint.Cancelled:
		return fmt.Errorf("%w: %q", ErrCancelled, id)
	}
	failed := &WorkflowError{ID: id, Workflow: workflow, Message: out.Error, Stack: out.Stack, sentinel: out.Sentinel}
	if d := e.workflows[workflow]; d != nil {
		failed.Sentinel = named(out.Sentinel, d.errors)
	}
	return failed
}

// Cancel asks a workflow to stop. A nil error says that the request is durable, and not
// that the workflow will end cancelled: its function may have returned already, or return
// a result all the same. Result tells how the workflow ended. Describe tells the request
// in Info.Cancel, also of a workflow that completed. A second request changes nothing, and
// its error is nil too.
//
// Of a request and an end that meet, the one that is committed first decides: after the
// end, the error is a *TerminalError, and Info.Cancel stays nil. Other errors:
// ErrNotFound, ErrInvalid, ErrClosed, the store's.
func (e *Engine) Cancel(ctx context.Context, id, reason string) error {
	if reason != "" {
		if err := checkName("reason", reason, maxReason); err != nil {
			return err
		}
	}
	ctx, explain := waiting(ctx, "cancel of workflow", id)
	return explain(e.cancel(ctx, id, nil, reason))
}

// cancel asks a workflow to stop; with a parent only if it is that one's child,
// and not another that has the id by now.
func (e *Engine) cancel(ctx context.Context, id string, parent *checkpoint.Parent, reason string) error {
	mine := checkpoint.Request{Reason: reason, At: checkpoint.Micro(e.now())}
	return e.request(ctx, id, func(wf *checkpoint.Workflow) bool {
		if wf.Cancel != nil || parent != nil && (wf.Parent == nil || *wf.Parent != *parent) {
			return false
		}
		wf.Cancel = &mine
		return true
	}, func(wf *checkpoint.Workflow) (bool, error) { return wf.Cancel != nil && *wf.Cancel == mine, nil })
}

const maxReason = 4096

// request changes the record of a workflow that has not ended, and wakes it.
// change says whether there is anything to write; written whether that is there,
// after an attempt that was refused or of unknown outcome.
func (e *Engine) request(ctx context.Context, id string, change func(*checkpoint.Workflow) bool, written func(*checkpoint.Workflow) (bool, error)) error {
	var refused *checkpoint.Workflow // what wf was when that had changed
	again := false
	for wait := time.Millisecond; ; wait, again = min(2*wait, time.Second), true {
		wf, err := e.load(ctx, id)
		if err != nil {
			return err
		}
		if again {
			if done, err := written(wf); done || err != nil {
				return err
			}
		}
		if refused != nil && string(refused.Raw()) == string(wf.Raw()) {
			return contradiction(keys.Workflow(id))
		}
		if wf.Status.Terminal() {
			return &TerminalError{id, wf.Status}
		}
		next := *wf
		if !change(&next) {
			return nil
		}
		b, tell, err := e.requesting(ctx, wf, &next)
		if err != nil {
			return err
		}
		err = e.store.Commit(ctx, b)
		tell() // also if the outcome is unknown
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("engine: request to %q: %w", id, err)
		case checkpoint.Hopeless(err):
			return fmt.Errorf("engine: request to %q: %w", id, err)
		}
		// A conflict, or an unknown outcome: either way what is there now tells.
		if refused = nil; errors.Is(err, storage.ErrConflict) && len(b.If) == 1 { // and it can only be wf
			refused, wait = wf, min(wait, 4*time.Millisecond) // somebody else got on
		}
		if !backoff.Wait(ctx, wait) {
			return ctx.Err()
		}
	}
}

// requesting decides the change of wf to next, which was asked for, and whom to tell
// when it is done.
func (e *Engine) requesting(ctx context.Context, wf, next *checkpoint.Workflow) (b storage.Batch, tell func(), err error) {
	if next.Waits && next.Status == checkpoint.Pending && next.Cancel != nil {
		return e.turnAway(ctx, wf, next)
	}
	next.State++
	_, put, err := next.Seal()
	b = storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: []storage.Op{put}}
	if e.drives(wf) == nil {
		b.Ops = wakeUp(b.Ops, wf, e.now(), e.newID())
	}
	return b, func() { e.hint(wf, post{asked: true}) }, err
}

// hint tells who drives wf, or should, that something was written for it.
func (e *Engine) hint(wf *checkpoint.Workflow, p post) {
	if x := e.drives(wf); x != nil {
		x.post(p)
		return
	}
	e.mu.Lock()
	l := e.life
	e.mu.Unlock()
	switch {
	case l == nil:
	case wf.Owner == l.incarnation:
		l.doubt(wf.ID)
	case wf.Owner == "":
		l.pokeNow()
	}
}
