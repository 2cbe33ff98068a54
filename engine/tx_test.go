package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/sqlite"
)

// hosted is a store in an SQLite database of a host, and the host's own pool.
func hosted(t *testing.T) (*sqlite.Store, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.db")
	store, err := sqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	host, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	return store, host
}

// What is started, signalled and written in the host's transaction happens if
// and only if that commits, and then an engine finds it.
func TestStagedInTheHostsTransaction(t *testing.T) {
	store, host := hosted(t)
	if _, err := host.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	paid := &signal.Signal[string]{Name: "paid"}
	wf := &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, o string) (string, error) {
		by, err := paid.Receive(run)
		return o + " paid by " + by, err
	}}
	eng, stop := running(t, store, wf)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	place := func(id string, end func(*sql.Tx) error) error {
		tx, err := host.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec("INSERT INTO orders VALUES (?)", id); err != nil {
			return err
		}
		in := eng.In(store.WithTx(tx))
		for range 2 { // the second meets what the first staged
			if _, err := wf.Start(ctx, in, id, id); err != nil {
				return err
			}
			if _, err := paid.Send(ctx, in, id, "ann", &signal.Options{ID: "1"}); err != nil {
				return err
			}
		}
		if _, err := wf.Start(ctx, in, id, "another"); !errors.Is(err, engine.ErrExists) {
			t.Errorf("start with another input: got %v, want ErrExists", err)
		}
		return end(tx)
	}
	if err := place("order-1", (*sql.Tx).Rollback); err != nil {
		t.Fatal(err)
	}
	if err := place("order-2", (*sql.Tx).Commit); err != nil {
		t.Fatal(err)
	}
	if got, err := wf.Handle(eng, "order-2").Result(ctx); got != "order-2 paid by ann" || err != nil {
		t.Errorf("committed: got %q, %v", got, err)
	}
	if _, err := eng.Describe(ctx, "order-1"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("rolled back: got %v, want ErrNotFound", err)
	}
	var orders int
	if err := host.QueryRow("SELECT count(*) FROM orders").Scan(&orders); err != nil || orders != 1 {
		t.Errorf("orders: got %d, %v, want 1", orders, err)
	}
}

// A transaction on another store is no transaction of this engine's.
func TestTransactionOfAnotherStoreIsRefused(t *testing.T) {
	one, err := sqlite.Open(filepath.Join(t.TempDir(), "1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := sqlite.Open(filepath.Join(t.TempDir(), "2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	eng, err := engine.New(engine.Config{Storage: one})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	if _, err := eng.In(two.WithTx(nil)).StartWorkflow(t.Context(), &engine.StartRequest{Workflow: "w", ID: "1"}); !errors.Is(err, engine.ErrNotApplicable) {
		t.Errorf("got %v, want ErrNotApplicable", err)
	}
}
