package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/storage"
)

// The maximum size of a group. It may contain a single batch that is larger.
const (
	maxBatches = 1000
	maxBytes   = 8 << 20
)

// A desk is the queue of batches. Batches that name the same key are applied in the
// order of their arrival, in one group or in successive groups.
type desk struct {
	mu      sync.Mutex
	waiting []*ticket
	held    claims    // keys of the batches that were taken and not answered yet
	passed  claims    // keys of the batches that gather leaves waiting; reused
	work    sync.Cond // on mu; signalled when there may be something to gather
	lanes   [maxLanes]lane
	closed  bool
	lastErr error // of the last group; nil if it had none
}

func newDesk() *desk {
	d := &desk{held: claims{}, passed: claims{}}
	d.work.L = &d.mu
	for i := range d.lanes {
		d.lanes[i].held = claims{}
		d.lanes[i].wake = make(chan struct{}, 1)
	}
	return d
}

// open returns ErrClosed after shut.
func (d *desk) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return storage.ErrClosed
	}
	return nil
}

// enter puts t in the queue, or in that of a lane if it must be applied alone.
func (s *Store) enter(t *ticket) error {
	d := s.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return storage.ErrClosed
	}
	if t.ranges {
		d.held.add(t)
		s.line(t)
		return nil
	}
	d.waiting = append(d.waiting, t)
	d.work.Signal()
	return nil
}

// hold claims the keys of t without waiting for others that have claimed them.
func (d *desk) hold(t *ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return storage.ErrClosed
	}
	t.taken = true
	d.held.add(t)
	return nil
}

// withdraw removes t, whose caller no longer waits, from its queue, and returns the error
// of the last group. It returns false if t was already taken; then the caller must wait
// for the answer, which is errWithdrawn if t was not judged.
func (d *desk) withdraw(t *ticket) (last error, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.taken {
		t.left = true
		return nil, false
	}
	if t.lane != nil {
		t.lane.remove(t)
		d.held.drop(t)
		d.work.Signal()
		return errBusy, true
	}
	if i := slices.Index(d.waiting, t); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		return d.lastErr, true
	}
	return nil, false
}

// next waits for a group, which it appends to g. It returns nil after shut.
func (s *Store) next(g []*ticket) []*ticket {
	d := s.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed {
		if g = s.gather(g); len(g) > 0 {
			return g
		}
		d.work.Wait()
	}
	return nil
}

// gather takes all waiting batches that can be applied now. A batch keeps waiting if it
// names a key that is held, or that an earlier waiting batch names. Urgent batches and
// those with a DeleteRange do not pass through this queue and claim their keys at once. A
// batch that has waited too long for a held key goes to a lane, where it queues in the server.
func (s *Store) gather(g []*ticket) []*ticket {
	d := s.desk
	bytes := 0
	rest := d.waiting[:0]
	clear(d.passed)
	for i, t := range d.waiting {
		if len(g) == maxBatches || len(g) > 0 && bytes+t.bytes > maxBytes {
			rest = append(rest, d.waiting[i:]...)
			d.work.Signal() // wake another committer
			break
		}
		blocked := d.passed.clash(t)
		if !blocked && d.held.clash(t) && time.Since(t.since) > overdue {
			d.held.add(t)
			s.line(t)
			continue
		}
		if blocked || d.held.clash(t) {
			d.passed.add(t)
			rest = append(rest, t)
			continue
		}
		bytes += t.bytes
		t.taken = true
		g = append(g, t)
	}
	clear(d.waiting[len(rest):])
	d.waiting = rest
	for _, t := range g {
		d.held.add(t)
	}
	return g
}

// finish answers the batches of g that were judged, and moves skipped ones to a lane. It
// overwrites g. met is the error of the whole group, or nil.
func (s *Store) finish(g []*ticket, met error) {
	d := s.desk
	answered := g[:0]
	d.mu.Lock()
	d.lastErr = met
	for _, t := range g {
		if t.skipped && s.toLane(t) {
			continue
		}
		d.held.drop(t)
		if t.lane != nil {
			t.lane.held.drop(t)
		}
		answered = append(answered, t)
	}
	if len(d.waiting) > 0 {
		d.work.Signal()
	}
	d.mu.Unlock()
	for _, t := range answered {
		t.answer()
	}
}

// shut answers ErrClosed to all waiting batches and to later ones.
func (d *desk) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	refused := d.waiting
	d.waiting = nil
	for i := range d.lanes {
		l := &d.lanes[i]
		for _, t := range l.line {
			l.held.drop(t)
			d.held.drop(t)
		}
		refused = append(refused, l.line...)
		l.line = nil
		l.nudge()
	}
	for _, t := range refused {
		t.taken = true
		t.err = storage.ErrClosed
		t.answer()
	}
	d.work.Broadcast()
}
