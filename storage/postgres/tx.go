package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// WithTx returns a view of s inside tx, a transaction of the host on the same database. A
// batch committed to the view is staged: it takes effect if and only if tx commits.
//
// The rows that a staged batch names stay locked until tx ends, and others that need them
// wait. So stage last and commit soon. At the default isolation level, READ COMMITTED, a
// conflict with others is reported as ErrConflict; at a higher level it may be an error of
// the transaction. A DeleteRange cannot be staged.
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

// Commit stages b in a savepoint, and rolls the savepoint back if a condition fails.
func (v *view) Commit(ctx context.Context, b storage.Batch) error {
	if v.base.options.ReadOnly {
		return wrap("stage", errOpenedReadOnly)
	}
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

// stage applies t in a savepoint, and tries again while rows are inserted or deleted.
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

// aborted wraps errors after which the transaction cannot continue.
func (v *view) aborted(action string, err error) error {
	if err == nil || errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) {
		return wrap(action, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrAborted, wrap(action, readError(err)))
}
