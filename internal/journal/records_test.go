package journal

import (
	"context"
	"errors"
	"testing"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A stuck store gives the same full page for each range.
type stuck struct {
	storage.Storage
	page []storage.Entry
}

func (s stuck) Scan(_ context.Context, r storage.Range) ([]storage.Entry, error) {
	return s.page[:r.Limit], nil
}

// Records yields a range in its order, and no end of it from a store that does not go on.
func TestRecords(t *testing.T) {
	s := new(memory.Store)
	const n = 200
	var b storage.Batch
	for i := range n {
		b.Ops = append(b.Ops, storage.Put([]byte{'k', byte(i)}, nil))
	}
	if err := s.Commit(ctx, b); err != nil {
		t.Fatal(err)
	}
	for _, reverse := range []bool{false, true} {
		r := storage.Range{Start: []byte("k"), End: []byte("l"), Reverse: reverse}
		got := 0
		for e, err := range Records(ctx, s, r) {
			want := got
			if reverse {
				want = n - 1 - got
			}
			if err != nil || int(e.Key[1]) != want {
				t.Fatalf("reverse %v: %q, %v, want record %d", reverse, e.Key, err, want)
			}
			got++
		}
		if got != n {
			t.Errorf("reverse %v: %d records, want %d", reverse, got, n)
		}
		r.Limit = recordsAtOnce
		page, err := s.Scan(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		r.Limit, got = keys.PayloadPage, 0
		for _, err = range Records(ctx, stuck{s, page}, r) {
			if got++; err != nil || got > n {
				break
			}
		}
		if !errors.Is(err, storage.ErrCorrupt) || got != keys.PayloadPage+1 {
			t.Errorf("reverse %v: %v after %d records of the same page again, want ErrCorrupt after the first page", reverse, err, got)
		}
	}
}
