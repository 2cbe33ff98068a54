package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/storage"
)

// reads counts the reads in progress, and refuses new ones after shut.
type reads struct {
	mu     sync.Mutex
	closed bool
	going  sync.WaitGroup
}

func (r *reads) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return storage.ErrClosed
	}
	r.going.Add(1)
	return nil
}

func (r *reads) shut() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.going.Wait()
}

// Get returns the value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	if key == nil {
		key = []byte{}
	}
	r := &reading{key: key}
	err := s.read(ctx, r, func(ctx context.Context, q querier) (err error) {
		r.value, err = get(ctx, q, &s.sql, s.mode(), key)
		return err
	})
	if err == nil && r.value == nil {
		err = storage.ErrNotFound
	}
	if err != nil {
		return nil, wrap("get", err)
	}
	return r.value, nil
}

// Scan returns a page. It reads with one statement, so the page is one consistent view.
func (s *Store) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page := &reading{page: &r}
	err := s.read(ctx, page, func(ctx context.Context, q querier) (err error) {
		page.entries, err = scan(ctx, q, &s.sql, s.mode(), r)
		return err
	})
	if err != nil {
		return nil, wrap("scan", err)
	}
	return page.entries, nil
}

// mode returns the query execution mode of reads. On the host's connections, a cached plan
// may have been made for a small table, so each query is planned again.
func (s *Store) mode() pgx.QueryExecMode {
	if s.ours {
		return pgx.QueryExecModeCacheStatement
	}
	return pgx.QueryExecModeCacheDescribe
}

// A querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func get(ctx context.Context, q querier, sql *statements, mode pgx.QueryExecMode, key []byte) (value []byte, err error) {
	if key == nil {
		key = []byte{}
	}
	err = q.QueryRow(ctx, sql.get, mode, key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, storage.ErrNotFound
	}
	return value, err
}

func scan(ctx context.Context, q querier, sql *statements, mode pgx.QueryExecMode, r storage.Range) ([]storage.Entry, error) {
	text, args := sql.page(r)
	rows, err := q.Query(ctx, text, append([]any{mode}, args...)...)
	if err != nil {
		return nil, err
	}
	return collect(rows)
}

// page returns the statement that reads r, and its arguments.
func (s *statements) page(r storage.Range) (sql string, args []any) {
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	start := r.Start
	if start == nil {
		start = []byte{}
	}
	args = []any{start, int64(limit)}
	order := 0
	if r.Reverse {
		order = 1
	}
	end := 0
	if r.End != nil {
		end = 1
		args = append(args, r.End)
	}
	return s.scan[order][end], args
}

func collect(rows pgx.Rows) ([]storage.Entry, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e storage.Entry, err error) {
		err = row.Scan(&e.Key, &e.Value)
		return e, err
	})
}

// read performs r, either together with other reads or by calling alone, within
// roundTripTimeout. If a connection was cut or is to a standby, it retries on others, since
// reads may be repeated.
func (s *Store) read(ctx context.Context, r *reading, alone func(context.Context, querier) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.reading.begin(); err != nil {
		return err
	}
	defer s.reading.going.Done()
	if s.ours && r.small() {
		switch first, err := s.gatherer.enter(ctx, r); {
		case err != nil:
			return err
		case first:
			defer s.gatherer.leave()
		case r.served:
			return nil
		}
	}
	bounded, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	try := func(c *pgxpool.Conn) error {
		err := alone(bounded, c)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == invalidText { // what a read says on a standby
			_ = c.Conn().Close(bounded) // or the pool would hand it out again
			return errRecovering
		}
		return readError(err)
	}
	err := s.pool.AcquireFunc(bounded, try)
	if cut(err) { // other connections of the pool may be cut too, which the pool does not know
		for n := s.pool.Stat().TotalConns(); cut(err) && n >= 0 && bounded.Err() == nil; n-- {
			err = s.pool.AcquireFunc(bounded, try)
		}
	}
	if cause := ctx.Err(); err != nil && cause != nil && !errors.Is(err, cause) {
		return errors.Join(cause, err)
	}
	return err
}
