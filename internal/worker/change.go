package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A Change is what a call from outside does to one workflow in one commit: a cancellation
// request, or an action of an operator.
type Change struct {
	Name       string // of the call, for errors
	Generation string // of the workflow that it is for; "": the one that is there at the first look

	// Anyway applies the change also to a run with an unmet need.
	Anyway bool

	// Landed reports whether an earlier try was written, which is unknown after a conflict
	// or an unknown outcome. It gets the workflow's current record.
	Landed func(ctx context.Context, wf *journal.Workflow) (bool, error)

	// Decide decides the commit. It returns nil if there is nothing to write.
	Decide func(ctx context.Context, wf *journal.Workflow) (*Changing, error)
}

// A Changing is what a change has decided.
type Changing struct {
	Batch storage.Batch
	Tell  func() // notifies the workflow's owner; also called if the outcome is unknown

	was, next *journal.Workflow // its record before and after; nil: nothing is told
}

// Change applies c: it reads the workflow, decides, commits, and repeats this until it is
// certain that c was applied or cannot be. What was decided on one generation is not done to another.
func (e *Worker) Change(ctx context.Context, id string, c Change) error {
	var last *Changing            // the last try
	var refused *journal.Workflow // the record whose being unchanged was the only condition of a refused commit
	times := 0                    // how often in a row that was refused: its owner may change it, and change it back
	refusals := 0                 // how often the record has changed meanwhile: others may do that all the time
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		wf, err := e.Load(ctx, id)
		if err == nil && c.Generation != "" && wf.Generation != c.Generation { // purged, and started again
			err = payload.NotFound(id)
		}
		if err != nil {
			return err
		}
		c.Generation = wf.Generation
		if last != nil {
			if done, err := c.Landed(ctx, wf); done || err != nil {
				e.landed(last, done)
				return err
			}
		}
		if refused == nil || string(refused.Raw()) != string(wf.Raw()) {
			times = 0
		}
		if times == 10 {
			return settle.Contradiction(keys.Workflow(id))
		}
		if err := wf.Understood(); err != nil && !c.Anyway {
			return fmt.Errorf("engine: %s %q: %w", c.Name, id, err)
		}
		d, err := c.Decide(ctx, wf)
		if err != nil {
			now := run.Outdated(ctx, e.Store, wf, err)
			if refusals++; now == nil && (refusals < 10 || errors.Is(err, storage.ErrCorrupt)) && backoff.Wait(ctx, wait) {
				continue // damage is only what an unchanged record shows
			}
			return cmp.Or(now, ctx.Err(), err)
		}
		if d == nil && e.Staged { // there is nothing to write as long as the record is this one
			d = &Changing{Batch: storage.Batch{If: []storage.Condition{wf.Unchanged()}}, Tell: func() {}}
		}
		if d == nil {
			return nil
		}
		last = d
		err = e.Store.Commit(ctx, d.Batch)
		d.Tell()
		switch {
		case err == nil:
			e.landed(d, true)
			return nil
		case ctx.Err() != nil, settle.Hopeless(err):
			return fmt.Errorf("engine: %s %q: %w", c.Name, id, err)
		}
		// After a conflict or an unknown outcome, read again what is there.
		if refused = nil; errors.Is(err, storage.ErrConflict) && len(d.Batch.If) == 1 {
			refused, wait = wf, min(wait, 4*time.Millisecond)
			times++
		}
		if !backoff.Wait(ctx, wait) {
			return ctx.Err()
		}
	}
}

// landed reports d if it was applied.
func (e *Worker) landed(d *Changing, done bool) {
	if done && d.next != nil {
		e.Changed(d.was, d.next)
	}
}

// Rewritten returns the decision to replace the record of wf by next and to notify the owner of the workflow.
func (e *Worker) Rewritten(wf, next *journal.Workflow) (*Changing, error) {
	next.State++
	ops, err := journal.Replace(nil, wf, next)
	if err != nil {
		return nil, err
	}
	b := storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: ops}
	if e.ExecutionOf(wf) == nil && !wf.Status.Terminal() {
		b.Ops = run.WakeUp(b.Ops, wf, e.Now(), e.NewID())
	}
	return &Changing{b, func() { e.Hint(wf, run.Written{Record: true}) }, wf, next}, nil
}

// Hint tells the execution of wf that something was written for it. If this engine has none, Hint makes it look for wf.
func (e *Worker) Hint(wf *journal.Workflow, p run.Message) {
	if x := e.ExecutionOf(wf); x != nil {
		x.Post(p)
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

// RequestCancel requests the cancellation of a workflow. With a parent, it does so only if the
// workflow is a child of that parent, and not another workflow that uses the id now.
func (e *Worker) RequestCancel(ctx context.Context, id string, parent *journal.Parent, by weft.Actor) error {
	return e.Change(ctx, id, e.Cancellation(id, parent, by))
}

// Cancellation is the change that RequestCancel applies.
func (e *Worker) Cancellation(id string, parent *journal.Parent, by weft.Actor) Change {
	mine := journal.Request{By: by.Name, Reason: by.Reason, At: journal.Micro(e.Now())}
	return Change{
		Name:   "cancel",
		Anyway: true,
		Landed: func(_ context.Context, wf *journal.Workflow) (bool, error) {
			return wf.Cancel != nil && *wf.Cancel == mine, nil
		},
		Decide: func(ctx context.Context, wf *journal.Workflow) (*Changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &weft.TerminalError{WorkflowID: id, Status: wf.Status}
			case wf.Cancel != nil || parent != nil && (wf.Parent == nil || *wf.Parent != *parent):
				return nil, nil
			}
			next := *wf
			next.Cancel = &mine
			if (wf.Waits || wf.Delayed()) && wf.Status == checkpoint.StatusPending && wf.Unmet() == "" {
				return e.turnAway(ctx, wf, &next)
			}
			return e.Rewritten(wf, &next)
		},
	}
}
