package upkeep

import (
	"cmp"
	"context"
	"fmt"
	"time"

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
	last        time.Time            // zero before the first look
	found       map[string]time.Time // when engines that are gone were first found so
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
	found := map[string]time.Time{}
	for entry, err := range storage.All(ctx, l.Worker.Store, keys.Engines()) {
		if err != nil {
			return err
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil {
			return err
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
		now, known := l.Certain()
		found[incarnation] = cmp.Or(h.found[incarnation], time.Now())
		// If its clock was ahead, a day has passed when it has passed here.
		if (!known || now.Sub(r.Latest()) < aDay) && time.Since(found[incarnation]) < aDay {
			continue
		}
		if !r.Lists {
			lists, err := meta.ReadLists(ctx, l.Worker.Store)
			if err != nil {
				return err
			}
			if !lists.Done || lists.Place != "" || mayLack(r, lists.Begun) {
				continue // it is why another pass is made
			}
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
	h.found = found
	return nil
}
