package journal

import (
	"context"
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
