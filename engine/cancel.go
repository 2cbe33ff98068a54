package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

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
	call := waiting(ctx, "cancel of workflow", id)
	return call.explain(e.cancel(call, id, nil, reason))
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
