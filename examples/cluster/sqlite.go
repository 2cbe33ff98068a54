package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	"github.com/weft-go/weft/fence"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

func folder() (string, func(), error) {
	dir, err := os.MkdirTemp("", "weft-cluster-")
	return dir, func() { os.RemoveAll(dir) }, err
}

func openSQLite(_ context.Context, where, _ string) (storage.Storage, error) {
	return sqlite.Open(filepath.Join(where, "orders.db"), &sqlite.Options{Shared: true})
}

// A file has no connections to cut.
func cutNothing(context.Context, string, string) error { return nil }

// onSQLite is the shop's database.
type onSQLite struct{ db *sql.DB }

func openSQLiteShop(_ context.Context, where, _ string) (target, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(where, "shop.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	return &onSQLite{db}, err
}

func (s *onSQLite) prepare(ctx context.Context) error {
	for _, create := range []string{fence.Schema, `CREATE TABLE IF NOT EXISTS bookings (n integer PRIMARY KEY, resource text NOT NULL, token bigint NOT NULL)`} {
		if _, err := s.db.ExecContext(ctx, create); err != nil {
			return err
		}
	}
	return nil
}

func (s *onSQLite) book(ctx context.Context, resource string, token uint64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fence.Guard(ctx, tx, resource, token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO bookings (resource, token) VALUES ($1, $2)`, resource, int64(token)); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *onSQLite) booked(ctx context.Context) (all []booking, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT resource, token FROM bookings ORDER BY n`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var b booking
		if err := rows.Scan(&b.resource, &b.token); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, rows.Err()
}

func (s *onSQLite) close() { s.db.Close() }
