package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

// Damage opens and uses stores with damaged files: n with a flipped bit and n truncated, a fiftieth
// of that under the race detector, or as many as WEFT_DAMAGES says. Calls may return errors, if
// these name the file, and values with flipped bits. They must neither end the process nor hang.
//
// The files are copies of those that create makes: what is at path, a file or a folder, and the
// files whose names begin with path.
func Damage(t *testing.T, n int, open Open, create func(path string)) {
	Slow(t)
	r := seeded(t)
	whole := filepath.Join(t.TempDir(), "whole.db")
	create(whole)
	var files []file
	var filled []int // the indexes of those that are not empty
	if err := filepath.WalkDir(filepath.Dir(whole), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if suffix, ok := strings.CutPrefix(name, whole); ok {
			if len(data) > 0 {
				filled = append(filled, len(files))
			}
			files = append(files, file{suffix, data})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	n = count("WEFT_DAMAGES", Rounds(n, n, n/50))
	for _, kind := range []struct {
		name   string
		damage func(*rand.Rand, []byte) []byte
	}{{"flip", flip}, {"cut", cut}} {
		t.Run(kind.name, func(t *testing.T) {
			noticed, corrupt := 0, 0
			path := filepath.Join(t.TempDir(), "damaged.db")
			for range n {
				i := filled[r.IntN(len(filled))]
				damaged := slices.Clone(files)
				damaged[i].data = kind.damage(r, bytes.Clone(files[i].data))
				errs := useFiles(t, open, path, damaged)
				if len(errs) > 0 {
					noticed++
				}
				if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, storage.ErrCorrupt) }) {
					corrupt++
				}
				for _, err := range errs {
					if !strings.Contains(err.Error(), path) {
						t.Fatalf("got an error that does not name the file: %v", err)
					}
				}
			}
			t.Logf("%d of %d were noticed, %d as ErrCorrupt", noticed, n, corrupt)
		})
	}
}

func useFiles(t *testing.T, open Open, path string, files []file) []error {
	defer os.RemoveAll(path) // if it is a folder
	for _, f := range files {
		must(t, os.MkdirAll(filepath.Dir(path+f.suffix), 0o700))
		must(t, os.WriteFile(path+f.suffix, f.data, 0o600))
		defer os.Remove(path + f.suffix)
	}
	return use(open, path)
}

type file struct {
	suffix string
	data   []byte
}

func flip(r *rand.Rand, data []byte) []byte {
	at := r.IntN(len(data))
	if r.IntN(2) == 0 { // the start of a page, where there is more structure
		at = at &^ 4095
		at = min(at+r.IntN(256), len(data)-1)
	}
	data[at] ^= 1 << r.IntN(8)
	return data
}

func cut(r *rand.Rand, data []byte) []byte {
	n := r.IntN(len(data))
	if r.IntN(2) == 0 {
		n &^= 511
	}
	return data[:n]
}

// use calls each method of the store at path. If that takes too long, it panics with the stacks
// of all goroutines.
func use(open Open, path string) (errs []error) {
	watch := time.AfterFunc(time.Minute, func() {
		stacks := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s hangs\n%s", path, stacks[:runtime.Stack(stacks, true)]))
	})
	defer watch.Stop()
	note := func(err error) {
		if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrConflict) {
			errs = append(errs, err)
		}
	}
	s, err := open(path)
	if err != nil {
		return []error{err}
	}
	ctx := context.Background()
	for i := range 10 {
		_, err := s.Get(ctx, key(i*Entries/10))
		note(err)
	}
	_, err = s.Scan(ctx, storage.Range{Limit: 2 * Entries})
	note(err)
	_, err = s.Scan(ctx, storage.Range{Limit: 2 * Entries, Reverse: true})
	note(err)
	note(s.Commit(ctx, storage.Batch{
		If:  []storage.Condition{storage.Absent([]byte("new")), storage.Present(key(1))},
		Ops: []storage.Op{storage.Put([]byte("new"), make([]byte, 300)), storage.Delete(key(7))},
	}))
	note(s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key(Entries/2), make([]byte, 3000)), storage.Put(key(Entries/3), nil)}}))
	note(s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{Start: key(Entries / 4), End: key(Entries / 2)})}}))
	note(s.Close())
	return errs
}

// Entries is the number of entries that Fill puts.
const Entries = 300

func key(i int) []byte { return fmt.Appendf(nil, "key:%05d", i) }

// Fill puts entries of different sizes into s.
func Fill(t testing.TB, s storage.Storage) {
	t.Helper()
	var ops []storage.Op
	for i := range Entries {
		size := 40 + i%100
		if i%50 == 0 {
			size = 6000
		}
		ops = append(ops, storage.Put(key(i), bytes.Repeat([]byte{byte(i)}, size)))
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: ops}); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{Start: key(100), End: key(140)})}}); err != nil {
		t.Fatal(err)
	}
}
