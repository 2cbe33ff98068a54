// Package memory implements a store in memory. It is the reference implementation of the
// contract: an adapter that behaves differently is wrong. Use it for tests, and for data
// that need not outlive the process.
package memory

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"

	"github.com/weft-go/weft/storage"
)

// A Store is a storage.Storage in memory. The zero value is an empty store. It
// must not be copied after first use.
type Store struct {
	mu      sync.RWMutex
	data    tree
	opening string
	closed  bool
}

var _ storage.Exclusive = (*Store)(nil)

// Get returns a copy of the value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	v, ok := s.data.get(string(key))
	if !ok {
		return nil, storage.ErrNotFound
	}
	return bytes.Clone(v), nil
}

// Scan returns copies of the first entries of r.
func (s *Store) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	var page []storage.Entry
	s.data.walk(r, func(key string, value []byte) bool {
		page = append(page, storage.Entry{Key: []byte(key), Value: bytes.Clone(value)})
		return len(page) < limit
	})
	return page, nil
}

// Commit applies b as a whole, or returns an error and changes nothing.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.Capabilities().MaxBatch); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	for _, c := range b.If {
		v, ok := s.data.get(string(c.Key))
		if !holds(c, v, ok) {
			return storage.ErrConflict
		}
	}
	for _, o := range b.Ops {
		switch o.Kind {
		case storage.PutOp:
			s.data.put(string(o.Key), append([]byte{}, o.Value...))
		case storage.DeleteOp:
			s.data.delete(string(o.Key))
		case storage.DeleteRangeOp:
			var keys []string
			s.data.walk(o.Range, func(key string, _ []byte) bool {
				keys = append(keys, key)
				return true
			})
			for _, k := range keys {
				s.data.delete(k)
			}
		}
	}
	return nil
}

func holds(c storage.Condition, value []byte, there bool) bool {
	switch c.Kind {
	case storage.IsEqual:
		return there && bytes.Equal(value, c.Value)
	case storage.IsAbsent:
		return !there
	default:
		return there
	}
}

// Capabilities returns all capabilities but Durable and Shared.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: true,
		AtomicBatch:      true,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		MaxBatch:         storage.Size{Ops: 10_000, Bytes: 64 << 20},
	}
}

// Opening identifies this Store.
func (s *Store) Opening() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening == "" {
		s.opening = rand.Text()
	}
	return s.opening
}

// Close makes every later call return storage.ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.data = tree{}
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed {
		return storage.ErrClosed
	}
	return ctx.Err()
}
