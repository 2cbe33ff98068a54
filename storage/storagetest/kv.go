package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weft-go/weft/storage"
)

func putIsGot(t *trial) {
	t.put("order:7=paid")
	t.got("order:7", "paid")
	t.put("order:8=open")
	t.got("order:7", "paid")
	t.got("order:8", "open")
	t.holds("order:7=paid", "order:8=open")
}

func missingKeyIsNotFound(t *trial) {
	for range 2 { // first in an empty store
		for _, key := range []string{"a", "abc", "ab\x00", "b", ""} {
			t.missing(key)
		}
		if v, err := t.store.Get(t.Context(), nil); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Get(nil): got %q and error %v, want ErrNotFound", v, err)
		}
		t.put("ab=1")
	}
}

func putOverwrites(t *trial) {
	for _, value := range []string{"long before", "short", "", "again"} {
		t.put("a=" + value)
		t.got("a", value)
	}
	t.holds("a=again")
}

func deleteRemoves(t *trial) {
	t.put("a=1", "b=2", "c=3")
	t.do(del("b"))
	t.missing("b")
	t.holds("a=1", "c=3")
	t.put("b=4")
	t.holds("a=1", "b=4", "c=3")
	t.do(del("a"), del("b"), del("c"))
	t.holds()
}

func deleteOfMissingKeyIsFine(t *trial) {
	t.do(del("a"))
	t.put("b=1")
	t.do(del("a"), put("c", "2"), del("d"))
	t.do(del("a"))
	t.holds("b=1", "c=2")
}

func emptyValueIsThere(t *trial) {
	t.do(put("a", ""))
	t.do(storage.Put([]byte("b"), nil))
	t.got("a", "")
	t.got("b", "")
	t.holds("a=", "b=")
	t.put("a=1")
	t.put("a=")
	t.got("a", "")
}

// awkward are keys in byte order that a store would misplace if it ordered them as
// text, as signed bytes, or up to a terminator.
var awkward = []string{
	"\x00", "\x00\x00", "\x00\xff", "\x01", "\n", " ", "%", "'", "A", "Z", "\\", "_", "a", "a\x00", "a\x00b",
	"a\x01", "a ", "aa", "ab", "b", "z", "\x7f", "\x80", "\xc3\xa4", "\xe2\x82\xac", "\xfe", "\xff", "\xff\x00", "\xff\xff",
}

func keysAndValuesAreBytes(t *trial) {
	var want []string
	for i, key := range awkward {
		value := awkward[len(awkward)-1-i]
		t.do(put(key, value))
		want = append(want, key+"="+value)
	}
	for i, key := range awkward {
		t.got(key, awkward[len(awkward)-1-i])
	}
	t.holds(want...)
	for _, key := range awkward {
		t.do(del(key))
		t.missing(key)
	}
	t.holds()
}

// The bytes of the keys are random: an index may compress others.
func longestKeyIsTaken(t *trial) {
	start := make([]byte, storage.MaxKey-1)
	rand.NewChaCha8([32]byte{}).Read(start)
	first, last := string(start)+"k", string(start)+"l"
	t.do(put(first, "1"), put(last, "2"))
	t.got(first, "1")
	t.got(last, "2")
	t.holds(first+"=1", last+"=2")
	t.page(storage.Range{Start: []byte(first), End: []byte(last)}, first+"=1")
	t.do(del(first))
	t.holds(last + "=2")
}

func longKeyIsRefused(t *trial) {
	long := strings.Repeat("k", storage.MaxKey+1)
	t.refused(batch(put("a", "1"), put(long, "2")), storage.ErrInvalidBatch)
	t.refused(batch(put("a", "1"), del(long)), storage.ErrInvalidBatch)
	t.missing(long)
	t.holds()
}

func largeValueIsTaken(t *trial) {
	want := make([]byte, 1<<20)
	if m := t.caps.MaxBatch.Bytes; m > 0 {
		want = want[:min(len(want), m-1)]
	}
	for i := range want {
		want[i] = byte(i * i >> 8)
	}
	t.do(storage.Put([]byte("a"), want))
	got, err := t.store.Get(t.Context(), []byte("a"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("Get: got %d bytes and error %v, want the %d bytes that were put", len(got), err, len(want))
	}
	page, err := t.store.Scan(t.Context(), storage.Range{})
	if err != nil || len(page) != 1 || !bytes.Equal(page[0].Value, want) {
		t.Errorf("Scan: got %d entries and error %v, want one with the %d bytes that were put", len(page), err, len(want))
	}
}

// numbered returns n entries in key order, starting at prefix0000.
func numbered(prefix string, n int) []string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf("%s%04d=%d", prefix, i, i)
	}
	return entries
}
