// Package observed has transactions that know why they broke, so that the store can tell a lost connection from a
// mistake of the function that used it.
package observed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// A Tx is a transaction of the host that records why its connection was closed. There are two
// possible reasons. Either the connection was lost, and the function that uses it is not
// to blame. Or pgx closed it because the function abandoned a statement: its context ended
// while the server was executing it. Then the function is to blame.
//
// It does not observe calls on the underlying pgx.Conn. For these, the error that the
// function returns must tell.
type Tx struct {
	pgx.Tx
	seen  *observation
	inner bool // a savepoint of the function
}

// An observation is what was observed of a transaction and its savepoints.
type observation struct {
	mu     sync.Mutex
	closed bool  // the connection is closed
	cause  error // the error after which it was found closed, if any
	gaveUp bool  // the function caused it by abandoning a statement
	ended  bool  // the function ended the transaction; the connection may be in use by others
}

// New returns tx, observed.
func New(tx pgx.Tx) *Tx { return &Tx{Tx: tx, seen: new(observation)} }

// note records the error of a call with ctx.
func (w *Tx) note(ctx context.Context, err error) {
	if err == nil {
		return
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	w.look(err, ctx.Err() != nil)
}

// look checks whether the connection is closed, and records the cause.
func (w *Tx) look(cause error, gaveUp bool) {
	if w.seen.closed || w.seen.ended || !w.Conn().IsClosed() {
		return
	}
	w.seen.closed, w.seen.cause, w.seen.gaveUp = true, cause, gaveUp
}

// Returned returns the outcome of the function, which returned err. If the function
// swallowed an error that ended or broke its transaction, it returns that as an error,
// because COMMIT would write nothing.
func (w *Tx) Returned(err error) error {
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	w.look(err, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
	switch {
	case err != nil:
		return err
	case w.seen.gaveUp:
		return fmt.Errorf("postgres: transact: the function abandoned a statement, which closed the connection, but returned no error: %w", w.seen.cause)
	case w.seen.closed:
		return nil
	case w.seen.ended, w.Conn().PgConn().TxStatus() == 'I':
		return errors.New("postgres: transact: the function ended the transaction in which its step's checkpoint must be committed")
	case w.Conn().PgConn().TxStatus() == 'E':
		return errors.New("postgres: transact: a statement failed, which aborts the transaction, but the function returned no error")
	}
	return nil
}

// Lost returns an error that wraps ErrTransactionLost if the connection is closed and the
// function did not cause that, and nil otherwise.
func (w *Tx) Lost() error {
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	w.look(nil, false)
	switch {
	case !w.seen.closed || w.seen.gaveUp:
		return nil
	case w.seen.cause == nil:
		return storage.ErrTransactionLost
	}
	return fmt.Errorf("%w: %w", storage.ErrTransactionLost, w.seen.cause)
}

func (w *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := w.Tx.Begin(ctx)
	w.note(ctx, err)
	if err != nil {
		return nil, err
	}
	return &Tx{Tx: tx, seen: w.seen, inner: true}, nil
}

func (w *Tx) Commit(ctx context.Context) error { return w.end(ctx, w.Tx.Commit) }

func (w *Tx) Rollback(ctx context.Context) error { return w.end(ctx, w.Tx.Rollback) }

func (w *Tx) end(ctx context.Context, f func(context.Context) error) error {
	if w.inner {
		err := f(ctx)
		w.note(ctx, err)
		return err
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	w.look(nil, false)
	err := f(ctx)
	if err != nil && !w.seen.closed && !w.seen.ended && !errors.Is(err, pgx.ErrTxCommitRollback) {
		w.seen.closed, w.seen.cause, w.seen.gaveUp = true, err, ctx.Err() != nil
	}
	w.seen.ended = true
	return err
}

func (w *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	n, err := w.Tx.CopyFrom(ctx, table, columns, rows)
	w.note(ctx, err)
	return n, err
}

func (w *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	d, err := w.Tx.Prepare(ctx, name, sql)
	w.note(ctx, err)
	return d, err
}

func (w *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := w.Tx.Exec(ctx, sql, args...)
	w.note(ctx, err)
	return tag, err
}

func (w *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := w.Tx.Query(ctx, sql, args...)
	w.note(ctx, err)
	if rows == nil {
		return nil, err
	}
	return &observedRows{rows, w, ctx}, err
}

func (w *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return &observedRow{w.Tx.QueryRow(ctx, sql, args...), w, ctx}
}

func (w *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return &observedBatch{w.Tx.SendBatch(ctx, b), w, ctx}
}

// observedRows record the error when the rows end: before that, it is nil.
type observedRows struct {
	pgx.Rows
	w   *Tx
	ctx context.Context
}

func (r *observedRows) Close() {
	r.Rows.Close()
	r.w.note(r.ctx, r.Rows.Err())
}

func (r *observedRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.w.note(r.ctx, r.Rows.Err())
	}
	return more
}

type observedRow struct {
	pgx.Row
	w   *Tx
	ctx context.Context
}

func (r *observedRow) Scan(to ...any) error {
	err := r.Row.Scan(to...)
	r.w.note(r.ctx, err)
	return err
}

// After the results of a batch its Close is called, which returns the error too.
type observedBatch struct {
	pgx.BatchResults
	w   *Tx
	ctx context.Context
}

func (b *observedBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	b.w.note(b.ctx, err)
	return tag, err
}

func (b *observedBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	b.w.note(b.ctx, err)
	if rows == nil {
		return nil, err
	}
	return &observedRows{rows, b.w, b.ctx}, err
}

func (b *observedBatch) QueryRow() pgx.Row {
	return &observedRow{b.BatchResults.QueryRow(), b.w, b.ctx}
}

func (b *observedBatch) Close() error {
	err := b.BatchResults.Close()
	b.w.note(b.ctx, err)
	return err
}
