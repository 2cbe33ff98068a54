package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/storage"
)

// A group is at most this large. It may have one batch that is larger.
const (
	maxBatches = 1000
	maxBytes   = 8 << 20
)

// A desk is where batches wait their turn. Those that name one key go in the
// order in which they came, together in a group or one group after the other.
type desk struct {
	mu      sync.Mutex
	waiting []*ticket
	held    claims    // of all who were taken along and not answered
	passed  claims    // of those that gather passes over; kept for its memory
	work    sync.Cond // on mu; signalled when there may be something to gather
	lanes   [maxLanes]lane
	closed  bool
	trouble error // of the last group; nil: it was judged
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

// open says ErrClosed after shut.
func (d *desk) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return storage.ErrClosed
	}
	return nil
}

// enter puts t in line: in that of a lane, if it must go alone.
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

// hold claims what t names without waiting for those who have claimed it.
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

// withdraw takes t, whose caller gives up, out of its line. It says no if t was
// taken along; then t is waited for, and comes back if it was not judged. Else it returns
// what the last of those before t met.
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
		return d.trouble, true
	}
	return nil, false
}

// next waits for a group, which it appends to g. It returns none after shut.
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

// gather takes along all that wait and may go: what names a key that is held,
// or that an earlier one waits for, waits on. Those that go in other lines, with
// an urgent batch or a DeleteRange, claim their keys as they come, so that what
// waits too long for them goes to a lane: there the server lets it have its turn.
func (s *Store) gather(g []*ticket) []*ticket {
	d := s.desk
	bytes := 0
	rest := d.waiting[:0]
	clear(d.passed)
	for i, t := range d.waiting {
		if len(g) == maxBatches || len(g) > 0 && bytes+t.bytes > maxBytes {
			rest = append(rest, d.waiting[i:]...)
			d.work.Signal() // for another committer
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

// finish answers those of g that were judged, and sends those that were skipped
// to a lane. Behind it g has no meaning. met is the error of the whole group, if it had one.
func (s *Store) finish(g []*ticket, met error) {
	d := s.desk
	answered := g[:0]
	d.mu.Lock()
	d.trouble = met
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

// shut answers ErrClosed to all that wait, and to those who come later.
func (d *desk) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	turnedAway := d.waiting
	d.waiting = nil
	for i := range d.lanes {
		l := &d.lanes[i]
		for _, t := range l.line {
			l.held.drop(t)
			d.held.drop(t)
		}
		turnedAway = append(turnedAway, l.line...)
		l.line = nil
		l.nudge()
	}
	for _, t := range turnedAway {
		t.taken = true
		t.err = storage.ErrClosed
		t.answer()
	}
	d.work.Broadcast()
}
