package sqlite_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

func refused(t *testing.T, path string, o *sqlite.Options, words ...string) error {
	t.Helper()
	s, err := sqlite.Open(path, o)
	if err == nil {
		s.Close()
		t.Fatalf("open %q: got nil, want an error", path)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, want %q in it", err, w)
		}
	}
	return err
}

func put(t *testing.T, s storage.Storage, key, value string) {
	t.Helper()
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), []byte(value))}}); err != nil {
		t.Fatal(err)
	}
}

func got(t *testing.T, s storage.Storage, key, want string) {
	t.Helper()
	if v, err := s.Get(t.Context(), []byte(key)); err != nil || string(v) != want {
		t.Errorf("%s: got %q and error %v, want %q", key, v, err, want)
	}
}

const locked = "is open in another process, or in this one already"

func TestSecondOpenerIsRefused(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	refused(t, path, nil, path, locked, "set Options.Shared in each")
	if got := torture.OpenElsewhere(t, path); !strings.Contains(got, locked) || !strings.Contains(got, path) {
		t.Errorf("in another process: got %q, want %q and %q", got, path, locked)
	}
	put(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := torture.OpenElsewhere(t, path); got != "" {
		t.Errorf("after Close: got %q, want no error", got)
	}
	got(t, open(t, path, nil), "a", "1")
}

// Interleaving 25: without resolving links, a file opened under two names would have two
// locks.
func TestLinkIsTheSameFile(t *testing.T) {
	dir := t.TempDir()
	path, link, dirLink := filepath.Join(dir, "store.db"), filepath.Join(dir, "link.db"), filepath.Join(t.TempDir(), "dir")
	for name, target := range map[string]string{link: "store.db", dirLink: dir} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, link, nil) // before the file exists
	put(t, s, "a", "1")
	refused(t, path, nil, locked)
	refused(t, link, nil, locked)
	refused(t, filepath.Join(dirLink, "store.db"), nil, locked)
	s.Close()
	got(t, open(t, path, nil), "a", "1")
}

// Interleaving 25: a stale lock file locks nothing, whatever it contains.
func TestStaleLockFileIsNoLock(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path+".lock", []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, nil)
	s.Close()
	if _, err := os.Stat(path + ".lock"); err != nil {
		t.Errorf("after Close: got %v, want the lock file to stay", err)
	}
	open(t, path, nil)
}

func TestOpeningsDiffer(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	s.Close()
	if r := open(t, path, nil); r.Opening() == s.Opening() || r.Opening() == "" {
		t.Errorf("got %q and %q, want two", s.Opening(), r.Opening())
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{
		"with space.db", "what?.db", "100%.db", "50%25.db", "a#b.db", "a&mode=ro.db", "é☃.db", "semi;colon.db", "'quote\".db",
		"file:x.db", ":memory:.db", "back\\slash.db", "plus+.db", strings.Repeat("long", 55) + ".db",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		s := open(t, path, nil)
		put(t, s, "a", name)
		s.Close()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: got %v, want a file of this name", name, err)
		}
		got(t, open(t, path, &sqlite.Options{ReadOnly: true}), "a", name)
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), name) {
				t.Errorf("%q: got a file %q beside it", name, e.Name())
			}
		}
	}
}

// Values may be secrets, and whoever can read the lock file can lock it.
func TestFilesAreForTheOwner(t *testing.T) {
	modes := func(path string, want fs.FileMode) {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != want {
				t.Errorf("%s: got %v, want %v", path+suffix, info.Mode(), want)
			}
		}
		if info, err := os.Stat(path + ".lock"); err != nil || info.Mode() != 0o600 {
			t.Errorf("lock: got %v, want mode 0600", info.Mode())
		}
	}
	path := filepath.Join(t.TempDir(), "with space+100% é&.db")
	s := open(t, path, nil)
	put(t, s, "a", "1")
	modes(path, 0o600)
	s.Close()

	beside := newPath(t) // the lock file of an earlier release
	if err := os.WriteFile(beside+".lock", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, open(t, beside, nil), "a", "1")
	if info, err := os.Stat(beside); err != nil || info.Mode() != 0o600 {
		t.Errorf("beside a lock file for all: got %v and error %v, want mode 0600", info.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(beside)); err != nil || len(files) != 4 {
		t.Errorf("got %v and error %v, want four files", files, err)
	}

	empty := newPath(t)
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, empty} { // an existing file keeps its mode
		if err := os.Chmod(path, 0o664); err != nil {
			t.Fatal(err)
		}
		put(t, open(t, path, nil), "a", "1")
		modes(path, 0o664)
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	s := open(t, "store.db", nil)
	t.Chdir(t.TempDir())
	put(t, s, "a", "1") // the readers are opened later
	for range 10 {
		got(t, s, "a", "1")
	}
}

func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	refused(t, "", nil, "memory")
	refused(t, ":memory:", nil, "memory")
	refused(t, filepath.Join(dir, "a\x00b"), nil, "zero byte")
	refused(t, newPath(t), &sqlite.Options{Table: `weft"; DROP TABLE x`}, "table name")
	refused(t, newPath(t), &sqlite.Options{Table: "1st"}, "table name")
	refused(t, newPath(t), &sqlite.Options{Table: "sqlite_x"}, "sqlite_x")
	if err := refused(t, filepath.Join(dir, "no", "such", "dir.db"), nil, "dir.db"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want one that is fs.ErrNotExist", err)
	}
	refused(t, dir, nil, dir)
}

func TestForeignFileIsNotTouched(t *testing.T) {
	path := newPath(t)
	text := []byte(strings.Repeat("this is a letter\n", 1000))
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, path, nil, path); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if now, _ := os.ReadFile(path); string(now) != string(text) {
		t.Error("the file was changed")
	}
}

// host opens the database as the host application would.
func host(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestTablesOfTheHostStay(t *testing.T) {
	path := newPath(t)
	db := host(t, path)
	exec(t, db, `CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)`)
	s := open(t, path, nil)
	put(t, s, "a", "1")
	exec(t, db, `INSERT INTO orders VALUES (1, 100)`)
	put(t, s, "a", "2")
	got(t, s, "a", "2")
	other := open(t, newPath(t), &sqlite.Options{Table: "other"})
	put(t, other, "a", "1")
}

// TestCommitWaitsForTheHost commits while the host writes to the database.
func TestCommitWaitsForTheHost(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	db := host(t, path+"?_txlock=immediate")
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("1"))}})
	}()
	if _, err := tx.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("got %v while the host held the lock", err)
	default:
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("got %v, want nil", err)
	}
	got(t, s, "a", "1")
}

func TestForeignTableIsRefused(t *testing.T) {
	for _, create := range []string{
		`CREATE TABLE weft (id INTEGER PRIMARY KEY, v TEXT)`,
		`CREATE TABLE weft (k BLOB PRIMARY KEY, v BLOB NOT NULL)`, // its keys may be NULL
		`CREATE TABLE weft (k BLOB NOT NULL, v BLOB NOT NULL)`,
		`CREATE TABLE weft (k BLOB PRIMARY KEY NOT NULL, v BLOB)`,
		`CREATE TABLE weft (k TEXT PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID`,
		`CREATE TABLE weft (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID`,
		`CREATE TABLE weft (k BLOB PRIMARY KEY, v BLOB NOT NULL, w) WITHOUT ROWID`,
		`CREATE VIEW weft AS SELECT 1 AS k, 2 AS v`,
	} {
		path := newPath(t)
		exec(t, host(t, path), create)
		refused(t, path, nil, "weft")
		refused(t, path, &sqlite.Options{ReadOnly: true}, "weft")
	}
}

func TestReadOnly(t *testing.T) {
	path := newPath(t)
	readOnly := &sqlite.Options{ReadOnly: true}
	refused(t, path, readOnly, path)
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) > 0 {
		t.Errorf("got %v after a store that is not there was opened read-only, want nothing", entries)
	}

	s := open(t, path, nil)
	if _, err := sqlite.Open(path, nil); !errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v for a second opener, want ErrInUse", err)
	}
	put(t, s, "a", "1")
	r, second := open(t, path, readOnly), open(t, path, readOnly)
	got(t, r, "a", "1")
	put(t, s, "a", "2")
	got(t, r, "a", "2")
	got(t, second, "a", "2")
	err := r.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("3"))}})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), path) {
		t.Errorf("commit: got %v, want ErrUnsupported and the path", err)
	}
	tx, err := host(t, path).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	err = r.WithTx(tx).Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("3"))}})
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, storage.ErrAborted) || !strings.Contains(err.Error(), path) {
		t.Errorf("commit in a transaction of the host: got %v, want ErrUnsupported, ErrAborted and the path", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := storage.Require(r, "an engine", "conditionalBatch"); err == nil {
		t.Error("got a read-only store that takes batches")
	}
	got(t, s, "a", "2")
	s.Close()
	got(t, r, "a", "2")
	r.Close()
	second.Close()
	got(t, open(t, path, readOnly), "a", "2") // nobody else has it open
	refused(t, path, &sqlite.Options{ReadOnly: true, Table: "other"}, "other")
}
