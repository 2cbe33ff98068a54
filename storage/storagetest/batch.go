package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-go/weft/storage"
)

func emptyBatchIsFine(t *trial) {
	t.commit(storage.Batch{})
	t.commit(storage.Batch{Urgent: true})
	t.put("a=1")
	t.commit(storage.Batch{})
	t.holds("a=1")
}

func opsInOrder(t *trial) {
	rest := storage.DeleteRange(storage.Prefix([]byte("r")))
	t.put("r1=old", "r2=old")
	t.do(rest, put("r1", "new"), put("r3", "new"))
	t.holds("r1=new", "r3=new")
	t.do(put("r2", "gone"), put("s", "1"), rest)
	t.holds("s=1")
	t.do(put("r1", "gone"), rest, put("r2", "stays"), del("s"))
	t.holds("r2=stays")
	t.do(rest, put("r1", "gone"), rest, put("r3", "stays"))
	t.holds("r3=stays")
	t.do(del("r3"), storage.DeleteRange(between("r1", "r2")), put("r1", "stays"), storage.DeleteRange(between("r2", "s")))
	t.holds("r1=stays")
}

func deleteRangeIsExact(t *trial) {
	reset := func() { t.do(put("a", "1"), put("b", "2"), put("b\x00", "3"), put("c", "4"), put("\xff", "5")) }
	for _, c := range []struct {
		r    storage.Range
		want []string
	}{
		{between("b", "c"), []string{"a=1", "c=4", "\xff=5"}},
		{between("a\x00", "b\x00"), []string{"a=1", "b\x00=3", "c=4", "\xff=5"}},
		{between("", "b"), []string{"b=2", "b\x00=3", "c=4", "\xff=5"}},
		{between("c", ""), []string{"a=1", "b=2", "b\x00=3"}},
		{between("d", "e"), []string{"a=1", "b=2", "b\x00=3", "c=4", "\xff=5"}},
		{storage.Prefix([]byte("b")), []string{"a=1", "c=4", "\xff=5"}},
		{storage.Prefix([]byte("\xff")), []string{"a=1", "b=2", "b\x00=3", "c=4"}},
		{storage.Range{}, nil},
	} {
		reset()
		t.do(storage.DeleteRange(c.r))
		t.same("after DeleteRange of "+rangeWords(c.r), t.all(), c.want)
	}
}

func deleteRangeIsWhole(t *trial) {
	t.put(numbered("k", storage.DefaultLimit+5)...)
	t.put("l=1")
	r := storage.Prefix([]byte("k"))
	r.Limit = 3
	r.Reverse = true
	t.do(storage.DeleteRange(r))
	t.holds("l=1")
}

func urgentIsABatch(t *trial) {
	urgent := func(ops ...storage.Op) storage.Batch { return storage.Batch{Ops: ops, Urgent: true} }
	t.commit(urgent(put("a", "1"), put("b", "2")))
	t.commit(urgent(del("a"), put("b", "3")))
	t.holds("b=3")
	t.commit(urgent(storage.DeleteRange(storage.Range{}), put("c", "4")))
	t.holds("c=4")
	t.refused(urgent(put("d", "1"), put("", "2")), storage.ErrInvalidBatch)
	t.holds("c=4")
}

func urgentIsConditional(t *trial) {
	urgent := func(b storage.Batch) storage.Batch { b.Urgent = true; return b }
	t.commit(urgent(then(when(absent("lease")), put("lease", "1"))))
	t.commit(urgent(then(when(equal("lease", "1")), put("lease", "2"))))
	t.conflict(urgent(then(when(equal("lease", "1")), put("lease", "3"))))
	t.conflict(urgent(then(when(absent("lease")), put("lease", "3"))))
	t.holds("lease=2")
}

func invalidOpsAreRefused(t *trial) {
	t.put("a=1")
	many := func(extra ...storage.Op) []storage.Op {
		var ops []storage.Op
		for i := range 20 {
			ops = append(ops, put(fmt.Sprint("many", i), "1"))
		}
		return append(ops, extra...)
	}
	for _, c := range []struct {
		what string
		ops  []storage.Op
	}{
		{"put of the empty key", []storage.Op{put("", "1")}},
		{"put of the nil key", []storage.Op{storage.Put(nil, nil)}},
		{"delete of the empty key", []storage.Op{del("")}},
		{"delete of the nil key", []storage.Op{storage.Delete(nil)}},
		{"key that is too long", []storage.Op{put(strings.Repeat("k", storage.MaxKey+1), "1")}},
		{"operation without a kind", []storage.Op{{Key: []byte("b")}}},
		{"operation of no known kind", []storage.Op{{Kind: storage.DeleteRangeOp + 1, Key: []byte("b")}}},
		{"put twice", []storage.Op{put("b", "1"), put("b", "1")}},
		{"put and delete", []storage.Op{put("b", "1"), del("b")}},
		{"delete and put", []storage.Op{del("a"), put("a", "1")}},
		{"delete twice", []storage.Op{del("a"), storage.DeleteRange(between("x", "y")), del("a")}},
		{"twice among many", many(put("many7", "2"))},
	} {
		for _, b := range []storage.Batch{
			batch(append([]storage.Op{put("first", "1")}, c.ops...)...),
			batch(append(c.ops[:len(c.ops):len(c.ops)], put("last", "1"))...),
		} {
			t.refused(b, storage.ErrInvalidBatch)
			t.same("after "+c.what, t.all(), []string{"a=1"})
		}
	}
}

func invalidConditionsAreRefused(t *trial) {
	t.put("a=1")
	long := strings.Repeat("k", storage.MaxKey+1)
	for _, c := range []struct {
		what string
		b    storage.Batch
	}{
		{"condition on the empty key", then(when(equal("", "1")), put("b", "1"))},
		{"condition on the nil key", then(when(storage.Present(nil)), put("b", "1"))},
		{"condition on a key that is too long", then(when(present(long)), put("b", "1"))},
		{"condition without a kind", then(when(storage.Condition{Key: []byte("a")}), put("b", "1"))},
		{"condition of no known kind", then(when(storage.Condition{Kind: storage.IsPresent + 1, Key: []byte("a")}), put("b", "1"))},
		{"two conditions on one key", then(when(equal("a", "1"), present("a")), put("b", "1"))},
		{"the same condition twice", then(when(equal("a", "1"), equal("a", "1")), put("b", "1"))},
		{"absent and not written", then(when(absent("b")), put("c", "1"))},
		{"absent and only in a range that is deleted", then(when(absent("b")), storage.DeleteRange(between("b", "c")), put("c", "1"))},
		{"absent, and nothing else", when(absent("b"))},
		{"condition that does not hold, and an invalid put", then(when(equal("a", "2")), put("b", "1"), put("", "1"))},
		{"condition that does not hold, and a key put twice", then(when(present("b")), put("c", "1"), put("c", "2"))},
	} {
		t.refused(c.b, storage.ErrInvalidBatch)
		t.same("after "+c.what, t.all(), []string{"a=1"})
	}
}

// dear is the largest batch, in bytes, that a test has the time to write.
const dear = 16 << 20

func largestBatchIsTaken(t *trial) {
	most := t.caps.MaxBatch
	if n := most.Ops; n > 0 && n <= 100_000 && (most.Bytes == 0 || most.Bytes >= n*8) {
		var ops []storage.Op
		for i := range n {
			ops = append(ops, put(fmt.Sprintf("k%06d", i), "1"))
		}
		t.do(ops...)
		t.got(fmt.Sprintf("k%06d", n-1), "1")
		if t.caps.ConditionalBatch {
			t.commit(halfConditions(n, "2"))
			t.got(fmt.Sprintf("k%06d", n-1), "2")
		}
		t.do(storage.DeleteRange(storage.Range{}))
	}
	n := dear
	if most.Bytes > 0 {
		n = min(n, most.Bytes)
	}
	t.do(storage.Put([]byte("k"), make([]byte, n-1)))
	if v, err := t.store.Get(t.Context(), []byte("k")); err != nil || len(v) != n-1 {
		t.Errorf("Get: got %d bytes and error %v, want %d", len(v), err, n-1)
	}
}

// halfConditions returns a batch that requires the first half of n numbered keys to equal "1", and puts the others.
func halfConditions(n int, value string) storage.Batch {
	var b storage.Batch
	for i := range n {
		if key := fmt.Sprintf("k%06d", i); i < n/2 {
			b.If = append(b.If, equal(key, "1"))
		} else {
			b.Ops = append(b.Ops, put(key, value))
		}
	}
	return b
}

func tooLargeIsRefused(t *trial) {
	most := t.caps.MaxBatch
	if n := most.Ops; n > 0 && n < 1<<20 {
		var ops []storage.Op
		for i := range n + 1 {
			ops = append(ops, put(fmt.Sprintf("k%06d", i), ""))
		}
		t.refused(batch(ops...), storage.ErrInvalidBatch)
		if t.caps.ConditionalBatch {
			t.refused(halfConditions(n+1, ""), storage.ErrInvalidBatch)
		}
	}
	if n := most.Bytes; n > 0 && n < 1<<30 {
		t.refused(batch(put("a", "1"), storage.Put([]byte("k"), make([]byte, n))), storage.ErrInvalidBatch)
	}
	t.holds()
}

func groupIsCounted(t *trial) {
	const untouched = -1
	count := func(ctx context.Context, b storage.Batch, want ...error) {
		t.Helper()
		group := untouched
		b.Group = &group
		err := t.store.Commit(ctx, b)
		switch {
		case !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }):
			t.Errorf("Commit(%s): got %v, want %v", words(b), err, want)
		case group == untouched:
		case err != nil && !errors.Is(err, storage.ErrConflict):
			t.Errorf("Group after Commit(%s) returned %v: got %d, want it as it was", words(b), err, group)
		case group < 1:
			t.Errorf("Group after Commit(%s) returned %v: got %d, want 1 or more, or the %d from before", words(b), err, group, untouched)
		}
	}
	count(t.Context(), batch(put("a", "1")), nil)
	count(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}, Urgent: true}, nil)
	count(t.Context(), batch(storage.DeleteRange(between("b", "c"))), nil)
	count(t.Context(), then(when(equal("a", "2")), put("a", "3")), storage.ErrConflict, errors.ErrUnsupported)
	count(t.Context(), batch(put("", "1")), storage.ErrInvalidBatch)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	count(done, batch(put("a", "4")), context.Canceled)
	t.store.Close()
	count(t.Context(), batch(put("a", "5")), storage.ErrClosed)
}

func manyConditions(t *trial) {
	n := 300
	if m := t.caps.MaxBatch.Ops; m > 0 {
		n = min(n, m/2)
	}
	var first, second storage.Batch
	for i := range n {
		key := fmt.Sprintf("k%04d", i)
		first.If = append(first.If, absent(key))
		first.Ops = append(first.Ops, put(key, "1"))
		second.If = append(second.If, equal(key, "1"))
		second.Ops = append(second.Ops, put(key, "2"))
	}
	t.commit(first)
	t.conflict(first)
	second.If[n-1] = equal(string(second.If[n-1].Key), "other")
	t.conflict(second)
	t.got("k0000", "1")
	second.If[n-1] = present(string(second.If[n-1].Key))
	t.commit(second)
	t.got("k0000", "2")
	t.got(fmt.Sprintf("k%04d", n-1), "2")
}
