package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// A booking is a workflow with a single step: a function that has inserted a row in its
// transaction before it calls the test's function.
type booking struct {
	t      *testing.T
	direct string
	wf     *engine.Workflow[int, int]
	eng    *engine.Engine
	calls  atomic.Int32
	f      func(ctx context.Context, tx pgx.Tx, call int32) error
}

// bookings runs workflows on the database at url; direct is its address without the proxy.
func bookings(t *testing.T, url, direct string) *booking {
	t.Helper()
	s := open(t, url, &postgres.Options{NoListen: true, FsyncOff: true})
	tx := host(t, direct)
	exec(t, tx, `CREATE TABLE seats (n int PRIMARY KEY)`)
	exec(t, tx, `CREATE TABLE guests (seat int REFERENCES seats DEFERRABLE INITIALLY DEFERRED)`)
	must(t, tx.Commit(t.Context()))
	b := &booking{t: t, direct: direct}
	b.wf = &engine.Workflow[int, int]{Name: "book", Func: func(run *engine.Run, n int) (int, error) {
		return postgres.Transact(run, "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			call := b.calls.Add(1)
			if _, err := tx.Exec(ctx, `INSERT INTO seats VALUES ($1)`, n); err != nil {
				return 0, err
			}
			return n, b.f(ctx, tx, call)
		})
	}}
	b.eng = running(t, engine.Config{Storage: s, Workflows: []engine.Definition{b.wf}})
	return b
}

// book runs the workflow for seat n with the function f. It returns the workflow's error,
// how often f was called, and the number of rows of n.
func (b *booking) book(n int, f func(ctx context.Context, tx pgx.Tx, call int32) error) (calls int32, rows int, err error) {
	b.t.Helper()
	b.calls.Store(0)
	b.f = f
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	h, err := b.wf.Start(ctx, b.eng, fmt.Sprint("seat ", n), n)
	must(b.t, err)
	for {
		_, err = h.Result(ctx)
		if _, failed := errors.AsType[*engine.WorkflowError](err); err == nil || failed || ctx.Err() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond) // a starting server refuses connections
	}
	must(b.t, host(b.t, b.direct).QueryRow(b.t.Context(), `SELECT count(*) FROM seats WHERE n = $1`, n).Scan(&rows))
	return b.calls.Load(), rows, err
}

// TX: a connection that is lost inside the function of Transact is not the step's outcome,
// whatever the function returns: the step is tried again.
func TestLostConnectionIsNoOutcome(t *testing.T) {
	type lost struct {
		name string
		// lose cuts the connection of tx.
		lose func(t *testing.T, server *pgtest.Server, p *proxy, direct string, tx pgx.Tx)
		// after is what the function returns for the error of its next statement.
		after func(error) error
	}
	terminate := func(t *testing.T, _ *pgtest.Server, _ *proxy, direct string, tx pgx.Tx) {
		exec(t, host(t, direct), fmt.Sprint(`SELECT pg_terminate_backend(`, tx.Conn().PgConn().PID(), `)`))
	}
	wrapped := func(err error) error { return fmt.Errorf("book: %w", err) }
	server := pgtest.Start(t, "fsync=off")
	direct := server.URL("postgres")
	p, url := proxied(t, direct)
	b := bookings(t, url, direct)
	for i, c := range []lost{
		{name: "the server restarts", after: wrapped, lose: func(t *testing.T, server *pgtest.Server, _ *proxy, _ string, _ pgx.Tx) {
			if err := server.Restart(); err != nil {
				t.Error(err)
			}
		}},
		{name: "it is terminated", after: wrapped, lose: terminate},
		{name: "it is cut", after: wrapped, lose: func(_ *testing.T, _ *pgtest.Server, p *proxy, _ string, _ pgx.Tx) { p.cutAll() }},
		{name: "the function hides it", lose: terminate, after: func(error) error { return errors.New("no seat") }},
		{name: "the function swallows it", lose: terminate, after: func(error) error { return nil }},
		{name: "the function panics", lose: terminate, after: func(err error) error { panic(err) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, rows, err := b.book(i, func(ctx context.Context, tx pgx.Tx, call int32) error {
				if call > 1 {
					return nil
				}
				c.lose(t, server, p, direct, tx)
				// It takes a while until the server process notices that it was terminated.
				for {
					if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
						return c.after(err)
					}
				}
			})
			if err != nil || calls != 2 || rows != 1 {
				t.Errorf("got error %v, %d calls and %d rows, want none, 2 and 1", err, calls, rows)
			}
		})
	}
}

// once returns f for book, and an error if it is called again.
func once(f func(ctx context.Context, tx pgx.Tx) error) func(ctx context.Context, tx pgx.Tx, call int32) error {
	return func(ctx context.Context, tx pgx.Tx, call int32) error {
		if call > 1 {
			return errors.New("called again")
		}
		return f(ctx, tx)
	}
}

// An error of the function itself is the step's outcome, even if pgx closes the connection,
// as it does after an abandoned statement.
func TestErrorOfTheFunctionIsItsOutcome(t *testing.T) {
	sleep := func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
		return err
	}
	read := func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		rows, err := tx.Query(ctx, `SELECT n, pg_sleep(60) FROM generate_series(1, 2) n`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	}
	url := pgtest.URL(t)
	b := bookings(t, url, url)
	for i, c := range []struct {
		name, want string
		f          func(ctx context.Context, tx pgx.Tx) error
	}{
		{"an error of its own", "sold out", func(context.Context, pgx.Tx) error { return errors.New("sold out") }},
		{"a statement's error", "duplicate key", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO seats SELECT n FROM seats`)
			return err
		}},
		{"a statement's error that it swallows", "returned no error", func(ctx context.Context, tx pgx.Tx) error {
			tx.Exec(ctx, `INSERT INTO seats SELECT n FROM seats`)
			return nil
		}},
		{"a statement that it gives up", "deadline exceeded", sleep},
		{"a statement that it gives up, hidden", "too slow", func(ctx context.Context, tx pgx.Tx) error {
			sleep(ctx, tx)
			return errors.New("too slow")
		}},
		{"a statement that it gives up, swallowed", "returned no error", func(ctx context.Context, tx pgx.Tx) error {
			for !tx.Conn().IsClosed() { // a statement whose time is over before it is sent leaves the transaction whole
				sleep(ctx, tx)
			}
			return nil
		}},
		{"rows that it gives up, hidden", "too slow", func(ctx context.Context, tx pgx.Tx) error {
			if read(ctx, tx) == nil {
				return nil
			}
			return errors.New("too slow")
		}},
		{"a row that it gives up, in a savepoint, hidden", "too slow", func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			var n any
			if inner.QueryRow(ctx, `SELECT pg_sleep(60)`).Scan(&n) == nil {
				return nil
			}
			return errors.New("too slow")
		}},
		{"a batch that it gives up, hidden", "too slow", func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			var b pgx.Batch
			b.Queue(`SELECT pg_sleep(60)`)
			if tx.SendBatch(ctx, &b).Close() == nil {
				return nil
			}
			return errors.New("too slow")
		}},
		{"an error behind which it rolls back, as functions do", "sold out", func(ctx context.Context, tx pgx.Tx) error {
			defer tx.Rollback(ctx)
			return errors.New("sold out")
		}},
		{"a transaction that it ends", "ended the transaction", func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }},
		{"a constraint that is checked at the commit", "foreign key", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO guests VALUES (-1)`)
			return err
		}},
		{"a transaction in which it forbids writes", "read-only", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET TRANSACTION READ ONLY`)
			return err
		}},
		{"a statement on the connection itself that it gives up", "deadline exceeded", func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := tx.Conn().Exec(ctx, `SELECT pg_sleep(60)`)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, rows, err := b.book(i, once(c.f))
			if err == nil || !strings.Contains(err.Error(), c.want) || calls != 1 || rows != 0 {
				t.Errorf("got error %v, %d calls and %d rows, want one that says %q, 1 and 0", err, calls, rows, c.want)
			}
		})
	}
}

// The role that a function takes ends with its transaction, at the latest: the checkpoint is written in that of the store, and the
// next one to use the connection has that, too.
func TestRoleOfTheFunctionEndsWithIt(t *testing.T) {
	url := pgtest.URL(t)
	b := bookings(t, url, url)
	tx := host(t, url)
	exec(t, tx, `CREATE ROLE weft_guest`)
	exec(t, tx, `GRANT ALL ON seats TO weft_guest`)
	must(t, tx.Commit(t.Context()))
	defer func() { // it is one of all databases of the server
		tx := host(t, url)
		exec(t, tx, `DROP OWNED BY weft_guest`)
		exec(t, tx, `DROP ROLE weft_guest`)
		must(t, tx.Commit(t.Context()))
	}()
	for i, take := range []string{`SET LOCAL ROLE weft_guest`, `SET ROLE weft_guest`, `SELECT 1`} {
		calls, rows, err := b.book(i, once(func(ctx context.Context, tx pgx.Tx) error {
			var role string
			if err := tx.QueryRow(ctx, `SELECT current_setting('role')`).Scan(&role); err != nil {
				return err
			}
			if role != "none" {
				return fmt.Errorf("the connection has the role %s", role)
			}
			_, err := tx.Exec(ctx, take)
			return err
		}))
		if err != nil || calls != 1 || rows != 1 {
			t.Errorf("%s: got error %v, %d calls and %d rows, want none, 1 and 1", take, err, calls, rows)
		}
	}
}

// Transact reports that it lost its transaction, also if that happened between the function
// and the commit.
func TestTransactLost(t *testing.T) {
	direct := pgtest.URL(t)
	p, url := proxied(t, direct)
	s := open(t, url, &postgres.Options{NoListen: true})
	cut := 0
	for _, at := range []string{"the bounds", "the savepoint"} {
		p.on(func(m message) action {
			if at == "the bounds" && bytes.Contains(m.body, []byte("'statement_timeout', '10000'")) ||
				at == "the savepoint" && m.kind == 'Q' && bytes.HasPrefix(m.body, []byte("savepoint")) {
				cut++
				return cutBefore
			}
			return pass
		})
		err := s.Transact(t.Context(), func(ctx context.Context) (storage.Batch, error) {
			return storage.Batch{Ops: []storage.Op{put("k", "v")}}, nil
		})
		p.on(nil)
		if !errors.Is(err, storage.ErrTransactionLost) {
			t.Errorf("%s: got %v, want ErrTransactionLost", at, err)
		}
	}
	if got := all(t, s); got != "[]" || cut != 2 {
		t.Errorf("got %s and %d cuts, want nothing and 2", got, cut)
	}
}
