package main

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// A place is where records are stored and, if it is a database, the host's own table beside them.
type place struct {
	shared bool
	make   func() (where string, stop func(), err error)
	open   func(ctx context.Context, where string) (storage.Storage, host, error)
}

// stores are the values of -store.
var stores = map[string]place{
	"bolt":     {false, folder, openBolt},
	"sqlite":   {false, folder, func(_ context.Context, where string) (storage.Storage, host, error) { return openSQLite(where, false) }},
	"shared":   {true, folder, func(_ context.Context, where string) (storage.Storage, host, error) { return openSQLite(where, true) }},
	"postgres": {true, launch, openPostgres},
}

func storeNames() string {
	return strings.Join(slices.Sorted(maps.Keys(stores)), ", ") + " (shared is SQLite with Options.Shared)"
}

// A host is a database with a table of its own. A refund of the kind inTx is a row.
type host interface {
	prepare(ctx context.Context) error // creates the table
	// refund does the whole of it in one transaction, and commits.
	refund(ctx context.Context, l *idempotency.Ledger, k idempotency.Key, r Refund, inside func(context.Context) error) (idempotency.Receipt[string], error)
	rows(ctx context.Context) (map[string]int, error) // how many a key has, by its hash
	close()
}

const (
	createRefunds = `CREATE TABLE IF NOT EXISTS refunds (hash text NOT NULL, refund bigint NOT NULL, token bigint NOT NULL)`
	insertRefund  = `INSERT INTO refunds (hash, refund, token) VALUES ($1, $2, $3)`
	countRefunds  = `SELECT hash, count(*) FROM refunds GROUP BY hash`
)

func folder() (string, func(), error) {
	dir, err := os.MkdirTemp("", "weft-once-")
	return dir, func() { os.RemoveAll(dir) }, err
}

func openBolt(_ context.Context, where string) (storage.Storage, host, error) {
	s, err := bolt.Open(filepath.Join(where, "once.bolt"), nil)
	return s, nil, err
}

// onSQLite is a host whose database is that of the store.
type onSQLite struct {
	store *sqlite.Store
	db    *sql.DB
}

func openSQLite(where string, shared bool) (storage.Storage, host, error) {
	path := filepath.Join(where, "once.db")
	s, err := sqlite.Open(path, &sqlite.Options{Shared: shared})
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, &onSQLite{s, db}, nil
}

func (h *onSQLite) prepare(ctx context.Context) error {
	_, err := h.db.ExecContext(ctx, createRefunds)
	return err
}

func (h *onSQLite) refund(ctx context.Context, l *idempotency.Ledger, k idempotency.Key, r Refund, inside func(context.Context) error) (receipt idempotency.Receipt[string], err error) {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return receipt, err
	}
	defer tx.Rollback()
	receipt, err = idempotency.Do(ctx, l.In(h.store.WithTx(tx)), k, r, func(ctx context.Context) (string, error) {
		number, token := inTxNumber(ctx)
		if _, err := tx.ExecContext(ctx, insertRefund, k.Hash(), number, token); err != nil {
			return "", err
		}
		return fmt.Sprint(number), inside(ctx)
	})
	if err != nil {
		return receipt, err
	}
	return receipt, tx.Commit()
}

func (h *onSQLite) rows(ctx context.Context) (map[string]int, error) {
	rows, err := h.db.QueryContext(ctx, countRefunds)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]int{}
	for rows.Next() {
		var hash string
		var n int
		if err := rows.Scan(&hash, &n); err != nil {
			return nil, err
		}
		all[hash] = n
	}
	return all, rows.Err()
}

func (h *onSQLite) close() { h.db.Close() }

func launch() (string, func(), error) {
	server, stop, err := pgtest.Launch()
	if err != nil {
		return "", nil, fmt.Errorf("%w; name a database with -at", err)
	}
	return server.URL("postgres"), stop, nil
}

// onPostgres is a host whose database is that of the store.
type onPostgres struct {
	store *postgres.Store
	pool  *pgxpool.Pool
}

func openPostgres(ctx context.Context, where string) (storage.Storage, host, error) {
	s, err := postgres.Open(ctx, where, nil)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.New(ctx, where)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, &onPostgres{s, pool}, nil
}

func (h *onPostgres) prepare(ctx context.Context) error {
	_, err := h.pool.Exec(ctx, createRefunds)
	return err
}

func (h *onPostgres) refund(ctx context.Context, l *idempotency.Ledger, k idempotency.Key, r Refund, inside func(context.Context) error) (receipt idempotency.Receipt[string], err error) {
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return receipt, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	receipt, err = idempotency.Do(ctx, l.In(h.store.WithTx(tx)), k, r, func(ctx context.Context) (string, error) {
		number, token := inTxNumber(ctx)
		if _, err := tx.Exec(ctx, insertRefund, k.Hash(), number, token); err != nil {
			return "", err
		}
		return fmt.Sprint(number), inside(ctx)
	})
	if err != nil {
		return receipt, err
	}
	return receipt, tx.Commit(ctx)
}

func (h *onPostgres) rows(ctx context.Context) (map[string]int, error) {
	rows, err := h.pool.Query(ctx, countRefunds)
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	var hash string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&hash, &n}, func() error { all[hash] = n; return nil })
	return all, err
}

func (h *onPostgres) close() { h.pool.Close() }
