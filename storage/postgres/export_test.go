package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/storage"
)

// Waiting returns the number of batches in the queue.
func (s *Store) Waiting() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.waiting)
}

// CommitSkipped is Commit for a batch that an earlier try, in a larger group, has skipped.
func (s *Store) CommitSkipped(_ context.Context, b storage.Batch) error {
	t := s.tickets.get(b)
	defer s.tickets.put(t)
	t.skipped = true
	if err := s.enter(t); err != nil {
		return err
	}
	<-t.woken
	return t.err
}

// InLanes returns the number of batches in lanes.
func (s *Store) InLanes() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	n := 0
	for i := range s.queue.lanes {
		n += len(s.queue.lanes[i].held)
	}
	return n
}

// Channel returns the name of the channel of the store's notifications.
func (s *Store) Channel() string { return s.notes.channel }

// Setting returns a setting of one of the store's own sessions.
func (s *Store) Setting(name string) (value string, err error) {
	c := <-s.urgent
	defer func() { s.urgent <- c }()
	err = c.conn.QueryRow(context.Background(), `SELECT current_setting($1)`, name).Scan(&value)
	return value, err
}

const (
	Committers = committers
	QuickMost  = quickMost
	Lanes      = maxLanes
)

// Reading returns the number of reads that wait to share a round trip.
func (s *Store) Reading() int {
	s.gatherer.mu.Lock()
	defer s.gatherer.mu.Unlock()
	return len(s.gatherer.waiting)
}

const RoundTrips = roundTrips

// Pool returns the settings of the store's pool.
func (s *Store) Pool() *pgxpool.Config { return s.pool.Config() }
