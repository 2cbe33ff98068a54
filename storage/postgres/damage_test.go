package postgres_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// A value whose page is damaged is reported as such, and only to those who need it: of 200 batches that are committed together, one
// compares it.
func TestOneBadBatchFailsAlone(t *testing.T) {
	server := pgtest.Start(t, "fsync=off", "autovacuum=off")
	o := &postgres.Options{FsyncOff: true}
	s := open(t, server.URL("postgres"), o)
	value := make([]byte, 10_000) // so it is in the other file of the table, where it is the only one
	rand.Read(value)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("bad"), value)}}))
	must(t, s.Close())
	damage(t, server, `SELECT pg_relation_filepath(reltoastrelid::regclass) FROM pg_class WHERE oid = 'weft.store'::regclass`, 0, bytes.Repeat([]byte{0xff}, 16<<10))
	s = open(t, server.URL("postgres"), o)
	for round := range 10 {
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				key := fmt.Sprint("key", round, "-", i)
				b := storage.Batch{If: []storage.Condition{missing(key)}, Ops: []storage.Op{put(key, "")}}
				if i == 77 {
					b.If = append(b.If, storage.Equal([]byte("bad"), value))
				}
				if err := s.Commit(t.Context(), b); errors.Is(err, storage.ErrCorrupt) != (i == 77) || (err == nil) != (i != 77) {
					t.Errorf("batch %d: got %v", i, err)
				}
			})
		}
		all.Wait()
	}
	if _, err := s.Get(t.Context(), []byte("bad")); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Get: got %v, want ErrCorrupt", err)
	}
	if _, err := s.Scan(t.Context(), storage.Range{End: []byte("bae")}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Scan: got %v, want ErrCorrupt", err)
	}
}

// damage writes over a part of a file, whose path a query returns.
func damage(t *testing.T, server *pgtest.Server, query string, at int64, with []byte) {
	t.Helper()
	var file string
	must(t, host(t, server.URL("postgres")).QueryRow(t.Context(), query).Scan(&file))
	server.Exec(t, "postgres", `CHECKPOINT`) // or the log would restore it
	server.Kill()
	f, err := os.OpenFile(filepath.Join(server.Data(), file), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(with, at)
	must(t, errors.Join(err, f.Close(), server.Restart()))
}

// A page of the index that has only zeros, as after a crash, is damage, too, also in a transaction of the host.
func TestADamagedIndex(t *testing.T) {
	server := pgtest.Start(t, "fsync=off", "autovacuum=off")
	o := &postgres.Options{FsyncOff: true}
	s := open(t, server.URL("postgres"), o)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("key", "")}}))
	must(t, s.Close())
	damage(t, server, `SELECT pg_relation_filepath('weft.store_pkey')`, 8<<10, make([]byte, 8<<10)) // its root
	s = open(t, server.URL("postgres"), o)
	tx, err := host(t, server.URL("postgres")).Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for what, s := range map[string]storage.Storage{"the store": s, "a transaction": s.WithTx(tx)} {
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("key", "")}}); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: Commit: got %v, want ErrCorrupt", what, err)
		}
		if _, err := s.Get(t.Context(), []byte("key")); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: Get: got %v, want ErrCorrupt", what, err)
		}
	}
}

// A group that meets what concerns the server as a whole, such as a missing table, is not divided: each of its batches would fail too.
// No error of the server costs a connection.
func TestGroupFailsAsAWhole(t *testing.T) {
	c, p, s := trailed(t, pgtest.URL(t), "")
	warm(t, s)
	var made atomic.Int32
	p.on(func(m message) action {
		if m.kind == 0 {
			made.Add(1)
		}
		return c.see(m)
	})
	c.exec(t, `ALTER TABLE weft.store RENAME TO gone`)
	c.slow.Store(0)
	const batches = 200
	var all sync.WaitGroup
	for i := range batches {
		all.Go(func() {
			err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(fmt.Sprint("key", i), "")}})
			if err == nil || errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("without a table: got %v", err)
			}
		})
	}
	all.Wait()
	if n := c.slow.Load(); n > batches {
		t.Errorf("%d batches were in %d transactions, want each in one", batches, n)
	}
	if n := made.Load(); n > 0 {
		t.Errorf("%d connections were made again, want none", n)
	}
	c.exec(t, `ALTER TABLE weft.gone RENAME TO store`)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("again", "")}}))
}
