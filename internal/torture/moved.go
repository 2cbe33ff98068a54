package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

// Moved deletes, renames or replaces the files of an open store, or its folder, in every possible way. It checks
// that from then on nothing is acknowledged and all calls return storage.ErrMoved. It also checks
// that what a second opening of the path acknowledged survives when the first is closed.
func Moved(t *testing.T, open Open) {
	Slow(t)
	s := fresh(t, open)
	names := beside(t, s)
	s.store.Close()
	ways := map[string]func(t *testing.T, path string){
		"all files are deleted": func(t *testing.T, path string) {
			for _, name := range names {
				must(t, os.RemoveAll(filepath.Join(filepath.Dir(path), name)))
			}
		},
		"the file is replaced": func(t *testing.T, path string) {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				must(t, os.Rename(path, path+".old"))
				must(t, os.Mkdir(path+".backup", 0o700))
			} else {
				must(t, os.WriteFile(path+".backup", nil, 0o600))
			}
			must(t, os.Rename(path+".backup", path))
		},
		"the folder is renamed": func(t *testing.T, path string) {
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
		},
		"another folder is in the place of the folder": func(t *testing.T, path string) {
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
			must(t, os.Mkdir(filepath.Dir(path), 0o700))
		},
	}
	for _, name := range names {
		ways[name+" is deleted"] = func(t *testing.T, path string) {
			must(t, os.RemoveAll(filepath.Join(filepath.Dir(path), name)))
		}
		ways[name+" is renamed"] = func(t *testing.T, path string) {
			file := filepath.Join(filepath.Dir(path), name)
			must(t, os.Rename(file, file+".old"))
		}
	}
	for what, take := range ways {
		t.Run(what, func(t *testing.T) {
			moved(t, open, take)
			movedUnread(t, open, take)
		})
	}
	t.Run("and opened again", func(t *testing.T) { movedAndOpened(t, open, ways["all files are deleted"]) })
}

// An opening is a store and its path.
type opening struct {
	store storage.Storage
	path  string
}

func fresh(t *testing.T, open Open) opening {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "folder")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "store.db")
	s, err := open(path)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("1"))}}))
	return opening{s, path}
}

// beside returns the names of the files of an open store.
func beside(t *testing.T, o opening) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(o.path))
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Contains(names, "store.db") {
		t.Fatalf("got the files %q, want store.db among them", names)
	}
	return names
}

// moved moves the files while writers are active.
func moved(t *testing.T, open Open, take func(*testing.T, string)) {
	o := fresh(t, open)
	var taken, late, before atomic.Int64
	var wg sync.WaitGroup
	begun := make(chan struct{})
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				after := taken.Load() > 0
				err := o.store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "%d:%d", w, n), nil)}})
				switch {
				case err == nil && after:
					if late.Add(1) > 50 {
						return
					}
				case err == nil:
					if before.Add(1) == 8 {
						close(begun)
					}
				case !errors.Is(err, storage.ErrMoved) || !strings.Contains(err.Error(), filepath.Dir(o.path)):
					t.Errorf("a commit: got %v, want ErrMoved, and the path", err)
					return
				default:
					return
				}
			}
		})
	}
	<-begun
	take(t, o.path)
	taken.Store(1)
	wg.Wait()
	if n := late.Load(); n > 0 {
		t.Errorf("got %d commits acknowledged that began after the files were taken away, want none", n)
	}
	if _, err := o.store.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("Get: got %v, want ErrMoved", err)
	}
	if _, err := o.store.Scan(t.Context(), storage.Range{}); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("Scan: got %v, want ErrMoved", err)
	}
	if err := o.store.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Present([]byte("a"))}}); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("a batch of only conditions: got %v, want ErrMoved", err)
	}
	if tr, ok := storage.As[storage.Transactor](o.store); ok {
		if err := tr.Transact(t.Context(), nil); !errors.Is(err, storage.ErrMoved) {
			t.Errorf("Transact: got %v, want ErrMoved", err)
		}
	}
}

// movedUnread moves the files while nobody writes: a read must detect it.
func movedUnread(t *testing.T, open Open, take func(*testing.T, string)) {
	o := fresh(t, open)
	take(t, o.path)
	for end := time.Now().Add(time.Minute); ; {
		_, err := o.store.Scan(t.Context(), storage.Range{Limit: 1})
		if errors.Is(err, storage.ErrMoved) {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("Scan: got %v, want a page at first, and then ErrMoved", err)
		}
	}
	if err := o.store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("b"), nil)}}); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("a commit: got %v, want ErrMoved", err)
	}
}

// movedAndOpened closes the first opening while a second opening of the path is active.
func movedAndOpened(t *testing.T, open Open, take func(*testing.T, string)) {
	o := fresh(t, open)
	take(t, o.path)
	second, err := open(o.path)
	must(t, err)
	put := func(s storage.Storage, n int) error {
		return s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "key %03d", n), nil)}})
	}
	for n := range 50 {
		must(t, put(second, n))
		if err := put(o.store, 1000+n); !errors.Is(err, storage.ErrMoved) {
			t.Fatalf("a commit of the first opening: got %v, want ErrMoved", err)
		}
	}
	o.store.Close()
	for n := range 50 {
		must(t, put(second, 50+n))
	}
	must(t, second.Close())
	third, err := open(o.path)
	must(t, err)
	defer third.Close()
	page, err := third.Scan(t.Context(), storage.Range{})
	must(t, err)
	if len(page) != 100 {
		t.Errorf("got %d entries of the second opening, want the 100 that it acknowledged", len(page))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
