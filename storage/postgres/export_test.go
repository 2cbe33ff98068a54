package postgres

import (
	"context"
)

// Waiting is how many batches are in line.
func (s *Store) Waiting() int {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return len(s.desk.waiting)
}

// InLanes is how many batches are in a lane.
func (s *Store) InLanes() int {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	n := 0
	for i := range s.desk.lanes {
		n += len(s.desk.lanes[i].held)
	}
	return n
}

// Setting is what a session of the store's own runs with.
func (s *Store) Setting(name string) (value string, err error) {
	c := <-s.urgent
	defer func() { s.urgent <- c }()
	err = c.conn.QueryRow(context.Background(), `SELECT current_setting($1)`, name).Scan(&value)
	return value, err
}

const (
	IdleTimeout = idleTimeout
	Committers  = committers
)

// Reading is how many reads wait for company.
func (s *Store) Reading() int {
	s.company.mu.Lock()
	defer s.company.mu.Unlock()
	return len(s.company.waiting)
}

const RoundTrips = roundTrips
