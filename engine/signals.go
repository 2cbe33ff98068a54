package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Signals is Engine.Signals.
func (e *admin) Signals(ctx context.Context, id string) iter.Seq2[SignalInfo, error] {
	return func(yield func(SignalInfo, error) bool) {
		wf, err := e.load(ctx, id)
		if err != nil {
			yield(SignalInfo{}, err)
			return
		}
		for seq, last := uint64(0), false; !last; {
			page, end, err := signal.Inbox(ctx, e.store, id, seq, storage.DefaultLimit)
			if err != nil {
				yield(SignalInfo{}, err)
				return
			}
			for _, w := range page {
				if seq = w.Seq + 1; !yield(SignalInfo{Name: w.Name, ID: w.ID, AcceptedAt: w.AcceptedAt, Bytes: w.Bytes}, nil) {
					return
				}
			}
			last = end
		}
		for w, err := range signal.Unaccounted(ctx, e.store, id) {
			if err == nil {
				err = e.sameLife(ctx, wf) // a purge deletes one record after the other
			}
			if !yield(SignalInfo{Name: w.Name, ID: w.ID, Bytes: w.Bytes, Indeterminate: err == nil}, err) || err != nil {
				return
			}
		}
	}
}

// ClearSignal is Engine.ClearSignal.
func (e *admin) ClearSignal(ctx context.Context, id, name, signalID string, by Actor) error {
	call := waiting(ctx, "clearing of signal "+quoted(name)+" of workflow", id)
	return call.explain(e.clearSignal(call, id, name, signalID, by))
}

func (e *admin) clearSignal(ctx context.Context, id, name, signalID string, by Actor) error {
	if err := errors.Join(checkActor(by), checkName("signal name", name, keys.MaxName), checkSignalID(signalID)); err != nil {
		return err
	}
	verb := checkpoint.Verb{Name: "clear signal " + name + " " + signalID, By: by.Name, Why: by.Reason}
	err := e.change(ctx, id, e.act(verb, "clear signal of", func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
		return e.clearing(ctx, wf, name, signalID, verb)
	}))
	if err == nil {
		e.log.Info("weft: signal cleared", "workflow", id, "signal", name, "id", signalID, "by", by.Name, "why", by.Reason)
	}
	return err
}

// clearing decides a ClearSignal: it deletes the payload and the inbox entry, and makes
// the owner of the workflow read the inbox again.
func (e *admin) clearing(ctx context.Context, wf *checkpoint.Workflow, name, signalID string, verb checkpoint.Verb) (*changing, error) {
	key := keys.Signal(wf.ID, name, signalID)
	payload, err := e.store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: clear signal of %q: no signal %q of %s waits", ErrNotApplicable, wf.ID, signalID, name)
	}
	if err != nil {
		return nil, err
	}
	place, err := signal.Place(ctx, e.store, wf.ID, name, signalID)
	if err != nil {
		return nil, err
	}
	next := *wf
	next.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), func(a checkpoint.Attention) bool {
		return a.Reason == string(ReasonUndecodable) && a.Name == name // if it was not this one, the run is held again
	})
	d, err := e.acting(wf, &next, verb)
	if err != nil {
		return nil, err
	}
	d.batch.If = append(d.batch.If, storage.Equal(key, payload))
	d.batch.Ops = append(d.batch.Ops, storage.Delete(key))
	if place != nil {
		d.batch.Ops = append(d.batch.Ops, storage.Delete(keys.Inbox(wf.ID, place.Seq)))
	}
	return d, nil
}
