package retention

import (
	"cmp"
	"context"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A list is that of a type and a status, and how far a keeper has come in it.
type list struct {
	workflow string
	status   checkpoint.Status
	kept     time.Duration

	place []byte    // the entry that was looked at last; nil: none
	begun time.Time // when the first entry was looked at
	due   time.Time // nothing behind place is old enough before; zero: the end was not reached yet

	looked time.Time // when it had its turn last
}

// isDue reports whether there may be something to remove at the certain time now. After an hour
// the list begins again, unless its end was not reached yet: what had to stay may be free to go,
// and a clock that is behind may have added an older entry.
func (l *list) isDue(now time.Time) bool {
	if !l.due.IsZero() && time.Since(l.begun) >= anew {
		l.place, l.begun, l.due = nil, time.Time{}, time.Time{}
	}
	return !now.Before(l.due)
}

// atOnce is how many entries are looked at together.
const atOnce = 100

// goOn looks at the next entries of l, at most so many, and returns how many there were, and for how
// long the first of them should have been gone. If it could not read several in a row, it returns an error, and the next
// call goes on behind them: they may be damaged, and what comes then is not.
func (k *keeper) goOn(ctx context.Context, l *list, now time.Time, most int, unarchived *refusals) (n int, overdue time.Duration, _ error) {
	l.looked = time.Now()
	r := l.old(now)
	r.Limit = min(atOnce, most)
	page, err := k.Store.Scan(ctx, r)
	if err != nil {
		return 0, 0, err
	}
	if l.begun.IsZero() {
		l.begun = time.Now()
	}
	decided, unread := k.decideAll(ctx, l, page, now, unarchived)
	if err := cmp.Or(ctx.Err(), k.remove(ctx, decided)); err != nil {
		return 0, 0, err
	}
	if len(page) > 0 {
		l.place = page[len(page)-1].Key
		if ended, err := keys.ListedSince(page[0].Key); err == nil { // else whoever reads the list says so
			overdue = now.Sub(ended.Add(l.kept))
		}
	}
	if unread == nil && len(page) < r.Limit {
		l.due, err = k.next(ctx, l, now)
	}
	return len(page), overdue, cmp.Or(unread, err)
}

// old is the range of the entries behind l.place that are old enough.
func (l *list) old(now time.Time) storage.Range {
	all := keys.ListOf(l.workflow, string(l.status))
	r := keys.Between(all, time.Time{}, now.Add(-l.kept).Truncate(time.Microsecond).Add(time.Microsecond)) // times in lists are whole
	if l.place != nil {
		r.Start = append(l.place[:len(l.place):len(l.place)], 0)
	}
	return r
}

// next returns when the first entry that is not old enough at the time now will be, or the first
// that does not exist yet.
func (k *keeper) next(ctx context.Context, l *list, now time.Time) (time.Time, error) {
	r := keys.ListOf(l.workflow, string(l.status))
	r.Start, r.Limit = l.old(now).End, 1
	page, err := k.Store.Scan(ctx, r)
	if err != nil || len(page) == 0 {
		return now.Add(l.kept), err
	}
	ended, err := keys.ListedSince(page[0].Key)
	if err != nil {
		return now.Add(l.kept), nil // damaged: whoever reads the list says so
	}
	return ended.Add(l.kept), nil
}
