package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Resume is Engine.Resume.
func (e *Admin) Resume(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "resume of workflow", id)
	return call.Explain(e.resumeWorkflow(call, id, by))
}

func (e *Admin) resumeWorkflow(ctx context.Context, id string, by weft.Actor) error {
	if err := CheckActor(by); err != nil {
		return err
	}
	verb := journal.Verb{Name: run.Retried, By: by.Name, Why: by.Reason}
	said := auditRecord{verb: verb}
	var tries []*journal.Write // to take back a failure
	var life lifeline
	err := e.Change(ctx, id, worker.Change{
		Name: "resume",
		Landed: func(ctx context.Context, wf *journal.Workflow) (bool, error) {
			for _, w := range tries { // of two equal retries, one takes back the failure
				if done, err := journal.Landed(ctx, e.Store, w); done || err != nil {
					return done, err
				}
			}
			if said.next == 0 {
				return false, nil
			}
			return said.recorded(ctx, e.Store, wf)
		},
		Decide: func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
			if err := life.holds(wf, "resume"); err != nil {
				return nil, err
			}
			switch {
			case wf.Status == checkpoint.StatusFailed:
				w, err := e.retryFailed(ctx, wf, verb)
				if err != nil {
					return nil, err
				}
				tries = append(tries, w)
				return &worker.Changing{Batch: w.Batch, Tell: e.PokePoll}, nil
			case wf.Status.Terminal():
				return nil, &weft.TerminalError{WorkflowID: id, Status: wf.Status}
			case len(wf.Attention) == 0:
				return nil, fmt.Errorf("%w: resume %q: it is %s, and neither failed nor held", weft.ErrNotApplicable, id, wf.Status)
			}
			if err := said.note(ctx, e.Store, wf); err != nil {
				return nil, err
			}
			next := *wf
			next.Attention, next.Deaths, next.Alone = nil, 0, 0
			return e.acting(wf, &next, verb)
		},
	})
	if err == nil && !e.Staged { // the host may roll back
		e.Log.Info("weft: workflow is resumed", "workflow", id, "by", by.Name, "why", by.Reason)
	}
	return err
}

// mostRetries is how often a workflow can be retried after it has failed. Each retry is
// kept in its record.
const mostRetries = 100

// retryFailed decides a retry of the failed workflow wf.
func (e *Admin) retryFailed(ctx context.Context, wf *journal.Workflow, verb journal.Verb) (*journal.Write, error) {
	told, conditions, err := e.told(ctx, wf)
	if err != nil {
		return nil, err
	}
	refusal := ""
	switch {
	case told:
		refusal = fmt.Sprintf("its parent %q has been told how it ended: start a workflow with another id", wf.Parent.ID)
	case wf.Compensated:
		refusal = "its calls have been undone: start a workflow with another id"
	case len(wf.Retries) >= mostRetries:
		refusal = fmt.Sprintf("it was retried %d times", mostRetries)
	}
	if refusal != "" {
		return nil, fmt.Errorf("%w: resume %q: %s", weft.ErrNotApplicable, wf.ID, refusal)
	}
	hold, err := journal.Find(ctx, e.Store, wf)
	if err != nil {
		return nil, err
	}
	now := e.Now()
	w, err := hold.Retry(verb, run.EntryOf(wf, now, e.NewID()), now)
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, conditions...)
	hooks, err := e.reopen(ctx, wf, w)
	if err != nil {
		return nil, err
	}
	return w, e.catchUp(ctx, wf, w, hooks)
}

// reopen adds to a retry of wf that the hooks that were open at the end of wf have their tokens again,
// and returns how many there are. If another hook has one of the tokens, the error wraps a
// *signal.TokenError.
func (e *Admin) reopen(ctx context.Context, wf *journal.Workflow, w *journal.Write) (n int, err error) {
	hooks, err := journal.Hooks(ctx, e.Store, wf)
	if err != nil {
		return 0, err
	}
	for _, h := range hooks {
		if err := e.occupy(ctx, "resume", wf, h, nil, w); err != nil {
			return 0, err
		}
	}
	return len(hooks), nil
}

// occupy adds to w that the hook h of wf has its token again. The token is one that no hook has, or one of those that
// w frees: free has the ids of their hooks, by the hash of the token, and loses this one. Otherwise the error wraps a
// *signal.TokenError.
func (e *Admin) occupy(ctx context.Context, verb string, wf *journal.Workflow, h *journal.Hook, free map[string]string, w *journal.Write) error {
	holder, err := journal.ReadHookAddress(ctx, e.Store, h.TokenHash)
	if err != nil {
		return err
	}
	unchanged, put, err := h.Occupy(wf)
	if err != nil {
		return err
	}
	if holder != nil {
		if id, ok := free[h.TokenHash]; !ok || !holder.Of(wf) || holder.HookID != id {
			return fmt.Errorf("engine: %s %q: its hook %s: %w", verb, wf.ID, h.Name, &signal.TokenError{WorkflowID: holder.WorkflowID})
		}
		delete(free, h.TokenHash)
		unchanged = holder.Unchanged()
	}
	w.Batch.If, w.Batch.Ops = append(w.Batch.If, unchanged), append(w.Batch.Ops, put)
	return nil
}

// told reports whether wf is a child whose parent has been told how it ended, or will be. One that had continued as new
// is never told. If the parent had ended before and so was not told, the conditions ensure that this does not change.
func (e *Admin) told(ctx context.Context, wf *journal.Workflow) (told bool, conditions []storage.Condition, err error) {
	p := wf.Parent
	if p == nil || wf.Untold {
		return false, nil, nil
	}
	parent, err := journal.Load(ctx, e.Store, p.ID)
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
	kid, err := run.ChildOf(ctx, e.Store, wf)
	if err != nil || kid == nil || kid.End != nil {
		return true, nil, err
	}
	return false, []storage.Condition{parent.Unchanged(), kid.Unchanged()}, nil
}

// catchUp adds to a retry of wf the ends of children that were not delivered to wf because
// it had ended before them.
func (e *Admin) catchUp(ctx context.Context, wf *journal.Workflow, w *journal.Write, hooks int) error {
	open := 0
	for entry, err := range journal.Records(ctx, e.Store, keys.ChildrenOf(wf.ID)) {
		if err != nil {
			return err
		}
		c, err := journal.OpenChild(entry)
		if err != nil {
			return err
		}
		operation, err := keys.Operation(entry.Key)
		if err != nil {
			return err
		}
		if c.Parent != wf.Generation || c.End != nil || wf.Former(operation) {
			continue
		}
		if open++; open > run.MostKids || 4*open+2*hooks > e.MaxOps-run.Spare {
			return fmt.Errorf("%w: resume %q: more than %d of its children had not ended when it failed: reset it instead", weft.ErrNotApplicable, wf.ID, open-1)
		}
		if err := e.tellEnd(ctx, wf, c, w); err != nil {
			return err
		}
	}
	return nil
}

// tellEnd adds to w how a child of wf ended. If the child has not ended, w gets the
// condition that it still has not: then the child itself will report its end to wf.
func (e *Admin) tellEnd(ctx context.Context, wf *journal.Workflow, c *journal.Child, w *journal.Write) error {
	kid, end, err := e.endOf(ctx, c.ID)
	gone := errors.Is(err, storage.ErrNotFound)
	switch {
	case err != nil && !gone:
		return err
	case gone || kid.Tombstone() || kid.Parent == nil || kid.Parent.Generation != wf.Generation:
		c.End = &journal.Output{Generation: wf.Generation, Status: checkpoint.StatusFailed, Error: "it was purged before its parent had looked"}
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
func (e *Admin) endOf(ctx context.Context, id string) (*journal.Workflow, *journal.Output, error) {
	for {
		wf, err := journal.Load(ctx, e.Store, id)
		if err != nil || !wf.Status.Terminal() {
			return wf, nil, err
		}
		out, err := journal.ReadOutput(ctx, e.Store, wf)
		if err == nil {
			return wf, out, nil
		}
		if err := run.Outdated(ctx, e.Store, wf, err); err != nil {
			return nil, nil, err
		}
	}
}
