package engine

import (
	"context"
	"errors"
	"iter"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Describe is Engine.Describe.
func (e *admin) Describe(ctx context.Context, id string) (Info, error) {
	call := waiting(ctx, "description of workflow", id)
	waitingFor(call, "the store to read")
	info, err := e.describe(call, id)
	return info, call.explain(err)
}

func (e *admin) describe(ctx context.Context, id string) (Info, error) {
	wf, err := e.load(ctx, id)
	if err != nil {
		return Info{}, err
	}
	info, err := e.infoOf(ctx, wf, &roster{eng: e})
	if err != nil {
		return Info{}, err
	}
	if x := e.driven(id); x != nil && !wf.Status.Terminal() {
		info.Waiting = x.describeWaiting(ctx)
	}
	return info, nil
}

// infoOf returns the state of wf, including whether no engine can execute it.
func (e *admin) infoOf(ctx context.Context, wf *checkpoint.Workflow, who *roster) (Info, error) {
	info := infoOf(wf)
	if wf.Status.Terminal() || e.driven(wf.ID) != nil {
		return info, nil
	}
	why, err := e.leftAlone(ctx, wf, who)
	if why != "" {
		info.Attention = append(info.Attention, Attention{Reason: ReasonUnregistered, Name: wf.Type, Detail: why, Since: info.CreatedAt})
	}
	return info, err
}

// leftAlone returns why no engine can execute wf, as far as e knows, or "". For a run that
// is pinned to a deployment, or will be, it looks for an engine of the deployment. For any
// other run, e knows only its own workflows, and nothing if it has none.
func (e *admin) leftAlone(ctx context.Context, wf *checkpoint.Workflow, who *roster) (string, error) {
	switch {
	case wf.Deployment != "":
		return who.missing(ctx, wf.Deployment, wf.Type)
	case e.pins(wf):
		return who.missingActive(ctx, wf.Type)
	case len(e.workflows) == 0:
		return "", nil
	}
	_, why := e.fits(wf)
	return why, nil
}

// History is Engine.History.
func (e *admin) History(ctx context.Context, id string) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		wf, err := e.load(ctx, id)
		if err != nil {
			yield(checkpoint.Checkpoint{}, err)
			return
		}
		for c, err := range e.history(ctx, wf) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// List is Engine.List.
func (e *admin) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := e.refused(); err != nil {
			yield(Info{}, err)
			return
		}
		r := keys.IndexAll()
		r.Reverse = true
		who := &roster{eng: e}
		for entry, err := range storage.All(ctx, e.store, r) {
			if err == nil {
				err = e.refused()
			}
			if err != nil {
				yield(Info{}, err)
				return
			}
			info, err := e.listed(ctx, entry, who)
			if errors.Is(err, ErrNotFound) || err == nil && !selects(f, info) {
				continue // purged meanwhile, or not selected
			}
			if !yield(info, err) || err != nil && !record.Damaged(err) {
				return
			}
		}
	}
}

func (e *admin) listed(ctx context.Context, entry storage.Entry, who *roster) (Info, error) {
	var r row
	if _, err := record.Open(entry.Key, entry.Value, checkpoint.Version, &r); err != nil {
		return Info{}, err
	}
	wf, err := e.load(ctx, r.ID)
	if err != nil {
		return Info{ID: r.ID}, err
	}
	return e.infoOf(ctx, wf, who)
}

// selects reports whether f selects a workflow.
func selects(f Filter, i Info) bool {
	return (f.Workflow == "" || f.Workflow == i.Workflow) &&
		(f.Status == "" || f.Status == i.Status) &&
		(f.Parent == "" || f.Parent == i.Parent) &&
		(!f.Attention || len(i.Attention) > 0)
}
