package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// A COMMIT that waits for a synchronous standby is not cancelled when its connection is lost. A cancelled one would be
// visible although the standby does not have it, and who commits the same once more would be told that it is there.
func TestACommitWaitsForItsStandby(t *testing.T) {
	ctx := t.Context()
	server := pgtest.Start(t, "wal_level=replica", "max_wal_senders=2")
	direct := server.Database(t)
	p, url := proxied(t, direct)
	reader := open(t, direct, &postgres.Options{NoListen: true})
	names := func(names string) {
		server.Exec(t, "postgres", `ALTER SYSTEM SET synchronous_standby_names = '`+names+`'`, `SELECT pg_reload_conf()`)
	}
	conn, err := pgx.Connect(ctx, direct)
	must(t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	waiting := func() (n int) {
		must(t, conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&n))
		return n
	}
	for name, commit := range map[string]func(s *postgres.Store, key string) error{
		"Commit": func(s *postgres.Store, key string) error {
			return s.Commit(ctx, storage.Batch{Ops: []storage.Op{put(key, "1")}})
		},
		"Transact": func(s *postgres.Store, key string) error {
			return s.Transact(ctx, func(context.Context) (storage.Batch, error) {
				return storage.Batch{Ops: []storage.Op{put(key, "1")}}, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, key := open(t, url, &postgres.Options{NoListen: true}), name
			names("none_is_there")
			ended := make(chan error, 1)
			begin := func() {
				go func(key string) { ended <- commit(s, key) }(key)
			}
			begin()
			for n, end := 0, time.Now().Add(time.Minute); waiting() == 0; {
				select {
				case err := <-ended: // the server reads the setting at some time after pg_reload_conf
					if err != nil || time.Now().After(end) {
						t.Fatalf("it has not waited: %v", err)
					}
					n++
					key = fmt.Sprint(name, n)
					begin()
				case <-time.After(10 * time.Millisecond):
				}
			}
			p.cutAll()
			if err := <-ended; err == nil || errors.Is(err, storage.ErrConflict) {
				t.Errorf("Commit is answered %v, want an unknown outcome", err)
			}
			for range 50 { // a cancellation would take some milliseconds
				if _, err := reader.Get(ctx, []byte(key)); !errors.Is(err, storage.ErrNotFound) || waiting() == 0 {
					t.Fatalf("Get = %v, and %d commits wait, want ErrNotFound and one", err, waiting())
				}
				time.Sleep(20 * time.Millisecond)
			}
			names("")
			for {
				_, err := reader.Get(ctx, []byte(key))
				if err == nil {
					break
				}
				if !errors.Is(err, storage.ErrNotFound) {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}
