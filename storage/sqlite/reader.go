package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"

	"github.com/weft-go/weft/storage"
)

// A reader is a connection that cannot write.
type reader struct {
	*conn
	sql statements
}

func newReader(file string, o Options) (*reader, error) {
	how := readWrite
	pragmas := []pragma{
		busy(busyTimeout),
		{"cache_size", "-4096", "-4096"}, // KiB
		{"query_only", "1", "1"},
	}
	if o.ReadOnly {
		how = readOnly
	} else {
		pragmas = append(pragmas, pragma{"journal_mode", "", "wal"}, fullSync) // the last connection checkpoints when it is closed
	}
	c, err := connect(file, how, pragmas)
	if err != nil {
		return nil, err
	}
	if err := c.checkTable(o.Table); err != nil {
		c.close()
		return nil, err
	}
	return &reader{c, newStatements(o.Table)}, nil
}

// Get returns the value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	r, err := s.take(ctx)
	if err != nil {
		return nil, s.error("get", err)
	}
	defer s.give(r)
	value, err := r.get(key)
	return value, s.error("get", err)
}

// Scan returns the first entries of r.
func (s *Store) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	rd, err := s.take(ctx)
	if err != nil {
		return nil, s.error("scan", err)
	}
	defer s.give(rd)
	page, err := rd.scan(ctx, r)
	return page, s.error("scan", err)
}

func (r *reader) get(key []byte) ([]byte, error) {
	var value []byte
	err := r.query(r.sql.get, []driver.Value{blob(key)}, 1, func(row []driver.Value) error {
		value = unblob(row[0])
		return nil
	})
	if err == nil && value == nil {
		err = storage.ErrNotFound
	}
	return value, err
}

func (r *reader) scan(ctx context.Context, rg storage.Range) ([]storage.Entry, error) {
	limit := rg.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	var page []storage.Entry
	args := append(bounds(rg), int64(limit))
	err := r.query(r.sql.scan(rg), args, 2, func(row []driver.Value) error {
		page = append(page, storage.Entry{Key: unblob(row[0]), Value: unblob(row[1])})
		return ctx.Err() // checked between rows: the driver is never interrupted
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// take waits for a reader, which the caller must give back, and connects it if
// necessary. It fails if the store has, or if a file of it has moved: otherwise a read would
// confirm data that the next opener does not find.
func (s *Store) take(ctx context.Context) (*reader, error) {
	if err := cmp.Or(ctx.Err(), s.failure()); err != nil {
		return nil, err
	}
	select {
	case <-s.closed: // checked first, because Close takes readers too
		return nil, storage.ErrClosed
	default:
	}
	select {
	case <-s.closed:
		return nil, storage.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-s.readers:
		r, err := s.fit(r)
		if err != nil {
			s.readers <- r
			return nil, err
		}
		return r, nil
	}
}

// fit connects r if it is not connected. If it fails, the reader that it returns goes
// back into the slot.
func (s *Store) fit(r *reader) (*reader, error) {
	if r != nil {
		return r, s.files.Glance()
	}
	r, err := newReader(s.path, s.options)
	if moved := s.files.Check(); moved != nil { // the reader may have opened another file
		err = moved
	}
	if err != nil && r != nil {
		r.close()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Store) give(r *reader) { s.readers <- r }
