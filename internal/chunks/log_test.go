package chunks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

var ctx = context.Background()

func read(t testing.TB, s storage.Storage, l Log) *Head {
	t.Helper()
	h, err := l.Read(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func some(from, n int) (cs []Chunk) {
	for i := range n {
		cs = append(cs, Chunk{ID: fmt.Sprint("chnk_", from+i), Data: []byte{1}})
	}
	return cs
}

func appended(t testing.TB, s storage.Storage, h *Head, cs []Chunk) *Head {
	t.Helper()
	a, err := h.Append(cs)
	if err == nil {
		err = a.Commit(ctx, s, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a.Next
}

// Of two appends that were decided on one head, one is refused. A closed log takes nothing, until who has closed it
// opens it. Records of another generation do not count.
func TestLog(t *testing.T) {
	s := new(memory.Store)
	l := Of("o", "words", "G")
	h := read(t, s, l)
	first := appended(t, s, h, some(0, 2))
	a, err := h.Append(some(10, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, s, nil); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("appended to a head that has changed: %v", err)
	}
	appended(t, s, first, some(2, 1))
	h = read(t, s, l)
	cs, err := l.Chunks(ctx, s, 1, 10)
	if err != nil || h.Count != 3 || len(cs) != 2 || cs[0].ID != "chnk_1" || cs[1].ID != "chnk_2" || cs[1].Index != 2 {
		t.Errorf("%+v, %+v, %v", h, cs, err)
	}
	change := func(h *Head, conditions []storage.Condition, ops []storage.Op, err error) *Head {
		t.Helper()
		if err == nil {
			err = s.Commit(ctx, storage.Batch{If: conditions, Ops: ops})
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	closed := change(h.Close("3"))
	if _, err := closed.Append(some(3, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("appended to a closed log: %v", err)
	}
	if again, _, ops, _ := closed.Close("4"); again.Closed != "3" || len(ops) > 0 {
		t.Errorf("closed twice: %+v, %v", again, ops)
	}
	for _, by := range []string{"", "4"} {
		if h, _, ops, _ := closed.Reopen(by); h.Closed != "3" || len(ops) > 0 {
			t.Errorf("opened by %q: %+v, %v", by, h, ops)
		}
	}
	if h, _, ops, _ := read(t, s, Of("o", "other", "G")).Reopen(""); len(ops) > 0 {
		t.Errorf("opened what is open: %+v, %v", h, ops)
	}
	if h := change(closed.Reopen("3")); h.Closed != "" || h.Count != 3 {
		t.Errorf("opened: %+v", h)
	}
	later := Of("o", "words", "H")
	if h := read(t, s, later); h.Count != 0 || h.Closed != "" {
		t.Errorf("of another generation: %+v", h)
	}
	if _, err := later.Chunks(ctx, s, 0, 10); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("chunks of another generation: %v", err)
	}
	appended(t, s, read(t, s, later), some(0, 1))
	if cs, err := later.Chunks(ctx, s, 0, 1); err != nil || len(cs) != 1 || cs[0].Generation != "H" {
		t.Errorf("of the new generation: %+v, %v", cs, err)
	}
}

// An append whose outcome is unknown is there once, also if others have appended or the log was removed meanwhile.
func TestUnknownAppend(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		for _, between := range []string{"nothing", "another append", "removed"} {
			inner := new(memory.Store)
			l := Of("o", "words", "G")
			h := appended(t, inner, read(t, inner, l), some(0, 1))
			commits := 0
			s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
				if c.Method != "Commit" {
					return storagetest.None
				}
				if commits++; commits == 1 {
					return fault
				}
				return storagetest.None
			})
			a, err := h.Append(some(1, 2))
			if err != nil {
				t.Fatal(err)
			}
			unknown := 0
			err = a.Commit(ctx, s, func(error) {
				unknown++
				switch between {
				case "another append":
					appended(t, inner, read(t, inner, l), some(9, 1))
				case "removed":
					ops := append(l.Delete(3, 10), storage.Delete(l.HeadKey))
					if err := inner.Commit(ctx, storage.Batch{Ops: ops}); err != nil {
						t.Fatal(err)
					}
				}
			})
			landed := fault == storagetest.ErrorAfter && between != "removed" || between == "nothing"
			if (err == nil) != landed || err != nil && !errors.Is(err, storage.ErrConflict) || unknown != 1 {
				t.Errorf("%v, %s: %v", fault, between, err)
			}
			cs, err := l.Chunks(ctx, inner, 0, 10)
			n := 0
			for _, c := range cs {
				if c.ID == "chnk_1" || c.ID == "chnk_2" {
					n++
				}
			}
			if err != nil || (n == 2) != landed || n == 1 {
				t.Errorf("%v, %s: %d of its chunks are there, %v", fault, between, n, err)
			}
		}
	}
}

func TestFrom(t *testing.T) {
	for _, c := range []struct {
		at          int64
		count, want uint64
	}{{0, 3, 0}, {2, 3, 2}, {9, 3, 9}, {-1, 3, 2}, {-3, 3, 0}, {-4, 3, 0}, {-1, 0, 0}, {math.MinInt64, 3, 0}, {math.MaxInt64, 3, math.MaxInt64}} {
		if got := From(c.at, c.count); got != c.want {
			t.Errorf("From(%d, %d) is %d, want %d", c.at, c.count, got, c.want)
		}
	}
}

// Deletions begin with the last chunk, so that what is left is numbered without gaps.
func TestDelete(t *testing.T) {
	l := Of("o", "words", "G")
	for _, c := range []struct{ end, most, want int }{{0, 5, 0}, {3, 5, 3}, {7, 5, 5}} {
		ops := l.Delete(uint64(c.end), c.most)
		if len(ops) != c.want {
			t.Errorf("%+v: %d operations", c, len(ops))
		}
		for i, o := range ops {
			if want := fmt.Sprintf("chunk:o:words:%020d", c.end-1-i); string(o.Key) != want || o.Kind != storage.DeleteOp {
				t.Errorf("%+v: %s, want %s", c, o.Key, want)
			}
		}
	}
}
