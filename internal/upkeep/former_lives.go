package upkeep

import (
	"context"
	"errors"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// formerPage is how many records of earlier lives are removed in one commit.
const formerPage = 500

// removeFormerLives removes what the earlier lives of a run have left in the store, and then entry,
// which says that there is something. Each commit has the condition that the run is unchanged: so
// nothing of a later generation of the id is removed. After a conflict the next look continues.
func (x *expiry) removeFormerLives(ctx context.Context, entry []byte, id, generation string) error {
	store := x.incarnation.Worker.Store
	wf, err := journal.Load(ctx, store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return x.removeExpired(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(entry)}})
	case err != nil:
		return err
	case wf.Unmet() != "":
		return nil // an engine of the newer release removes it
	}
	batch := storage.Batch{If: []storage.Condition{wf.Unchanged()}}
	if wf.Tombstone() || wf.Generation != generation { // purged, with all that belongs to it
		batch.Ops = []storage.Op{storage.Delete(entry)}
		return x.removeExpired(ctx, batch)
	}
	page := formerPage
	if most := store.Capabilities().MaxBatch.Ops; most > 0 {
		page = max(1, min(page, most-2)) // the condition, and the entry
	}
	for _, r := range run.FormerRanges(wf) {
		r.Limit = keys.PayloadPage
		for e, err := range storage.All(ctx, store, r) {
			if err != nil {
				return err
			}
			former, err := run.IsFormer(wf, e.Key)
			if err != nil {
				return err
			}
			if !former {
				continue
			}
			if batch.Ops = append(batch.Ops, storage.Delete(e.Key)); len(batch.Ops) < page {
				continue
			}
			if err := store.Commit(ctx, batch); err != nil {
				return ignoreConflict(err)
			}
			batch.Ops = nil
		}
	}
	batch.Ops = append(batch.Ops, storage.Delete(entry))
	return x.removeExpired(ctx, batch)
}

func ignoreConflict(err error) error {
	if errors.Is(err, storage.ErrConflict) {
		return nil
	}
	return err
}
