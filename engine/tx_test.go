package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
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
	host, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		for i := range 2 { // the second meets what the first staged
			if _, err := wf.Start(ctx, in, id, id); err != nil {
				return err
			}
			a, err := paid.Send(ctx, in, id, "ann", &signal.Options{ID: "1"})
			if err != nil {
				return err
			}
			if a.Repeated != (i > 0) {
				t.Errorf("send %d: repeated is %v", i, a.Repeated)
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

// A transaction on another store is no transaction of this engine's, nor is none. A store and its wrapper are one.
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
	wrapped := storagetest.NewFaulty(one, func(storagetest.Call) storagetest.Fault { return storagetest.None })
	for i, s := range []storage.Storage{one, wrapped} {
		eng, err := engine.New(engine.Config{Storage: s})
		if err != nil {
			t.Fatal(err)
		}
		defer eng.Close()
		for name, tx := range map[string]storage.Tx{"another": two.WithTx(nil), "none": nil} {
			r := &engine.StartRequest{Workflow: "w", ID: "1"}
			if _, err := eng.In(tx).StartWorkflow(t.Context(), r); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("%d: in a transaction on %s store: got %v, want ErrNotApplicable", i, name, err)
			}
		}
		for j, on := range []storage.Storage{one, wrapped} {
			r := &engine.StartRequest{Workflow: "w", ID: fmt.Sprint(i, j)}
			if _, err := eng.In(stage.New(on)).StartWorkflow(t.Context(), r); err != nil {
				t.Errorf("%d: in a transaction on its store: %d: %v", i, j, err)
			}
		}
	}
}

// A client in the host's transaction sees the same as one outside: that an engine of the run's
// deployment is alive. After the engine was closed it still stages what the host asks for.
func TestTransactionSeesWhoIsAlive(t *testing.T) {
	store, host := hosted(t)
	waits := make(chan struct{})
	wf := &engine.Workflow[string, string]{Name: "order", Pinned: true, Func: func(run *engine.Run, o string) (string, error) {
		return engine.Step(run, "wait", func(ctx context.Context) (string, error) {
			select {
			case <-waits:
			case <-ctx.Done():
			}
			return o, ctx.Err()
		})
	}}
	eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{wf}, Deployment: "blue"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := eng.Activate(ctx, "blue", engine.Actor{Name: "ann", Reason: "release"}); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- eng.Run(ctx) }()
	client, err := engine.New(engine.Config{Storage: store})
	if err != nil {
		t.Fatal(err)
	}
	h, err := wf.Start(ctx, eng, "o-1", "o-1")
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := h.Describe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Owner != "" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	tx, err := host.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	info, err := client.In(store.WithTx(tx)).Describe(ctx, "o-1")
	if err != nil || info.Deployment != "blue" || len(info.Attention) > 0 {
		t.Errorf("in a transaction: %+v, %v; want no attention", info, err)
	}
	tx.Rollback()
	close(waits)
	if _, err := h.Result(ctx); err != nil {
		t.Fatal(err)
	}
	eng.Close()
	<-over
	tx, err = host.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := wf.Start(ctx, eng.In(store.WithTx(tx)), "o-2", "o-2"); err != nil {
		t.Errorf("start in a transaction after Close: %v", err)
	}
}
