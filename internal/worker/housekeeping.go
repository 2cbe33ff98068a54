package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/storage"
)

// housekeeping is the duty to remove the records of engines that have ended, to look again
// at the entries that this engine skips, and for parked runs with a wrong due time. It is
// done once an hour.
type housekeeping struct {
	incarnation *Incarnation
	last        time.Time // zero before the first look
}

// Once in anHour the records of engines that own nothing and ended at least aDay ago are
// removed.
const (
	anHour = time.Hour
	aDay   = 24 * time.Hour
)

func (h *housekeeping) look(ctx context.Context) error {
	if !h.last.IsZero() {
		if time.Since(h.last) <= anHour {
			return nil
		}
		h.incarnation.lookAgain() // also frees the memory for entries that are gone
	}
	// Also at the first look: an engine that is gone may have parked runs between two jumps
	// of its clock, and its record shows none.
	h.incarnation.unclaimed.searchAstray()
	h.last = time.Now()
	if err := h.incarnation.forgetEngines(ctx); err != nil {
		return fmt.Errorf("remove the records of dead engines: %w", err)
	}
	return nil
}

func (l *Incarnation) forgetEngines(ctx context.Context) error {
	for entry, err := range storage.All(ctx, l.Worker.Store, keys.Engines()) {
		if err != nil {
			return err
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil {
			return err
		}
		r, err := membership.OpenRegistration(entry.Key, entry.Value)
		if err != nil {
			return err
		}
		v, err := l.vital(ctx, incarnation)
		if err != nil || v == membership.Alive {
			continue
		}
		l.ledAstray(incarnation, r)
		if ended := max(r.Since, r.Stopped); !l.witness.Begun() || l.witness.Now(l.Worker.Read()).Sub(journal.Time(ended)) < aDay {
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
		if err := l.drop(ctx, entry.Key); err != nil {
			return err
		}
	}
	return nil
}
