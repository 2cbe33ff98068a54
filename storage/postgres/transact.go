package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres/internal/observed"
)

// Transact runs f as a step of a workflow. What f writes with tx is committed in one
// transaction with the step's checkpoint, so it happens exactly once. An error of f
// rolls back, and is the outcome of the step. f must not end tx.
//
// If the connection is lost while f runs, that is not the outcome, whatever f returns:
// nothing was written, and f is called again in a new transaction. What f did elsewhere is
// then done again. If instead f abandons a statement, because a context of its own ended,
// that is the outcome, even though it closes the connection too.
//
// The time of f is not limited: its statements have no statement_timeout and no lock_timeout.
// To have one, set it in tx: SET LOCAL lock_timeout. Its transaction uses a connection of the
// pool that the store reads through; at most half of the pool is used for such steps. Others
// wait for f only if they need rows that it has locked.
func Transact[T any](run Runner, name string, f func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	var result T
	err := run.TransactStep(name, &result, func(ctx context.Context) error {
		tx, ok := ctx.Value(txKey{}).(*observed.Tx)
		if !ok {
			return errors.New("postgres: the engine's store is not a PostgreSQL store: use the Transact of the package that opened it")
		}
		v, err := f(ctx, tx)
		result = v
		return tx.Returned(err)
	})
	return result, err
}

// A Runner is an *engine.Run.
type Runner interface {
	TransactStep(name string, result any, f func(ctx context.Context) error) error
}

type txKey struct{}

var _ storage.Transactor = (*Store)(nil)

// Transact calls f with a context that carries a pgx.Tx. It commits what f wrote with it
// together with the batch that f returns. See storage.Transactor.
func (s *Store) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if s.options.ReadOnly {
		return wrap("transact", errOpenedReadOnly)
	}
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
	// Do not use the caller's context: it could interrupt COMMIT.
	own := context.WithoutCancel(ctx)
	conn, err := s.acquire(own)
	if err != nil {
		return wrap("transact", err)
	}
	defer conn.Release()
	tx, err := s.beginTx(own, conn.Conn())
	if err != nil {
		return wrap("transact", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(own, roundTripTimeout)
		defer cancel()
		_ = tx.Rollback(ctx) // does nothing after a commit
	}()
	w := observed.New(tx)
	b, err := f(context.WithValue(ctx, txKey{}, w))
	if lost := w.Lost(); lost != nil {
		return wrap("transact", lost)
	}
	if err != nil {
		return err
	}
	if err := s.stage(own, tx, b); err != nil {
		if !errors.Is(err, storage.ErrConflict) && tx.Conn().IsClosed() { // COMMIT was not sent
			return wrap("transact", fmt.Errorf("%w: %w", storage.ErrTransactionLost, err))
		}
		return observed.Forbidden(err)
	}
	bounded, cancel := context.WithTimeout(own, roundTripTimeout)
	defer cancel()
	cancels(tx.Conn(), false)
	err = tx.Commit(bounded)
	if !tx.Conn().IsClosed() { // else pgconn ends it in the background
		cancels(tx.Conn(), true)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && e.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback) {
		return wrap("transact", observed.Refused(err))
	}
	return wrap("transact", &unknownError{err})
}

// stage applies b in tx, under the store's own timeouts, and in the role that tx began in.
func (s *Store) stage(ctx context.Context, tx pgx.Tx, b storage.Batch) error {
	bounded, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	if _, err := tx.Exec(bounded, bound(true)+`, set_config('role', current_setting('weft.role'), false)`); err != nil {
		return wrap("transact", &lostError{err})
	}
	return s.WithTx(tx).Commit(ctx, b)
}

func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	return s.pool.Acquire(ctx)
}

// beginTx begins a transaction without timeouts, for a function that may take long.
func (s *Store) beginTx(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		_ = conn.Close(ctx) // it may be to a standby, and the pool would hand it out again
		return nil, err
	}
	settings := bound(false) + `, set_config('weft.role', current_setting('role'), true)`
	if s.ours {
		settings += plannedByDefault
	}
	if _, err := tx.Exec(ctx, settings); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// plannedByDefault undoes the store's settings of the planner, which are made for its own statements. The pool of a host does
// not have them.
const plannedByDefault = `; SET LOCAL plan_cache_mode TO DEFAULT; SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL jit TO DEFAULT`

// bound sets the timeouts of the rest of a transaction: the store's own, or none. It also
// makes the commit durable, which it may not be by default in the host's pool.
func bound(ours bool) string {
	statement, lock, idle := "0", "0", "0"
	if ours {
		statement, lock, idle = milliseconds(statementTimeout), milliseconds(laneLockTimeout), milliseconds(idleTimeout)
	}
	return `SELECT set_config('statement_timeout', '` + statement + `', true), set_config('lock_timeout', '` + lock + `', true),
		set_config('idle_in_transaction_session_timeout', '` + idle + `', true),
		CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END`
}
