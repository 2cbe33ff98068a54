package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres/internal/claims"
)

// The maximum size of a group. It may contain a single batch that is larger.
const (
	maxBatches = 1000
	maxBytes   = 8 << 20
)

// A queue holds the batches that wait to be committed. Batches that name the same key are
// applied in the order of their arrival, in one group or in successive groups.
type queue struct {
	mu      sync.Mutex
	waiting []*ticket
	held    claims.Set // keys of the batches that were taken and not answered yet
	passed  claims.Set // keys of the batches that gather leaves waiting; reused
	work    sync.Cond  // on mu; signalled when there may be something to gather
	lanes   [maxLanes]lane
	closed  bool
	lastErr error // of the last group; nil if it had none
}

func newQueue() *queue {
	q := &queue{held: claims.Set{}, passed: claims.Set{}}
	q.work.L = &q.mu
	for i := range q.lanes {
		q.lanes[i].held = claims.Set{}
		q.lanes[i].wake = make(chan struct{}, 1)
	}
	return q
}

// open returns ErrClosed after shut.
func (q *queue) open() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return storage.ErrClosed
	}
	return nil
}

// enter puts t in the queue, or in that of a lane if it must be applied alone.
func (s *Store) enter(t *ticket) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return storage.ErrClosed
	}
	if t.ranges {
		q.held.Add(t.names)
		s.line(t)
		return nil
	}
	q.waiting = append(q.waiting, t)
	q.work.Signal()
	return nil
}

// hold claims the keys of t without waiting for others that have claimed them.
func (q *queue) hold(t *ticket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return storage.ErrClosed
	}
	t.taken = true
	q.held.Add(t.names)
	return nil
}

// withdraw removes t, whose caller gives up, from the queue or from its lane. It returns the
// error of the last group, or errBusy for a lane. It returns false if t was already taken;
// then the caller must wait for the result, which is errWithdrawn if t was not judged.
func (q *queue) withdraw(t *ticket) (last error, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.taken {
		t.left = true
		return nil, false
	}
	if t.lane != nil {
		t.lane.remove(t)
		q.held.Drop(t.names)
		q.work.Signal()
		return errBusy, true
	}
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.work.Signal() // those behind it may name its keys
		return q.lastErr, true
	}
	return nil, false
}

// withdrawn returns the error of an urgent batch whose context ended before it was taken.
func (q *queue) withdrawn(ended error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &storage.WithdrawnError{Ended: ended, Last: q.lastErr}
}

// next waits for a group, which it appends to g. It returns nil after shut.
func (s *Store) next(g []*ticket) []*ticket {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if g = s.gather(g); len(g) > 0 {
			return g
		}
		q.work.Wait()
	}
	return nil
}

// gather takes all waiting batches that can be applied now. A batch keeps waiting if it
// names a key that is held, or that an earlier waiting batch names. Urgent batches and
// those with a DeleteRange do not pass through this queue and claim their keys at once. A
// batch that has waited too long for a held key goes to a lane, where it queues in the server.
func (s *Store) gather(g []*ticket) []*ticket {
	q := s.queue
	bytes := 0
	rest := q.waiting[:0]
	clear(q.passed)
	for i, t := range q.waiting {
		if len(g) == maxBatches || len(g) > 0 && bytes+t.bytes > maxBytes {
			rest = append(rest, q.waiting[i:]...)
			q.work.Signal() // wake another committer
			break
		}
		blocked := q.passed.Clash(t.names)
		if !blocked && q.held.Clash(t.names) && time.Since(t.since) > overdue {
			q.held.Add(t.names)
			s.line(t)
			continue
		}
		if blocked || q.held.Clash(t.names) {
			q.passed.Add(t.names)
			rest = append(rest, t)
			continue
		}
		bytes += t.bytes
		t.taken = true
		g = append(g, t)
	}
	clear(q.waiting[len(rest):])
	q.waiting = rest
	for _, t := range g {
		q.held.Add(t.names)
	}
	return g
}

// finish answers the batches of g that were judged, and moves skipped ones to a lane. It
// overwrites g. met is the error of the whole group, or nil.
func (s *Store) finish(g []*ticket, met error) {
	q := s.queue
	answered, judged := g[:0], 0
	q.mu.Lock()
	q.lastErr = met
	for _, t := range g {
		if t.skipped && s.toLane(t) {
			continue
		}
		q.held.Drop(t.names)
		if t.lane != nil {
			t.lane.held.Drop(t.names)
		}
		answered = append(answered, t)
		if t.judged() {
			judged++
		}
	}
	if len(q.waiting) > 0 {
		q.work.Signal()
	}
	q.mu.Unlock()
	for _, t := range answered {
		if t.judged() && t.batch.Group != nil {
			*t.batch.Group = judged
		}
		t.answer()
	}
}

// shut answers ErrClosed to all waiting batches and to later ones.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	refused := q.waiting
	q.waiting = nil
	for i := range q.lanes {
		l := &q.lanes[i]
		for _, t := range l.line {
			l.held.Drop(t.names)
			q.held.Drop(t.names)
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
	q.work.Broadcast()
}
