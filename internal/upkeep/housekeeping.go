package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// housekeeping is the duty to remove the records of engines that have ended, to look again
// at the entries that this engine skips, and for parked runs with a wrong due time. It is
// done once an hour.
type housekeeping struct {
	incarnation *worker.Incarnation
	last        time.Time // zero before the first look
}

const (
	anHour = time.Hour
	aDay   = 24 * time.Hour
)

func (h *housekeeping) look(ctx context.Context) error {
	if !h.last.IsZero() {
		if time.Since(h.last) <= anHour {
			return nil
		}
		h.incarnation.LookAgain() // also frees the memory for entries that are gone
	}
	// Also at the first look: an engine that is gone may have parked runs between two jumps
	// of its clock, and its record shows none.
	h.incarnation.SearchAstray()
	h.last = time.Now()
	if err := h.forgetEngines(ctx); err != nil {
		return fmt.Errorf("remove the records of dead engines: %w", err)
	}
	return nil
}

// forgetEngines removes the records of engines that own nothing and ended at least aDay ago. One that
// did not shut down ended after it had written its record last: on a store that others share, at the last renewal of
// its lease, otherwise when it began.
func (h *housekeeping) forgetEngines(ctx context.Context) error {
	l := h.incarnation
	for entry, err := range storage.All(ctx, l.Worker.Store, keys.Engines()) {
		if err != nil {
			return err
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil {
			l.Unreadable(entry.Key, err)
			continue
		}
		r, err := membership.OpenRegistration(entry.Key, entry.Value)
		if record.Damaged(err) {
			continue // who takes over its runs reports it
		}
		if err != nil {
			return err
		}
		gone, err := l.Gone(ctx, incarnation)
		if err != nil || !gone {
			continue
		}
		l.LedAstray(incarnation, r)
		certain, err := l.Passed(ctx)
		if err != nil {
			return err
		}
		lists := new(meta.ListsRecord)
		if !r.Lists {
			if lists, err = meta.ReadLists(ctx, l.Worker.Store); err != nil {
				return err
			}
		}
		// If its clock was ahead by more than a day, it counts as gone since now. Passes over the lists that have begun may lack what it
		// wrote.
		if latest := max(journal.Micro(l.Worker.Now()), lists.Begun); r.Latest().Sub(journal.Time(latest)) > aDay {
			if err := h.cut(ctx, entry, r, latest, min(latest, journal.Micro(certain))); err != nil {
				return err
			}
			continue
		}
		if certain.Sub(r.Latest()) < aDay {
			continue
		}
		if !r.Lists && (!lists.Done || lists.Place != "" || mayLack(r, lists.Begun)) {
			continue // it is why another pass is made
		}
		held := keys.HeldBy(incarnation)
		held.Limit = 1
		page, err := l.Worker.Store.Scan(ctx, held)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			continue
		}
		if err := l.Drop(ctx, nil, entry.Key); err != nil {
			return err
		}
	}
	return nil
}

// cut replaces the record of an engine that is gone by one that has no later times than the latest one, and no later certain time
// than proven.
func (h *housekeeping) cut(ctx context.Context, entry storage.Entry, r *membership.Registration, latest, proven int64) error {
	r.Since, r.Stopped, r.Clock, r.Proven = min(r.Since, latest), min(r.Stopped, latest), min(r.Clock, latest), min(r.Proven, proven)
	raw, err := record.Seal(entry.Key, journal.Version, r, r.UnknownFields)
	if err != nil {
		return err
	}
	err = h.incarnation.Worker.Store.Commit(ctx, storage.Batch{
		If:  []storage.Condition{storage.Equal(entry.Key, entry.Value)},
		Ops: []storage.Op{storage.Put(entry.Key, raw)},
	})
	if errors.Is(err, storage.ErrConflict) {
		err = nil // the next look reads it again
	}
	return err
}
