package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

// engineOn runs an engine until the test ends.
func engineOn(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// A function in a transaction that does not return costs no engine its lease, neither its
// own engine nor another on the same store. Both continue while the function is still
// running, and its step fails with the limit.
func TestTransactHasALimitUnderALease(t *testing.T) {
	torture.Slow(t)
	path := newPath(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	var cause atomic.Value
	long := &engine.Workflow[int, int]{Name: "long", Func: func(run *engine.Run, n int) (int, error) {
		return sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (int, error) {
			_, err := tx.ExecContext(ctx, `CREATE TABLE seats (n INTEGER)`)
			close(begun)
			<-release
			cause.Store(fmt.Errorf("%w", context.Cause(ctx)))
			return n, err
		})
	}}
	echo := &engine.Workflow[int, int]{Name: "echo", Func: func(run *engine.Run, n int) (int, error) {
		return engine.Step(run, "echo", func(context.Context) (int, error) { return n, nil })
	}}
	var engines [2]*engine.Engine
	for i := range engines {
		engines[i] = engineOn(t, engine.Config{
			Storage:   open(t, path, shared),
			Workflows: []engine.Definition{long, echo},
			LeaseTTL:  18 * time.Second,
			Events:    engine.Events{Deposed: func(engine.DeposedEvent) { t.Error("a lease was lost") }},
		})
	}
	t.Cleanup(free)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := long.Start(ctx, engines[0], "long", 1)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("the function is not called")
	}
	for i, e := range engines {
		for { // a Start that waited for the lock too long has an unknown outcome
			h, err := echo.Start(ctx, e, fmt.Sprint("echo", i), i)
			if err == nil {
				_, err = h.Result(ctx)
			}
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("engine %d does nothing else while a function in a transaction is there: %v", i, err)
			}
		}
	}
	free()
	_, err = h.Result(ctx)
	if want := "took longer than 6s, which is a third of Config.LeaseTTL, 18s"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error that says %q", err, want)
	}
	var limit *engine.TransactLimitError
	if c, _ := cause.Load().(error); !errors.As(c, &limit) || limit.Limit != 6*time.Second || limit.Step != "book" {
		t.Errorf("cause of the function's context: got %v, want the limit", c)
	}
	if err := host(t, path).QueryRow(`SELECT n FROM seats`).Err(); err == nil {
		t.Error("what the function wrote is there")
	}
}

// Without leases, the limit is that of the options. It is the outcome of the step, even if
// the function respects its context, and a replay returns the same error.
func TestTransactLimitIsTheOutcome(t *testing.T) {
	for name, heed := range map[string]bool{"heeds": true, "fails by itself": false} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			var calls atomic.Int32
			wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, _ int) (string, error) {
				_, err := sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (int, error) {
					calls.Add(1)
					if _, err := tx.ExecContext(ctx, `CREATE TABLE seats (n INTEGER)`); err != nil {
						return 0, err
					}
					if heed {
						<-ctx.Done()
						return 0, context.Cause(ctx)
					}
					_, err := tx.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO seats SELECT i FROM n WHERE i < 0`)
					return 0, err
				})
				first := fmt.Sprint(errors.Is(err, activity.ErrTimeout), " ", err)
				if _, err := engine.Step(run, "after", func(context.Context) (int, error) { return 0, nil }); err != nil {
					return "", err
				}
				return first, nil
			}}
			e := engineOn(t, engine.Config{
				Storage:   open(t, path, &sqlite.Options{TransactLimit: 50 * time.Millisecond}),
				Workflows: []engine.Definition{wf},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h, err := wf.Start(ctx, e, "1", 1)
			if err != nil {
				t.Fatal(err)
			}
			want := `true activity book: attempt 1: engine: transaction of step "book" took longer than 50ms, which is the store's limit`
			if got, err := h.Result(ctx); err != nil || !strings.HasPrefix(got, want) || calls.Load() != 1 {
				t.Errorf("got %q, %v after %d calls, want %q after one", got, err, calls.Load(), want)
			}
			var b strings.Builder
			if err := e.Export(ctx, "1", &b); err != nil {
				t.Fatal(err)
			}
			if err := e.Replay(ctx, strings.NewReader(b.String())); err != nil {
				t.Errorf("replay: %v", err)
			}
		})
	}
}

func TestNegativeTransactLimitIsRefused(t *testing.T) {
	if _, err := sqlite.Open(newPath(t), &sqlite.Options{TransactLimit: -1}); err == nil || !strings.Contains(err.Error(), "TransactLimit") {
		t.Errorf("got %v, want an error that names TransactLimit", err)
	}
}

// Consecutive long transactions of one process let the commits of another through: a lease
// is renewed between two of them.
func TestTransactsLetOthersPass(t *testing.T) {
	path := newPath(t)
	a, b := open(t, path, shared), open(t, path, shared)
	ctx, stop := context.WithCancel(t.Context())
	var begun atomic.Int32
	first := make(chan struct{})
	var going sync.WaitGroup
	for range 2 {
		going.Go(func() {
			for ctx.Err() == nil {
				a.Transact(ctx, func(context.Context) (storage.Batch, error) {
					if begun.Add(1) == 1 {
						close(first)
					}
					time.Sleep(150 * time.Millisecond) // a long transaction without any writes
					return storage.Batch{}, nil
				})
			}
		})
	}
	defer going.Wait()
	defer stop()
	<-first
	const commits = 3
	for n := range commits {
		put(t, b, fmt.Sprint(n), "1")
	}
	if n := begun.Load(); n > 5*commits {
		t.Errorf("%d transactions of the one began before the other had committed %d times", n, commits)
	}
}

// A transaction that waits for the lock does not block other commits of its own store.
func TestTransactThatWaitsHoldsUpNobody(t *testing.T) {
	path := newPath(t)
	a, b := open(t, path, shared), open(t, path, shared)
	for range 5 {
		var turn []string
		var mu sync.Mutex
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			turn = append(turn, s)
		}
		var going sync.WaitGroup
		err := a.Transact(t.Context(), func(context.Context) (storage.Batch, error) {
			going.Go(func() {
				err := b.Transact(t.Context(), func(context.Context) (storage.Batch, error) {
					note("transaction")
					return storage.Batch{}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			time.Sleep(20 * time.Millisecond) // it is probably waiting now; if not, this round proves nothing
			going.Go(func() {
				put(t, b, "lease", "renewed")
				note("renewal")
			})
			time.Sleep(150 * time.Millisecond)
			return storage.Batch{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		going.Wait()
		if turn[0] == "renewal" {
			return
		}
	}
	t.Error("a commit always waits for the transaction of its own store, which waits for another's")
}

// If a function's transaction has ended, nothing is stored: neither what the function wrote
// before, nor what it writes after. Its step fails even if the function returns nil.
func TestTransactionThatEndsEarly(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"a write is interrupted": func(ctx context.Context, tx *sql.Tx) error {
			for n := 1; n > 0; { // repeat until a write had begun when it was interrupted
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				_, err := tx.ExecContext(ctx, `WITH RECURSIVE c(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM c)
					INSERT INTO seats SELECT n FROM c`)
				cancel()
				if err == nil {
					return nil
				}
				if err := tx.QueryRow(`SELECT count(*) FROM seats`).Scan(&n); err != nil {
					t.Error(err)
				}
			}
			return context.DeadlineExceeded
		},
		"it is committed": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `COMMIT`)
			return err
		},
		"it is rolled back": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `ROLLBACK`)
			return errors.Join(err, errors.New("as it was told"))
		},
		"its Commit is called":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"its Rollback is called": func(_ context.Context, tx *sql.Tx) error { return errors.Join(tx.Rollback(), sql.ErrTxDone) },
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			db := host(t, path)
			if _, err := db.Exec(`CREATE TABLE seats (n INTEGER)`); err != nil {
				t.Fatal(err)
			}
			wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, _ int) (string, error) {
				_, err := sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (int, error) {
					if _, err := tx.ExecContext(ctx, `INSERT INTO seats VALUES (1)`); err != nil {
						return 0, err
					}
					if err := end(ctx, tx); err == nil {
						t.Error("the function is not told")
					}
					if _, err := tx.ExecContext(ctx, `INSERT INTO seats VALUES (2)`); err == nil {
						t.Error("it can write after the end")
					}
					return 1, nil
				})
				if err == nil {
					return "", errors.New("the step is recorded as done")
				}
				return err.Error(), nil
			}}
			e := engineOn(t, engine.Config{Storage: open(t, path, nil), Workflows: []engine.Definition{wf}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h, err := wf.Start(ctx, e, "o", 1)
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Result(ctx)
			if err != nil || !strings.Contains(got, sqlite.ErrTransactionEnded.Error()) {
				t.Errorf("got %q, %v, want %v", got, err, sqlite.ErrTransactionEnded)
			}
			var n int
			if err := db.QueryRow(`SELECT count(*) FROM seats`).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows are there (%v), want none", n, err)
			}
		})
	}
}

// A function that leaves a statement that writes in progress cannot be committed. That is the outcome of its step.
func TestStatementLeftInProgress(t *testing.T) {
	path := newPath(t)
	db := host(t, path)
	if _, err := db.Exec(`CREATE TABLE seats (n INTEGER)`); err != nil {
		t.Fatal(err)
	}
	calls := 0
	wf := &engine.Workflow[int, bool]{Name: "w", Func: func(run *engine.Run, _ int) (bool, error) {
		_, err := sqlite.Transact(run, "book", func(_ context.Context, tx *sql.Tx) (int, error) {
			calls++
			rows, err := tx.Query(`INSERT INTO seats VALUES (1), (2) RETURNING n`)
			if err == nil && !rows.Next() {
				t.Error("no row is returned")
			}
			return 1, err
		})
		return errors.Is(err, storage.ErrTransactionRefused), nil
	}}
	e := engineOn(t, engine.Config{Storage: open(t, path, nil), Workflows: []engine.Definition{wf}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := wf.Start(ctx, e, "o", 1)
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := h.Result(ctx); !refused || err != nil {
		t.Errorf("the step is refused: %t, %v", refused, err)
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM seats`).Scan(&n); err != nil || n != 0 || calls != 1 {
		t.Errorf("%d rows are there (%v) after %d calls, want none after one", n, err, calls)
	}
}

// The store refuses the batch of a function whose transaction has ended, also without an
// engine.
func TestBatchOfATransactionThatEnded(t *testing.T) {
	s := open(t, newPath(t), nil)
	for i := range 20 { // the hooks of one connection do not affect the next
		key := []byte(fmt.Sprint("key ", i))
		err := s.Transact(t.Context(), func(ctx context.Context) (storage.Batch, error) {
			if i%2 == 1 {
				if _, err := sqlite.TxOf(ctx).ExecContext(ctx, `ROLLBACK`); err != nil {
					t.Error(err)
				}
			}
			return storage.Batch{Ops: []storage.Op{storage.Put(key, nil)}}, nil
		})
		_, there := s.Get(t.Context(), key)
		switch {
		case i%2 == 0 && (err != nil || there != nil):
			t.Errorf("%d: %v, %v", i, err, there)
		case i%2 == 1 && (!errors.Is(err, sqlite.ErrTransactionEnded) || !errors.Is(there, storage.ErrNotFound)):
			t.Errorf("%d: %v, %v, want %v", i, err, there, sqlite.ErrTransactionEnded)
		}
	}
}

// Foreign keys are enforced for what functions write if Options.ForeignKeys is set. What the database refuses at the commit is told as
// that: it is no unknown outcome.
func TestForeignKeysOfTransact(t *testing.T) {
	path := newPath(t)
	db := host(t, path)
	exec(t, db, `CREATE TABLE seats (n INTEGER PRIMARY KEY)`)
	exec(t, db, `CREATE TABLE guests (seat INTEGER REFERENCES seats)`)
	exec(t, db, `CREATE TABLE waiting (seat INTEGER REFERENCES seats DEFERRABLE INITIALLY DEFERRED)`)
	for _, enforced := range []bool{false, true} {
		s := open(t, path, &sqlite.Options{ForeignKeys: enforced})
		for _, table := range []string{"guests", "waiting"} {
			var written error
			err := s.Transact(t.Context(), func(ctx context.Context) (storage.Batch, error) {
				_, written = sqlite.TxOf(ctx).ExecContext(ctx, `INSERT INTO `+table+` VALUES (1)`)
				return storage.Batch{Ops: []storage.Op{storage.Put([]byte(table), nil)}}, written
			})
			_, there := s.Get(t.Context(), []byte(table))
			switch {
			case !enforced && (err != nil || there != nil):
				t.Errorf("%s, not enforced: %v, %v", table, err, there)
			case enforced && (err == nil || !strings.Contains(err.Error(), "FOREIGN KEY") || !errors.Is(there, storage.ErrNotFound)):
				t.Errorf("%s: %v, %v, want the error of a foreign key, and nothing stored", table, err, there)
			case enforced && errors.Is(err, storage.ErrTransactionRefused) != (written == nil):
				t.Errorf("%s: %v, want ErrTransactionRefused from the commit only", table, err)
			}
		}
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete([]byte("guests")), storage.Delete([]byte("waiting"))}}); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// SQLite may end a transaction of the host by itself. What is staged after that is not committed by itself.
func TestNothingIsStagedAfterTheTransaction(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	db := host(t, path)
	exec(t, db, `CREATE TABLE seats (n INTEGER PRIMARY KEY)`)
	for _, ends := range []string{`INSERT OR ROLLBACK INTO seats VALUES (1), (1)`, `ROLLBACK`, ``} {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ends); ends == `ROLLBACK` && err != nil || err == nil && strings.HasPrefix(ends, "INSERT") {
			t.Fatalf("%s: %v", ends, err)
		}
		view := s.WithTx(tx)
		for i := range 2 {
			err := view.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("k"), nil)}})
			if (ends != "") != errors.Is(err, storage.ErrAborted) {
				t.Errorf("%q, batch %d: %v", ends, i, err)
			}
		}
		if ended := tx.Commit(); (ends != "") != (ended != nil) {
			t.Errorf("%q: the host's commit: %v", ends, ended)
		}
		if _, err := s.Get(t.Context(), []byte("k")); ends != "" && !errors.Is(err, storage.ErrNotFound) || ends == "" && err != nil {
			t.Errorf("%q: afterwards: %v", ends, err)
		}
	}
}

// A connection of the host that never syncs could lose what the store has committed. It is refused, unless the store itself may lose it.
func TestConnectionThatDoesNotSyncIsRefused(t *testing.T) {
	for _, relaxed := range []bool{false, true} {
		for value, refused := range map[string]bool{"OFF": !relaxed, "NORMAL": false, "FULL": false} {
			path := newPath(t)
			s := open(t, path, &sqlite.Options{Relaxed: relaxed})
			db := host(t, "file:"+path+"?_pragma=synchronous("+value+")")
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			err = s.WithTx(tx).Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("k"), nil)}})
			if refused != (err != nil && strings.Contains(err.Error(), "PRAGMA synchronous")) || !refused && err != nil {
				t.Errorf("relaxed %v, synchronous %s: %v", relaxed, value, err)
			}
			tx.Rollback()
		}
	}
}
