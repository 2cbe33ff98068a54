package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
)

func openInside(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func batch(key string, value []byte) storage.Batch {
	return storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), value)}}
}

func TestPragmasSurviveCancelledCalls(t *testing.T) {
	s := openInside(t)
	var wg sync.WaitGroup
	for i := range 200 {
		if err := s.Commit(t.Context(), batch(fmt.Sprint("key ", i), make([]byte, 10_000))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		wg.Go(func() { s.Commit(ctx, batch("a", nil)) })
		wg.Go(func() { s.Get(ctx, []byte("a")) })
		wg.Go(func() { s.Scan(ctx, storage.Range{}); cancel() })
	}
	wg.Wait()

	if err := s.writer.verify(s.writer.pragmas[1:]); err != nil {
		t.Errorf("writer: %v", err)
	}
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "100", "wal_autocheckpoint": "4000"} {
		if got := ask(t, s.writer.conn, "PRAGMA "+name); got != want {
			t.Errorf("writer: got %s %s, want %s", name, got, want)
		}
	}
	for range maxReaders {
		r := <-s.readers
		s.readers <- r
		if r == nil {
			continue
		}
		for name, want := range map[string]string{"journal_mode": "wal", "query_only": "1", "busy_timeout": "5000"} {
			if got := ask(t, r.conn, "PRAGMA "+name); got != want {
				t.Errorf("reader: got %s %s, want %s", name, got, want)
			}
		}
		if _, err := r.exec(r.sql.delete, []byte("a")); err == nil {
			t.Error("a reader could write")
		}
	}
}

func ask(t *testing.T, c *conn, sql string) (answer string) {
	t.Helper()
	err := c.query(sql, nil, 1, func(row []driver.Value) error {
		answer = fmt.Sprint(row[0])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestPragmaWithoutEffectIsRefused(t *testing.T) {
	_, err := connect(filepath.Join(t.TempDir(), "store.db"), "rwc", []pragma{{"journal_mode", "WALL", "wal"}})
	if err == nil || !strings.Contains(err.Error(), "journal_mode") {
		t.Errorf("got %v, want an error that names the pragma", err)
	}
}

func TestFullDatabase(t *testing.T) {
	s := openInside(t)
	full := func(pages int) { ask(t, s.writer.conn, fmt.Sprint("PRAGMA max_page_count = ", pages)) }
	full(100)
	var acked []string
	var failure error
	for i := 0; failure == nil; i++ {
		key := fmt.Sprint("key ", i)
		if failure = s.Commit(t.Context(), batch(key, make([]byte, 1000))); failure == nil {
			acked = append(acked, key)
		}
	}
	if e, ok := errors.AsType[*modernc.Error](failure); !ok || e.Code() != 13 || !strings.Contains(failure.Error(), "full") {
		t.Errorf("got %v, want SQLITE_FULL", failure)
	}
	if len(acked) < 50 {
		t.Errorf("got %d acknowledged, want some", len(acked))
	}
	check := func() {
		t.Helper()
		for _, k := range acked {
			if _, err := s.Get(t.Context(), []byte(k)); err != nil {
				t.Fatalf("%s was acknowledged: got %v", k, err)
			}
		}
	}
	check()
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete([]byte("key 0"))}}); err != nil {
		t.Errorf("a batch that needs no room: got %v, want nil", err)
	}
	acked = acked[1:]
	full(10_000)
	for i := range 100 {
		key := fmt.Sprint("more ", i)
		if err := s.Commit(t.Context(), batch(key, make([]byte, 1000))); err != nil {
			t.Fatalf("when there was room again: %v", err)
		}
		acked = append(acked, key)
	}
	check()
}

// TestOneBadBatchFailsAlone makes one of 200 batches fail in a way that cannot be
// foreseen.
func TestOneBadBatchFailsAlone(t *testing.T) {
	s := openInside(t)
	if _, err := s.writer.exec(`CREATE TRIGGER t BEFORE INSERT ON weft WHEN NEW.k = CAST('bad' AS BLOB) BEGIN SELECT RAISE(ABORT, 'bad'); END`); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				key := fmt.Sprint("key ", i)
				if i == 77 {
					key = "bad"
				}
				err := s.Commit(t.Context(), batch(key, nil))
				if bad := err != nil; bad != (i == 77) {
					t.Errorf("%s: got %v", key, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestLogIsBounded(t *testing.T) {
	torture.Slow(t)
	s := openInside(t)
	s.writer.log.limit = 8 << 20
	size := func() int64 {
		info, err := os.Stat(s.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	n := 0
	write := func(megabytes int) {
		t.Helper()
		for range 4 * megabytes {
			if n++; n%8 == 0 {
				s.writer.log.next = time.Time{}
			}
			// SQLite does not write pages that are unchanged.
			if err := s.Commit(t.Context(), batch(fmt.Sprint("key ", n%50), bytes.Repeat([]byte{byte(n)}, 250_000))); err != nil {
				t.Fatal(err)
			}
		}
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // so that there is always a reader
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.Scan(t.Context(), storage.Range{})
				}
			}
		})
	}
	write(60) // twice the limit of the log: an attempt to truncate it may fail
	close(stop)
	wg.Wait()
	if got := size(); got > 30<<20 {
		t.Errorf("got a log of %d MiB with readers that come and go, want at most 30", got>>20)
	}

	r, err := newReader(s.path, s.options) // a long read, as in another process
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.exec("BEGIN"); err != nil {
		t.Fatal(err)
	}
	ask(t, r.conn, "SELECT count(*) FROM weft")
	write(20)
	if got := size(); got < 16<<20 {
		t.Errorf("got a log of %d MiB, want what the reader holds back", got>>20)
	}
	if _, err := r.exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	write(3)
	if got := size(); got > 8<<20 {
		t.Errorf("got a log of %d MiB after the reader had ended, want at most 8", got>>20)
	}
}

// TestWriterRecovers ends the writer's transaction without its knowledge, as some errors
// of SQLite do.
func TestWriterRecovers(t *testing.T) {
	s := openInside(t)
	for _, b := range []func(){
		func() { s.writer.exec("BEGIN") },
		func() { s.writer.rollback() }, // nothing to roll back, so it drops the connection
	} {
		b()
		s.Commit(t.Context(), batch("a", []byte("lost or not")))
		if err := s.Commit(t.Context(), batch("a", []byte("1"))); err != nil {
			t.Errorf("got %v, want a writer that works again", err)
		}
		if v, err := s.Get(t.Context(), []byte("a")); err != nil || string(v) != "1" {
			t.Errorf("got %q and error %v, want 1", v, err)
		}
	}
}
