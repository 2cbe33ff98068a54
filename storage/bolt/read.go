package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/storage"
)

// Get returns a copy of the value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = s.read(ctx, func(b *bbolt.Bucket) error {
		k, v := b.Cursor().Seek(key) // Bucket.Get would return nil for a nested bucket
		switch {
		case k == nil || !bytes.Equal(k, key):
			return storage.ErrNotFound
		case v == nil:
			return nested(k)
		}
		value, err = copied(v)
		return err
	})
	return value, s.error("get", err)
}

// Scan returns copies of the first entries of r.
func (s *Store) Scan(ctx context.Context, r storage.Range) (page []storage.Entry, err error) {
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	err = s.read(ctx, func(b *bbolt.Bucket) error {
		return walk(b.Cursor(), r, func(k, v []byte) (bool, error) {
			key, err := copied(k)
			if err != nil {
				return false, err
			}
			value, err := copied(v)
			if err != nil {
				return false, err
			}
			page = append(page, storage.Entry{Key: key, Value: value})
			return len(page) < limit, ctx.Err()
		})
	})
	if err != nil {
		return nil, s.error("scan", err)
	}
	return page, nil
}

// read runs f in a read transaction. It fails if the file is no longer at its path:
// otherwise a read would confirm data that the next opener does not find.
func (s *Store) read(ctx context.Context, f func(*bbolt.Bucket) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.calls.RLock()
	defer s.calls.RUnlock()
	if s.closed {
		return storage.ErrClosed
	}
	if err := s.files.Glance(); err != nil {
		return err
	}
	return guarded(func() error {
		tx, err := s.transaction(false)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := s.flushed(ctx, tx.ID()); err != nil {
			return err
		}
		b := tx.Bucket(s.bucket)
		if b == nil {
			return s.noBucket()
		}
		return f(b)
	})
}

// A flush is a commit in progress. While bbolt syncs its last page, the map already shows what the commit wrote, and a
// power loss may still undo it.
type flush struct {
	id   int           // of its transaction
	done chan struct{} // closed when it has ended
}

// flush makes reads that see transaction id wait until end is called.
func (s *Store) flush(id int) (end func()) {
	f := &flush{id: id, done: make(chan struct{})}
	s.flushing.Store(f)
	return func() {
		s.flushing.Store(nil)
		close(f.done)
	}
}

// flushed waits until what transaction id shows is on the disk.
func (s *Store) flushed(ctx context.Context, id int) error {
	if f := s.flushing.Load(); f != nil && f.id <= id {
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if why := s.broken.Load(); why != nil { // the flush has failed
		return *why
	}
	return nil
}

func (s *Store) noBucket() error {
	return fmt.Errorf("%w: the bucket %q is missing", storage.ErrCorrupt, s.bucket)
}

// nested returns the error for an entry whose value a cursor returns as nil. This marks the
// entry as a bucket, but the store creates none, so the file is damaged.
func nested(key []byte) error {
	return fmt.Errorf("%w: the entry %q is marked as a bucket", storage.ErrCorrupt, key)
}

// copied copies bytes of bbolt for the caller. A length that no batch can have is damage;
// then it does not allocate.
func copied(b []byte) ([]byte, error) {
	if len(b) > maxBatch.Bytes {
		return nil, fmt.Errorf("%w: an entry of %d bytes", storage.ErrCorrupt, len(b))
	}
	return append([]byte{}, b...), nil
}

// walk calls visit for the entries of r, in its direction, until visit returns false. A
// write invalidates the slices and the cursor.
func walk(c *bbolt.Cursor, r storage.Range, visit func(k, v []byte) (bool, error)) error {
	next := c.Next
	var k, v []byte
	switch {
	case r.Reverse:
		next = c.Prev
		if k, v = seekBefore(c, r.End); r.End == nil {
			k, v = c.Last()
		}
	case r.Start == nil:
		k, v = c.First()
	default:
		k, v = c.Seek(r.Start)
	}
	for ; k != nil; k, v = next() {
		if r.Reverse && bytes.Compare(k, r.Start) < 0 || !r.Reverse && r.End != nil && bytes.Compare(k, r.End) >= 0 {
			return nil
		}
		if v == nil {
			return nested(k)
		}
		if more, err := visit(k, v); !more || err != nil {
			return err
		}
	}
	return nil
}

// seekBefore moves c to the last key before end.
func seekBefore(c *bbolt.Cursor, end []byte) (k, v []byte) {
	if k, _ := c.Seek(end); k == nil {
		return c.Last()
	}
	return c.Prev()
}
