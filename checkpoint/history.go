package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

const historyPage = 256

// Find reads what is known of a run without its history: the last checkpoint
// that belongs to the record.
func Find(ctx context.Context, s storage.Storage, wf *Workflow) (*Hold, error) {
	r := keys.Checkpoints(wf.ID, wf.Base)
	r.Reverse, r.Limit = true, 1
	page, err := s.Scan(ctx, r)
	if err != nil {
		return nil, err
	}
	return head(wf, page)
}

// head is what is known of a run whose last checkpoint is the last of page.
func head(wf *Workflow, page []storage.Entry) (*Hold, error) {
	if len(page) == 0 {
		return &Hold{Workflow: wf}, nil
	}
	last := page[len(page)-1]
	c, err := decode(wf, last)
	if err != nil {
		return nil, err
	}
	if c.generation != wf.Generation {
		return nil, fmt.Errorf("%w: record %q is of another life", storage.ErrCorrupt, last.Key)
	}
	return &Hold{Workflow: wf, Head: c.Number, HeadTime: c.Time}, nil
}

// shortPast is how many records of a run are read at once when it may be claimed.
const shortPast = 64

// A Past is the input and the history of a run, up to a Hold.
type Past struct {
	input   []byte
	history []storage.Entry
}

// FindPast does as Find does, and returns the run's past if it is short enough to
// be read in passing; else nil.
func FindPast(ctx context.Context, s storage.Storage, wf *Workflow) (*Hold, *Past, error) {
	r := keys.Checkpoints(wf.ID, wf.Base)
	r.End, r.Limit = append(keys.Input(wf.ID), 0), shortPast // behind them
	page, err := s.Scan(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	n := len(page) - 1
	if n < 0 || !bytes.Equal(page[n].Key, keys.Input(wf.ID)) {
		hold, err := Find(ctx, s, wf)
		return hold, nil, err
	}
	hold, err := head(wf, page[:n])
	return hold, &Past{page[n].Value, page[:n]}, err
}

// Then is the past when w was done on its Hold. That of nil, which was not read, is
// nil.
func (p *Past) Then(w *Write) *Past {
	if p == nil {
		return nil
	}
	later := &Past{p.input, slices.Clip(p.history)}
	for _, o := range w.Batch.Ops {
		if o.Kind == storage.PutOp && keys.IsCheckpoint(w.After.ID, o.Key) {
			later.history = append(later.history, storage.Entry{Key: o.Key, Value: o.Value})
		}
	}
	return later
}

// Input is what wf was started with.
func (p *Past) Input(wf *Workflow) (*Input, error) {
	var in Input
	return &in, owned(keys.Input(wf.ID), p.input, wf, &in, &in.Generation)
}

// History yields the checkpoints of wf, as the function of this name does.
func (p *Past) History(wf *Workflow) iter.Seq2[Checkpoint, error] {
	return inOrder(wf, func(yield func(storage.Entry, error) bool) {
		for _, e := range p.history {
			if !yield(e, nil) {
				return
			}
		}
	})
}

// History yields the checkpoints of wf in order. A missing one is
// storage.ErrCorrupt, unless a checkpoint said that the numbers are not used.
// Those of another life of the id are not seen.
func History(ctx context.Context, s storage.Storage, wf *Workflow) iter.Seq2[Checkpoint, error] {
	r := keys.Checkpoints(wf.ID, wf.Base)
	r.Limit = historyPage
	return inOrder(wf, storage.All(ctx, s, r))
}

func inOrder(wf *Workflow, entries iter.Seq2[storage.Entry, error]) iter.Seq2[Checkpoint, error] {
	return func(yield func(Checkpoint, error) bool) {
		next := wf.Base
		var owner string
		var epoch uint64
		for e, err := range entries {
			if err != nil {
				yield(Checkpoint{}, err)
				return
			}
			c, err := decode(wf, e)
			if err != nil {
				yield(Checkpoint{}, err)
				return
			}
			if c.generation != wf.Generation {
				continue
			}
			if c.Number != next {
				yield(Checkpoint{}, fmt.Errorf("%w: checkpoint %d of %q is missing", storage.ErrCorrupt, next, wf.ID))
				return
			}
			if next++; c.skip > 0 {
				next = c.skip
			}
			for _, ev := range c.Events {
				if ev.Kind == Claimed {
					owner, epoch = ev.By, c.Number
				}
			}
			c.Owner, c.Epoch = owner, epoch
			if !yield(c, nil) {
				return
			}
		}
	}
}

func decode(wf *Workflow, e storage.Entry) (Checkpoint, error) {
	n, err := keys.Number(e.Key)
	if err != nil {
		return Checkpoint{}, err
	}
	return open(wf.ID, n, e.Value)
}
