package world

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

const (
	sweepAtMost = 250                         // operations of one batch
	doubtful    = 24 * time.Hour              // how long after a removal something may be left, and how long a stream without a run is kept
	remembered  = MostDelay + 34*24*time.Hour // how long the head of a removed run is kept
)

// Sweep removes the runs that ended longer ago than the Retention, with their streams. It returns how many it removed.
//
// First the head becomes a tombstone, so that nothing is added to the run any more. Then the rest is removed. A stream may get a
// chunk that was decided on before, and Sweep may fail in between. So all that is left is removed a day later, by the first Sweep
// that can. The tombstone stays for longer than a message may be delayed: without it, one that starts the run would create it anew.
func (w *World) Sweep(ctx context.Context) (removed int, err error) {
	now := w.now()
	if w.retention > 0 {
		err = w.expired(ctx, keys.WorldRunEnded, now.Add(-w.retention), func(ctx context.Context, key []byte, run string, h *head) error {
			if h == nil || h.Removed > 0 || string(keys.WorldExpiry(keys.WorldRunEnded, at(h.Ended), run)) != string(key) {
				return w.commitOrLeave(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(key)}}) // it is about nothing
			}
			b, buried, err := burying(h, key, now)
			if err != nil {
				return err
			}
			if err := w.commitOrLeave(ctx, b); err != nil {
				return err
			}
			removed++
			return w.removeRest(ctx, run, storage.Equal(keys.World(run), buried.raw), nil)
		})
	}
	return removed, errors.Join(err,
		w.expired(ctx, keys.WorldRunRemoved, now.Add(-doubtful), func(ctx context.Context, key []byte, run string, h *head) error {
			b := storage.Batch{Ops: []storage.Op{storage.Delete(key)}}
			if h == nil || h.Removed == 0 {
				return w.commitOrLeave(ctx, b)
			}
			b.If = []storage.Condition{storage.Equal(keys.World(run), h.raw)}
			err := w.removeRest(ctx, run, b.If[0], nil)
			if err = errors.Join(err, put(&b, keys.WorldExpiry(keys.WorldRunKept, at(h.Removed), run), &mark{}, nil)); err != nil {
				return err
			}
			return w.commitOrLeave(ctx, b)
		}),
		w.expired(ctx, keys.WorldRunKept, now.Add(-remembered), func(ctx context.Context, key []byte, run string, h *head) error {
			b := storage.Batch{Ops: []storage.Op{storage.Delete(key)}}
			if h != nil && h.Removed > 0 {
				b.If = []storage.Condition{storage.Equal(keys.World(run), h.raw)}
				b.Ops = append(b.Ops, storage.Delete(b.If[0].Key))
			}
			return w.commitOrLeave(ctx, b)
		}),
		w.expired(ctx, keys.WorldStreamEarly, now.Add(-doubtful), func(ctx context.Context, key []byte, run string, h *head) error {
			if h == nil {
				absent := storage.Absent(keys.World(run))
				if err := w.removeRest(ctx, run, absent, []storage.Op{storage.Delete(absent.Key)}); err != nil {
					return err
				}
			}
			return w.commitOrLeave(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(key)}})
		}))
}

// errLeft says that something has changed, so that the next Sweep has to look at it.
var errLeft = errors.New("world: changed meanwhile")

// expired calls f for each run that has a WorldExpiry of a kind until a time, with the key and the run's head, or nil.
// It goes on after a conflict, after damage, and after an error of one of them.
func (w *World) expired(ctx context.Context, kind string, until time.Time, f func(ctx context.Context, key []byte, run string, h *head) error) error {
	return w.swept.Each(ctx, w.store, keys.WorldExpiries(kind, until), func(e storage.Entry) error {
		run, err := keys.Last(e.Key)
		var h *head
		if err == nil {
			h, err = w.headOf(ctx, run)
		}
		if err == nil {
			err = f(ctx, e.Key, run, h)
		}
		switch {
		case err == nil, errors.Is(err, errLeft):
		case record.Damaged(err):
			w.damaged(string(e.Key), err)
		default:
			return err
		}
		return nil
	})
}

// commitOrLeave commits what need not succeed.
func (w *World) commitOrLeave(ctx context.Context, b storage.Batch) error {
	err := w.store.Commit(ctx, b)
	if errors.Is(err, storage.ErrConflict) {
		return errLeft
	}
	return err
}

// burying returns the batch that makes the head of a run a tombstone, and the tombstone. ended is the entry that says when
// the run has ended.
func burying(h *head, ended []byte, now time.Time) (b storage.Batch, buried *head, err error) {
	next := *h
	next.Removed = max(now.UnixMilli(), 1)
	at := keys.World(h.run)
	if next.raw, err = record.Seal(at, version, &next, h.unknown); err != nil {
		return b, nil, err
	}
	b.If = []storage.Condition{storage.Equal(at, h.raw)}
	b.Ops = []storage.Op{
		storage.Put(at, next.raw), storage.Delete(ended),
		storage.Delete(keys.WorldListed("all", "", h.run)), storage.Delete(keys.WorldListed("name", h.Name, h.run)),
		storage.Delete(keys.WorldListed("status", string(h.Status), h.run)),
	}
	return b, &next, put(&b, keys.WorldExpiry(keys.WorldRunRemoved, now, h.run), &mark{}, nil)
}

// removeRest removes all of a run but its head, each batch under a condition on that, and with the operations that the
// condition needs.
func (w *World) removeRest(ctx context.Context, run string, under storage.Condition, with []storage.Op) error {
	r := &remover{w: w, ctx: ctx, under: under, with: with, most: sweepAtMost}
	if ops := w.store.Capabilities().MaxBatch.Ops; ops > 0 {
		r.most = max(1, min(r.most, ops-2-len(with)))
	}
	children := keys.WorldChildren(run)
	children.Limit = keys.PayloadPage
	for e, err := range storage.All(ctx, w.store, children) {
		if err == nil {
			err = r.child(run, e)
		}
		if err != nil {
			return err
		}
	}
	for e, err := range storage.All(ctx, w.store, keys.WorldStreamsOf(run)) {
		if err == nil {
			err = r.stream(run, e)
		}
		if err != nil {
			return err
		}
	}
	return r.flush()
}

// A remover collects deletions, and commits them in batches.
type remover struct {
	w     *World
	ctx   context.Context
	under storage.Condition
	with  []storage.Op
	most  int
	also  []storage.Condition
	ops   []storage.Op
}

// deleteIf is delete under another condition.
func (r *remover) deleteIf(c storage.Condition, ks ...[]byte) error {
	err := r.delete(ks...)
	r.also = append(r.also, c)
	return err
}

// delete deletes keys in one batch. It may be that nothing is committed before the next call.
func (r *remover) delete(ks ...[]byte) error {
	if len(r.also)+len(r.ops)+len(ks) >= r.most {
		if err := r.flush(); err != nil {
			return err
		}
	}
	for _, k := range ks {
		r.ops = append(r.ops, storage.Delete(k))
	}
	return nil
}

func (r *remover) flush() error {
	if len(r.ops) == 0 {
		return nil
	}
	b := storage.Batch{If: append([]storage.Condition{r.under}, r.also...), Ops: append(r.ops, r.with...)}
	r.ops, r.also = nil, nil
	return r.w.commitOrLeave(r.ctx, b)
}

// child removes what is under the head of a run, with what lists it.
func (r *remover) child(run string, e storage.Entry) error {
	parts, err := storage.SplitKey(e.Key)
	if err != nil {
		return err
	}
	if parts[2] == "ev" {
		n, err := keys.Number(e.Key)
		if err != nil {
			return err
		}
		event, err := openEvent(&head{run: run}, n, e.Value)
		if err != nil {
			return err
		}
		if event.Correlation != "" {
			return r.delete(e.Key, keys.WorldCorrelated(event.Correlation, run, n))
		}
	}
	return r.delete(e.Key)
}

// stream removes a stream, its last chunks first.
func (r *remover) stream(run string, e storage.Entry) error {
	name, err := keys.Last(e.Key)
	if err != nil {
		return err
	}
	h, err := chunks.OpenHead(e)
	if err != nil {
		return err
	}
	for n := h.Count; n > 0; n-- {
		if err := r.delete(keys.Chunk(keys.WorldChunksOf(run, name), n-1)); err != nil {
			return err
		}
	}
	// Under the condition that nothing was appended.
	return r.deleteIf(storage.Equal(e.Key, e.Value), e.Key, keys.WorldStreamNamed(name, run))
}
