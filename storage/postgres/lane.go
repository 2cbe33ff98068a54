package postgres

import (
	"slices"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres/internal/claims"
)

// A lane is a queue for batches that wait for rows locked by others, so that they do not
// delay other batches. Its fields are guarded by queue.mu.
type lane struct {
	line    []*ticket
	held    claims.Set // keys of the batches in line or being applied
	running bool       // its goroutine is running
	wake    chan struct{}
}

// overdue is how long a batch waits for others to release its keys before it moves to a
// lane.
const overdue = 250 * time.Millisecond

// patience is how long a batch waits in a lane.
const patience = 15 * time.Second

// toLane moves a skipped t to a lane. It returns false if the store is closed or t's caller
// no longer waits. Its caller holds queue.mu.
func (s *Store) toLane(t *ticket) bool {
	t.skipped = false
	if s.queue.closed || t.left {
		t.err = errWithdrawn
		if s.queue.closed {
			t.err = storage.ErrClosed
		}
		return false
	}
	t.taken = false
	s.line(t)
	return true
}

// line adds t to a lane: to one with a batch that shares a row with t, otherwise to the
// one with the fewest claimed keys.
func (s *Store) line(t *ticket) {
	lanes := &s.queue.lanes
	l := &lanes[0]
	for i := range lanes {
		if lanes[i].held.Clash(t.names) {
			l = &lanes[i]
			break
		}
		if len(lanes[i].held) < len(l.held) {
			l = &lanes[i]
		}
	}
	t.lane = l
	l.line = append(l.line, t)
	l.held.Add(t.names)
	l.nudge()
	if !l.running {
		l.running = true
		s.running.Go(func() { s.runLane(l) })
	}
}

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// remove removes t from the lane.
func (l *lane) remove(t *ticket) {
	l.line = slices.DeleteFunc(l.line, func(other *ticket) bool { return other == t })
	l.held.Drop(t.names)
}

// runLane applies the batches in the lane, until it was empty for idleConn.
func (s *Store) runLane(l *lane) {
	c := s.newSession(laneLockTimeout)
	defer c.close()
	idle := time.NewTimer(idleConn)
	defer idle.Stop()
	for {
		late, g, done := s.queue.nextOf(l, false)
		for !done && len(late)+len(g) == 0 {
			idle.Reset(idleConn)
			select {
			case <-l.wake:
				late, g, done = s.queue.nextOf(l, false)
			case <-idle.C:
				late, g, done = s.queue.nextOf(l, true)
			}
		}
		if done {
			return
		}
		if len(late) > 0 {
			s.finish(late, errBusy)
		}
		if len(g) > 0 {
			s.settle(c, g)
		}
	}
}

// nextOf takes the first batch in the lane, and later ones that share a row with a batch
// already taken. Batches that waited too long are returned as late. The lane is done after
// shut, or if it is empty and may end.
func (q *queue) nextOf(l *lane, mayEnd bool) (late, g []*ticket, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || mayEnd && len(l.line) == 0 {
		l.running = false
		return nil, nil, true
	}
	going := claims.Set{}
	rest := l.line[:0]
	for _, t := range l.line {
		switch {
		case time.Since(t.since) > patience:
			t.err = errBusy
			late = append(late, t)
		case len(g) == 0, going.Clash(t.names) && !t.ranges && !g[0].ranges && len(g) < maxBatches:
			going.Add(t.names)
			g = append(g, t)
		default:
			rest = append(rest, t)
			continue
		}
		t.taken = true
	}
	clear(l.line[len(rest):])
	l.line = rest
	return late, g, false
}
