package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "100", "wal_autocheckpoint": "0"} {
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

// Without this, macOS leaves what is synced in the cache of the drive. The setting can be read on
// all systems.
func TestAllConnectionsFlushTheDrive(t *testing.T) {
	for _, relaxed := range []bool{false, true} {
		s, err := Open(filepath.Join(t.TempDir(), "store.db"), &Options{Relaxed: relaxed})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, err := newReader(s.path, s.options)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		for name, c := range map[string]*conn{"writer": s.writer.conn, "reader": r.conn} {
			if got := ask(t, c, "PRAGMA fullfsync"); got != "1" {
				t.Errorf("relaxed %v, %s: got %s, want 1", relaxed, name, got)
			}
		}
		err = s.Transact(t.Context(), func(ctx context.Context) (storage.Batch, error) {
			var got string
			err := TxOf(ctx).QueryRow("PRAGMA fullfsync").Scan(&got)
			if err == nil && got != "1" {
				t.Errorf("relaxed %v, Transact: got %s, want 1", relaxed, got)
			}
			return storage.Batch{}, err
		})
		if err != nil {
			t.Error(err)
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
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := connect(path, readWrite, []pragma{{"journal_mode", "WALL", "wal"}})
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
	megabyte := torture.Rounds(1<<20, 1<<20, 1<<17)
	s.writer.log.limit = int64(8 * megabyte)
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
			if err := s.Commit(t.Context(), batch(fmt.Sprint("key ", n%50), bytes.Repeat([]byte{byte(n)}, megabyte*24/100))); err != nil {
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
	// An attempt to truncate the log fails if the readers do not finish in time, so there are as
	// many as it takes. Without one, the log only grows.
	truncated, last := 0, int64(0)
	for range 500 {
		write(2)
		got := size()
		if got < last {
			truncated++
		}
		if last = got; truncated == 3 {
			break
		}
	}
	close(stop)
	wg.Wait()
	if truncated < 3 {
		t.Errorf("the log was truncated %d times while a thousand times %d bytes were written and readers came and went; it has %d", truncated, megabyte, size())
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
	if got := size(); got < int64(16*megabyte) {
		t.Errorf("got a log of %d bytes, want what the reader holds back", got)
	}
	if _, err := r.exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	write(3)
	if got := size(); got > s.writer.log.limit {
		t.Errorf("got a log of %d bytes after the reader had ended, want at most %d", got, s.writer.log.limit)
	}
}

// A log that nobody reads is copied into the database before it is long, and begins again.
func TestLogBeginsAgain(t *testing.T) {
	for name, write := range map[string]func(s *Store, ctx context.Context, b storage.Batch) error{
		"Commit": (*Store).Commit,
		"Transact": func(s *Store, ctx context.Context, b storage.Batch) error {
			return s.Transact(ctx, func(context.Context) (storage.Batch, error) { return b, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(filepath.Join(t.TempDir(), "store.db"), &Options{Relaxed: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.writer.log.frames = 100
			for i := range 1000 {
				if err := write(s, t.Context(), batch("key", bytes.Repeat([]byte{byte(i)}, 10_000))); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(s.path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > 2<<20 {
				t.Errorf("after 10 MB got a log of %d bytes, want one that has begun again after 100 pages", info.Size())
			}
		})
	}
}

// If there is no room for the log to grow, it can still be copied into the database. Then it begins again.
func TestLogOfAFullDiskIsCopied(t *testing.T) {
	s := openInside(t)
	s.writer.log.frames = 1
	// SQLite ends the transaction by itself, as it does without room. The connection is then dropped.
	if _, err := s.writer.exec(`CREATE TRIGGER full BEFORE INSERT ON weft BEGIN SELECT RAISE(ROLLBACK, 'full'); END`); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := s.Commit(t.Context(), batch("a", nil)); err == nil {
			t.Fatal("got nil, want an error")
		}
	}
	var copied driver.Value
	if err := s.writer.ready(); err != nil {
		t.Fatal(err)
	}
	err := s.writer.query("PRAGMA wal_checkpoint(NOOP)", nil, 3, func(row []driver.Value) error {
		copied = row[2]
		return nil
	})
	if err != nil || copied == int64(0) {
		t.Errorf("got %v frames copied and error %v, want some", copied, err)
	}
}

// TestWriterRecovers ends the writer's transaction without its knowledge, as some errors
// of SQLite do.
func TestWriterRecovers(t *testing.T) {
	s := openInside(t)
	for _, b := range []func(){
		func() { s.writer.exec("BEGIN") },
		func() { s.writer.rollback(nil) }, // nothing to roll back, so it drops the connection
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

// Conditions agree with the file, also if another connection has changed it, and after a group
// of which a part was rolled back.
func TestConditionsAgreeWithTheFile(t *testing.T) {
	s := openInside(t)
	key, other := []byte("key"), []byte("other")
	db, err := sql.Open("sqlite", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	do := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	table := s.writer.sql.table
	filler := slices.Repeat([]storage.Batch{batch("filler", nil)}, fewBatches)
	// group applies b in a group that is large enough for conditions to be judged in memory.
	group := func(b storage.Batch) error {
		verdicts := make([]error, 1+fewBatches)
		return cmp.Or(s.writer.apply(append([]storage.Batch{b}, filler...), verdicts), verdicts[0])
	}
	conditionally := func(want error, c storage.Condition) {
		t.Helper()
		err := group(storage.Batch{If: []storage.Condition{c, storage.Absent(other)}, Ops: []storage.Op{storage.Put(other, nil)}})
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if err == nil {
			do(`DELETE FROM `+table+` WHERE k = ?`, other)
		}
	}
	for _, c := range []storage.Condition{storage.Equal(key, []byte("1")), storage.Present(key)} {
		if err := s.Commit(t.Context(), batch("key", []byte("1"))); err != nil {
			t.Fatal(err)
		}
		conditionally(nil, c)
		conditionally(nil, c) // now it is known
		if holds, known := s.writer.known.Judge(c); !holds || !known {
			t.Errorf("%v of %q is not known", c.Kind, c.Key)
		}
		do(`DELETE FROM `+table+` WHERE k = ?`, key)
		conditionally(storage.ErrConflict, c)
		do(`INSERT INTO `+table+` VALUES (?, ?)`, key, []byte("1"))
		conditionally(nil, c)
	}
	do(`UPDATE `+table+` SET v = ? WHERE k = ?`, []byte("2"), key)
	conditionally(storage.ErrConflict, storage.Equal(key, []byte("1")))
	conditionally(nil, storage.Equal(key, []byte("2")))

	// The second batch fails, so the first is applied again by itself.
	do(`CREATE TRIGGER refuse BEFORE INSERT ON ` + table + ` WHEN NEW.k = x'00' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	first := storage.Batch{If: []storage.Condition{storage.Equal(key, []byte("2"))}, Ops: []storage.Op{storage.Put(key, []byte("3"))}}
	verdicts := make([]error, 2+fewBatches)
	if err := s.writer.apply(append([]storage.Batch{first, batch("\x00", nil)}, filler...), verdicts); err == nil {
		t.Fatal("the trigger has refused nothing")
	}
	if err := group(first); err != nil {
		t.Errorf("applied again: %v", err)
	}
	conditionally(nil, storage.Equal(key, []byte("3")))
}

// Versions of two connections are not compared: each counts from where it began.
func TestConditionsAgreeWithTheFileOnANewConnection(t *testing.T) {
	s := openInside(t)
	db, err := sql.Open("sqlite", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	key := []byte("key")
	write := func(value string) {
		t.Helper()
		if _, err := db.Exec(`INSERT OR REPLACE INTO `+s.writer.sql.table+` VALUES (?, ?)`, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	filler := slices.Repeat([]storage.Batch{batch("filler", nil)}, fewBatches)
	for before := range 4 {
		for after := 1; after < 4; after++ {
			for range before {
				write("1")
			}
			if err := s.writer.apply(append(filler, batch("key", []byte("1"))), make([]error, 1+fewBatches)); err != nil {
				t.Fatal(err)
			}
			s.writer.drop()
			change := storage.Batch{If: []storage.Condition{storage.Equal(key, []byte("1"))}, Ops: []storage.Op{storage.Put(key, []byte("2"))}}
			if err := s.Commit(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			for range after {
				write("3")
			}
			verdicts := make([]error, 1+fewBatches)
			stale := storage.Batch{If: []storage.Condition{storage.Equal(key, []byte("2"))}, Ops: []storage.Op{storage.Put(key, []byte("4"))}}
			if err := s.writer.apply(append([]storage.Batch{stale}, filler...), verdicts); err != nil || !errors.Is(verdicts[0], storage.ErrConflict) {
				t.Errorf("%d commits of others before the connection, %d after: %v, %v", before, after, err, verdicts[0])
			}
		}
	}
}

// A transaction of the host that has only staged takes the lock for writing before it reads anything. After a
// read, SQLite would refuse it the lock if another connection has it or has written since.
func TestStagingReadsNothingFirst(t *testing.T) {
	s := openInside(t)
	db, err := sql.Open("sqlite", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin() // deferred
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	v := s.WithTx(tx).(*view)
	if err := v.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), batch("a", nil)); err != nil {
		t.Fatal(err)
	}
	if err := cmp.Or(v.Commit(t.Context(), batch("b", nil)), tx.Commit()); err != nil {
		t.Errorf("after a commit of the store: got %v, want nil", err)
	}
	if _, err := s.Get(t.Context(), []byte("b")); err != nil {
		t.Error(err)
	}
}

// Who opens a store syncs the log, also if another one has it open: a process that was killed may not have.
func TestOpenerSyncsTheLog(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "store"), &Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Commit(t.Context(), batch("a", nil)); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no sync")
	var synced []string
	before := syncRead
	defer func() { syncRead = before }()
	syncRead = func(f *os.File) error {
		synced = append(synced, f.Name())
		return failure
	}
	for _, o := range []Options{{ReadOnly: true}, {Shared: true}} {
		synced = nil
		if _, err := Open(s.path, &o); !errors.Is(err, failure) {
			t.Errorf("%+v: got %v, want the error of the sync", o, err)
		}
		o.Relaxed = true
		other, err := Open(s.path, &o)
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
		if want := []string{s.path + "-wal"}; !slices.Equal(synced, want) {
			t.Errorf("%+v: got %q synced, want %q", o, synced, want)
		}
	}
}

// Who opens a store syncs the folder of the log, too: SQLite creates the log anew when no connection is left.
func TestOpenerSyncsTheFolder(t *testing.T) {
	s := openInside(t)
	failure := errors.New("no sync")
	var synced []string
	before := syncFolderOf
	defer func() { syncFolderOf = before }()
	syncFolderOf = func(file string) error {
		synced = append(synced, file)
		return failure
	}
	if _, err := Open(s.path, &Options{ReadOnly: true}); !errors.Is(err, failure) {
		t.Errorf("got %v, want the error of the sync", err)
	}
	if want := []string{s.path + "-wal"}; !slices.Equal(synced, want) {
		t.Errorf("got the folders of %q synced, want %q", synced, want)
	}
	syncFolderOf = before
	r, err := Open(s.path, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// A reader is connected before it syncs the log: what a process writes after that and does not sync before it is killed is
// shown by a first connection alone.
func TestReaderIsConnectedBeforeItSyncs(t *testing.T) {
	s := openInside(t)
	if err := s.Commit(t.Context(), batch("a", nil)); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), os.WriteFile(s.path+"-wal", log, 0o600)); err != nil { // as after a kill
		t.Fatal(err)
	}
	synced := 0
	before := syncRead
	defer func() { syncRead = before }()
	syncRead = func(*os.File) error {
		synced++
		if _, err := os.Stat(s.path + "-shm"); err != nil {
			t.Errorf("got %v, want a connection, which has read the log", err)
		}
		return nil
	}
	r, err := Open(s.path, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if synced != 1 {
		t.Errorf("got %d syncs, want 1", synced)
	}
}
