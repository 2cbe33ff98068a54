package main

import (
	"context"
	"crypto/rand"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// A database is the service's own. The ledger's store is a table of the same database.
type database interface {
	// credit writes a voucher, and what the ledger knows of it, in one transaction. Whatever crashes, both
	// are there or none is.
	credit(ctx context.Context, l *idempotency.Ledger, k idempotency.Key, c Credit) (idempotency.Receipt[string], error)
	vouchers(ctx context.Context) (n int, err error)
	close()
}

const (
	createVouchers = "CREATE TABLE IF NOT EXISTS vouchers (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)"
	insertVoucher  = "INSERT INTO vouchers (id, customer, cents) VALUES ($1, $2, $3)"
	countVouchers  = "SELECT count(*) FROM vouchers"
)

func newID() string { return rand.Text()[:12] }

// onSQLite is a database of SQLite. It has one writer: begin late, commit soon.
type onSQLite struct {
	store *sqlite.Store
	db    *sql.DB
}

func (d *onSQLite) credit(ctx context.Context, l *idempotency.Ledger, k idempotency.Key, c Credit) (r idempotency.Receipt[string], err error) {
	k.Action = "credit"
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return r, err
	}
	defer tx.Rollback()
	r, err = idempotency.Do(ctx, l.In(d.store.WithTx(tx)), k, c, func(ctx context.Context) (string, error) {
		id := "voucher-" + newID()
		_, err := tx.ExecContext(ctx, insertVoucher, id, c.Customer, c.Cents)
		return id, err
	})
	if err != nil {
		return r, err
	}
	return r, tx.Commit() // only now it is true
}

func (d *onSQLite) vouchers(ctx context.Context) (n int, err error) {
	return n, d.db.QueryRowContext(ctx, countVouchers).Scan(&n)
}

func (d *onSQLite) close() { d.db.Close() }

// onPostgres is a database of PostgreSQL.
type onPostgres struct {
	store *postgres.Store
	pool  *pgxpool.Pool
}

func (d *onPostgres) credit(ctx context.Context, l *idempotency.Ledger, k idempotency.Key, c Credit) (r idempotency.Receipt[string], err error) {
	k.Action = "credit"
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { // commits, or rolls back after an error
		r, err = idempotency.Do(ctx, l.In(d.store.WithTx(tx)), k, c, func(ctx context.Context) (string, error) {
			id := "voucher-" + newID()
			_, err := tx.Exec(ctx, insertVoucher, id, c.Customer, c.Cents)
			return id, err
		})
		return err
	})
	return r, err
}

func (d *onPostgres) vouchers(ctx context.Context) (n int, err error) {
	return n, d.pool.QueryRow(ctx, countVouchers).Scan(&n)
}

func (d *onPostgres) close() { d.pool.Close() }
