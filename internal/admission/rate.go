package admission

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A rateSeen is the record of a rate as it was read at a time when it allowed an admission.
type rateSeen struct {
	admissions
	at        time.Time
	unchanged storage.Condition
}

// with returns the record with one more admission. Its time is that of the claim, not that
// of the look, because reading the run in between takes time.
func (r *rateSeen) with(claimed time.Time, q weft.Queue) (storage.Op, error) {
	if claimed.Before(r.at) {
		claimed = r.at // the clock was set back
	}
	next, _ := r.then(claimed, q.Rate)
	if next == nil {
		next, _ = r.then(r.at, q.Rate) // the clock was set forward, and times in the future now count
	}
	key := keys.Rate(q.Name)
	raw, err := record.Seal(key, journal.Version, next, next.unknown)
	return storage.Put(key, raw), err
}

// takeRate sets the rate of t if the rate allows an admission now, and reports whether it
// does.
func (d *Door) takeRate(ctx context.Context, t *Ticket) (bool, error) {
	key := keys.Rate(d.queue.Name)
	unchanged := storage.Absent(key)
	var r admissions
	raw, err := d.store.Get(ctx, key)
	switch {
	case err == nil:
		unchanged = storage.Equal(key, raw)
		if r.unknown, err = record.Open(key, raw, journal.Version, &r); err != nil {
			return false, err
		}
	case !errors.Is(err, storage.ErrNotFound):
		return false, err
	}
	now := d.now()
	if _, wait := r.then(now, d.queue.Rate); wait > 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.opens = min(d.opens, wait)
		return false, nil
	}
	t.rate = &rateSeen{r, now, unchanged}
	return true, nil
}

// admissions is the record rate:{queue}: the times of the admissions that still count, in
// microseconds since 1970.
type admissions struct {
	Times []int64 `cbor:"1,keyasint,omitempty"`

	unknown record.Unknown
}

// then returns the record with one more admission, or how long the admission must wait. It
// ignores times that are ahead by rate.Per or more. A wrong clock wrote them, and they would
// block the queue until that time.
func (a *admissions) then(now time.Time, rate activity.Rate) (next *admissions, wait time.Duration) {
	lately := slices.DeleteFunc(slices.Clone(a.Times), func(at int64) bool {
		return now.Sub(journal.Time(at)).Abs() >= rate.Per
	})
	slices.Sort(lately)
	if over := len(lately) - rate.Count; over >= 0 {
		return nil, journal.Time(lately[over]).Add(rate.Per).Sub(now)
	}
	return &admissions{append(lately, journal.Micro(now)), a.unknown}, 0
}
