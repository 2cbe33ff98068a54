package settle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// Batches that are too many for one, and those of which one is refused, are committed one by one; any other error ends it.
func TestTogether(t *testing.T) {
	for name, c := range map[string]struct {
		most    storage.Size
		taken   bool // a key that the third wants absent is there
		fault   storagetest.Fault
		commits int
		want    int
		err     error
	}{
		"at once":    {commits: 1, want: 5},
		"one is not": {taken: true, commits: 6, want: 4},
		"too many":   {most: storage.Size{Ops: 6}, commits: 6, want: 5},
		"too large":  {most: storage.Size{Bytes: 600}, commits: 6, want: 5},
		"it fails":   {fault: storagetest.ErrorBefore, commits: 1, err: storagetest.ErrInjected},
	} {
		s := new(memory.Store)
		var batches []storage.Batch
		for i := range 5 {
			key := fmt.Appendf(nil, "k:%d", i)
			batches = append(batches, storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, make([]byte, 200))}})
		}
		if c.taken {
			if err := s.Commit(t.Context(), storage.Batch{Ops: batches[2].Ops}); err != nil {
				t.Fatal(err)
			}
		}
		commits := 0
		f := storagetest.NewFaulty(&small{s, c.most}, func(storagetest.Call) storagetest.Fault { commits++; return c.fault })
		n, err := settle.Together(t.Context(), f, batches)
		if n != c.want || !errors.Is(err, c.err) || commits != c.commits {
			t.Errorf("%s: %d of 5 in %d commits, %v; want %d in %d, %v", name, n, commits, err, c.want, c.commits, c.err)
		}
	}
}

// A small store refuses larger batches.
type small struct {
	storage.Storage
	most storage.Size
}

func (s *small) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.most); err != nil {
		return err
	}
	return s.Storage.Commit(ctx, b)
}

// What a refused batch would have put is there only if all of it is, with the same bytes.
func TestStored(t *testing.T) {
	s := new(memory.Store)
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("1")), storage.Put([]byte("b"), nil)}}); err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) storage.Op { return storage.Put([]byte(key), []byte(value)) }
	for _, c := range []struct {
		ops  []storage.Op
		want bool
	}{
		{[]storage.Op{put("a", "1")}, true},
		{[]storage.Op{put("a", "1"), put("b", "")}, true},
		{[]storage.Op{put("a", "2")}, false},
		{[]storage.Op{put("a", "1"), put("c", "1")}, false},
	} {
		if got, err := settle.Stored(s, c.ops...)(t.Context()); err != nil || got != c.want {
			t.Errorf("%v: got %v and error %v, want %v", c.ops, got, err, c.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := settle.Stored(s, put("a", "1"))(t.Context()); got || err == nil {
		t.Errorf("a closed store: got %v and error %v", got, err)
	}
}
