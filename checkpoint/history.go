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
	return &Hold{Workflow: wf, Head: c.Number, HeadTime: c.Time, ahead: c.ahead}, nil
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
	_, err := owned(keys.Input(wf.ID), p.input, wf, &in, &in.Generation)
	return &in, err
}

// Reader returns the checkpoints of wf one after the other, as History yields them, and
// false when there is none left.
func (p *Past) Reader(wf *Workflow) func() (Checkpoint, error, bool) {
	left, order := p.history, sequence{wf: wf, next: wf.Base}
	return func() (Checkpoint, error, bool) {
		for len(left) > 0 {
			e := left[0]
			left = left[1:]
			if c, own, err := order.take(e); own || err != nil {
				return c, err, true
			}
		}
		return Checkpoint{}, nil, false
	}
}

// History yields the checkpoints of wf in order. A missing one is
// storage.ErrCorrupt, unless a checkpoint said that the numbers are not used.
// Those of another life of the id are not seen.
func History(ctx context.Context, s storage.Storage, wf *Workflow) iter.Seq2[Checkpoint, error] {
	return func(yield func(Checkpoint, error) bool) {
		r := keys.Checkpoints(wf.ID, wf.Base)
		r.Limit = historyPage
		order := sequence{wf: wf, next: wf.Base}
		for e, err := range storage.All(ctx, s, r) {
			var c Checkpoint
			own := true
			if err == nil {
				c, own, err = order.take(e)
			}
			if own && !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// A sequence is how far the checkpoints of a workflow were read.
type sequence struct {
	wf    *Workflow
	next  uint64
	owner string
	epoch uint64
}

// take reads the next entry, and says whether it is of this life.
func (s *sequence) take(e storage.Entry) (c Checkpoint, own bool, err error) {
	if c, err = decode(s.wf, e); err != nil {
		return Checkpoint{}, true, err
	}
	if c.generation != s.wf.Generation {
		return Checkpoint{}, false, nil
	}
	if c.Number != s.next {
		return Checkpoint{}, true, fmt.Errorf("%w: checkpoint %d of %q is missing", storage.ErrCorrupt, s.next, s.wf.ID)
	}
	if s.next++; c.skip > 0 {
		s.next = c.skip
	}
	for _, ev := range c.Events {
		if ev.Kind == Claimed {
			s.owner, s.epoch = ev.By, c.Number
		}
	}
	c.Owner, c.Epoch = s.owner, s.epoch
	return c, true, nil
}

func decode(wf *Workflow, e storage.Entry) (Checkpoint, error) {
	n, err := keys.Number(e.Key)
	if err != nil {
		return Checkpoint{}, err
	}
	return open(wf.ID, n, e.Value)
}
