package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/fence"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// A place is where orders are kept, and a database of the shop's beside them, which
// the engines know nothing of.
type place struct {
	make func() (where string, stop func(), err error)
	open func(ctx context.Context, where, process string) (storage.Storage, error)
	shop func(ctx context.Context, where, process string) (target, error)
	cut  func(ctx context.Context, where, process string) error // ends the connections of a process
}

// stores are what -store may name.
var stores = map[string]place{
	"postgres": {make: launch, open: openPostgres, shop: openShop, cut: cutPostgres},
}

func storeNames() string { return strings.Join(slices.Sorted(maps.Keys(stores)), ", ") }

// A target books, and refuses a token that is lower than one that it has seen.
type target interface {
	prepare(ctx context.Context) error // creates the tables
	book(ctx context.Context, resource string, token uint64) error
	booked(ctx context.Context) ([]booking, error) // in order
	close()
}

type booking struct {
	resource string
	token    uint64
}

func launch() (string, func(), error) {
	server, stop, err := pgtest.Launch()
	if err != nil {
		return "", nil, fmt.Errorf("%w; name a database with -at", err)
	}
	return server.URL("postgres"), stop, nil
}

// as has a process's connections bear its name.
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

// cutPostgres has the server end the connections of a process, which then does not
// know what became of the commits that it had sent.
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

func openShop(ctx context.Context, where, process string) (target, error) {
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

// booked is in the order in which bookings were let in: each got its number while it
// had the guard of its resource.
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

// A witness says which checkpoints were acknowledged to this process, under which
// ownership it wrote them, and which were refused.
type witness struct {
	storage.Storage
	process  string
	say      func(string, ...any)
	careless bool
}

func (w *witness) Unwrap() storage.Storage { return w.Storage }

func (w *witness) Commit(ctx context.Context, b storage.Batch) error {
	id, number, was, is := w.checkpoint(b)
	if number != "" && w.careless {
		b.If = slices.DeleteFunc(slices.Clone(b.If), func(c storage.Condition) bool {
			return strings.HasPrefix(string(c.Key), "wf:"+id)
		})
	}
	err := w.Storage.Commit(ctx, b)
	switch {
	case number == "":
	case err == nil:
		w.say("commit %s %s %s", id, number, cmp.Or(is, was))
	case errors.Is(err, storage.ErrConflict):
		w.say("refused %s %s %s", id, number, was) // without the last, a claim
	}
	return err
}

// checkpoint is the last checkpoint in a batch, and which of this process's
// incarnations owned the run before it and, if that changes, owns it with it.
func (w *witness) checkpoint(b storage.Batch) (id, number, was, is string) {
	for _, op := range b.Ops {
		if parts, err := storage.SplitKey(op.Key); err == nil && len(parts) == 4 && parts[0] == "wf" && parts[2] == "ckpt" {
			id, number = parts[1], strings.TrimLeft(parts[3], "0")
		}
	}
	key := string(storage.AppendKey([]byte("wf:"), id))
	for _, c := range b.If {
		if string(c.Key) == key {
			was = w.owner(id, c.Value)
		}
	}
	for _, op := range b.Ops {
		if string(op.Key) == key {
			is = w.owner(id, op.Value)
		}
	}
	return id, number, was, is
}

// owner is the owner in the record of a workflow, if that is one of this process's.
func (w *witness) owner(id string, raw []byte) string {
	wf, err := checkpoint.OpenWorkflow(id, raw)
	if err != nil || !strings.HasPrefix(wf.Owner, w.process+"-") {
		return ""
	}
	return wf.Owner
}
