package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// The largest limits that a queue may have. All taken slots are read at once, and the
// record of a rate has one time per admission that counts.
const (
	MostSlots = 10_000
	MostRate  = 1_000
)

// A door admits runs of a queue during one look at its line.
type door struct {
	queue weft.Queue
	store storage.Storage
	now   func() time.Time
	read  bool // the slots were read

	mu    lock.Mutex    // guards the fields below
	free  []int         // free slots in descending order
	opens time.Duration // time until the next look is useful
}

// newDoor returns the door of a queue for one look.
func newDoor(q weft.Queue, s storage.Storage, now func() time.Time) *door {
	return &door{queue: q, store: s, now: now, opens: math.MaxInt64}
}

// A ticket allows the claim of one run. The claim takes the slot and records the admission.
type ticket struct {
	door *door
	slot int       // 0 if the queue has no Concurrency limit
	rate *rateSeen // nil if the queue has no Rate
	used bool      // a claim with it was tried
}

// next returns a ticket, or nil if no run can be admitted now. It may call wait, which waits for
// earlier claims: they may give their tickets back.
func (d *door) next(ctx context.Context, wait func()) (*ticket, error) {
	if d.queue.Rate.Count > 0 {
		wait() // each claim changes the record of the rate
	}
	t := &ticket{door: d}
	if d.queue.Concurrency > 0 {
		if err := d.readSlots(ctx); err != nil {
			return nil, err
		}
		if !d.takeSlot(t) {
			if wait(); !d.takeSlot(t) {
				return nil, nil
			}
		}
	}
	if d.queue.Rate.Count > 0 {
		if ok, err := d.takeRate(ctx, t); !ok {
			return nil, err
		}
	}
	return t, nil
}

// readSlots reads which slots are free, once.
func (d *door) readSlots(ctx context.Context) error {
	if d.read {
		return nil
	}
	taken := map[string]bool{}
	for e, err := range storage.All(ctx, d.store, keys.SlotsOf(d.queue.Name)) {
		if err != nil {
			return err
		}
		taken[string(e.Key)] = true
	}
	// Engines with a larger Concurrency may have taken slots above this one.
	for n := 1; n <= d.queue.Concurrency && len(taken)+len(d.free) < d.queue.Concurrency; n++ {
		if !taken[string(keys.Slot(d.queue.Name, n))] {
			d.free = append(d.free, n)
		}
	}
	slices.Reverse(d.free)
	d.read = true
	return nil
}

func (d *door) takeSlot(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.free) - 1
	if last < 0 {
		return false
	}
	t.slot, d.free = d.free[last], d.free[:last]
	return true
}

// giveBack frees the slot of t if no claim used it. t may be nil.
func (t *ticket) giveBack() {
	if t == nil || t.used || t.slot == 0 {
		return
	}
	t.door.mu.Lock()
	defer t.door.mu.Unlock()
	t.door.free = append(t.door.free, t.slot)
}

// soon is how long an engine waits before it looks again after it lost a race: not at once,
// since the others do the same.
const soon = 10 * time.Millisecond

// claimRefused handles a claim with t that was refused. If another engine has claimed the run, or
// the run is damaged, the slot is still free and goes to another run. Otherwise another
// engine may have taken the slot or changed the rate, so the poll looks again soon.
func (t *ticket) claimRefused(why journal.Verdict) {
	if why == journal.Overtaken || why == journal.Rewound {
		t.used = false
		return
	}
	t.door.mu.Lock()
	defer t.door.mu.Unlock()
	t.door.opens = min(t.door.opens, soon)
}

// admit returns the claim of an admitted run by owner.
func (t *ticket) admit(h *journal.Hold, owner string, floor uint64, now time.Time) (*journal.Write, error) {
	t.used = true
	w, err := h.Admit(owner, t.slot, floor, now)
	if err != nil {
		return nil, err
	}
	if t.rate == nil {
		return w, nil
	}
	put, err := t.rate.with(now, t.door.queue)
	w.Batch.If = append(w.Batch.If, t.rate.unchanged)
	w.Batch.Ops = append(w.Batch.Ops, put)
	return w, err
}

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
func (d *door) takeRate(ctx context.Context, t *ticket) (bool, error) {
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
