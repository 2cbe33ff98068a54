package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/storage"
)

// Transact runs f as a step of a workflow. What f writes with tx is committed in one
// transaction with the step's checkpoint, so it happens exactly once. An error of f
// rolls back, and is the outcome of the step. f must not end tx.
//
// SQLite has one writer: while f runs, no process can commit anything else. So do only
// what belongs to the transaction in f, and do not wait for the engine. The time limit of
// f is Options.TransactLimit, 30 s by default, and on a Shared store at most a third of
// engine.Config.LeaseTTL, 5 s by default. When it is up, the context of f ends with an
// *engine.TransactLimitError as its cause, and what f wrote is rolled back. The outcome of
// the step is an *activity.Error that wraps activity.ErrTimeout and names the limit; the
// step is not retried. Pass this context to every statement: a statement with another
// context is not interrupted, and the transaction can end only after it.
//
// The transaction has a connection of the store. Pragmas, functions and collations of the host's own connections are
// not there; see Options.ForeignKeys.
func Transact[T any](run Runner, name string, f func(ctx context.Context, tx *sql.Tx) (T, error)) (T, error) {
	var result T
	err := run.TransactStep(name, &result, func(ctx context.Context) error {
		tx, ok := ctx.Value(txKey{}).(*transaction)
		if !ok {
			return errors.New("sqlite: the engine's store is not an SQLite store: use the Transact of the package that opened it")
		}
		v, err := f(ctx, tx.Tx)
		result = v
		if err == nil && tx.ended.Load() {
			err = ErrTransactionEnded
		}
		return err
	})
	return result, err
}

// A Runner is an *engine.Run.
type Runner interface {
	TransactStep(name string, result any, f func(ctx context.Context) error) error
}

// ErrTransactionEnded means that the transaction had already ended when its function
// returned without an error. Either the function ended it, or a context ended during a
// statement that writes: SQLite then interrupts the statement and rolls back the whole
// transaction. Nothing that the function wrote is stored.
var ErrTransactionEnded = errors.New("sqlite: the transaction ended while its function ran: " +
	"return the error of a statement whose context has ended, and do not end the transaction")

type txKey struct{}

// A transaction is what a function writes with. SQLite can end it by itself; each later
// statement would then be a transaction of its own. So no commit is allowed while the
// function runs.
type transaction struct {
	*sql.Tx
	open  atomic.Bool // commits are allowed
	ended atomic.Bool // it was rolled back
}

// begin begins a transaction on c. Call forget to remove its hooks from the driver.
func begin(ctx context.Context, c *sql.Conn) (t *transaction, forget func(), err error) {
	t = new(transaction)
	hooks := func(commit sqlite.CommitHookFn, rollback sqlite.RollbackHookFn) error {
		return c.Raw(func(c any) error {
			h, ok := c.(sqlite.HookRegisterer)
			if !ok {
				return fmt.Errorf("the driver's %T has no hooks", c)
			}
			h.RegisterCommitHook(commit)
			h.RegisterRollbackHook(rollback)
			return nil
		})
	}
	err = hooks(func() int32 {
		if t.open.Load() {
			return 0
		}
		return 1 // roll back
	}, func() { t.ended.Store(true) })
	if err == nil {
		t.Tx, err = c.BeginTx(ctx, nil)
	}
	return t, func() { hooks(nil, nil) }, err
}

var _ storage.TransactLimiter = (*Store)(nil)

// transactLimit is the default of Options.TransactLimit.
const transactLimit = 30 * time.Second

// TransactLimit returns the limit of the options, or its default.
func (s *Store) TransactLimit() time.Duration { return s.options.TransactLimit }

// Transact calls f with a context that carries a *sql.Tx. It commits what f wrote with
// it together with the batch that f returns. See storage.Transactor.
func (s *Store) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if s.options.ReadOnly {
		return s.error("transact", errReadOnly)
	}
	if !s.options.Shared {
		return s.queue.Do(ctx, func() error { return s.transact(ctx, busyTimeout, f) })
	}
	return s.transactShared(ctx, f)
}

// yieldTime is longer than SQLite pauses between two attempts to take a lock: if the
// lock is free for this long, everyone who waits for it can take it.
const yieldTime = 120 * time.Millisecond

// errYielded means that the lock was free but was left to others.
var errYielded = errors.New("timed out while giving way to commits of other processes")

// transactShared runs a transaction on a Shared store. It gives way to the commits of
// other processes, such as lease renewals, which are short. A transaction that found the
// lock taken waits until it finds the lock free twice, yieldTime apart. Meanwhile it does
// not block the other commits of its own store.
func (s *Store) transactShared(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	taken := false
	for end := time.Now().Add(busyTimeout); ; {
		var began time.Time
		err := s.queue.Do(ctx, func() error {
			if taken {
				return s.transact(ctx, 0, func(context.Context) (storage.Batch, error) { return storage.Batch{}, errYielded })
			}
			err := s.transact(ctx, 0, func(ctx context.Context) (storage.Batch, error) {
				began = time.Now()
				return f(ctx)
			})
			if !began.IsZero() && time.Since(began) > yieldTime {
				time.Sleep(yieldTime) // for other processes; our own commits would take the lock first, so they wait here
			}
			return err
		})
		if !began.IsZero() || err != errYielded && primary(err) != code.SQLITE_BUSY || time.Now().After(end) {
			return err
		}
		taken = err != errYielded
		if !backoff.Sleep(ctx, yieldTime) {
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// transact runs f in a transaction. It waits at most patience for the lock.
func (s *Store) transact(ctx context.Context, patience time.Duration, f func(ctx context.Context) (storage.Batch, error)) error {
	if err := s.writer.ready(); err != nil {
		return s.error("transact", cmp.Or(s.files.Check(), err))
	}
	s.writer.log.written = logLook // nobody counts what f will write
	pragmas := waiting(s.writer.pragmas, patience)
	if s.options.ForeignKeys {
		pragmas = append(pragmas, pragma{"foreign_keys", "1", "1"})
	}
	db := sql.OpenDB(connector{dsn(s.path, readWrite, pragmas)})
	defer db.Close()
	// Do not pass the caller's context: the driver would interrupt COMMIT when it ends.
	own := context.WithoutCancel(ctx)
	c, err := db.Conn(own)
	var tx *transaction
	if err == nil {
		defer c.Close()
		var forget func()
		tx, forget, err = begin(own, c)
		defer forget()
	}
	if err == nil {
		defer tx.Rollback()
	}
	if moved := s.files.Check(); moved != nil { // the connection may be to another file
		return s.error("transact", moved)
	}
	if err != nil {
		return s.error("transact", translate(err))
	}
	if _, err := tx.ExecContext(own, "PRAGMA busy_timeout = "+busy(busyTimeout).value); err != nil {
		return s.error("transact", translate(err))
	}
	b, err := f(context.WithValue(ctx, txKey{}, tx))
	if err != nil {
		return err
	}
	if tx.ended.Load() { // for callers of this method: the function Transact checks it itself
		return s.error("transact", ErrTransactionEnded)
	}
	tx.open.Store(true)
	if err := s.view(tx.Tx, true).Commit(own, b); err != nil {
		if primary(err) == code.SQLITE_BUSY { // the write lock is ours, so it is not another connection
			err = fmt.Errorf("%w: the function has returned before a statement that writes has ended, as it may if sql.Rows are not closed: %w", storage.ErrTransactionRefused, err)
		}
		return err
	}
	err = translate(tx.Commit())
	s.writer.check(err)
	if primary(err) == code.SQLITE_CONSTRAINT { // a deferred one; closing the connection rolls back
		err = fmt.Errorf("%w: %w", storage.ErrTransactionRefused, err)
	}
	if moved := s.files.Check(); moved != nil {
		err = moved
	}
	return s.error("transact", err)
}

// A connector opens connections to a DSN for database/sql.
type connector struct{ dsn string }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return &sqlite.Driver{} }
