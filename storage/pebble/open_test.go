package pebble_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/storebench"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/pebble"
)

func refused(t *testing.T, path string, o *pebble.Options, words ...string) error {
	t.Helper()
	s, err := pebble.Open(path, o)
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
	link := filepath.Join(t.TempDir(), "link")
	s := open(t, path, nil)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		if err := refused(t, name, nil, name, locked); !errors.Is(err, storage.ErrInUse) {
			t.Errorf("got %v, want ErrInUse", err)
		}
	}
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

func TestBadPathsAndOptions(t *testing.T) {
	dir := t.TempDir()
	refused(t, "", nil, "no path")
	if err := refused(t, filepath.Join(dir, "no", "such"), nil, "such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want one that is fs.ErrNotExist", err)
	}
	if err := refused(t, filepath.Join(dir, "none"), &pebble.Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read-only: got %v, want one that is fs.ErrNotExist", err)
	}
	refused(t, filepath.Join(dir, "a"), &pebble.Options{CacheSize: -1}, "CacheSize")
	refused(t, filepath.Join(dir, "a"), &pebble.Options{MemTableSize: 1000}, "MemTableSize")
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("got %v left behind, want nothing", entries)
	}
	file := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, file, nil, "a file is there")
	refused(t, dir, nil, "notes.txt", "a folder of its own")
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %v, want the folder as it was", entries)
	}
}

func TestReadOnly(t *testing.T) {
	path := newPath(t)
	readOnly := &pebble.Options{ReadOnly: true}
	s := open(t, path, nil)
	put(t, s, "a", "1")
	if err := refused(t, path, readOnly); !errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v while the store is open, want ErrInUse", err)
	}
	s.Close()
	before := names(t, path)

	r, second := open(t, path, readOnly), open(t, path, readOnly)
	got(t, r, "a", "1")
	got(t, second, "a", "1")
	if err := refused(t, path, nil); !errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v while the store is read, want ErrInUse", err)
	}
	err := r.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("2"))}})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), path) {
		t.Errorf("commit: got %v, want ErrUnsupported and the path", err)
	}
	if err := storage.Require(r, "an engine", "conditionalBatch"); err == nil {
		t.Error("got a read-only store that takes batches")
	}
	r.Close()
	second.Close()
	if after := names(t, path); after != before {
		t.Errorf("got the files\n%s\nwant\n%s", after, before)
	}
	got(t, open(t, path, nil), "a", "1")
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, e.Name(), info.Size(), info.ModTime())
	}
	return all.String()
}

// A backup that is made while others commit has everything that was acknowledged before, and no
// batch in part.
func TestBackup(t *testing.T) {
	s := open(t, newPath(t), &pebble.Options{MemTableSize: 1 << 20})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var acked [4]atomic.Int64
	var most atomic.Int64 // of each writer, so that a slow reader is not left ever further behind
	for w := range acked {
		wg.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if n > most.Load() {
					n--
					time.Sleep(time.Millisecond)
					continue
				}
				var ops []storage.Op
				for _, half := range []string{"a", "b"} {
					ops = append(ops, storage.Put(fmt.Appendf(nil, "%s:%d:%06d", half, w, n), make([]byte, 2000)))
				}
				if err := s.Commit(t.Context(), storage.Batch{Ops: ops}); err != nil {
					t.Error(err)
					return
				}
				acked[w].Store(n)
			}
		})
	}
	for round := range 5 {
		most.Store(int64(100 * (round + 3))) // commits go on during the backup
		for acked[0].Load() < int64(100*(round+1)) && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		var before [len(acked)]int64
		for w := range acked {
			before[w] = acked[w].Load()
		}
		dir := newPath(t)
		if err := s.Backup(dir); err != nil {
			t.Fatal(err)
		}
		if err := s.Backup(dir); !errors.Is(err, fs.ErrExist) {
			t.Errorf("again: got %v, want fs.ErrExist", err)
		}
		b := open(t, dir, nil)
		for w, n := range before {
			halves := [2]int{}
			for i, half := range []string{"a", "b"} {
				for _, err := range storage.All(t.Context(), b, storage.Prefix(fmt.Appendf(nil, "%s:%d:", half, w))) {
					if err != nil {
						t.Fatal(err)
					}
					halves[i]++
				}
			}
			if halves[0] != halves[1] || int64(halves[0]) < n {
				t.Errorf("writer %d: got %d and %d halves, want as many, and at least %d", w, halves[0], halves[1], n)
			}
		}
		put(t, b, "restored", "1")
		b.Close()
	}
	close(stop)
	wg.Wait()
	s.Close()
	if err := s.Backup(newPath(t)); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
}

// Others may not read a backup, as they may not read the store.
func TestOthersCannotReadABackup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders have no modes here")
	}
	s := open(t, newPath(t), nil)
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := s.Backup(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: got %v and error %v, want the mode 0700", name, info.Mode(), err)
		}
	}
}

// Of several backups to one folder at once, one is made, and it is whole.
func TestBackupsToOneFolderAtOnce(t *testing.T) {
	var stores []*pebble.Store
	for i := range 2 {
		s := open(t, newPath(t), nil)
		put(t, s, "store", fmt.Sprint(i))
		stores = append(stores, s)
	}
	for round := range torture.Rounds(1000, 50, 20) {
		above := t.TempDir()
		dir := filepath.Join(above, "backup")
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = stores[i%2].Backup(dir) })
		}
		wg.Wait()
		made := -1
		for i, err := range errs {
			switch {
			case err == nil && made < 0:
				made = i
			case err == nil || !errors.Is(err, fs.ErrExist):
				t.Errorf("round %d, backup %d: got %v, want one that is made, and fs.ErrExist of the others", round, i, err)
			}
		}
		if made < 0 {
			t.Fatalf("round %d: none was made: %v", round, errs)
		}
		b, err := pebble.Open(dir, &pebble.Options{ReadOnly: true})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got(t, b, "store", fmt.Sprint(made%2))
		b.Close()
		if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
			t.Errorf("round %d: got %v and error %v, want the backup alone", round, entries, err)
		}
		if t.Failed() {
			return
		}
	}
}

// The row of this store in the table of stores says what it claims.
func TestAdapterTable(t *testing.T) {
	c := open(t, newPath(t), nil).Capabilities()
	if c.Shared || !c.ConditionalBatch || !c.AtomicBatch || !c.ReadAfterWrite || !c.Durable {
		t.Fatalf("got %+v, and the row below says something else", c)
	}
	want := fmt.Sprintf("| `storage/pebble` | yes | yes | yes | %s | yes | no | %d, %d MiB |\n", c.ScanConsistency, c.MaxBatch.Ops, c.MaxBatch.Bytes>>20)
	guide, err := os.ReadFile("../../docs/guides/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), want) {
		t.Errorf("the table of stores in docs/guides/stores.md should have the row\n%s", want)
	}
}

func BenchmarkCommit(b *testing.B) {
	storebench.Commit(b, func(t testing.TB) storage.Storage { return open(t, newPath(t), nil) })
}
