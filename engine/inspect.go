package engine

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Describe tells how a workflow stands. Errors: ErrNotFound, ErrInvalid,
// ErrClosed, the store's.
func (e *Engine) Describe(ctx context.Context, id string) (Info, error) {
	call := waiting(ctx, "description of workflow", id)
	waitingFor(call, "the store to read")
	info, err := e.describe(call, id)
	return info, call.explain(err)
}

func (e *Engine) describe(ctx context.Context, id string) (Info, error) {
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

// infoOf tells how wf stands, also whether there is nobody to drive it.
func (e *Engine) infoOf(ctx context.Context, wf *checkpoint.Workflow, who *roster) (Info, error) {
	info := infoOf(wf)
	if wf.Status.Terminal() || e.driven(wf.ID) != nil {
		return info, nil
	}
	why, err := e.leftAlone(ctx, wf, who)
	if why != "" {
		info.Attention = append(info.Attention, Attention{Reason: Unregistered, Name: wf.Type, Detail: why, Since: info.CreatedAt})
	}
	return info, err
}

// leftAlone says why nobody drives wf, as far as e knows; "" if somebody does, or would.
// Of a type that e does not have it knows nothing, if it has any, unless the run stays
// on a deployment: that says who is to have it.
func (e *Engine) leftAlone(ctx context.Context, wf *checkpoint.Workflow, who *roster) (string, error) {
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

// describeWaiting asks the driver. One that is busy is not waited for.
func (x *execution) describeWaiting(ctx context.Context) []string {
	answer := make(chan []string, 1)
	x.post(waitsFor{answer})
	busy := time.NewTimer(100 * time.Millisecond)
	defer busy.Stop()
	select {
	case words := <-answer:
		return words
	case <-busy.C:
	case <-x.ctx.Done():
	case <-ctx.Done():
	}
	return nil
}

// History yields a workflow's checkpoints, from the first. A missing or damaged
// one is an error that wraps storage.ErrCorrupt and ends the sequence; so do
// ErrNotFound, also if the workflow is purged meanwhile, and the store's errors.
func (e *Engine) History(ctx context.Context, id string) iter.Seq2[checkpoint.Checkpoint, error] {
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

// A Filter says which workflows List yields. Zero fields do not filter.
type Filter struct {
	Workflow  string
	Status    checkpoint.Status
	Attention bool   // only those that need a person
	Parent    string // only its children
}

// List yields the workflows that fit, newest first. One whose record is damaged,
// or of a newer release, is yielded with its id and that error, and the others
// follow; after any other error nothing does.
func (e *Engine) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
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
			if errors.Is(err, ErrNotFound) || err == nil && !f.fits(info) {
				continue // purged meanwhile, or not asked for
			}
			if !yield(info, err) || err != nil && !record.Damaged(err) {
				return
			}
		}
	}
}

func (e *Engine) listed(ctx context.Context, entry storage.Entry, who *roster) (Info, error) {
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

func (f Filter) fits(i Info) bool {
	return (f.Workflow == "" || f.Workflow == i.Workflow) &&
		(f.Status == "" || f.Status == i.Status) &&
		(f.Parent == "" || f.Parent == i.Parent) &&
		(!f.Attention || len(i.Attention) > 0)
}
