package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Queue is where workflows wait to be driven that were started with its name
// (StartOptions.Queue). Only engines that list it in Config.Queues drive them. They
// are admitted in the order in which they were started, as far as the clocks of those
// who started them agree. An engine passes over those that it does not run.
//
// The limits hold across all engines of a store. Each admits by its own numbers, so
// give all engines the same: while they differ, the larger MaxRuns holds, and a Rate
// holds for whoever admits.
type Queue struct {
	Name string

	// MaxRuns is how many runs of the queue have been admitted and have not ended, at
	// most: 10,000 at most, and zero is no bound. A run counts also while it is parked,
	// while it is held for a person, and while its engine is dead and not succeeded. So
	// it must not wait for what waits in the same queue, such as a child of its own.
	MaxRuns int

	// Rate is how many runs are admitted within a time, by the wall clocks of the
	// engines: what these differ by, it may be off by. Its Count is 1,000 at most. Zero
	// is no bound.
	Rate activity.Rate
}

// What the limits of a queue may be at most. Slots that are taken are read in one go,
// and a rate's record has a time for each that counts.
const (
	mostSlots = 10_000
	mostRate  = 1_000
)

func (c Config) checkQueues(wrong func(field, format string, args ...any)) {
	for i, q := range c.Queues {
		field := fmt.Sprintf("Queues[%d]", i)
		if err := checkName("", q.Name, keys.MaxName); err != nil {
			wrong(field+".Name", "must be 1 to %d bytes of UTF-8: %q", keys.MaxName, q.Name)
		}
		if first := slices.IndexFunc(c.Queues, func(other Queue) bool { return other.Name == q.Name }); first < i {
			wrong(field+".Name", "%q is that of Queues[%d] too", q.Name, first)
		}
		if q.MaxRuns < 0 || q.MaxRuns > mostSlots {
			wrong(field+".MaxRuns", "must be 0 to %d: %d", mostSlots, q.MaxRuns)
		}
		switch r := q.Rate; {
		case r.Count < 0 || r.Per < 0:
			wrong(field+".Rate", "is negative")
		case (r.Count == 0) != (r.Per == 0):
			wrong(field+".Rate", "needs a Count and a Per")
		case r.Count > mostRate:
			wrong(field+".Rate", "has a Count of %d, at most %d", r.Count, mostRate)
		}
	}
}

// QueuesOf are the queues in which runs of these workflows wait by default, without
// bounds: for tests. Users have no business here.
func QueuesOf(workflows []Definition) (qs []Queue) {
	for _, w := range workflows {
		if isNil(w) {
			continue // New complains
		}
		name := w.define().queue
		if name != "" && !slices.ContainsFunc(qs, func(q Queue) bool { return q.Name == name }) {
			qs = append(qs, Queue{Name: name})
		}
	}
	return qs
}

// serves says that runs of a queue are e's to drive.
func (e *Engine) serves(queue string) bool {
	return queue == "" || slices.ContainsFunc(e.config.Queues, func(q Queue) bool { return q.Name == queue })
}

// queues are the names of the queues that e serves, in order.
func (e *Engine) queues() (names []string) {
	for _, q := range e.config.Queues {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	return names
}

// queueLines is the duty to admit what waits in the lines of queues.
type queueLines struct {
	life   *life
	trails map[string]*trail // by the name of the queue
}

// look admits what waits in the queues of this engine.
func (d *queueLines) look(ctx context.Context) (next time.Duration, _ error) {
	var errs []error
	next = d.life.eng.config.PollInterval
	for _, q := range d.life.eng.config.Queues {
		opens, err := d.serve(ctx, q)
		next = min(next, opens)
		if err != nil {
			errs = append(errs, fmt.Errorf("queue %q: %w", q.Name, err))
		}
	}
	return next, errors.Join(errs...)
}

// serve admits, from the front of the line, as many as the queue's limits and the
// room in memory let in. It returns when it is worth another look.
func (d *queueLines) serve(ctx context.Context, q Queue) (opens time.Duration, _ error) {
	l := d.life
	door := &door{queue: q, eng: l.eng, opens: math.MaxInt64}
	crew := newCrew(l)
	defer func() {
		crew.wait()
		opens = door.opens
	}()
	line := keys.LineOf(q.Name)
	line.Limit = atOnce // a look is often for the first only
	way := d.trails[q.Name]
	if way == nil {
		way = new(trail)
		d.trails[q.Name] = way
	}
	looked := time.Now()
	p := way.look(looked, l.eng.config.PollInterval, line.End)
	if p.start != nil {
		line.Start = p.start
	}
	defer way.passed(p, looked)
	for entry, err := range storage.All(ctx, l.eng.store, line) {
		if err != nil {
			return 0, err
		}
		if l.leavesAlone(entry.Key) {
			p.over(entry.Key)
			continue
		}
		p.stop()
		id, err := keys.ID(entry.Key)
		if err != nil {
			return 0, err
		}
		t, err := door.next(ctx, crew)
		if err != nil {
			return 0, err
		}
		if t == nil {
			return 0, nil // it is found when a run of the queue has ended
		}
		p := prospect{id: id, entry: entry.Key, why: checkpoint.HandedOver, ticket: t}
		if ok, err := crew.claim(ctx, p); !ok {
			return 0, err
		}
	}
	return 0, nil
}

// turnAway decides the end of wf, which waits in a line and was not begun, because it
// was asked to stop: next is wf with the request. There is nothing for its function to
// clean up, and it need not wait for that.
func (e *Engine) turnAway(ctx context.Context, wf, next *checkpoint.Workflow) (*changing, error) {
	if err := wf.Status.To(checkpoint.Cancelled); err != nil {
		return nil, err
	}
	now := e.now()
	next.Status, next.EndedAt, next.Attention = checkpoint.Cancelled, checkpoint.Micro(now), nil
	out := &checkpoint.Output{Generation: wf.Generation, Status: checkpoint.Cancelled}
	fail(fmt.Errorf("%w in queue %q", ErrCancelled, wf.Queue), "", nil).onto(out)
	put, err := checkpoint.PutOutput(wf.ID, out)
	if err != nil {
		return nil, err
	}
	change := checkpoint.Change{
		Events: []checkpoint.Event{
			{Kind: checkpoint.Asked, Why: next.Cancel.Reason},
			{Kind: checkpoint.Ended, Name: string(checkpoint.Cancelled), Error: out.Error, By: e.config.Name},
		},
		Workflow: next,
		Ops:      []storage.Op{put},
	}
	parent, err := e.report(ctx, e.store, wf, &change, out)
	if err != nil {
		return nil, err
	}
	w, err := (&checkpoint.Hold{Workflow: wf}).Append(change, now)
	if err != nil {
		return nil, err
	}
	return &changing{w.Batch, func() {
		e.lookAgain(wf.ID)
		if parent != nil {
			e.hint(parent, written{children: true})
		}
	}}, nil
}

// A door lets runs of a queue in, in one look at its line.
type door struct {
	queue Queue
	eng   *Engine
	read  bool // the slots were

	mu    lock.Mutex    // guards what follows
	free  []int         // slots, the lowest last
	opens time.Duration // until it is worth another look
}

// A ticket lets one run in. What it takes of the queue's limits is taken by the claim
// of that run.
type ticket struct {
	door *door
	slot int       // 0: the queue has no bound
	rate *rateSeen // nil: the queue has none
	used bool      // by a claim that was tried
}

// next is a ticket, or nil if nobody is let in for now. Those before it may come to
// nothing and give theirs back.
func (d *door) next(ctx context.Context, before *crew) (*ticket, error) {
	if d.queue.Rate.Count > 0 {
		before.wait() // each changes the record of the rate
	}
	t := &ticket{door: d}
	if d.queue.MaxRuns > 0 {
		if err := d.readSlots(ctx); err != nil {
			return nil, err
		}
		if !d.takeSlot(t) {
			if before.wait(); !d.takeSlot(t) {
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
	for e, err := range storage.All(ctx, d.eng.store, keys.SlotsOf(d.queue.Name)) {
		if err != nil {
			return err
		}
		taken[string(e.Key)] = true
	}
	// Some may be above MaxRuns, of engines with another one.
	for n := 1; n <= d.queue.MaxRuns && len(taken)+len(d.free) < d.queue.MaxRuns; n++ {
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

// giveBack lets the next one have what t has not used. A nil t is none.
func (t *ticket) giveBack() {
	if t == nil || t.used || t.slot == 0 {
		return
	}
	t.door.mu.Lock()
	defer t.door.mu.Unlock()
	t.door.free = append(t.door.free, t.slot)
}

// soon is when an engine looks again that was not the quickest at a door: not at once,
// since the others do the same.
const soon = 10 * time.Millisecond

// lost takes in that the claim with t was refused: others got on, or the run is damaged,
// and will be refused the next time too.
func (t *ticket) lost(why checkpoint.Verdict) {
	if why == checkpoint.Overtaken || why == checkpoint.Rewound {
		t.used = false
		return
	}
	t.door.mu.Lock()
	defer t.door.mu.Unlock()
	t.door.opens = min(t.door.opens, soon)
}

// admit decides the claim by which owner lets a run in.
func (t *ticket) admit(h *checkpoint.Hold, owner string, floor uint64, now time.Time) (*checkpoint.Write, error) {
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

// A rateSeen is the record of a rate as it was read, when it let one more in.
type rateSeen struct {
	admissions
	at        time.Time
	unchanged storage.Condition
}

// with is the record with one more admission: at the time of the claim, which is later
// than the look by as long as it took to read the run. What is admitted next counts from
// that.
func (r *rateSeen) with(claimed time.Time, q Queue) (storage.Op, error) {
	if claimed.Before(r.at) {
		claimed = r.at // the clock was set back
	}
	next, _ := r.then(claimed, q.Rate)
	if next == nil {
		next, _ = r.then(r.at, q.Rate) // it was set forward, so that times from the future count
	}
	key := keys.Rate(q.Name)
	raw, err := record.Seal(key, checkpoint.Version, next, next.unknown)
	return storage.Put(key, raw), err
}

// takeRate adds to t that one more is admitted now, if the rate allows it.
func (d *door) takeRate(ctx context.Context, t *ticket) (bool, error) {
	key := keys.Rate(d.queue.Name)
	unchanged := storage.Absent(key)
	var r admissions
	raw, err := d.eng.store.Get(ctx, key)
	switch {
	case err == nil:
		unchanged = storage.Equal(key, raw)
		if r.unknown, err = record.Open(key, raw, checkpoint.Version, &r); err != nil {
			return false, err
		}
	case !errors.Is(err, storage.ErrNotFound):
		return false, err
	}
	now := d.eng.now()
	if _, wait := r.then(now, d.queue.Rate); wait > 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.opens = min(d.opens, wait)
		return false, nil
	}
	t.rate = &rateSeen{r, now, unchanged}
	return true, nil
}

// admissions is the record rate:{queue}: when runs were admitted that still count, in
// microseconds since 1970.
type admissions struct {
	Times []int64 `cbor:"1,keyasint,omitempty"`

	unknown record.Unknown
}

// then is the record with one more admission, or how long that has to wait. A time that
// is further ahead than the rate's span was told by a clock that is wrong, and would
// close the queue until that time.
func (a *admissions) then(now time.Time, rate activity.Rate) (next *admissions, wait time.Duration) {
	lately := slices.DeleteFunc(slices.Clone(a.Times), func(at int64) bool {
		return now.Sub(checkpoint.Time(at)).Abs() >= rate.Per
	})
	slices.Sort(lately)
	if over := len(lately) - rate.Count; over >= 0 {
		return nil, checkpoint.Time(lately[over]).Add(rate.Per).Sub(now)
	}
	return &admissions{append(lately, checkpoint.Micro(now)), a.unknown}, 0
}
