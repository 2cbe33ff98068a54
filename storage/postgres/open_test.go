package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// refused expects Open to fail with an error that contains why.
func refused(t *testing.T, url string, o *postgres.Options, why string) error {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, o)
	if err == nil {
		s.Close()
		t.Errorf("got a store, want an error with %q", why)
	} else if !strings.Contains(err.Error(), why) || !strings.HasPrefix(err.Error(), "postgres: open: ") {
		t.Errorf("got %v, want an error with %q", err, why)
	}
	return err
}

func TestTablesOfOthersAreRefused(t *testing.T) {
	for _, c := range []struct{ what, sql, why string }{
		{"no stamp", `CREATE TABLE weft.store (k bytea PRIMARY KEY, v bytea NOT NULL)`, "not one of our tables"},
		{"stamp of others", `CREATE TABLE weft.store (k bytea PRIMARY KEY, v bytea NOT NULL); COMMENT ON TABLE weft.store IS 'weft'`, "not one of our tables"},
		{"other columns", `CREATE TABLE weft.store (id int PRIMARY KEY); COMMENT ON TABLE weft.store IS 'weft store, format 1'`, "not one of our tables"},
		{"no primary key", `CREATE TABLE weft.store (k bytea NOT NULL, v bytea NOT NULL); COMMENT ON TABLE weft.store IS 'weft store, format 1'`, "not one of our tables"},
		{"a view", `CREATE VIEW weft.store AS SELECT ''::bytea AS k, ''::bytea AS v; COMMENT ON VIEW weft.store IS 'weft store, format 1'`, "not one of our tables"},
		{"unlogged", `CREATE UNLOGGED TABLE weft.store (k bytea PRIMARY KEY, v bytea NOT NULL); COMMENT ON TABLE weft.store IS 'weft store, format 1'`, "not one of our tables"},
		{"future", `CREATE TABLE weft.store (k bytea PRIMARY KEY, v bytea NOT NULL, x int); COMMENT ON TABLE weft.store IS 'weft store, format 2'`, "format 2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := pgtest.Shared(t)
			url := server.Database(t)
			server.Exec(t, url[strings.LastIndex(url, "/")+1:strings.Index(url, "?")], `CREATE SCHEMA weft`, c.sql)
			err := refused(t, url, nil, c.why)
			if errors.Is(err, storage.ErrFutureFormat) != (c.what == "future") {
				t.Errorf("ErrFutureFormat: got %v", err)
			}
			open(t, url, &postgres.Options{Table: "other"})
		})
	}
}

func TestNamesAreChecked(t *testing.T) {
	url := pgtest.URL(t)
	for _, n := range []string{`a"b`, "a b", "1a", strings.Repeat("a", 64), "a.b", "ä"} {
		refused(t, url, &postgres.Options{Table: n}, "the name")
		refused(t, url, &postgres.Options{Schema: n}, "the name")
	}
	s := open(t, url, &postgres.Options{Schema: "Select", Table: "FROM"})
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}))
	if _, err := open(t, url, nil).Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("in another table: got %v, want ErrNotFound", err)
	}
}

func TestManyOpenAtOnce(t *testing.T) {
	url := pgtest.URL(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := postgres.Open(t.Context(), url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	all.Wait()
}

func TestMigrationsAreWhatOpenDoes(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Database(t)
	database := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	server.Exec(t, database, postgres.Migrations(nil)...)
	server.Exec(t, database,
		`CREATE ROLE `+database+` LOGIN`,
		`GRANT USAGE ON SCHEMA weft TO `+database,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON weft.store TO `+database)
	s := open(t, strings.Replace(url, "postgres@", database+"@", 1), nil)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1"), put("b", "1")}}))
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}}))
}

// Migrations that are run a second time, as by a host that goes back to this release, leave the format of the table as it is.
func TestMigrationsKeepANewerFormat(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Database(t)
	server.Exec(t, url[strings.LastIndex(url, "/")+1:strings.Index(url, "?")],
		append(postgres.Migrations(nil), `COMMENT ON TABLE weft.store IS 'weft store, format 2'`)...)
	c, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer c.Close(t.Context())
	for _, sql := range postgres.Migrations(nil) {
		if _, err = c.Exec(t.Context(), sql); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("the second time: %v, want an error that the table exists", err)
	}
	if err := refused(t, url, nil, "format 2"); !errors.Is(err, storage.ErrFutureFormat) {
		t.Errorf("got %v, want ErrFutureFormat", err)
	}
}

// A role that may only read opens a store read-only, and what it opens is never written.
func TestReadOnly(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Database(t)
	database := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	server.Exec(t, database, `CREATE ROLE `+database+` LOGIN`)
	reader, readOnly := strings.Replace(url, "postgres@", database+"@", 1), &postgres.Options{ReadOnly: true}
	refused(t, reader, readOnly, `there is no table "weft"."store"`)
	refused(t, url, readOnly, `there is no table "weft"."store"`) // the role may create it

	s := open(t, url, nil)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}))
	server.Exec(t, database, `GRANT USAGE ON SCHEMA weft TO `+database, `GRANT SELECT ON weft.store TO `+database)
	r := open(t, reader, readOnly)
	if v, err := r.Get(t.Context(), []byte("a")); err != nil || string(v) != "1" {
		t.Errorf("got %q and error %v, want 1", v, err)
	}
	r = open(t, url, readOnly)
	err := r.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "2")}})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("commit: got %v, want ErrUnsupported", err)
	}
	err = r.Transact(t.Context(), func(context.Context) (storage.Batch, error) {
		t.Error("the function of a Transact was called")
		return storage.Batch{}, nil
	})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("transact: got %v, want ErrUnsupported", err)
	}
	if err := storage.Require(r, "an engine", "conditionalBatch"); err == nil {
		t.Error("got a read-only store that takes batches")
	}
}

// A server that may lose acknowledged data, or cannot write, is refused.
func TestServersAreChecked(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	url := server.URL("postgres")
	refused(t, url, nil, "fsync off")
	s := open(t, url, &postgres.Options{FsyncOff: true})
	if s.Capabilities().Durable {
		t.Error("Durable with fsync off")
	}
	s.Close()
	must(t, server.Restart("full_page_writes=off"))
	refused(t, url, nil, "full_page_writes off")
	must(t, server.Restart("default_transaction_read_only=on"))
	refused(t, url, nil, "read-only")
	must(t, server.Restart("synchronous_commit=off"))
	s = open(t, url, nil)
	if v, err := s.Setting("synchronous_commit"); v != "on" || err != nil {
		t.Errorf("synchronous_commit: got %q and error %v, want on", v, err)
	}
	s.Close()
	must(t, os.WriteFile(filepath.Join(server.Data(), "standby.signal"), nil, 0o600))
	must(t, server.Restart("hot_standby=on"))
	refused(t, url, nil, "recovering")
}

// A connection keeps a synchronous_commit that makes its commits durable, whatever the server's becomes.
func TestCommitsStaySynchronous(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	s := open(t, server.URL("postgres"), &postgres.Options{FsyncOff: true})
	looking := host(t, server.URL("postgres"))
	server.Exec(t, "postgres", `ALTER SYSTEM SET synchronous_commit = off`, `SELECT pg_reload_conf()`)
	eventually(t, func() bool {
		var now string
		must(t, looking.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit')`).Scan(&now))
		return now == "off"
	})
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k", "v")}, Urgent: true}))
	if v, err := s.Setting("synchronous_commit"); v != "on" || err != nil {
		t.Errorf("synchronous_commit: got %q and error %v, want on", v, err)
	}
}

// What makes a server durable is checked on each connection: a fail-over may lead to another server, and a setting may change.
func TestDurabilityIsCheckedAgain(t *testing.T) {
	server := pgtest.Start(t)
	p, url := proxied(t, server.URL("postgres"))
	s := open(t, url, &postgres.Options{NoListen: true})
	relaxed := open(t, url, &postgres.Options{NoListen: true, FsyncOff: true})
	looking := host(t, server.URL("postgres"))
	for _, name := range []string{"fsync", "full_page_writes"} {
		set := func(value string) {
			server.Exec(t, "postgres", `ALTER SYSTEM SET `+name+` = `+value, `SELECT pg_reload_conf()`)
			eventually(t, func() bool {
				var now string
				must(t, looking.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&now))
				return now == value
			})
			p.cutAll()
		}
		b := storage.Batch{Ops: []storage.Op{put(name, "")}}
		set("off")
		for _, b.Urgent = range []bool{false, true} {
			eventually(t, func() bool { // first, it finds out that its connection is cut
				err := s.Commit(t.Context(), b)
				if err == nil {
					t.Fatalf("%s off, urgent %v: got nil, want an error", name, b.Urgent)
				}
				return strings.Contains(err.Error(), name+" off")
			})
			eventually(t, func() bool { return relaxed.Commit(t.Context(), b) == nil })
		}
		set("on")
		eventually(t, func() bool { return s.Commit(t.Context(), b) == nil })
	}
}

// The host's pool is used only for reads, however small it is, and stays open.
func TestNewUsesHostsPool(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	must(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer pool.Close()
	s, err := postgres.New(t.Context(), pool, nil)
	must(t, err)
	held, err := pool.Acquire(t.Context())
	must(t, err)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}))
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "2")}, Urgent: true}))
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{End: []byte("a")})}}))
	held.Release()
	if v, err := s.Get(t.Context(), []byte("a")); err != nil || string(v) != "2" {
		t.Errorf("got %q and error %v, want 2", v, err)
	}
	must(t, s.Close())
	must(t, pool.Ping(t.Context()))
}

// A connection of the host's pool may be to a standby, which lacks the latest commits. No read believes it. The connection is
// closed, and the read goes on with another.
func TestStandbyInHostsPool(t *testing.T) {
	ctx := t.Context()
	standby := pgtest.Start(t)
	old := open(t, standby.URL("postgres"), &postgres.Options{NoListen: true})
	must(t, old.Commit(ctx, storage.Batch{Ops: []storage.Op{put("a", "old")}}))
	must(t, old.Close())
	must(t, os.WriteFile(filepath.Join(standby.Data(), "standby.signal"), nil, 0o600))
	must(t, standby.Restart("hot_standby=on"))

	config, err := pgxpool.ParseConfig(pgtest.Start(t).URL("postgres"))
	must(t, err)
	config.MaxConns = 1
	var toStandby atomic.Bool
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if toStandby.Load() {
			addr = standby.Addr()
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(t, err)
	defer pool.Close()
	s, err := postgres.New(ctx, pool, &postgres.Options{NoListen: true})
	must(t, err)
	defer s.Close()
	must(t, s.Commit(ctx, storage.Batch{Ops: []storage.Op{put("a", "new"), put("b", "new")}}))

	reads := map[string]func() error{
		"Get": func() error {
			v, err := s.Get(ctx, []byte("a"))
			if err == nil && string(v) != "new" {
				t.Errorf("Get = %q, want new", v)
			}
			return err
		},
		"Get of a key that the standby lacks": func() error { _, err := s.Get(ctx, []byte("b")); return err },
		"Scan": func() error {
			page, err := s.Scan(ctx, storage.Range{Limit: 10})
			if err == nil && len(page) != 2 {
				t.Errorf("Scan = %d entries, want 2", len(page))
			}
			return err
		},
		"Scan of what the standby lacks": func() error {
			page, err := s.Scan(ctx, storage.Range{Start: []byte("b"), End: []byte("c"), Reverse: true})
			if err == nil && len(page) != 1 {
				t.Errorf("Scan = %d entries, want 1", len(page))
			}
			return err
		},
		"Transact": func() error {
			return s.Transact(ctx, func(context.Context) (storage.Batch, error) {
				return storage.Batch{Ops: []storage.Op{put("b", "newer")}}, nil
			})
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			toStandby.Store(true)
			pool.Reset()
			if err := read(); err == nil || errors.Is(err, storage.ErrNotFound) || !strings.Contains(err.Error(), "recover") {
				t.Errorf("with a standby alone: %v, want an error that says so", err)
			}
			must(t, pool.Ping(ctx)) // the pool has a connection to the standby again
			toStandby.Store(false)
			if err := read(); err != nil && name != "Transact" {
				t.Errorf("with one connection to a standby: %v", err)
			}
			if err := read(); err != nil {
				t.Errorf("after the connection to the standby: %v", err)
			}
		})
	}
}

// WLD-72, WLD-73, WLD-74: the pool has so many connections that with the store's own there are at most 20. Idle ones are closed after 20 s,
// and a connection is made within 10 s or not at all. The size of the pool is the host's choice if its URL has one.
func TestConnections(t *testing.T) {
	url := pgtest.URL(t)
	c := open(t, url, nil).Pool()
	if most := int(c.MaxConns) + postgres.Committers + postgres.Lanes + 3; most != 20 {
		t.Errorf("a store has %d connections at most, want 20", most)
	}
	if c.MaxConnIdleTime != 20*time.Second || c.HealthCheckPeriod > 20*time.Second || c.ConnConfig.ConnectTimeout != 10*time.Second {
		t.Errorf("connections end after %v, looked at each %v, and are made within %v", c.MaxConnIdleTime, c.HealthCheckPeriod, c.ConnConfig.ConnectTimeout)
	}
	for _, most := range []int32{2, 30} {
		if got := open(t, fmt.Sprint(url, "&pool_max_conns=", most), nil).Pool().MaxConns; got != most {
			t.Errorf("pool_max_conns=%d: the pool has %d connections at most", most, got)
		}
	}
}
