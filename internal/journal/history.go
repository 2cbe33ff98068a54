package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Find reads the state of a run without its history: the last checkpoint that belongs to
// the record.
func Find(ctx context.Context, s storage.Storage, wf *Workflow) (*Hold, error) {
	page, err := lastOf(ctx, s, wf)
	if err != nil {
		return nil, err
	}
	return head(wf, page)
}

// lastOf reads the entry of the last checkpoint, if there is one.
func lastOf(ctx context.Context, s storage.Storage, wf *Workflow) ([]storage.Entry, error) {
	r := wf.Log().From(wf.Base)
	r.Reverse, r.Limit = true, 1
	return s.Scan(ctx, r)
}

// FindUnread is Find without reading the last checkpoint, which may be damaged. Times of the
// next checkpoint do not continue those of the history.
func FindUnread(ctx context.Context, s storage.Storage, wf *Workflow) (*Hold, error) {
	page, err := lastOf(ctx, s, wf)
	if err != nil || len(page) == 0 {
		return &Hold{Workflow: wf}, err
	}
	n, err := keys.Number(page[0].Key)
	return &Hold{Workflow: wf, Head: n}, err
}

// head returns the state of a run whose last checkpoint is the last entry of page.
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
		return nil, fmt.Errorf("%w: record %q is of another generation", storage.ErrCorrupt, last.Key)
	}
	return &Hold{Workflow: wf, Head: c.Number, HeadTime: c.Time, ahead: c.ahead}, nil
}

// shortPast is how many checkpoints are read of a run that may be claimed. If it has fewer, that is its history.
const shortPast = 4 * keys.PayloadPage

// A Past is the input and the history of a run, up to a Hold.
type Past struct {
	input   []byte
	history []storage.Entry
}

// FindPast is Find, and also returns the run's past if it is short and small, otherwise nil. Checkpoints may be large, so it
// reads a few at once.
func FindPast(ctx context.Context, s storage.Storage, wf *Workflow) (*Hold, *Past, error) {
	r := wf.Log().From(wf.Base)
	r.Limit = keys.PayloadPage
	var page []storage.Entry
	whole := false
	for !whole && len(page) < shortPast && small(page) {
		more, err := s.Scan(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		page, whole = append(page, more...), len(more) < r.Limit
		if !whole {
			r.Start = behind(more)
		}
	}
	if !whole {
		hold, err := Find(ctx, s, wf)
		return hold, nil, err
	}
	hold, err := head(wf, page)
	if err != nil || !small(page) {
		return hold, nil, err
	}
	in, err := s.Get(ctx, keys.Input(wf.ID))
	if errors.Is(err, storage.ErrNotFound) { // whoever reads it says so
		return hold, nil, nil
	}
	return hold, &Past{in, page}, err
}

// Then returns the past after w was applied to its Hold. For a nil past, which was not read, it
// returns nil.
func (p *Past) Then(w *Write) *Past {
	if p == nil {
		return nil
	}
	later := &Past{p.input, slices.Clip(p.history)}
	for _, o := range w.Batch.Ops {
		if o.Kind == storage.PutOp && w.After.Log().Has(o.Key) {
			later.history = append(later.history, storage.Entry{Key: o.Key, Value: o.Value})
		}
	}
	return later
}

// Input returns the input of wf.
func (p *Past) Input(wf *Workflow) (*Input, error) {
	var in Input
	_, err := owned(keys.Input(wf.ID), p.input, wf, &in, &in.Generation)
	return &in, in.of(wf, err)
}

// Reader returns a function that returns the checkpoints of wf one by one, as History does, and
// false when there are no more.
func (p *Past) Reader(wf *Workflow) func() (checkpoint.Checkpoint, error, bool) {
	left, order := p.history, sequence{wf: wf, next: wf.Base}
	return func() (checkpoint.Checkpoint, error, bool) {
		for len(left) > 0 && !order.over {
			e := left[0]
			left = left[1:]
			if c, own, err := order.take(e); own || err != nil {
				return c, err, true
			}
		}
		return checkpoint.Checkpoint{}, nil, false
	}
}

// History yields the checkpoints of the present life of wf in order. If one is missing, it yields
// storage.ErrCorrupt, unless an earlier checkpoint said that the numbers are not used. It skips
// checkpoints of other generations of the id, and ends before those of a later life: then the run
// has continued as new since wf was read.
func History(ctx context.Context, s storage.Storage, wf *Workflow) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		order := sequence{wf: wf, next: wf.Base}
		for e, err := range Records(ctx, s, wf.Log().From(wf.Base)) {
			var c checkpoint.Checkpoint
			own := true
			if err == nil {
				c, own, err = order.take(e)
			}
			if own && !yield(c, err) || err != nil || order.over {
				return
			}
		}
	}
}

// A sequence is the state of reading the checkpoints of a workflow.
type sequence struct {
	wf    *Workflow
	next  uint64
	owner string
	epoch uint64
	over  bool // a later life begins here
}

// take decodes the next entry, and reports whether it belongs to this generation and life.
func (s *sequence) take(e storage.Entry) (_ checkpoint.Checkpoint, own bool, err error) {
	c, err := decode(s.wf, e)
	if err != nil {
		return checkpoint.Checkpoint{}, true, err
	}
	if c.generation != s.wf.Generation {
		return checkpoint.Checkpoint{}, false, nil
	}
	if c.Number != s.next {
		return checkpoint.Checkpoint{}, true, fmt.Errorf("%w: checkpoint %d of %q is missing", storage.ErrCorrupt, s.next, s.wf.ID)
	}
	if c.Number > s.wf.Base && begins(c.Events) {
		s.over = true
		return checkpoint.Checkpoint{}, false, nil
	}
	if s.next++; c.skip > 0 {
		s.next = c.skip
	}
	for _, ev := range c.Events {
		if ev.Kind == checkpoint.KindClaimed || ev.Kind == checkpoint.KindContinued {
			s.owner, s.epoch = ev.By, c.Number
		}
	}
	c.Owner, c.Epoch = s.owner, s.epoch
	return c.Checkpoint, true, nil
}

func decode(wf *Workflow, e storage.Entry) (Entry, error) {
	n, err := keys.Number(e.Key)
	if err != nil {
		return Entry{}, err
	}
	return open(e.Key, n, e.Value)
}
