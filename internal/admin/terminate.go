package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// Terminate is Engine.Terminate.
func (e *Admin) Terminate(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "termination of workflow", id)
	return call.Explain(e.terminateWorkflow(call, id, "", by, func(*journal.Workflow) error { return nil }))
}

// terminateWorkflow terminates a generation of a workflow, "" for the present one, unless may returns an error for
// its record.
func (e *Admin) terminateWorkflow(ctx context.Context, id, generation string, by weft.Actor, may func(wf *journal.Workflow) error) error {
	if err := errors.Join(CheckActor(by), payload.CheckID(id)); err != nil {
		return err
	}
	var tries []*journal.Write
	var ended *journal.Workflow
	var driven *run.Execution // that the termination ends; there may be another one after it, if the run is reset
	err := e.Change(ctx, id, worker.Change{
		Name:       "terminate",
		Generation: generation,
		Landed: func(ctx context.Context, wf *journal.Workflow) (bool, error) {
			for _, w := range tries {
				if done, err := journal.Landed(ctx, e.Store, w); done || err != nil {
					return done, err
				}
			}
			return false, nil
		},
		Decide: func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
			if wf.Status.Terminal() {
				return nil, &weft.TerminalError{WorkflowID: id, Status: wf.Status}
			}
			if err := may(wf); err != nil {
				return nil, err
			}
			unfinished, err := e.unfinished(ctx, wf)
			if err != nil {
				return nil, err
			}
			if len(tries) > 1 && !e.Staged { // its owner commits all the time
				if err := e.interrupt(ctx, wf, "terminate"); err != nil {
					return nil, err
				}
			}
			d, w, err := e.terminating(ctx, wf, by, unfinished)
			if err != nil {
				return nil, err
			}
			tries, ended = append(tries, w), wf
			if x := e.ExecutionOf(wf); x != nil {
				driven = x
			}
			return d, nil
		},
	})
	if err != nil || e.Staged {
		return err // after the commit an engine finds that it ended, and asks its children to stop
	}
	e.Log.Warn("weft: workflow is terminated", "workflow", id, "by", by.Name, "why", by.Reason)
	if driven != nil {
		e.CutOff(driven, activity.ErrTerminated)
	}
	e.PokePoll() // a slot of its queue may be free
	soon, cancel := context.WithTimeout(ctx, dismissFor)
	defer cancel()
	if err := Dismiss(soon, e.Worker, id, ended.Generation); err != nil {
		e.Log.Warn("weft: children of a terminated workflow were not asked to stop yet; an engine will ask them", "workflow", id, "error", err)
	}
	return nil
}

// dismissFor is how long Terminate asks children to stop. An engine asks the others.
const dismissFor = 5 * time.Second

// interrupt changes nothing of wf but its state. The owner's next commit is refused then, and it reads
// the record before it commits again. This gives the caller, a call of this name, time for a commit of its
// own. If the record has changed, interrupt leaves wf as it is.
func (e *Admin) interrupt(ctx context.Context, wf *journal.Workflow, name string) error {
	next := *wf
	next.State++
	ops, err := journal.Replace(nil, wf, &next)
	if err != nil {
		return err
	}
	err = e.Store.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: ops})
	switch {
	case err == nil:
		*wf = next
	case ctx.Err() != nil, settle.Hopeless(err):
		return fmt.Errorf("engine: %s %q: %w", name, wf.ID, err)
	}
	return nil // the commit that follows is refused if wf is not the record any more
}

// terminated is the name of the verb in histories.
const terminated = "terminate"

// terminating decides the end of wf by an operator. The events unfinished are part of its history.
func (e *Admin) terminating(ctx context.Context, wf *journal.Workflow, by weft.Actor, unfinished []checkpoint.Event) (*worker.Changing, *journal.Write, error) {
	hold, err := journal.Find(ctx, e.Store, wf)
	if errors.Is(err, storage.ErrCorrupt) {
		hold, err = journal.FindUnread(ctx, e.Store, wf)
	}
	if err != nil {
		return nil, nil, err
	}
	events, err := e.untold(ctx, wf) // behind Find: the commit is refused if the run is told meanwhile
	if err != nil {
		return nil, nil, err
	}
	next := *wf
	next.Cancel = &journal.Request{By: by.Name, Reason: by.Reason, At: journal.Micro(e.Now()), Terminated: true}
	events = append(events, checkpoint.Event{Kind: checkpoint.KindActed, Name: terminated, By: by.Name, Why: by.Reason})
	out := &journal.Output{Generation: wf.Generation, Status: checkpoint.StatusCancelled}
	payload.FailureOf(fmt.Errorf("%w: terminated by %s: %s", weft.ErrCancelled, by.Name, by.Reason), "", nil).Onto(out)
	return e.Ended(ctx, hold, worker.Ending{
		Next:   &next,
		Output: out,
		Events: append(events, unfinished...),
		Ops:    []storage.Op{storage.Put(keys.Dismissal(wf.ID, wf.Generation), nil)},
	})
}

// untold returns an event for a request to cancel wf that its run was never told of. The termination takes the place of the
// request in the record, and the history keeps it: also a bulk must find there that it has made it.
func (e *Admin) untold(ctx context.Context, wf *journal.Workflow) ([]checkpoint.Event, error) {
	r := wf.Cancel
	if r == nil || r.Terminated { // the latter is of before a reset
		return nil, nil
	}
	for c, err := range journal.History(ctx, e.Store, wf) {
		if record.Damaged(err) {
			break // as far as anybody knows, it was not told
		}
		if err != nil {
			return nil, err
		}
		for i, ev := range c.Events {
			passed := wf.PassedOver(journal.Place{Checkpoint: c.Number, Event: i}) // a reset has taken it back
			if ev.Kind == checkpoint.KindAsked && ev.By == r.By && ev.Why == r.Reason && !passed {
				return nil, nil
			}
		}
	}
	return []checkpoint.Event{{Kind: checkpoint.KindAsked, By: r.By, Why: r.Reason}}, nil
}

// mostUnfinished is how many operations of unknown fate the history of a terminated workflow
// names at most.
const mostUnfinished = 100

// unfinished returns an event for each operation of wf with an idempotency key whose effect may
// have happened, and about which nobody will ask any more. One whose record is damaged is one of
// them.
func (e *Admin) unfinished(ctx context.Context, wf *journal.Workflow) (events []checkpoint.Event, _ error) {
	for r, err := range reconcile.All(ctx, e.Store, wf.ID) {
		switch {
		case err != nil && r.Operation == "":
			return nil, err
		case err == nil && (r.Settled || r.Generation != wf.Generation), wf.Former(r.Operation):
			continue
		case len(events) == mostUnfinished:
			return events, nil
		}
		events = append(events, checkpoint.Event{Kind: checkpoint.KindGivenUp, Operation: r.Operation, Of: "activity", Name: r.Activity})
	}
	return events, nil
}
