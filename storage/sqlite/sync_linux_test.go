package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-go/weft/storage"
)

// TestFailedSyncIsTheEnd makes syncs of the log fail. The kernel may then have dropped what it could
// not write, and the next sync would succeed.
func TestFailedSyncIsTheEnd(t *testing.T) {
	for _, name := range []string{"commit", "checkpoint", "transaction"} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(filepath.Join(t.TempDir(), "store.db"), &Options{Relaxed: name == "checkpoint"}) // then a commit syncs nothing
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Commit(t.Context(), batch("a", []byte("1"))); err != nil {
				t.Fatal(err)
			}
			restore := func() {}
			switch name {
			case "checkpoint":
				s.writer.log.frames, s.writer.log.written = 1, logLook // the next commit begins with one
				fallthrough
			case "commit":
				restore = unsyncable(t, s.path+"-wal")
				err = s.Commit(t.Context(), batch("a", []byte("2")))
			case "transaction":
				err = s.Transact(t.Context(), func(ctx context.Context) (storage.Batch, error) {
					// Read what the commit needs before it cannot be read any more.
					if _, err := TxOf(ctx).Exec(s.writer.sql.put, []byte("a"), []byte("2")); err != nil {
						t.Error(err)
					}
					restore = unsyncable(t, s.path+"-wal") // also that of its connection
					return batch("a", []byte("2")), nil
				})
			}
			restore()
			if err == nil || s.failure() == nil {
				t.Fatalf("got %v from a disk that fails, and the store goes on", err)
			}
			if err := s.Commit(t.Context(), batch("a", []byte("3"))); !errors.Is(err, storage.ErrFailed) || !strings.Contains(err.Error(), "first close all other connections to the database, then the store") {
				t.Errorf("commit: got %v, want ErrFailed, and what to do", err)
			}
			if _, err := s.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("get: got %v, want ErrFailed", err)
			}
			db, err := sql.Open("sqlite", s.path)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.WithTx(tx).Commit(t.Context(), batch("a", []byte("4"))); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("commit in a transaction of the host: got %v, want ErrFailed", err)
			}
			tx.Rollback()
			db.Close()
			err = s.Transact(t.Context(), func(context.Context) (storage.Batch, error) {
				t.Error("the function of Transact is called")
				return batch("a", []byte("5")), nil
			})
			if !errors.Is(err, storage.ErrFailed) {
				t.Errorf("Transact: got %v, want ErrFailed", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(s.path + "-wal"); err != nil {
				t.Errorf("the log, which may have what the database has lost: %v", err)
			}
			r, err := Open(s.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if v, err := r.Get(t.Context(), []byte("a")); err != nil || string(v) != "1" {
				t.Errorf("opened again: got %q and error %v, want 1", v, err)
			}
		})
	}
}

// unsyncable lets this process write what is meant for the file at path to /dev/null, which cannot be synced.
func unsyncable(t *testing.T, path string) (restore func()) {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	kept := map[int]int{}
	for _, name := range fds {
		if to, err := os.Readlink(name); err != nil || to != path {
			continue
		}
		fd, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		if kept[fd], err = unix.Dup(fd); err != nil {
			t.Fatal(err)
		}
		if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept) == 0 {
		t.Fatalf("nobody has %s open", path)
	}
	return func() {
		for fd, copied := range kept {
			if err := unix.Dup3(copied, fd, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			unix.Close(copied)
		}
	}
}
