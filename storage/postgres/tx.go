package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// WithTx returns a view of s inside tx, a transaction of the host's on the same
// database. What is committed on the view is staged: it happens if and only if
// tx commits.
//
// The rows that a staged batch names are locked until tx ends, and whoever wants
// the same waits. So stage last, and commit soon. At the isolation level READ
// COMMITTED, which is the default, a conflict with others is an ErrConflict; at
// a higher one it may be an error of the transaction. A DeleteRange cannot be
// staged.
func (s *Store) WithTx(tx pgx.Tx) storage.Tx { return &view{base: s, tx: tx} }

// A view is a store inside a transaction.
type view struct {
	base *Store
	tx   pgx.Tx
	rows rows
}

func (v *view) Base() storage.Storage              { return v.base }
func (v *view) Capabilities() storage.Capabilities { return v.base.Capabilities() }

// Close does nothing: the host ends the transaction.
func (v *view) Close() error { return nil }

func (v *view) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := get(ctx, v.tx, &v.base.sql, pgx.QueryExecModeCacheDescribe, key)
	return value, v.aborted("get", err)
}

func (v *view) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := scan(ctx, v.tx, &v.base.sql, pgx.QueryExecModeCacheDescribe, r)
	return page, v.aborted("scan", err)
}

// Commit stages b in a savepoint, which a failed condition leaves behind empty.
func (v *view) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(maxBatch); err != nil {
		return wrap("stage", err)
	}
	if b.HasDeleteRange() {
		return wrap("stage", fmt.Errorf("a DeleteRange: %w", errors.ErrUnsupported))
	}
	if err := ctx.Err(); err != nil {
		return v.aborted("stage", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := v.base.tickets.get(b)
	defer v.base.tickets.put(t)
	return v.aborted("stage", v.stage(ctx, t))
}

// stage tries t in one savepoint after the other, as long as rows come and go.
func (v *view) stage(ctx context.Context, t *ticket) error {
	for attempt := 1; ; attempt++ {
		savepoint, err := v.tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err = v.try(ctx, t); err == nil {
			return savepoint.Commit(ctx)
		}
		if err := savepoint.Rollback(ctx); err != nil {
			return err
		}
		unique, ok := errors.AsType[*pgconn.PgError](err)
		came := err == errMoved || ok && unique.Code == uniqueViolation
		if !came || attempt == 20 {
			return err
		}
	}
}

// try locks the rows, waiting for others, judges the conditions and writes.
func (v *view) try(ctx context.Context, t *ticket) error {
	r := &v.rows
	r.build([]*ticket{t}, nil)
	if err := v.run(ctx, r.lockAll(nil)); err != nil {
		return err
	}
	for i := range r.list {
		if x := &r.list[i]; !x.conclude() {
			return errMoved
		}
	}
	if r.judge([]*ticket{t}); t.err != nil {
		return t.err
	}
	return v.run(ctx, r.writes(nil))
}

func (v *view) run(ctx context.Context, calls []call) error {
	conn := v.tx.Conn().PgConn()
	for i := range calls {
		sql := v.base.sql.prepared[calls[i].prepared]
		if err := calls[i].receive(conn.ExecParams(ctx, sql, calls[i].args, nil, binaryFormat, binaryFormat)); err != nil {
			return err
		}
	}
	return nil
}

// aborted wraps what the transaction does not survive.
func (v *view) aborted(action string, err error) error {
	if err == nil || errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) {
		return wrap(action, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrAborted, wrap(action, err))
}
