package admin

import (
	"context"
	"errors"
	"iter"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// Describe is Engine.Describe.
func (e *Admin) Describe(ctx context.Context, id string) (weft.Info, error) {
	call := waiting.New(ctx, "description of workflow", id)
	waiting.For(call, "the store to read")
	info, err := e.describe(call, id)
	return info, call.Explain(err)
}

func (e *Admin) describe(ctx context.Context, id string) (weft.Info, error) {
	wf, err := e.Load(ctx, id)
	if err != nil {
		return weft.Info{}, err
	}
	info, err := e.infoOf(ctx, wf, &roster{eng: e})
	if err != nil {
		return weft.Info{}, err
	}
	if x := e.Executing(id); x != nil && !wf.Status.Terminal() {
		info.Waiting = x.DescribeWaiting(ctx)
	}
	return info, nil
}

// infoOf returns the state of wf, including whether no engine can execute it.
func (e *Admin) infoOf(ctx context.Context, wf *journal.Workflow, who *roster) (weft.Info, error) {
	info := run.InfoOf(wf)
	if need := wf.Unmet(); need != "" {
		info.Attention = append(info.Attention, weft.Attention{Reason: weft.ReasonNewerRelease, Name: need, Detail: wf.Understood().Error(), Since: info.CreatedAt})
		return info, nil
	}
	if wf.Status.Terminal() || e.Executing(wf.ID) != nil {
		return info, nil
	}
	why, err := e.leftAlone(ctx, wf, who)
	if why != "" {
		info.Attention = append(info.Attention, weft.Attention{Reason: weft.ReasonUnregistered, Name: wf.Type, Detail: why, Since: info.CreatedAt})
	}
	return info, err
}

// leftAlone returns why no engine can execute wf, as far as e knows, or "". For a run that
// is pinned to a deployment, or will be, it looks for an engine of the deployment. For any
// other run, e knows only its own workflows, and nothing if it has none.
func (e *Admin) leftAlone(ctx context.Context, wf *journal.Workflow, who *roster) (string, error) {
	switch {
	case wf.Deployment != "":
		return who.missing(ctx, wf.Deployment, wf.Type)
	case e.Pins(wf):
		return who.missingActive(ctx, wf.Type)
	case len(e.Workflows) == 0:
		return "", nil
	}
	_, why := e.Fits(wf)
	return why, nil
}

// History is Engine.History.
func (e *Admin) History(ctx context.Context, id string) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		wf, err := e.Load(ctx, id)
		if err != nil {
			yield(checkpoint.Checkpoint{}, err)
			return
		}
		for c, err := range e.HistoryOf(ctx, wf) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// List is Engine.List.
func (e *Admin) List(ctx context.Context, f weft.Filter) iter.Seq2[weft.Info, error] {
	return func(yield func(weft.Info, error) bool) {
		if err := e.Refused(); err != nil {
			yield(weft.Info{}, err)
			return
		}
		r := keys.IndexAll()
		r.Reverse = true
		who := &roster{eng: e}
		for entry, err := range storage.All(ctx, e.Store, r) {
			if err == nil {
				err = e.Refused()
			}
			if err != nil {
				yield(weft.Info{}, err)
				return
			}
			info, err := e.listed(ctx, entry, who)
			if errors.Is(err, weft.ErrNotFound) || err == nil && !selects(f, info) {
				continue // purged meanwhile, or not selected
			}
			if !yield(info, err) || err != nil && !record.Damaged(err) {
				return
			}
		}
	}
}

func (e *Admin) listed(ctx context.Context, entry storage.Entry, who *roster) (weft.Info, error) {
	var r run.Row
	if _, err := record.Open(entry.Key, entry.Value, journal.Version, &r); err != nil {
		return weft.Info{}, err
	}
	wf, err := e.Load(ctx, r.ID)
	if err != nil {
		return weft.Info{ID: r.ID}, err
	}
	return e.infoOf(ctx, wf, who)
}

// selects reports whether f selects a workflow.
func selects(f weft.Filter, i weft.Info) bool {
	return (f.Workflow == "" || f.Workflow == i.Workflow) &&
		(f.Status == "" || f.Status == i.Status) &&
		(f.Parent == "" || f.Parent == i.Parent) &&
		(!f.Attention || len(i.Attention) > 0)
}
