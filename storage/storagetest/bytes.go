package storagetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weft-go/weft/storage"
)

const large = 64 << 10 // bytes of a value that no store keeps in a page or a small buffer

func callersBytesAreCopied(t *trial) {
	want := strings.Repeat("v", large)
	key, value := []byte("key"), []byte(want)
	end := []byte("z")
	t.do(storage.DeleteRange(storage.Range{Start: key, End: end}), storage.Put(key, value))
	if string(key) != "key" || string(value) != want || string(end) != "z" {
		t.Errorf("Commit changed the bytes that it was given: got key %q, end %q", key, end)
	}
	scribble(key, value, end)
	t.got("key", want)
	t.holds("key=" + want)

	key = []byte("key")
	if _, err := t.store.Get(t.Context(), key); err != nil || string(key) != "key" {
		t.Errorf("Get: got key %q and error %v, want the key unchanged", key, err)
	}
	scribble(key)
	t.got("key", want)

	if !t.caps.ConditionalBatch {
		return
	}
	key, value = []byte("key"), []byte(want)
	t.commit(then(when(storage.Equal(key, value)), put("other", "1")))
	scribble(key, value)
	t.holds("key="+want, "other=1")
}

func returnedBytesAreTheCallers(t *trial) {
	want := strings.Repeat("v", large)
	t.put("a="+want, "b="+want, "c=")
	for range 2 {
		v, err := t.store.Get(t.Context(), []byte("a"))
		if err != nil {
			t.Fatalf("Get: got error %v, want a value", err)
		}
		scribble(v)
		t.got("a", want)

		page, err := t.store.Scan(t.Context(), storage.Range{})
		if err != nil || len(page) != 3 {
			t.Fatalf("Scan: got %d entries and error %v, want 3", len(page), err)
		}
		for _, e := range page {
			_ = append(e.Key, "appended to a key"...)
			_ = append(e.Value, "appended to a value"...)
		}
		for i, e := range page {
			if got, want := entry(e), []string{"a=" + want, "b=" + want, "c="}[i]; got != want {
				t.Errorf("after an append to what Scan returned, entry %d: got %s, want %s", i, short(got), short(want))
			}
		}
		for _, e := range page {
			scribble(e.Key, e.Value)
		}
		t.holds("a="+want, "b="+want, "c=")
	}
}

func bytesAreNotSharedByCalls(t *trial) {
	t.together(6, func(i int) error {
		key, value := []byte(fmt.Sprint("key", i)), make([]byte, large)
		for round := range 12 {
			copy(key, fmt.Sprint("key", i))
			for j := range value {
				value[j] = byte(round)
			}
			b := batch(storage.Put(key, value))
			if err := t.store.Commit(t.Context(), b); err != nil {
				return fmt.Errorf("Commit: got %w, want nil", err)
			}
			clear(b.Ops)
			scribble(key, value)
			got, err := t.store.Get(t.Context(), []byte(fmt.Sprint("key", i)))
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(round)}, large)) {
				return fmt.Errorf("Get in round %d: got %s and error %v, want %d bytes %#x", round, short(string(got)), err, large, round)
			}
			scribble(got)
		}
		return nil
	})
}

func scribble(buffers ...[]byte) {
	for _, b := range buffers {
		for i := range b {
			b[i] ^= 0x55
		}
	}
}
