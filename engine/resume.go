package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Resume makes a workflow that has failed, or one that is held for Attention, continue
// from its last checkpoint. The history records who did this and why.
//
// A failed workflow is running again, and its history is replayed. This takes back
// its end, and the failures of activities and steps after which it had started nothing
// else. These are attempted again, with all their attempts and all their time. If they
// have an idempotency key, their verifier or an operator (see Resolve) must permit it
// first. Other failures stay, such as one after which the workflow cleaned up. So do ends
// of children, time limits that have passed and cancellation requests: with these, only
// changed code can end the workflow differently. Signals are accepted again from
// then on. A workflow of a queue waits there again, at the end of the line.
//
// If two calls resume a failed workflow at once, one of them may get ErrNotApplicable, because
// the workflow is running again.
//
// A workflow that has undone its calls (see activity.Activity.Compensate) cannot be
// resumed, because it would build on effects that are gone. Start another one.
//
// Errors: a *TerminalError for a workflow that completed or was cancelled;
// ErrNotApplicable for one that is running and not held, for one that has undone its
// calls, for a child whose parent has been told how it ended (a parent that had ended
// before was not told), and after it was resumed a hundred times; ErrNotFound, ErrInvalid, ErrClosed,
// the store's.
func (e *Engine) Resume(ctx context.Context, id string, by Actor) error {
	call := waiting(ctx, "resume of workflow", id)
	return call.explain(e.resumeWorkflow(call, id, by))
}

func (e *Engine) resumeWorkflow(ctx context.Context, id string, by Actor) error {
	if err := checkActor(by); err != nil {
		return err
	}
	verb := checkpoint.Verb{Name: retried, By: by.Name, Why: by.Reason}
	said := auditRecord{verb: verb}
	var tries []*checkpoint.Write // to take back a failure
	err := e.change(ctx, id, change{
		name: "resume",
		landed: func(ctx context.Context, wf *checkpoint.Workflow) (bool, error) {
			for _, w := range tries { // of two equal retries, one takes back the failure
				if done, err := checkpoint.Landed(ctx, e.store, w); done || err != nil {
					return done, err
				}
			}
			if said.next == 0 {
				return false, nil
			}
			return said.recorded(ctx, e.store, wf)
		},
		decide: func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
			switch {
			case wf.Status == checkpoint.StatusFailed:
				w, err := e.retryFailed(ctx, wf, verb)
				if err != nil {
					return nil, err
				}
				tries = append(tries, w)
				return &changing{w.Batch, e.PokePoll}, nil
			case wf.Status.Terminal():
				return nil, &TerminalError{WorkflowID: id, Status: wf.Status}
			case len(wf.Attention) == 0:
				return nil, fmt.Errorf("%w: resume %q: it is not held", ErrNotApplicable, id)
			}
			if err := said.note(ctx, e.store, wf); err != nil {
				return nil, err
			}
			next := *wf
			next.Attention, next.Deaths, next.Alone = nil, 0, 0
			return e.acting(wf, &next, verb)
		},
	})
	if err == nil {
		e.log.Info("weft: workflow is resumed", "workflow", id, "by", by.Name, "why", by.Reason)
	}
	return err
}

// retried is the name of the verb in histories.
const retried = export.Retried

// mostRetries is how often a workflow can be retried after it has failed. Each retry is
// kept in its record.
const mostRetries = 100

// retryFailed decides a retry of the failed workflow wf.
func (e *Engine) retryFailed(ctx context.Context, wf *checkpoint.Workflow, verb checkpoint.Verb) (*checkpoint.Write, error) {
	told, conditions, err := e.told(ctx, wf)
	if err != nil {
		return nil, err
	}
	refusal := ""
	switch {
	case told:
		refusal = fmt.Sprintf("its parent %q has been told how it ended", wf.Parent.ID)
	case wf.Compensated:
		refusal = "its calls have been undone"
	case len(wf.Retries) >= mostRetries:
		refusal = fmt.Sprintf("it was retried %d times", mostRetries)
	}
	if refusal != "" {
		return nil, fmt.Errorf("%w: resume %q: %s", ErrNotApplicable, wf.ID, refusal)
	}
	hold, err := checkpoint.Find(ctx, e.store, wf)
	if err != nil {
		return nil, err
	}
	now := e.now()
	w, err := hold.Retry(verb, entryOf(wf, now, e.newID()), now)
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, conditions...)
	return w, e.catchUp(ctx, wf, w)
}

// told reports whether wf is a child whose parent has been told how it ended, or will be.
// If the parent had ended before and so was not told, the conditions ensure that this
// does not change.
func (e *Engine) told(ctx context.Context, wf *checkpoint.Workflow) (told bool, conditions []storage.Condition, err error) {
	p := wf.Parent
	if p == nil {
		return false, nil, nil
	}
	parent, err := checkpoint.Load(ctx, e.store, p.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case parent.Tombstone() || parent.Generation != p.Generation:
		return false, nil, nil
	case !parent.Status.Terminal():
		return true, nil, nil
	}
	kid, err := childOf(ctx, e.store, p)
	if err != nil || kid == nil || kid.ID != wf.ID || kid.End != nil {
		return true, nil, err
	}
	return false, []storage.Condition{parent.Unchanged(), kid.Unchanged()}, nil
}

// catchUp adds to a retry of wf the ends of children that were not delivered to wf because
// it had ended before them.
func (e *Engine) catchUp(ctx context.Context, wf *checkpoint.Workflow, w *checkpoint.Write) error {
	open := 0
	for entry, err := range storage.All(ctx, e.store, keys.ChildrenOf(wf.ID)) {
		if err != nil {
			return err
		}
		c, err := checkpoint.OpenChild(entry)
		if err != nil {
			return err
		}
		if c.Parent != wf.Generation || c.End != nil {
			continue
		}
		if open++; open > mostKids || 4*open > e.maxOps-spare {
			return fmt.Errorf("%w: resume %q: more than %d of its children had not ended when it failed", ErrNotApplicable, wf.ID, open-1)
		}
		if err := e.tellEnd(ctx, wf, c, w); err != nil {
			return err
		}
	}
	return nil
}

// tellEnd adds to w how a child of wf ended. If the child has not ended, w gets the
// condition that it still has not: then the child itself will report its end to wf.
func (e *Engine) tellEnd(ctx context.Context, wf *checkpoint.Workflow, c *checkpoint.Child, w *checkpoint.Write) error {
	kid, end, err := e.endOf(ctx, c.ID)
	gone := errors.Is(err, storage.ErrNotFound)
	switch {
	case err != nil && !gone:
		return err
	case gone || kid.Tombstone() || kid.Parent == nil || kid.Parent.Generation != wf.Generation:
		c.End = &checkpoint.Output{Generation: wf.Generation, Status: checkpoint.StatusFailed, Error: "it was purged before its parent had looked"}
	default:
		c.End = end
	}
	if !gone {
		w.Batch.If = append(w.Batch.If, kid.Unchanged())
	}
	if c.End == nil {
		return nil
	}
	put, err := c.Put()
	w.Batch.If = append(w.Batch.If, c.Unchanged())
	w.Batch.Ops = append(w.Batch.Ops, put)
	return err
}

// endOf reads a workflow's record and, if it has ended, its output.
func (e *Engine) endOf(ctx context.Context, id string) (*checkpoint.Workflow, *checkpoint.Output, error) {
	for {
		wf, err := checkpoint.Load(ctx, e.store, id)
		if err != nil || !wf.Status.Terminal() {
			return wf, nil, err
		}
		out, err := checkpoint.ReadOutput(ctx, e.store, wf)
		if err == nil {
			return wf, out, nil
		}
		if err := outdated(ctx, e.store, wf, err); err != nil {
			return nil, nil, err
		}
	}
}

// takesBack reports whether e is the failure of an activity or a step that a retry of the
// run has taken back. The outcome of an effect that happened and whose result is lost is
// never taken back.
func (x *execution) takesBack(e logged) bool {
	if len(x.hold.Workflow.Retries) == 0 || e.Kind != checkpoint.KindSettled || e.Error == "" && e.Category == "" {
		return false
	}
	switch e.Of {
	case ofActivity, ofStep, ofTransaction:
	default:
		return false
	}
	return e.Category != string(activity.CategoryResultUnavailable) &&
		slices.ContainsFunc(x.hold.Workflow.Retries, func(r checkpoint.Retry) bool { return r.Covers(e.place) })
}

// retried notes that o had failed and is attempted again because its run was retried.
func (o *operation) retried(e logged) {
	o.attempt, o.ownersLost, o.failures, o.answer = e.Attempt, 0, 0, nil
	o.due = e.at
	o.x.ops.time(o)
}

// since returns the time at which a limit that was set at t starts to count: t or the last
// retry of the run, if that is later.
func (x *execution) since(t time.Time) time.Time {
	if n := len(x.hold.Workflow.Retries); n > 0 {
		if again := checkpoint.Time(x.hold.Workflow.Retries[n-1].At); again.After(t) {
			return again
		}
	}
	return t
}

// reopened returns the record of an open operation after the last retry of wf.
func reopened(r activity.Record, wf *checkpoint.Workflow) activity.Record {
	if n := len(wf.Retries); n > 0 {
		return r.Reopened(n, wf.Retries[n-1].At)
	}
	return r
}

// linger prevents this engine from executing a retry of x, which has ended, until all
// attempts of x have returned. So two attempts of an operation never run at the same time.
func (e *Engine) linger(x *execution, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	generation := x.hold.Workflow.Generation
	if e.lingering[generation] += by; e.lingering[generation] == 0 {
		delete(e.lingering, generation)
	}
}

func (e *Engine) lingers(wf *checkpoint.Workflow) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lingering[wf.Generation] > 0
}
