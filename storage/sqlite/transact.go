package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/storage"
)

// Transact runs f as a step of a workflow, in the transaction in which the step's
// own checkpoint is committed: what f writes with tx happens exactly once. An
// error of f rolls back, and is the outcome of the step. f must not end tx.
//
// SQLite has one writer: while f runs, nothing else is committed, by no process. So do
// in f what belongs to the transaction and nothing else, and nothing that waits for the
// engine. f has a limit: Options.TransactLimit, 30 s by default, and on a Shared store at
// most a third of engine.Config.LeaseTTL, 5 s by default. When it is up, the context of f
// ends with an *engine.TransactLimitError for its cause, what f wrote is rolled back, and
// the outcome of the step is an *activity.Error that wraps activity.ErrTimeout and names
// the limit; it is not tried again. Give that context to each statement: one that has
// another is not interrupted, and only behind it can the transaction end.
func Transact[T any](run Runner, name string, f func(ctx context.Context, tx *sql.Tx) (T, error)) (T, error) {
	var result T
	err := run.TransactStep(name, &result, func(ctx context.Context) error {
		tx, ok := ctx.Value(txKey{}).(*transaction)
		if !ok {
			return errors.New("sqlite: the engine's store is not an SQLite store")
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

// ErrTransactionEnded says that the transaction of a function had ended when the function
// returned without an error: it ended the transaction itself, or gave a statement up that
// wrote. SQLite rolls the whole transaction back when a statement that writes is
// interrupted, by the end of its context. Nothing of what the function wrote is there.
var ErrTransactionEnded = errors.New("sqlite: the transaction ended while its function ran: " +
	"return the error of a statement whose context has ended, and leave the transaction's end to Transact")

type txKey struct{}

// A transaction is what a function writes with. SQLite can end it by itself, and then each
// statement that follows would be a transaction of its own. So nothing is committed while
// the function runs.
type transaction struct {
	*sql.Tx
	open  atomic.Bool // for a commit
	ended atomic.Bool // without one
}

// begin begins a transaction on c. The driver keeps hold of it until forget.
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

// TransactLimit is that of the options, or its default.
func (s *Store) TransactLimit() time.Duration { return s.options.TransactLimit }

// Transact calls f with a context that carries a *sql.Tx, and commits what f did
// with it together with the batch that f returns. See storage.Transactor.
func (s *Store) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if s.options.ReadOnly {
		return s.error("transact", fmt.Errorf("opened read-only: %w", errors.ErrUnsupported))
	}
	if !s.options.Shared {
		return s.queue.Do(ctx, func() error { return s.transact(ctx, busyTimeout, f) })
	}
	return s.queueUp(ctx, f)
}

// breath is longer than SQLite pauses between two looks at a lock that is taken: those
// who wait for one that is free for so long get it.
const breath = 120 * time.Millisecond

// errLet says that the lock was free, and was left to others.
var errLet = errors.New("left to others")

// queueUp has a transaction wait for its turn among processes. Renewals of leases are
// short and wait for the lock too. They come first: a transaction that has met a taken
// lock takes it only if it is free for a breath, and while it waits it does not hold up
// the other commits of its own store.
func (s *Store) queueUp(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	taken := false
	for end := time.Now().Add(busyTimeout); ; {
		var began time.Time
		err := s.queue.Do(ctx, func() error {
			if taken {
				return s.transact(ctx, 0, func(context.Context) (storage.Batch, error) { return storage.Batch{}, errLet })
			}
			err := s.transact(ctx, 0, func(ctx context.Context) (storage.Batch, error) {
				began = time.Now()
				return f(ctx)
			})
			if !began.IsZero() && time.Since(began) > breath {
				time.Sleep(breath) // for others; ours wait here, and would be quicker
			}
			return err
		})
		if !began.IsZero() || err != errLet && primary(err) != code.SQLITE_BUSY || time.Now().After(end) {
			return err
		}
		taken = err != errLet
		if !backoff.Sleep(ctx, breath) {
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// transact begins a transaction, for which it waits for others so long.
func (s *Store) transact(ctx context.Context, patience time.Duration, f func(ctx context.Context) (storage.Batch, error)) error {
	pragmas := slices.Clone(s.writer.pragmas)
	pragmas[0] = busy(patience)
	db := sql.OpenDB(connector{dsn(s.path, "rw", pragmas)})
	defer db.Close()
	// Not the caller's context: the driver would interrupt COMMIT with it.
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
	if moved := s.files.Check(); moved != nil { // it may be another file's
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
	if tx.ended.Load() { // for a caller that is not Transact
		return s.error("transact", ErrTransactionEnded)
	}
	tx.open.Store(true)
	if err := s.WithTx(tx.Tx).Commit(own, b); err != nil {
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
