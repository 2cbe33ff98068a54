package pebble

import (
	"bytes"
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weft-go/weft/storage"
)

// Get returns a copy of the value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = s.read(ctx, func(v *view) error {
		value, err = get(v, key)
		return err
	})
	return value, s.error("get", err)
}

// get returns a copy of the value of key in r, or storage.ErrNotFound.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, storage.ErrNotFound
	case err != nil:
		return nil, translate(err)
	}
	value := append([]byte{}, v...)
	return value, closer.Close()
}

// Scan returns copies of the first entries of r.
func (s *Store) Scan(ctx context.Context, r storage.Range) (page []storage.Entry, err error) {
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	err = s.read(ctx, func(v *view) error {
		if r.End != nil && bytes.Compare(r.Start, r.End) >= 0 {
			return nil
		}
		bounds := pebble.IterOptions{UpperBound: r.End}
		if len(r.Start) > 0 { // pebble expects no empty bound
			bounds.LowerBound = r.Start
		}
		it, err := v.NewIter(&bounds)
		if err != nil {
			return translate(err)
		}
		first, next := it.First, it.Next
		if r.Reverse {
			first, next = it.Last, it.Prev
		}
		for more := first(); more && len(page) < limit && ctx.Err() == nil; more = next() {
			value, err := it.ValueAndErr()
			if err != nil {
				break // Close returns it
			}
			page = append(page, storage.Entry{Key: append([]byte{}, it.Key()...), Value: append([]byte{}, value...)})
		}
		if err := it.Close(); err != nil {
			return translate(err)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, s.error("scan", err)
	}
	return page, nil
}

// read runs f on the state that is synced. It fails if the folder is no longer at its path:
// otherwise a read would confirm data that the next opener does not find.
func (s *Store) read(ctx context.Context, f func(*view) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.calls.RLock()
	defer s.calls.RUnlock()
	if s.closed {
		return storage.ErrClosed
	}
	if err := s.db.disk.readable(); err != nil {
		return err
	}
	return guarded(func() error {
		v := s.db.current()
		defer v.release()
		return f(v)
	})
}
