package journal

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Bury decides the first step of a purge: the record of an ended workflow is replaced by a
// tombstone, which prevents its numbers from being used again until expires. The caller has made sure that the
// record is Understood.
func (h *Hold) Bury(now, expires time.Time) (*Write, error) {
	wf := h.Workflow
	w := &Write{Before: wf, Batch: storage.Batch{If: []storage.Condition{wf.Unchanged()}}}
	w.Batch.Ops = []storage.Op{storage.Put(keys.ExpiringTombstone(expires, wf.ID, wf.Generation), nil)}
	return w, w.rewrite(&Workflow{
		ID:           wf.ID,
		Generation:   wf.Generation,
		ByGeneration: wf.ByGeneration,
		Next:         max(h.Head+1, wf.Base),
		PurgedAt:     Micro(now),
		Needs:        wf.Needs,
		unknown:      wf.unknown,
	})
}

// Remove decides a whole purge, if no more than most records belong to the workflow: Bury and the
// deletion of these records in one batch. Otherwise it is Bury with the deletion of the values that
// the workflow has published, which are read without its record; whole is false, and Sweep deletes the
// other records after the write. What is stored beside a write of Remove, such as the progress of a
// late attempt, is deleted by the next start of the id, or when the tombstone expires. has is what
// FeaturesOf has returned.
func Remove(ctx context.Context, s storage.Storage, wf *Workflow, has keys.Features, most int, now, expires time.Time) (w *Write, whole bool, err error) {
	h := &Hold{Workflow: wf}
	tooMany := func() (*Write, bool, error) {
		if h, err = FindUnread(ctx, s, wf); err != nil {
			return nil, false, err
		}
		if w, err = h.Bury(now, expires); err == nil {
			err = w.unpublish(ctx, s, most)
		}
		return w, false, err
	}
	gone, fits, err := chunksOf(ctx, s, wf, most)
	if err != nil {
		return nil, false, err
	}
	if !fits {
		return tooMany()
	}
	for _, r := range wf.children(has) {
		r.Limit = keys.PayloadPage
		for e, err := range storage.All(ctx, s, r) {
			if err != nil {
				return nil, false, err
			}
			if len(gone) == most {
				return tooMany()
			}
			if wf.Log().Has(e.Key) {
				n, err := keys.Number(e.Key)
				if err != nil {
					return nil, false, err
				}
				h.Head = max(h.Head, n)
			}
			gone = append(gone, storage.Delete(e.Key))
		}
	}
	w, err = h.Bury(now, expires)
	if err != nil {
		return nil, false, err
	}
	w.Batch.Ops = append(w.Batch.Ops, gone...)
	return w, true, nil
}

// children returns the ranges of everything that belongs to w, except for its record and its chunks.
func (w *Workflow) children(has keys.Features) []storage.Range {
	rs := keys.ChildrenAmong(w.ID, has)
	if w.ByGeneration {
		rs = append(rs, w.Log().All())
	}
	return rs
}

// FeaturesOf returns what wf, which has ended, has had. Whatever accepts a signal writes the counter of
// signals in the same commit.
func FeaturesOf(ctx context.Context, s storage.Storage, wf *Workflow) (keys.Features, error) {
	has := keys.Features{Signals: true, Updates: wf.Updated(), Hooks: wf.HasHooks(), Streams: wf.HasStreams()}
	_, err := s.Get(ctx, keys.SignalCounter(wf.ID))
	if errors.Is(err, storage.ErrNotFound) {
		has.Signals, err = false, nil
	}
	return has, err
}

// chunksOf returns the deletions of the chunks of wf, which has ended. Their payloads are not read. fits is false
// if there are more than most, or if it is not known how many there are, because a head is damaged.
func chunksOf(ctx context.Context, s storage.Storage, wf *Workflow, most int) (gone []storage.Op, fits bool, _ error) {
	if !wf.HasStreams() {
		return nil, true, nil
	}
	for e, err := range storage.All(ctx, s, keys.StreamsOf(wf.ID)) {
		if err != nil {
			return nil, false, err
		}
		name, err := keys.Last(e.Key)
		if err != nil {
			return nil, false, err
		}
		h, err := chunks.OpenHead(e)
		if err != nil || h.Count > uint64(most-len(gone)) {
			return nil, false, nil
		}
		gone = append(gone, chunks.Of(wf.ID, name, wf.Generation).Delete(h.Count, most)...)
	}
	return gone, true, nil
}

// unpublish adds the deletion of values that the workflow has published to w, at most so many.
func (w *Write) unpublish(ctx context.Context, s storage.Storage, most int) error {
	r := keys.PublishedBy(w.Before.ID)
	r.Limit = min(most, keys.PayloadPage)
	n := 0
	for e, err := range storage.All(ctx, s, r) {
		if err != nil {
			return err
		}
		if n == most {
			break
		}
		n++
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(e.Key))
	}
	return nil
}

const purgePage = 500

// Sweep deletes everything that belongs to a tombstone's id, purgePage in a commit, and only
// while the tombstone exists, so that it deletes nothing of a new generation of the id. It may
// be interrupted anywhere and started again. storage.ErrConflict means that the id has a new
// generation, storage.ErrFutureFormat that only a newer release knows what belongs to it.
func Sweep(ctx context.Context, s storage.Storage, tomb *Workflow) error {
	if err := tomb.Understood(); err != nil {
		return err
	}
	limit := purgePage
	if most := s.Capabilities().MaxBatch; most.Ops > 0 {
		limit = max(1, min(limit, most.Ops-1)) // and the condition
	}
	if err := sweepChunks(ctx, s, tomb, limit); err != nil {
		return err
	}
	b := storage.Batch{If: []storage.Condition{tomb.Unchanged()}}
	for _, r := range tomb.children(keys.AllFeatures) {
		r.Limit = keys.PayloadPage
		for e, err := range storage.All(ctx, s, r) {
			if err != nil {
				return err
			}
			if b.Ops = append(b.Ops, storage.Delete(e.Key)); len(b.Ops) < limit {
				continue
			}
			if err := s.Commit(ctx, b); err != nil {
				return err
			}
			b.Ops = nil
		}
	}
	if len(b.Ops) == 0 {
		return nil
	}
	return s.Commit(ctx, b)
}

// sweepChunks deletes the chunks of all streams of a tombstone's id, at most limit in a commit, from the last one
// on. Of the chunks of a commit it reads one, since their payloads may be large.
func sweepChunks(ctx context.Context, s storage.Storage, tomb *Workflow, limit int) error {
	r := keys.AllChunksOf(tomb.ID)
	r.Limit, r.Reverse = 1, true
	for {
		page, err := s.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return err
		}
		b := storage.Batch{If: []storage.Condition{tomb.Unchanged()}, Ops: []storage.Op{storage.Delete(page[0].Key)}}
		parts, err := storage.SplitKey(page[0].Key)
		n, numbered := keys.Number(page[0].Key)
		if err == nil && numbered == nil && len(parts) == 4 {
			b.Ops = append(b.Ops, chunks.Of(tomb.ID, parts[2], "").Delete(n, limit-1)...)
		}
		if err := s.Commit(ctx, b); err != nil {
			return err
		}
	}
}
