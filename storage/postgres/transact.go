package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// Transact runs f as a step of a workflow, in the transaction in which the step's
// own checkpoint is committed: what f writes with tx happens exactly once. An
// error of f rolls back, and is the outcome of the step. f must not end tx.
//
// A connection that is lost while f runs is not the outcome, whatever f makes of it:
// nothing was written, and f is called again in another transaction. What it did
// elsewhere is done again. A statement that f gives up, because a context of f's own
// ended, is the outcome, though it costs the connection too.
//
// f has all the time that it wants. The transaction is one of the pool that the store
// reads through, and at most half of the pool is given to such steps; others wait
// for f only where they want rows that it has locked.
func Transact[T any](run Runner, name string, f func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	var result T
	err := run.TransactStep(name, &result, func(ctx context.Context) error {
		tx, ok := ctx.Value(txKey{}).(*witness)
		if !ok {
			return errors.New("postgres: the engine's store is not a PostgreSQL store")
		}
		v, err := f(ctx, tx)
		result = v
		return tx.returned(err)
	})
	return result, err
}

// A Runner is an *engine.Run.
type Runner interface {
	TransactStep(name string, result any, f func(ctx context.Context) error) error
}

type txKey struct{}

var _ storage.Transactor = (*Store)(nil)

// Transact calls f with a context that carries a pgx.Tx, and commits what f did
// with it together with the batch that f returns. See storage.Transactor.
func (s *Store) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if err := ctx.Err(); err != nil {
		return wrap("transact", err)
	}
	if err := s.reading.begin(); err != nil {
		return wrap("transact", err)
	}
	defer s.reading.going.Done()
	select {
	case s.transacts <- struct{}{}:
		defer func() { <-s.transacts }()
	case <-ctx.Done():
		return wrap("transact", ctx.Err())
	}
	return s.transact(ctx, f)
}

func (s *Store) transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	// Not the caller's context, in which COMMIT would be cut off.
	own := context.WithoutCancel(ctx)
	tx, err := s.begin(own)
	if err != nil {
		return wrap("transact", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(own, roundTripTimeout)
		defer cancel()
		_ = tx.Rollback(ctx) // after a commit it does nothing
	}()
	w := newWitness(tx)
	b, err := f(context.WithValue(ctx, txKey{}, w))
	if lost := w.lost(); lost != nil {
		return wrap("transact", lost)
	}
	if err != nil {
		return err
	}
	if err := s.stage(own, tx, b); err != nil {
		if !errors.Is(err, storage.ErrConflict) && tx.Conn().IsClosed() { // COMMIT was not sent
			return wrap("transact", fmt.Errorf("%w: %w", storage.ErrTransactionLost, err))
		}
		return err
	}
	bounded, cancel := context.WithTimeout(own, roundTripTimeout)
	defer cancel()
	err = tx.Commit(bounded)
	if e, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && e.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback) {
		return wrap("transact", err)
	}
	return wrap("transact", &unknownError{err})
}

// stage applies b in tx, under the bounds that are ours.
func (s *Store) stage(ctx context.Context, tx pgx.Tx, b storage.Batch) error {
	bounded, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	if _, err := tx.Exec(bounded, bound(true)); err != nil {
		return wrap("transact", &lostError{err})
	}
	return s.WithTx(tx).Commit(ctx, b)
}

// begin begins a transaction in which a function may take its time.
func (s *Store) begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, bound(false)); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// bound sets the bounds of the rest of a transaction: none, or those of ours. It
// makes the commit durable, which in a pool of the host's it may not be.
func bound(ours bool) string {
	statement, idle := "0", "0"
	if ours {
		statement, idle = milliseconds(statementTimeout), milliseconds(idleTimeout)
	}
	return `SELECT set_config('statement_timeout', '` + statement + `', true), set_config('idle_in_transaction_session_timeout', '` + idle + `', true),
		CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END`
}
