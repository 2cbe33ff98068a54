package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// awkward generates byte strings at which range bounds tend to go wrong.
var awkward = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b', 0xfe, 0xff}), 0, 5)

func TestPrefixIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := awkward.Draw(t, "prefix")
		k := awkward.Draw(t, "key")
		if rapid.Bool().Draw(t, "begins with it") {
			k = append(bytes.Clone(p), k...)
		}
		r := storage.Prefix(p)
		got := bytes.Compare(k, r.Start) >= 0 && (r.End == nil || bytes.Compare(k, r.End) < 0)
		if want := bytes.HasPrefix(k, p); got != want {
			t.Fatalf("%q within Prefix(%q): got %v, want %v", k, p, got, want)
		}
	})
}

func TestPrefixLeavesItsArgument(t *testing.T) {
	p := []byte("ab\xff")
	r := storage.Prefix(p)
	if string(p) != "ab\xff" || string(r.End) != "ac" {
		t.Errorf("Prefix: got argument %q and end %q, want ab\\xff and ac", p, r.End)
	}
}

// numbered returns a store with the keys k00, k01 and so on.
func numbered(t testing.TB, n int) (*memory.Store, []string) {
	s := new(memory.Store)
	var keys []string
	for i := range n {
		k := fmt.Sprintf("k%02d", i)
		keys = append(keys, k)
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(k), nil)}}); err != nil {
			t.Fatal(err)
		}
	}
	return s, keys
}

// disordered returns the same page for every Scan, like a file with damaged keys.
type disordered struct {
	storage.Storage
	page []storage.Entry
}

func (d disordered) Scan(context.Context, storage.Range) ([]storage.Entry, error) {
	return slices.Clone(d.page), nil
}

func TestAllOfDisorderedStoreEnds(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		s := disordered{page: []storage.Entry{{Key: []byte("b")}, {Key: []byte("b")}}}
		pages, err := 0, error(nil)
		for _, err = range storage.All(t.Context(), s, storage.Range{Limit: 2, Reverse: reverse}) {
			if pages++; pages > 10 {
				break
			}
		}
		if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("reverse %v: got %v after %d entries, want ErrCorrupt", reverse, err, pages)
		}
	}
}

func TestAllIsEveryEntryOnce(t *testing.T) {
	s, keys := numbered(t, 20)
	for limit := range 25 {
		for _, reverse := range []bool{false, true} {
			want := slices.Clone(keys)
			if reverse {
				slices.Reverse(want)
			}
			all := storage.All(t.Context(), s, storage.Range{Limit: limit, Reverse: reverse})
			for pass := range 2 {
				var got []string
				for e, err := range all {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(e.Key))
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("limit %d, reverse %v, pass %d (-want +got):\n%s", limit, reverse, pass, d)
				}
			}
		}
	}
}

// The loop body owns the returned bytes, including the key.
func TestAllDoesNotReadWhatItYielded(t *testing.T) {
	s, keys := numbered(t, 20)
	for _, reverse := range []bool{false, true} {
		n := 0
		for e, err := range storage.All(t.Context(), s, storage.Range{Limit: 3, Reverse: reverse}) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range e.Key {
				e.Key[i] = 'z'
			}
			n++
		}
		if n != len(keys) {
			t.Errorf("reverse %v: got %d entries, want %d", reverse, n, len(keys))
		}
	}
}

func TestAllBodyMayDelete(t *testing.T) {
	s, keys := numbered(t, 20)
	n := 0
	for e, err := range storage.All(t.Context(), s, storage.Range{Limit: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete(e.Key)}}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != len(keys) {
		t.Errorf("got %d entries, want %d", n, len(keys))
	}
}

func TestAllStopsWhenTheBodyDoes(t *testing.T) {
	s, _ := numbered(t, 20)
	f := storagetest.NewFaulty(s, nil)
	for range storage.All(t.Context(), f, storage.Range{Limit: 3}) {
		break
	}
	if f.Calls() != 1 {
		t.Errorf("got %d pages read, want 1", f.Calls())
	}
}

func TestAllYieldsItsErrorLast(t *testing.T) {
	s, _ := numbered(t, 20)
	f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if c.N == 3 {
			return storagetest.ErrorBefore
		}
		return storagetest.None
	})
	var n int
	var last error
	for e, err := range storage.All(t.Context(), f, storage.Range{Limit: 3}) {
		if last != nil {
			t.Fatalf("got entry %q after error %v, want the end", e.Key, last)
		}
		if last = err; err == nil {
			n++
		}
	}
	if n != 6 || !errors.Is(last, storagetest.ErrInjected) {
		t.Errorf("got %d entries and error %v, want 6 and ErrInjected", n, last)
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range storage.All(gone, s, storage.Range{}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("context done: got %v, want context.Canceled", err)
		}
	}
}
