package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
)

// Protect is Engine.Protect.
func (e *Admin) Protect(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "protection of workflow", id)
	changed, err := e.protection(call, id, "protect", by, func(next *journal.Workflow) bool {
		if next.Protected != nil {
			return false
		}
		next.Protect(journal.Protection{By: by.Name, Reason: by.Reason, At: journal.Micro(e.Now())})
		return true
	})
	if changed {
		e.Log.Info("weft: workflow is protected", "workflow", id, "by", by.Name, "why", by.Reason)
	}
	return call.Explain(err)
}

// Unprotect is Engine.Unprotect.
func (e *Admin) Unprotect(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "end of the protection of workflow", id)
	changed, err := e.protection(call, id, "unprotect", by, func(next *journal.Workflow) bool {
		if next.Protected == nil {
			return false
		}
		next.Unprotect()
		return true
	})
	if changed {
		e.Log.Info("weft: workflow is not protected any more", "workflow", id, "by", by.Name, "why", by.Reason)
	}
	return call.Explain(err)
}

// protection changes the record of a workflow by change, which returns false if the record is as it
// should be. It reports whether the record was changed.
func (e *Admin) protection(ctx context.Context, id, name string, by weft.Actor, change func(next *journal.Workflow) bool) (changed bool, _ error) {
	if err := errors.Join(CheckActor(by), payload.CheckID(id)); err != nil {
		return false, err
	}
	verb := journal.Verb{Name: name, By: by.Name, Why: by.Reason}
	err := e.Change(ctx, id, e.act(verb, name, func(_ context.Context, wf *journal.Workflow) (*worker.Changing, error) {
		next := *wf
		switch {
		case !change(&next):
			return nil, nil
		case wf.Status.Terminal(): // no checkpoint follows that could record the verb
			changed = true
			return e.Rewritten(wf, &next)
		}
		changed = true
		return e.acting(wf, &next, verb)
	}))
	return changed && err == nil, err
}

// removable returns an error that wraps ErrProtected if wf must not be removed.
func removable(wf *journal.Workflow, cause weft.Removal) error {
	if p := wf.Protected; p != nil {
		return fmt.Errorf("%w: %s %q: %s has protected it since %s (%s): Unprotect it first",
			weft.ErrProtected, cause, wf.ID, p.By, journal.Time(p.At).Format("2006-01-02 15:04 MST"), p.Reason)
	}
	return nil
}
