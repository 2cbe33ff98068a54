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

// A change is what a call from outside does to one workflow in one commit: a cancellation
// request, or an action of an operator.
type change struct {
	name string // of the call, for errors

	// landed reports whether an earlier try was written, which is unknown after a conflict
	// or an unknown outcome. It gets the workflow's current record.
	landed func(ctx context.Context, wf *checkpoint.Workflow) (bool, error)

	// decide decides the commit. It returns nil if there is nothing to write.
	decide func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error)
}

// A changing is what a change has decided.
type changing struct {
	batch storage.Batch
	tell  func() // notifies the workflow's owner; also called if the outcome is unknown
}

// change applies c: it reads the workflow, decides, commits, and repeats this until it is
// certain that c was applied or cannot be.
func (e *worker) change(ctx context.Context, id string, c change) error {
	tried := false
	var refused *checkpoint.Workflow // the record whose being unchanged was the only condition of a refused commit
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		wf, err := e.load(ctx, id)
		if err != nil {
			return err
		}
		if tried {
			if done, err := c.landed(ctx, wf); done || err != nil {
				return err
			}
		}
		if refused != nil && string(refused.Raw()) == string(wf.Raw()) {
			return contradiction(keys.Workflow(id))
		}
		d, err := c.decide(ctx, wf)
		if err != nil {
			if err := outdated(ctx, e.store, wf, err); err != nil {
				return err
			}
			continue
		}
		if d == nil {
			return nil
		}
		tried = true
		err = e.store.Commit(ctx, d.batch)
		d.tell()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, checkpoint.Hopeless(err):
			return fmt.Errorf("engine: %s %q: %w", c.name, id, err)
		}
		// After a conflict or an unknown outcome, read again what is there.
		if refused = nil; errors.Is(err, storage.ErrConflict) && len(d.batch.If) == 1 {
			refused, wait = wf, min(wait, 4*time.Millisecond)
		}
		if !backoff.Wait(ctx, wait) {
			return ctx.Err()
		}
	}
}

// rewritten returns the decision to replace the record of wf by next and to notify the
// owner of the workflow.
func (e *worker) rewritten(wf, next *checkpoint.Workflow) (*changing, error) {
	next.State++
	_, put, err := next.Seal()
	if err != nil {
		return nil, err
	}
	b := storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: []storage.Op{put}}
	if e.drives(wf) == nil && !wf.Status.Terminal() {
		b.Ops = wakeUp(b.Ops, wf, e.now(), e.newID())
	}
	return &changing{b, func() { e.Hint(wf, written{record: true}) }}, nil
}

// hint tells the execution of wf that something was written for it. If this engine has no
// execution of wf, it makes the engine look for it.
func (e *worker) Hint(wf *checkpoint.Workflow, p message) {
	if x := e.drives(wf); x != nil {
		x.post(p)
		return
	}
	e.mu.Lock()
	l := e.incarnation
	e.mu.Unlock()
	switch {
	case l == nil:
	case wf.Owner == l.name:
		l.Doubt(wf.ID)
	case wf.Owner == "":
		l.PokeNow()
	}
}

// cancel requests the cancellation of a workflow. With a parent, it does so only if the
// workflow is a child of that parent, and not another workflow that uses the id now.
func (e *worker) cancel(ctx context.Context, id string, parent *checkpoint.Parent, by Actor) error {
	mine := checkpoint.Request{By: by.Name, Reason: by.Reason, At: checkpoint.Micro(e.now())}
	return e.change(ctx, id, change{
		name: "cancel",
		landed: func(_ context.Context, wf *checkpoint.Workflow) (bool, error) {
			return wf.Cancel != nil && *wf.Cancel == mine, nil
		},
		decide: func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &TerminalError{WorkflowID: id, Status: wf.Status}
			case wf.Cancel != nil || parent != nil && (wf.Parent == nil || *wf.Parent != *parent):
				return nil, nil
			}
			next := *wf
			next.Cancel = &mine
			if wf.Waits && wf.Status == checkpoint.StatusPending {
				return e.turnAway(ctx, wf, &next)
			}
			return e.rewritten(wf, &next)
		},
	})
}

// CancelChild requests the cancellation of a child of parent.
func (e *worker) CancelChild(ctx context.Context, id string, parent *checkpoint.Parent, by Actor) error {
	return e.cancel(ctx, id, parent, by)
}
