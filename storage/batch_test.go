package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/storage"
)

func key(s string) []byte { return []byte(s) }

// many returns n puts of different keys.
func many(n int) []storage.Op {
	var ops []storage.Op
	for i := range n {
		ops = append(ops, storage.Put(fmt.Appendf(nil, "key%d", i), nil))
	}
	return ops
}

func TestCheckTakesWhatIsValid(t *testing.T) {
	longest := []byte(strings.Repeat("k", storage.MaxKey))
	for what, b := range map[string]storage.Batch{
		"nothing":                     {},
		"longest key":                 {If: []storage.Condition{storage.Present(longest)}, Ops: []storage.Op{storage.Delete(longest)}},
		"only conditions":             {If: []storage.Condition{storage.Present(key("a")), storage.Equal(key("b"), nil)}},
		"condition and put":           {If: []storage.Condition{storage.Absent(key("a"))}, Ops: []storage.Op{storage.Put(key("a"), nil)}},
		"absent and put, among many":  {If: []storage.Condition{storage.Absent(key("key30"))}, Ops: many(40)},
		"key under range":             {Ops: []storage.Op{storage.Put(key("a"), nil), storage.DeleteRange(storage.Prefix(key("a")))}},
		"ranges twice and everywhere": {Ops: []storage.Op{storage.DeleteRange(storage.Range{}), storage.DeleteRange(storage.Range{})}},
		"binary key":                  {Ops: []storage.Op{storage.Put([]byte{0}, nil), storage.Put([]byte{0, 0}, nil)}},
	} {
		if err := b.Check(storage.Size{}); err != nil {
			t.Errorf("%s: got %v, want nil", what, err)
		}
	}
}

func TestCheckSaysWhatIsInvalid(t *testing.T) {
	long := []byte(strings.Repeat("k", storage.MaxKey+1))
	a := key("a")
	for _, c := range []struct {
		what string
		b    storage.Batch
		says string
	}{
		{"put of no key", storage.Batch{Ops: []storage.Op{storage.Put(nil, a)}}, "empty key"},
		{"delete of no key", storage.Batch{Ops: []storage.Op{storage.Delete([]byte{})}}, "empty key"},
		{"condition on no key", storage.Batch{If: []storage.Condition{storage.Present(nil)}}, "empty key"},
		{"long key", storage.Batch{Ops: []storage.Op{storage.Put(long, a)}}, "key of 2301 bytes, at most 2300"},
		{"condition on a long key", storage.Batch{If: []storage.Condition{storage.Present(long)}}, "key of 2301 bytes"},
		{"zero condition", storage.Batch{If: []storage.Condition{{Key: a}}}, `condition on "a" has the unknown kind 0`},
		{"condition of the future", storage.Batch{If: []storage.Condition{{Kind: 4, Key: a}}}, `condition on "a" has the unknown kind 4`},
		{"zero operation", storage.Batch{Ops: []storage.Op{{Key: a}}}, `operation on "a" has the unknown kind 0`},
		{"operation of the future", storage.Batch{Ops: []storage.Op{{Kind: 4, Key: a}}}, `operation on "a" has the unknown kind 4`},
		{"two conditions", storage.Batch{If: []storage.Condition{storage.Present(a), storage.Equal(a, a)}}, `two conditions on "a"`},
		{"two operations", storage.Batch{Ops: []storage.Op{storage.Put(a, a), storage.Delete(a)}}, `two operations on "a"`},
		{"two around a range", storage.Batch{Ops: []storage.Op{storage.Put(a, a), storage.DeleteRange(storage.Range{}), storage.Put(a, a)}}, `two operations on "a"`},
		{"two early among many", storage.Batch{Ops: append(many(40), storage.Delete(key("key1")))}, `two operations on "key1"`},
		{"two late among many", storage.Batch{Ops: append(many(40), storage.Delete(key("key39")))}, `two operations on "key39"`},
		{"absent and not put", storage.Batch{If: []storage.Condition{storage.Absent(a)}}, `"a" must be absent and is neither put nor deleted`},
		{"absent and in a range that is deleted", storage.Batch{If: []storage.Condition{storage.Absent(a)}, Ops: []storage.Op{storage.DeleteRange(storage.Range{})}}, `"a" must be absent and is neither put nor deleted`},
	} {
		err := c.b.Check(storage.Size{})
		if !errors.Is(err, storage.ErrInvalidBatch) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: got %v, want ErrInvalidBatch that says %q", c.what, err, c.says)
		}
	}
}

func TestCheckBoundsSize(t *testing.T) {
	b := storage.Batch{
		If:  []storage.Condition{storage.Equal(key("ab"), key("cde"))},
		Ops: []storage.Op{storage.Put(key("f"), key("gh")), storage.DeleteRange(storage.Range{Start: key("i"), End: key("jk")})},
	}
	size := storage.Size{Ops: 3, Bytes: 11}
	if got := b.Size(); got != size {
		t.Errorf("Size: got %+v, want %+v", got, size)
	}
	for max, want := range map[storage.Size]error{
		{}:                    nil,
		size:                  nil,
		{Ops: 3}:              nil,
		{Bytes: 11}:           nil,
		{Ops: 2}:              storage.ErrInvalidBatch,
		{Bytes: 10}:           storage.ErrInvalidBatch,
		{Ops: 2, Bytes: 1000}: storage.ErrInvalidBatch,
		{Ops: 1000, Bytes: 1}: storage.ErrInvalidBatch,
	} {
		if err := b.Check(max); !errors.Is(err, want) {
			t.Errorf("Check(%+v): got %v, want %v", max, err, want)
		}
	}
}

// Check accepts no batch, of any size, that names a key twice.
func TestCheckFindsEveryDouble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(t, "operations")
		first := rapid.IntRange(0, n-2).Draw(t, "first")
		second := rapid.IntRange(first+1, n-1).Draw(t, "second")
		ops := many(n)
		var conditions []storage.Condition
		for _, o := range ops {
			conditions = append(conditions, storage.Absent(o.Key))
		}
		if err := (storage.Batch{If: conditions, Ops: ops}).Check(storage.Size{}); err != nil {
			t.Fatalf("without doubles: got %v, want nil", err)
		}
		conditions[second].Key = conditions[first].Key
		if err := (storage.Batch{If: conditions, Ops: ops}).Check(storage.Size{}); !errors.Is(err, storage.ErrInvalidBatch) {
			t.Fatalf("two conditions on %q: got %v, want ErrInvalidBatch", conditions[first].Key, err)
		}
		ops[second].Key = ops[first].Key
		if err := (storage.Batch{Ops: ops}).Check(storage.Size{}); !errors.Is(err, storage.ErrInvalidBatch) {
			t.Fatalf("two operations on %q: got %v, want ErrInvalidBatch", ops[first].Key, err)
		}
	})
}

func TestCheckOfSmallBatchAllocatesNothing(t *testing.T) {
	b := storage.Batch{If: []storage.Condition{storage.Absent(key("key3")), storage.Present(key("a"))}, Ops: many(16)}
	if n := testing.AllocsPerRun(100, func() { b.Check(storage.Size{}) }); n != 0 {
		t.Errorf("Check: got %v allocations, want 0", n)
	}
}

func TestHasDeleteRange(t *testing.T) {
	if (storage.Batch{Ops: many(3)}).HasDeleteRange() {
		t.Error("batch of puts: got true, want false")
	}
	if !(storage.Batch{Ops: append(many(3), storage.DeleteRange(storage.Range{}))}).HasDeleteRange() {
		t.Error("batch with a range: got false, want true")
	}
}
