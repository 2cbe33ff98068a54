package journal

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Bury decides the first step of a purge: the record of an ended workflow is replaced by a
// tombstone, which prevents its numbers from being used again until expires.
func (h *Hold) Bury(now, expires time.Time) (*Write, error) {
	wf := h.Workflow
	if err := wf.Understood(); err != nil {
		return nil, err
	}
	w := &Write{Before: wf, Batch: storage.Batch{If: []storage.Condition{wf.Unchanged()}}}
	w.Batch.Ops = []storage.Op{storage.Put(keys.ExpiringTombstone(expires, wf.ID, wf.Generation), nil)}
	return w, w.rewrite(&Workflow{
		ID:         wf.ID,
		Generation: wf.Generation,
		Next:       max(h.Head+1, wf.Base),
		PurgedAt:   Micro(now),
		Needs:      wf.Needs,
		unknown:    wf.unknown,
	})
}

// Remove decides a whole purge, if no more than most records belong to the workflow: Bury and the
// deletion of these records in one batch. Otherwise it is Bury with the deletion of the values that
// the workflow has published, which are read without its record; whole is false, and Sweep deletes the
// other records after the write. What is stored beside a write of Remove, such as the progress of a
// late attempt, is deleted by the next start of the id, or when the tombstone expires.
func Remove(ctx context.Context, s storage.Storage, wf *Workflow, most int, now, expires time.Time) (w *Write, whole bool, _ error) {
	has, err := featuresOf(ctx, s, wf)
	if err != nil {
		return nil, false, err
	}
	h := &Hold{Workflow: wf}
	var gone []storage.Op
	for _, r := range keys.ChildrenAmong(wf.ID, has) {
		r.Limit = most + 1 - len(gone)
		page, err := s.Scan(ctx, r)
		if err != nil {
			return nil, false, err
		}
		for _, e := range page {
			if keys.IsCheckpoint(wf.ID, e.Key) {
				n, err := keys.Number(e.Key)
				if err != nil {
					return nil, false, err
				}
				h.Head = max(h.Head, n)
			}
			gone = append(gone, storage.Delete(e.Key))
		}
		if len(gone) > most {
			if h, err = FindUnread(ctx, s, wf); err != nil {
				return nil, false, err
			}
			if w, err = h.Bury(now, expires); err == nil {
				err = w.unpublish(ctx, s, most)
			}
			return w, false, err
		}
	}
	w, err = h.Bury(now, expires)
	if err != nil {
		return nil, false, err
	}
	w.Batch.Ops = append(w.Batch.Ops, gone...)
	return w, true, nil
}

// featuresOf returns what wf, which has ended, has had. Whatever accepts a signal writes the counter of
// signals in the same commit.
func featuresOf(ctx context.Context, s storage.Storage, wf *Workflow) (keys.Features, error) {
	has := keys.Features{Signals: true, Updates: wf.Updated(), Hooks: wf.HasHooks()}
	_, err := s.Get(ctx, keys.SignalCounter(wf.ID))
	if errors.Is(err, storage.ErrNotFound) {
		has.Signals, err = false, nil
	}
	return has, err
}

// unpublish adds the deletion of values that the workflow has published to w, at most so many.
func (w *Write) unpublish(ctx context.Context, s storage.Storage, most int) error {
	r := keys.PublishedBy(w.Before.ID)
	r.Limit = min(most, 16) // values may be large
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

// Sweep deletes everything that belongs to a tombstone's id, one page at a time, and only
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
	for _, r := range keys.Children(tomb.ID) {
		r.Limit = limit
		for {
			page, err := s.Scan(ctx, r)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			b := storage.Batch{If: []storage.Condition{tomb.Unchanged()}}
			for _, e := range page {
				b.Ops = append(b.Ops, storage.Delete(e.Key))
			}
			if err := s.Commit(ctx, b); err != nil {
				return err
			}
			if len(page) < limit {
				break
			}
		}
	}
	return nil
}
