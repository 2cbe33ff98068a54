package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/weft-go/weft/storage"
)

// Transact runs f as a step of a workflow, in the transaction in which the step's
// own checkpoint is committed: what f writes with tx happens exactly once. An
// error of f rolls back, and is the outcome of the step. f must not end tx.
//
// SQLite has one writer: while f runs, nothing else is committed. Keep it short,
// and do nothing in it that waits for the engine.
func Transact[T any](run Runner, name string, f func(ctx context.Context, tx *sql.Tx) (T, error)) (T, error) {
	var result T
	err := run.TransactStep(name, &result, func(ctx context.Context) error {
		tx, ok := ctx.Value(txKey{}).(*sql.Tx)
		if !ok {
			return errors.New("sqlite: the engine's store is not an SQLite store")
		}
		v, err := f(ctx, tx)
		result = v
		return err
	})
	return result, err
}

// A Runner is an *engine.Run.
type Runner interface {
	TransactStep(name string, result any, f func(ctx context.Context) error) error
}

type txKey struct{}

var _ storage.Transactor = (*Store)(nil)

// Transact calls f with a context that carries a *sql.Tx, and commits what f did
// with it together with the batch that f returns. See storage.Transactor.
func (s *Store) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if s.options.ReadOnly {
		return s.error("transact", fmt.Errorf("opened read-only: %w", errors.ErrUnsupported))
	}
	return s.queue.Do(ctx, func() error { return s.transact(ctx, f) })
}

func (s *Store) transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	db := sql.OpenDB(connector{dsn(s.path, "rw", s.writer.pragmas)})
	defer db.Close()
	// Not the caller's context: the driver would interrupt COMMIT with it.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err == nil {
		defer tx.Rollback()
	}
	if moved := s.files.Check(); moved != nil { // it may be another file's
		return s.error("transact", moved)
	}
	if err != nil {
		return s.error("transact", translate(err))
	}
	b, err := f(context.WithValue(ctx, txKey{}, tx))
	if err != nil {
		return err
	}
	if err := s.WithTx(tx).Commit(context.WithoutCancel(ctx), b); err != nil {
		return err
	}
	err = translate(tx.Commit())
	if moved := s.files.Check(); moved != nil {
		err = moved
	}
	return s.error("transact", err)
}

// A connector is a driver and a name, for database/sql.
type connector struct{ dsn string }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return &sqlite.Driver{} }
