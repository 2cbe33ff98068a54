package checkpoint

import (
	"context"
	"fmt"
	"iter"

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
	if len(page) == 0 {
		return &Hold{Workflow: wf}, nil
	}
	c, err := decode(wf, page[0])
	if err != nil {
		return nil, err
	}
	if c.generation != wf.Generation {
		return nil, fmt.Errorf("%w: record %q is of another life", storage.ErrCorrupt, page[0].Key)
	}
	return &Hold{Workflow: wf, Head: c.Number, HeadTime: c.Time}, nil
}

// History yields the checkpoints of wf in order. A missing one is
// storage.ErrCorrupt, unless a checkpoint said that the numbers are not used.
// Those of another life of the id are not seen.
func History(ctx context.Context, s storage.Storage, wf *Workflow) iter.Seq2[Checkpoint, error] {
	r := keys.Checkpoints(wf.ID, wf.Base)
	r.Limit = historyPage
	return func(yield func(Checkpoint, error) bool) {
		next := wf.Base
		var owner string
		var epoch uint64
		for e, err := range storage.All(ctx, s, r) {
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
