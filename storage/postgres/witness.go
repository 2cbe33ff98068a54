package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// A witness is a transaction that records why its connection was closed. There are two
// possible reasons. Either the connection was lost, and the function that uses it is not
// to blame. Or pgx closed it because the function abandoned a statement: its context ended
// while the server was executing it. Then the function is to blame.
//
// It does not observe calls on the underlying pgx.Conn. For these, the error that the
// function returns must tell.
type witness struct {
	pgx.Tx
	saw   *sighting
	inner bool // a savepoint of the function
}

// A sighting is what was observed of a transaction and its savepoints.
type sighting struct {
	mu     sync.Mutex
	closed bool  // the connection is closed
	cause  error // the error after which it was found closed, if any
	gaveUp bool  // the function caused it by abandoning a statement
	ended  bool  // the function ended the transaction; the connection may be in use by others
}

func newWitness(tx pgx.Tx) *witness { return &witness{Tx: tx, saw: new(sighting)} }

// note records the error of a call with ctx.
func (w *witness) note(ctx context.Context, err error) {
	if err == nil {
		return
	}
	w.saw.mu.Lock()
	defer w.saw.mu.Unlock()
	w.look(err, ctx.Err() != nil)
}

// look checks whether the connection is closed, and records the cause.
func (w *witness) look(cause error, gaveUp bool) {
	if w.saw.closed || w.saw.ended || !w.Conn().IsClosed() {
		return
	}
	w.saw.closed, w.saw.cause, w.saw.gaveUp = true, cause, gaveUp
}

// returned returns the outcome of the function, which returned err. If the function
// swallowed an error that ended or broke its transaction, it returns that as an error,
// because COMMIT would write nothing.
func (w *witness) returned(err error) error {
	w.saw.mu.Lock()
	defer w.saw.mu.Unlock()
	w.look(err, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
	switch {
	case err != nil:
		return err
	case w.saw.gaveUp:
		return fmt.Errorf("postgres: transact: the function abandoned a statement, which closed the connection, but returned no error: %w", w.saw.cause)
	case w.saw.closed:
		return nil
	case w.saw.ended, w.Conn().PgConn().TxStatus() == 'I':
		return errors.New("postgres: transact: the function ended the transaction in which its step's checkpoint must be committed")
	case w.Conn().PgConn().TxStatus() == 'E':
		return errors.New("postgres: transact: a statement failed, which aborts the transaction, but the function returned no error")
	}
	return nil
}

// lost returns an error that wraps ErrTransactionLost if the connection is closed and the
// function did not cause that, and nil otherwise.
func (w *witness) lost() error {
	w.saw.mu.Lock()
	defer w.saw.mu.Unlock()
	w.look(nil, false)
	switch {
	case !w.saw.closed || w.saw.gaveUp:
		return nil
	case w.saw.cause == nil:
		return storage.ErrTransactionLost
	}
	return fmt.Errorf("%w: %w", storage.ErrTransactionLost, w.saw.cause)
}

func (w *witness) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := w.Tx.Begin(ctx)
	w.note(ctx, err)
	if err != nil {
		return nil, err
	}
	return &witness{Tx: tx, saw: w.saw, inner: true}, nil
}

func (w *witness) Commit(ctx context.Context) error { return w.end(ctx, w.Tx.Commit) }

func (w *witness) Rollback(ctx context.Context) error { return w.end(ctx, w.Tx.Rollback) }

func (w *witness) end(ctx context.Context, f func(context.Context) error) error {
	if w.inner {
		err := f(ctx)
		w.note(ctx, err)
		return err
	}
	w.saw.mu.Lock()
	defer w.saw.mu.Unlock()
	w.look(nil, false)
	err := f(ctx)
	if err != nil && !w.saw.closed && !w.saw.ended && !errors.Is(err, pgx.ErrTxCommitRollback) {
		w.saw.closed, w.saw.cause, w.saw.gaveUp = true, err, ctx.Err() != nil
	}
	w.saw.ended = true
	return err
}

func (w *witness) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	n, err := w.Tx.CopyFrom(ctx, table, columns, rows)
	w.note(ctx, err)
	return n, err
}

func (w *witness) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	d, err := w.Tx.Prepare(ctx, name, sql)
	w.note(ctx, err)
	return d, err
}

func (w *witness) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := w.Tx.Exec(ctx, sql, args...)
	w.note(ctx, err)
	return tag, err
}

func (w *witness) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := w.Tx.Query(ctx, sql, args...)
	w.note(ctx, err)
	if rows == nil {
		return nil, err
	}
	return &witnessedRows{rows, w, ctx}, err
}

func (w *witness) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return &witnessedRow{w.Tx.QueryRow(ctx, sql, args...), w, ctx}
}

func (w *witness) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return &witnessedBatch{w.Tx.SendBatch(ctx, b), w, ctx}
}

// witnessedRows record the error when the rows end: before that, it is nil.
type witnessedRows struct {
	pgx.Rows
	w   *witness
	ctx context.Context
}

func (r *witnessedRows) Close() {
	r.Rows.Close()
	r.w.note(r.ctx, r.Rows.Err())
}

func (r *witnessedRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.w.note(r.ctx, r.Rows.Err())
	}
	return more
}

type witnessedRow struct {
	pgx.Row
	w   *witness
	ctx context.Context
}

func (r *witnessedRow) Scan(to ...any) error {
	err := r.Row.Scan(to...)
	r.w.note(r.ctx, err)
	return err
}

// After the results of a batch its Close is called, which returns the error too.
type witnessedBatch struct {
	pgx.BatchResults
	w   *witness
	ctx context.Context
}

func (b *witnessedBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	b.w.note(b.ctx, err)
	return tag, err
}

func (b *witnessedBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	b.w.note(b.ctx, err)
	if rows == nil {
		return nil, err
	}
	return &witnessedRows{rows, b.w, b.ctx}, err
}

func (b *witnessedBatch) QueryRow() pgx.Row {
	return &witnessedRow{b.BatchResults.QueryRow(), b.w, b.ctx}
}

func (b *witnessedBatch) Close() error {
	err := b.BatchResults.Close()
	b.w.note(b.ctx, err)
	return err
}
