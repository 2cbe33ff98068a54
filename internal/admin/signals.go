package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// ClearSignal is Engine.ClearSignal.
func (e *Admin) ClearSignal(ctx context.Context, id, name, signalID string, by weft.Actor) error {
	call := waiting.New(ctx, "clearing of signal "+waiting.Quoted(name)+" of workflow", id)
	return call.Explain(e.clearSignal(call, id, name, signalID, by))
}

func (e *Admin) clearSignal(ctx context.Context, id, name, signalID string, by weft.Actor) error {
	if err := errors.Join(CheckActor(by), payload.CheckName("signal name", name, keys.MaxName), payload.CheckSignalID(signalID)); err != nil {
		return err
	}
	verb := journal.Verb{Name: "clear signal " + name + " " + signalID, By: by.Name, Why: by.Reason}
	err := e.Change(ctx, id, e.act(verb, "clear signal of", func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
		return e.clearing(ctx, wf, name, signalID, verb)
	}))
	if err == nil && !e.Staged { // the host may roll back
		e.Log.Info("weft: signal cleared", "workflow", id, "signal", name, "signal_id", signalID, "by", by.Name, "why", by.Reason)
	}
	return err
}

// clearing decides a ClearSignal: it deletes the payload and the inbox entry, and makes
// the owner of the workflow read the inbox again.
func (e *Admin) clearing(ctx context.Context, wf *journal.Workflow, name, signalID string, verb journal.Verb) (*worker.Changing, error) {
	key := keys.Signal(wf.ID, name, signalID)
	payload, err := e.Store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: clear signal of %q: no signal %q of %s waits", weft.ErrNotApplicable, wf.ID, signalID, name)
	}
	if err != nil {
		return nil, err
	}
	place, err := acceptance.Place(ctx, e.Store, wf.ID, name, signalID)
	if err != nil {
		return nil, err
	}
	next := *wf
	next.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), func(a journal.Attention) bool {
		return a.Reason == string(weft.ReasonUndecodable) && a.Name == name // if it was not this one, the run is held again
	})
	d, err := e.acting(wf, &next, verb)
	if err != nil {
		return nil, err
	}
	d.Batch.If = append(d.Batch.If, storage.Equal(key, payload))
	d.Batch.Ops = append(d.Batch.Ops, storage.Delete(key))
	if place != nil {
		d.Batch.Ops = append(d.Batch.Ops, storage.Delete(keys.Inbox(wf.ID, place.Seq)))
	}
	return d, nil
}
