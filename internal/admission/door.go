package admission

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// The largest limits that a queue may have. All taken slots are read at once, and the
// record of a rate has one time per admission that counts.
const (
	MostSlots = 10_000
	MostRate  = 1_000
)

// A Door admits runs of a queue during one look at its line.
type Door struct {
	queue weft.Queue
	store storage.Storage
	now   func() time.Time
	read  bool // the slots were read

	mu    lock.Mutex    // guards the fields below
	free  []int         // free slots in descending order
	opens time.Duration // time until the next look is useful
}

// New returns the door of a queue for one look.
func New(q weft.Queue, s storage.Storage, now func() time.Time) *Door {
	return &Door{queue: q, store: s, now: now, opens: math.MaxInt64}
}

// Opens returns the time until the next look is useful.
func (d *Door) Opens() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opens
}

// A Ticket allows the claim of one run. The claim takes the slot and records the admission.
type Ticket struct {
	door *Door
	slot int       // 0 if the queue has no Concurrency limit
	rate *rateSeen // nil if the queue has no Rate
	used bool      // a claim with it was tried
}

// Next returns a ticket, or nil if no run can be admitted now. It may call wait, which waits for
// earlier claims: they may give their tickets back.
func (d *Door) Next(ctx context.Context, wait func()) (*Ticket, error) {
	if d.queue.Rate.Count > 0 {
		wait() // each claim changes the record of the rate
	}
	t := &Ticket{door: d}
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
func (d *Door) readSlots(ctx context.Context) error {
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

func (d *Door) takeSlot(t *Ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.free) - 1
	if last < 0 {
		return false
	}
	t.slot, d.free = d.free[last], d.free[:last]
	return true
}

// GiveBack frees the slot of t if no claim used it. t may be nil.
func (t *Ticket) GiveBack() {
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

// ClaimRefused handles a claim with t that was refused. If another engine has claimed the run, or
// the run is damaged, the slot is still free and goes to another run. Otherwise another
// engine may have taken the slot or changed the rate, so the poll looks again soon.
func (t *Ticket) ClaimRefused(why journal.Verdict) {
	if why == journal.Overtaken || why == journal.Rewound {
		t.used = false
		return
	}
	t.door.mu.Lock()
	defer t.door.mu.Unlock()
	t.door.opens = min(t.door.opens, soon)
}

// Admit returns the claim of an admitted run by owner.
func (t *Ticket) Admit(h *journal.Hold, owner string, floor uint64, now time.Time) (*journal.Write, error) {
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
