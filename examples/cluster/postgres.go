package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/fence"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

func launch() (string, func(), error) {
	server, stop, err := pgtest.Launch()
	if err != nil {
		return "", nil, fmt.Errorf("%w; name a database with -at", err)
	}
	return server.URL("postgres"), stop, nil
}

// as gives a process's connections its name.
func as(process, url string) string {
	with := "?"
	if strings.Contains(url, "?") {
		with = "&"
	}
	return url + with + "application_name=" + process
}

func openPostgres(ctx context.Context, where, process string) (storage.Storage, error) {
	return postgres.Open(ctx, as(process, where), nil)
}

// cutPostgres makes the server end the connections of a process. The process then does
// not know the outcome of the commits that it had sent.
func cutPostgres(ctx context.Context, where, process string) error {
	c, err := pgx.Connect(ctx, where)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, process)
	return err
}

// onPostgres is the shop's database.
type onPostgres struct{ pool *pgxpool.Pool }

const bookings = `CREATE TABLE IF NOT EXISTS bookings (n bigserial PRIMARY KEY, resource text NOT NULL, token bigint NOT NULL)`

func openPostgresShop(ctx context.Context, where, process string) (target, error) {
	pool, err := pgxpool.New(ctx, as(process, where))
	if err != nil {
		return nil, err
	}
	return &onPostgres{pool}, nil
}

func (s *onPostgres) prepare(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, fence.Schema+";"+bookings)
	return err
}

func (s *onPostgres) book(ctx context.Context, resource string, token uint64) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := fence.GuardPgx(ctx, tx, resource, token); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO bookings (resource, token) VALUES ($1, $2)`, resource, int64(token))
		return err
	})
}

// booked is in the order in which bookings were admitted: each got its number while it
// had locked the guard of its resource.
func (s *onPostgres) booked(ctx context.Context) ([]booking, error) {
	rows, _ := s.pool.Query(ctx, `SELECT resource, token FROM bookings ORDER BY n`)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b booking, err error) {
		var token int64
		err = row.Scan(&b.resource, &token)
		b.token = uint64(token)
		return b, err
	})
}

func (s *onPostgres) close() { s.pool.Close() }
