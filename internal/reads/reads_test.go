package reads_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// numbered returns a store with so many keys, k:0000 and so on, whose values are the numbers, and with what more puts.
func numbered(t *testing.T, n int, more ...storage.Op) *memory.Store {
	t.Helper()
	s, b := new(memory.Store), storage.Batch{Ops: more}
	for i := range n {
		b.Ops = append(b.Ops, storage.Put(fmt.Appendf(nil, "k:%04d", i), fmt.Append(nil, i)))
	}
	if err := s.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return s
}

// Keys are read in a few calls if they are close to each other, and all are read wherever they are. A key that is not there is
// nil, which an empty value is not.
func TestGet(t *testing.T) {
	inner := numbered(t, 1000, storage.Put([]byte("k:empty"), nil))
	for name, c := range map[string]struct {
		first, step, n int
		scans, gets    int64
	}{
		"none":                    {0, 1, 0, 0, 0},
		"a few":                   {0, 1, 4, 0, 4},
		"side by side":            {100, 1, 300, 1, 0},
		"descending":              {399, -1, 300, 1, 0},
		"every second":            {100, 2, 300, 1, 0},
		"far apart":               {0, 10, 60, 1, 48}, // the page has 120
		"some that are not there": {900, 1, 200, 1, 0},
	} {
		var scans, gets atomic.Int64
		s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Scan" {
				scans.Add(1)
			} else {
				gets.Add(1)
			}
			return storagetest.None
		})
		var keys [][]byte
		for i := range c.n {
			keys = append(keys, fmt.Appendf(nil, "k:%04d", c.first+i*c.step))
		}
		values, err := reads.Get(t.Context(), s, keys)
		if err != nil || len(values) != c.n || scans.Load() != c.scans || gets.Load() != c.gets {
			t.Errorf("%s: %d values by %d scans and %d gets, %v; want %d by %d and %d", name, len(values), scans.Load(), gets.Load(), err, c.n, c.scans, c.gets)
		}
		for i, v := range values {
			if n := c.first + i*c.step; n < 1000 && string(v) != fmt.Sprint(n) || n >= 1000 && v != nil {
				t.Errorf("%s: key %d has %q", name, n, v)
			}
		}
	}
	many := [][]byte{[]byte("k:empty"), []byte("k:none"), []byte("k:0001"), []byte("k:0002"), []byte("k:0003"), []byte("k:0004")}
	for _, keys := range [][][]byte{many[:2], many} {
		values, err := reads.Get(t.Context(), inner, keys)
		if err != nil || values[0] == nil || len(values[0]) > 0 || values[1] != nil {
			t.Errorf("of %d keys, an empty value is %#v, one that is not there %#v: %v", len(keys), values[0], values[1], err)
		}
	}
}

// An error of any call is returned.
func TestGetFails(t *testing.T) {
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
	for _, n := range []int{1, 3, 30} {
		var all [][]byte
		for i := range n {
			all = append(all, append([]byte{}, keys[i%3]...))
		}
		s := storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault { return storagetest.ErrorBefore })
		if _, err := reads.Get(context.Background(), s, all); err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}
