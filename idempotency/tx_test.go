package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// A host has a table of its own, done(id), beside the store.
type host struct {
	store storage.Storage
	begin func() *hostTx
	count func() int // committed rows

	waits func() int // sessions that wait for a lock; nil: there are none
}

// A hostTx is a transaction of the host.
type hostTx struct {
	storage.Tx
	exec             func(query string) error
	commit, rollback func() error
}

const insert = `INSERT INTO done (id) VALUES ('p1')`

// onHosts runs a test on the stores that have transactions of the host.
func onHosts(t *testing.T, f func(t *testing.T, h host)) {
	t.Run("sqlite", func(t *testing.T) { f(t, sqliteHost(t, nil)) })
	t.Run("postgres", func(t *testing.T) { f(t, postgresHost(t, pgx.TxOptions{})) })
}

func sqliteHost(t *testing.T, o *sqlite.Options) host {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlite.Open(path, o)
	opened(t, s, err)
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(`CREATE TABLE done (id TEXT)`); err != nil {
		t.Fatal(err)
	}
	return host{
		store: s,
		begin: func() *hostTx {
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tx.Rollback() })
			return &hostTx{s.WithTx(tx), func(q string) error { _, err := tx.Exec(q); return err }, tx.Commit, tx.Rollback}
		},
		count: func() (n int) {
			if err := db.QueryRow(`SELECT count(*) FROM done`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

func postgresHost(t *testing.T, o pgx.TxOptions) host {
	url := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), url, nil)
	opened(t, s, err)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE done (id TEXT)`); err != nil {
		t.Fatal(err)
	}
	return host{
		store: s,
		begin: func() *hostTx {
			tx, err := pool.BeginTx(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.WithoutCancel(t.Context())
			t.Cleanup(func() { tx.Rollback(ctx) })
			return &hostTx{s.WithTx(tx),
				func(q string) error { _, err := tx.Exec(ctx, q); return err },
				func() error { return tx.Commit(ctx) },
				func() error { return tx.Rollback(ctx) }}
		},
		count: func() (n int) {
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM done`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
		waits: func() (n int) {
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

// inserting is an effect in the host's table.
func inserting(tx *hostTx, err error) *idempotency.Effect[refund, string] {
	return &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) {
		if err := tx.exec(insert); err != nil {
			return "", err
		}
		return "done", err
	}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FEN-12, FEN-13, FEN-15, section 3: the effect and its seal take effect together, when the host commits.
func TestInCommit(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, h.store)
		tx := h.begin()
		e := inserting(tx, nil)
		first, err := e.Do(t.Context(), l.In(tx), key, one)
		if err != nil || first.Decision != idempotency.DecidedNew || first.Result != "done" {
			t.Fatalf("got %+v, %v", first, err)
		}
		within, err := e.Do(t.Context(), l.In(tx), key, one)
		if err != nil || within.Decision != idempotency.DecidedDuplicate || within.EffectID != first.EffectID {
			t.Errorf("again in the transaction: %+v, %v", within, err)
		}
		if h.count() != 0 {
			t.Error("the effect is visible before the commit")
		}
		if _, err := e.Lookup(t.Context(), l, key); !errors.Is(err, idempotency.ErrNotSealed) {
			t.Errorf("the seal is visible before the commit: %v", err)
		}
		must(t, tx.commit())
		again, err := e.Do(t.Context(), l, key, one)
		if err != nil || again.Decision != idempotency.DecidedDuplicate || again.EffectID != first.EffectID || again.Result != "done" || !again.SealedAt.Equal(first.SealedAt) {
			t.Errorf("after the commit: %+v, %v, want %+v", again, err, first)
		}
		if n := h.count(); n != 1 {
			t.Errorf("%d effects", n)
		}
		tx = h.begin()
		_, err = inserting(tx, nil).Do(t.Context(), l.In(tx), key, refund{"p1", 200})
		if !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("another request in a transaction: %v", err)
		}
		must(t, tx.rollback())
	})
}

// Section 3: what is rolled back never was.
func TestInRollback(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, h.store)
		before := dump(t, h.store)
		tx := h.begin()
		if _, err := inserting(tx, nil).Do(t.Context(), l.In(tx), key, one); err != nil {
			t.Fatal(err)
		}
		must(t, tx.rollback())
		if after := dump(t, h.store); after != before {
			t.Errorf("left: %s", after)
		}
		tx = h.begin()
		if r, err := inserting(tx, nil).Do(t.Context(), l.In(tx), key, one); err != nil || r.Decision != idempotency.DecidedNew {
			t.Errorf("then: %+v, %v", r, err)
		}
		must(t, tx.commit())
		if n := h.count(); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// Section 3, "an error of Run takes the claim back out": even a host that commits nevertheless finds no trace of the key,
// or what was there before.
func TestInError(t *testing.T) {
	boom := errors.New("boom")
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, h.store)
		for _, c := range []struct {
			name   string
			err    error
			before func(k idempotency.Key)
		}{
			{"a fresh key", boom, func(idempotency.Key) {}},
			{"without effect", activity.NoEffect(boom), func(idempotency.Key) {}},
			{"failed for good", activity.NoEffect(activity.Permanent(boom)), func(idempotency.Key) {}},
			{"a released key", boom, func(k idempotency.Key) {
				g := &target{fail: func(int) error { return activity.NoEffect(boom) }}
				if _, err := g.effect().Do(t.Context(), l, k, one); !errors.Is(err, boom) {
					t.Fatal(err)
				}
			}},
			{"a key in doubt", boom, func(k idempotency.Key) {
				g := &target{fail: func(int) error { return boom }}
				if _, err := g.effect().Do(t.Context(), l, k, one); !errors.Is(err, idempotency.ErrIndeterminate) {
					t.Fatal(err)
				}
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				k := key
				k.Revision = c.name
				c.before(k)
				before := dump(t, h.store)
				tx := h.begin()
				e := inserting(tx, c.err)
				e.OnAbandoned = idempotency.TakeOver
				r, err := e.Do(t.Context(), l.In(tx), k, one)
				if !errors.Is(err, boom) || r.Decision != idempotency.DecidedReleased {
					t.Errorf("got %+v, %v", r, err)
				}
				must(t, tx.commit())
				if after := dump(t, h.store); after != before {
					t.Errorf("before: %s\nafter: %s", before, after)
				}
			})
		}
	})
}

// A statement that fails aborts a transaction of PostgreSQL; Run may also end the transaction, or be cut off in the middle of a
// statement. The call returns, with Run's error, and the host rolls back.
func TestInBrokenTransaction(t *testing.T) {
	boom := errors.New("boom")
	onHosts(t, func(t *testing.T, h host) {
		for name, breaks := range map[string]func(ctx context.Context, tx *hostTx) error{
			"a statement fails": func(_ context.Context, tx *hostTx) error {
				return errors.Join(boom, tx.exec(`INSERT INTO nowhere VALUES (1)`))
			},
			"rolled back": func(_ context.Context, tx *hostTx) error { return errors.Join(boom, tx.rollback()) },
			"timeout": func(ctx context.Context, tx *hostTx) error {
				<-ctx.Done()
				return errors.Join(boom, context.Cause(ctx))
			},
		} {
			t.Run(name, func(t *testing.T) {
				l := ledger(t, h.store)
				tx := h.begin()
				e := inserting(tx, nil)
				e.Timeout = 50 * time.Millisecond
				e.Run = func(ctx context.Context, _ refund) (string, error) { return "", breaks(ctx, tx) }
				k := key
				k.Revision = name
				done := make(chan error, 1)
				go func() {
					_, err := e.Do(t.Context(), l.In(tx), k, one)
					done <- err
				}()
				if err := await(t, done, "answer"); !errors.Is(err, boom) || name == "timeout" && !errors.Is(err, activity.ErrTimeout) {
					t.Errorf("got %v", err)
				}
				tx.rollback()
				if i := state(t, l, k); i != "" {
					t.Errorf("the key is %s", i)
				}
			})
		}
	})
}

// Section 3: duplicates wait for the row until tx ends, in another transaction and outside; at READ COMMITTED the fresh read then
// sees the rival's seal, and after a rollback the duplicate runs.
func TestInRivals(t *testing.T) {
	for _, c := range []struct {
		name             string
		inside, rollback bool
	}{
		{"inside, after a commit", true, false}, {"inside, after a rollback", true, true},
		{"outside, after a commit", false, false}, {"outside, after a rollback", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := postgresHost(t, pgx.TxOptions{})
			l := ledger(t, h.store)
			tx, end := h.begin(), func() error { return nil }
			first, err := inserting(tx, nil).Do(t.Context(), l.In(tx), key, one)
			must(t, err)
			in, e := l, (&target{}).effect()
			if c.inside {
				rival := h.begin()
				in, e, end = l.In(rival), inserting(rival, nil), rival.commit
			}
			duplicate := start(t.Context(), in, e, key, one)
			waiting(t, h, 1)
			select {
			case a := <-duplicate:
				t.Fatalf("it did not wait: %+v", a)
			default:
			}
			want := idempotency.DecidedDuplicate
			if c.rollback {
				want = idempotency.DecidedNew
				must(t, tx.rollback())
			} else {
				must(t, tx.commit())
			}
			a := await(t, duplicate, "answer")
			if a.err != nil || a.Decision != want || (a.EffectID == first.EffectID) == c.rollback {
				t.Errorf("got %+v, the first was %+v", a, first)
			}
			must(t, end())
			if r, err := e.Lookup(t.Context(), l, key); err != nil || r.EffectID != a.EffectID {
				t.Errorf("sealed: %+v, %v", r, err)
			}
		})
	}
}

// waiting waits until n sessions of the database wait for others.
func waiting(t *testing.T, h host, n int) {
	t.Helper()
	for begun := time.Now(); h.waits() < n; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d sessions wait, want %d", h.waits(), n)
		}
	}
}

// Section 3: "at higher levels tx aborts": the call returns an error of the transaction, and seals nothing.
func TestInAtAHigherLevel(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			h := postgresHost(t, pgx.TxOptions{IsoLevel: level})
			l := ledger(t, h.store)
			tx := h.begin()
			must(t, tx.exec(`SELECT count(*) FROM done`)) // its snapshot is taken
			if _, err := (&target{}).effect().Do(t.Context(), l, key, one); err != nil {
				t.Fatal(err)
			}
			_, err := inserting(tx, nil).Do(t.Context(), l.In(tx), key, one)
			if !errors.Is(err, storage.ErrAborted) {
				t.Errorf("got %v, want ErrAborted", err)
			}
			must(t, tx.rollback())
			if n := h.count(); n != 0 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// Section 2: a transaction on another store is refused by each method, and nothing is written.
func TestInOtherStore(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		other := exclusiveStore()
		l := ledger(t, other)
		tx := h.begin()
		in := l.In(tx)
		e := inserting(tx, nil)
		k := key
		k.Action = "refund"
		_, err := e.Do(t.Context(), in, key, one)
		errs := map[string]error{"Do": err}
		_, errs["Lookup"] = e.Lookup(t.Context(), in, key)
		errs["Resolve"] = in.Resolve(t.Context(), k, 0, activity.NotCompleted[string](), by)
		errs["Forget"] = in.Forget(t.Context(), k, by)
		for _, err := range in.List(t.Context(), idempotency.Filter{}) {
			errs["List"] = err
		}
		for _, method := range []string{"Do", "Lookup", "Resolve", "Forget", "List"} {
			if !errors.Is(errs[method], idempotency.ErrOtherStore) {
				t.Errorf("%s: %v", method, errs[method])
			}
		}
		must(t, tx.commit())
		if h.count() != 0 || strings.Contains(dump(t, h.store), "idem:") {
			t.Error("something was written")
		}
	})
}

// A Ledger on a store that wraps the one of the transaction is on the same store.
func TestInWrappedStore(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, wrapper{h.store})
		tx := h.begin()
		if _, err := inserting(tx, nil).Do(t.Context(), l.In(tx), key, one); err != nil {
			t.Fatal(err)
		}
		must(t, tx.commit())
		if h.count() != 1 {
			t.Errorf("%d effects", h.count())
		}
	})
}

type wrapper struct{ storage.Storage }

func (w wrapper) Unwrap() storage.Storage { return w.Storage }

// Section 3: in a transaction what needs Verify is an *IndeterminateError, and Verify is not called; TakeOver takes over.
func TestInDoubt(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, h.store)
		g := &target{fail: func(int) error { return errors.New("cut off") }}
		if _, err := g.effect().Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) {
			t.Fatal(err)
		}
		tx := h.begin()
		e := inserting(tx, nil)
		e.Verify = func(context.Context, refund) (activity.Verification[string], error) {
			t.Error("Verify was called in a transaction")
			return activity.NotCompleted[string](), nil
		}
		r, err := e.Do(t.Context(), l.In(tx), key, one)
		if !errors.Is(err, idempotency.ErrIndeterminate) || r.Decision != idempotency.DecidedIndeterminate {
			t.Errorf("got %+v, %v", r, err)
		}
		e.OnAbandoned = idempotency.TakeOver
		if r, err := e.Do(t.Context(), l.In(tx), key, one); err != nil || r.Decision != idempotency.DecidedNew || r.Attempt != 2 {
			t.Errorf("take over: %+v, %v", r, err)
		}
		must(t, tx.commit())
		if h.count() != 1 || state(t, l, key) != idempotency.StateSealed {
			t.Errorf("%d effects, %s", h.count(), state(t, l, key))
		}
	})
}

// Section 3: no waiting in a transaction: a claim under way is *InProgressError at once, however long Wait is.
func TestInDoesNotWait(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, h.store)
		begun, end := make(chan bool), make(chan bool)
		slow := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) {
			close(begun)
			<-end
			return "done", nil
		}}
		c := start(t.Context(), l, slow, key, one)
		<-begun
		tx := h.begin()
		e := inserting(tx, nil)
		e.Wait = 24 * time.Hour
		r, err := e.Do(t.Context(), l.In(tx), key, one)
		var busy *idempotency.InProgressError
		if !errors.As(err, &busy) || busy.RetryAfter <= 0 || r.Decision != idempotency.DecidedInProgress {
			t.Errorf("got %+v, %v", r, err)
		}
		must(t, tx.rollback())
		close(end)
		if a := <-c; a.err != nil {
			t.Error(a.err)
		}
	})
}

// SQLite has one writer: a call in a transaction must not commit anything outside it, or it waits for itself. The
// lease of a dead holder is not removed there.
func TestInWritesNothingOutside(t *testing.T) {
	h := sqliteHost(t, &sqlite.Options{Shared: true})
	inner := h.store
	dead := &dying{Storage: inner}
	gone, err := idempotency.New(idempotency.Config{Storage: dead, Logger: discard, Lease: time.Second})
	must(t, err)
	begun, end := make(chan bool), make(chan bool)
	slow := &idempotency.Effect[refund, string]{Name: "refund", Wait: -1, Run: func(context.Context, refund) (string, error) {
		close(begun)
		<-end
		return "done", nil
	}}
	c := start(t.Context(), gone, slow, key, one)
	<-begun
	dead.die()
	defer func() { close(end); <-c; gone.Close() }()

	l := ledger(t, inner, lease(time.Second))
	do := func() (idempotency.Receipt[string], error, bool) {
		tx := h.begin()
		defer tx.rollback()
		e := inserting(tx, nil)
		e.OnAbandoned = idempotency.TakeOver
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r, err := e.Do(ctx, l.In(tx), key, one)
		if err == nil {
			err = tx.commit()
		}
		return r, err, ctx.Err() != nil
	}
	if r, err, _ := do(); !errors.Is(err, idempotency.ErrInProgress) {
		t.Fatalf("the lease was just seen: %+v, %v", r, err)
	}
	time.Sleep(1500 * time.Millisecond) // the lease has run out
	if r, err, late := do(); late || err != nil && !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("got %+v, %v; it waited for its own transaction: %v", r, err, late)
	}
}

// A dying store is one that is gone from some time on.
type dying struct {
	storage.Storage
	gone atomic.Bool
}

func (d *dying) die() { d.gone.Store(true) }
func (d *dying) Commit(ctx context.Context, b storage.Batch) error {
	if d.gone.Load() {
		return errDown
	}
	return d.Storage.Commit(ctx, b)
}

// Stores without transactions of the host work without In; a nil transaction is a mistake that is told.
func TestInNil(t *testing.T) {
	l := ledger(t, new(memory.Store))
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("In(nil) panicked: %v", p)
		}
	}()
	if _, err := (&target{}).effect().Do(t.Context(), l.In(nil), key, one); !errors.Is(err, idempotency.ErrOtherStore) {
		t.Errorf("got %v, want ErrOtherStore", err)
	}
}
