package bolt_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
)

func refused(t *testing.T, path string, words ...string) error {
	t.Helper()
	s, err := bolt.Open(path, nil)
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
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, nil)
	if err := refused(t, path, path, locked); !errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	refused(t, link, locked)
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
	got(t, open(t, link, nil), "a", "1")
}

func TestOpeningsDiffer(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	s.Close()
	if r := open(t, path, nil); r.Opening() == s.Opening() || r.Opening() == "" {
		t.Errorf("got %q and %q, want two", s.Opening(), r.Opening())
	}
}

func TestBadPaths(t *testing.T) {
	dir := t.TempDir()
	refused(t, "", "no path")
	refused(t, dir, dir)
	if err := refused(t, filepath.Join(dir, "no", "such", "dir.db"), "dir.db"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want one that is fs.ErrNotExist", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("got %v left behind, want nothing", entries)
	}
}

func TestCreationLeavesOneFile(t *testing.T) {
	path := newPath(t)
	open(t, path, nil)
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("got the files %v, want one", entries)
	}
	if err := os.WriteFile(newPath(t), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db") // its target does not exist yet
	target := newPath(t)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	put(t, open(t, link, nil), "a", "1")
	if _, err := os.Stat(target); err != nil {
		t.Errorf("got %v, want the file that the link leads to", err)
	}
}

func TestEmptyFileIsAStore(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, open(t, path, nil), "a", "1")
}

func TestForeignFileIsNotTouched(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("this is a letter\n", 10_000), strings.Repeat("\x00", 100_000)} {
		path := newPath(t)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := refused(t, path, path); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("got %v, want ErrCorrupt", err)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Error("the file was changed")
		}
	}
}

func TestBucketsOfTheHostStay(t *testing.T) {
	path := newPath(t)
	host := func(f func(*bbolt.Tx) error) {
		t.Helper()
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Update(f); err != nil {
			t.Fatal(err)
		}
	}
	host(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("orders"))
		if err != nil {
			return err
		}
		for i := range 3000 { // several pages, and nested buckets
			if err := b.Put([]byte{byte(i >> 8), byte(i)}, make([]byte, 100)); err != nil {
				return err
			}
		}
		inner, err := b.CreateBucket([]byte("inner"))
		if err != nil {
			return err
		}
		return inner.Put([]byte("k"), []byte("v"))
	})
	s := open(t, path, nil)
	put(t, s, "a", "1")
	s.Close()
	second := open(t, path, &bolt.Options{Bucket: "second"})
	put(t, second, "a", "2")
	second.Close()
	got(t, open(t, path, nil), "a", "1")
}

func TestFileWithoutFreelistIsRefused(t *testing.T) {
	path := newPath(t)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("b")); return err }); err != nil {
		t.Fatal(err)
	}
	db.Close()
	refused(t, path, path, "NoFreelistSync")
}

// Several may read a store, nobody writes it meanwhile, and opening it read-only changes no
// byte and makes no file.
func TestReadOnly(t *testing.T) {
	path := newPath(t)
	readOnly := &bolt.Options{ReadOnly: true}
	if s, err := bolt.Open(path, readOnly); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v and error %v for a store that is not there, want ErrNotExist", s, err)
	}
	s := open(t, path, nil)
	put(t, s, "a", "1")
	if _, err := bolt.Open(path, readOnly); !errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v while the store is open, want ErrInUse", err)
	}
	s.Close()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	r, second := open(t, path, readOnly), open(t, path, readOnly)
	got(t, r, "a", "1")
	got(t, second, "a", "1")
	if _, err := bolt.Open(path, nil); !errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v while the store is read, want ErrInUse", err)
	}
	err = r.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("2"))}})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), path) {
		t.Errorf("commit: got %v, want ErrUnsupported and the path", err)
	}
	if err := storage.Require(r, "an engine", "conditionalBatch"); err == nil {
		t.Error("got a read-only store that takes batches")
	}
	r.Close()
	second.Close()
	if s, err := bolt.Open(path, &bolt.Options{ReadOnly: true, Bucket: "other"}); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("got %v and error %v for a bucket that is not there, want its name", s, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed; %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("got %v, want one file", entries)
	}
	got(t, open(t, path, nil), "a", "1")
}
