package follow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func key(log string, n int) []byte { return fmt.Appendf(nil, "%s:%04d", log, n) }

func appendTo(s storage.Storage, log string, n, size int) error {
	k := key(log, n)
	return s.Commit(context.Background(), storage.Batch{If: []storage.Condition{storage.Absent(k)}, Ops: []storage.Op{storage.Put(k, make([]byte, size))}})
}

// some reports whether a follower was told of something.
func some(f *follow.Follower) bool {
	select {
	case <-f.Some():
		return true
	default:
		return false
	}
}

// A follower is told of what is appended to its log, and of nothing else. What was appended is kept, also if it
// is deleted.
func TestFollow(t *testing.T) {
	h := new(follow.Hub)
	s := follow.Store{Storage: new(memory.Store), Hub: h}
	if err := appendTo(s, "a", 1, 1); err != nil {
		t.Fatal(err)
	}
	f, other := h.Follow([]byte("a:")), h.Follow([]byte("b:"))
	if err := appendTo(s, "a", 2, 1); err != nil {
		t.Fatal(err)
	}
	if !some(f) || some(f) || some(other) {
		t.Error("who follows the log is told once, and nobody else")
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete(key("a", 2))}}); err != nil {
		t.Fatal(err)
	}
	if some(f) {
		t.Error("told of a deletion")
	}
	for n, want := range []bool{false, false, true, false} {
		if _, ok := f.Kept(key("a", n)); ok != want {
			t.Errorf("entry %d is kept: %v, want %v", n, ok, want)
		}
	}
	f.Close()
	if err := appendTo(s, "a", 3, 1); err != nil {
		t.Fatal(err)
	}
	if f = h.Follow([]byte("a:")); some(f) {
		t.Error("told of what was before")
	}
	if _, ok := f.Kept(key("a", 3)); ok {
		t.Error("what was appended while nobody followed is kept")
	}
	f.Close()
	other.Close()
}

// A refused commit is none. One of unknown outcome is a hint, and nothing of it is kept.
func TestFollowUncertainCommits(t *testing.T) {
	var fault storagetest.Fault
	h := new(follow.Hub)
	s := follow.Store{Storage: storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault { return fault }), Hub: h}
	if err := appendTo(s, "a", 1, 1); err != nil {
		t.Fatal(err)
	}
	f := h.Follow([]byte("a:"))
	defer f.Close()
	if err := appendTo(s, "a", 1, 1); !errors.Is(err, storage.ErrConflict) || some(f) {
		t.Errorf("a refused commit: %v", err)
	}
	fault = storagetest.ErrorAfter
	if err := appendTo(s, "a", 2, 1); err == nil || !some(f) {
		t.Errorf("a commit of unknown outcome: %v", err)
	}
	for n := range 3 {
		if _, ok := f.Kept(key("a", n)); ok {
			t.Errorf("entry %d is kept", n)
		}
	}
}

// What is kept has a bound, and the last entry is kept in any case.
func TestFollowKeepsALittle(t *testing.T) {
	for _, c := range []struct{ size, n, kept int }{{1, 3000, 1000}, {100_000, 50, 10}, {2 << 20, 3, 1}} {
		h := new(follow.Hub)
		s := follow.Store{Storage: new(memory.Store), Hub: h}
		f := h.Follow([]byte("a:"))
		for n := range c.n {
			if err := appendTo(s, "a", n, c.size); err != nil {
				t.Fatal(err)
			}
		}
		for n := range c.n {
			if _, ok := f.Kept(key("a", n)); ok != (n >= c.n-c.kept) {
				t.Fatalf("%d entries of %d bytes: entry %d is kept: %v", c.n, c.size, n, ok)
			}
		}
		f.Close()
	}
}

// Who waits for keys is told of what is written to them, and of nothing else.
func TestHear(t *testing.T) {
	h := new(follow.Hub)
	s := follow.Store{Storage: new(memory.Store), Hub: h}
	write := func(k string) {
		if err := s.Commit(context.Background(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(k), nil)}}); err != nil {
			t.Fatal(err)
		}
	}
	f, other := h.Hear([]byte("a:1"), []byte("b")), h.Hear([]byte("a:1"))
	for k, want := range map[string][2]bool{"a:1": {true, true}, "b": {true, false}, "a:2": {false, false}, "a:11": {false, false}} {
		write(k)
		if got := [2]bool{some(f), some(other)}; got != want {
			t.Errorf("%s is written: told %v, want %v", k, got, want)
		}
	}
	f.Close()
	write("a:1")
	if some(f) || !some(other) {
		t.Error("one is closed, and the other is to be told")
	}
	other.Close()
	write("a:1")
	if some(other) {
		t.Error("told, and it is closed")
	}
}

// Who waits for keys learns what was written to them, if that is certain and small. Otherwise he is told that there is more.
func TestHeard(t *testing.T) {
	var fault storagetest.Fault
	h := new(follow.Hub)
	s := follow.Store{Storage: storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault { return fault }), Hub: h}
	write := func(k, v string) {
		_ = s.Commit(context.Background(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(k), []byte(v))}})
	}
	f := h.Hear([]byte("a"), []byte("b"))
	defer f.Close()
	heard := func(want map[string]string, all bool) {
		t.Helper()
		got, certain := f.Heard()
		if certain != all || len(got) != len(want) {
			t.Errorf("heard %q, %v; want %q, %v", got, certain, want, all)
		}
		for k, v := range want {
			if string(got[k]) != v {
				t.Errorf("heard %q of %s, want %q", got[k], k, v)
			}
		}
	}
	heard(nil, true)
	write("a", "1")
	write("b", "2")
	write("c", "4")
	heard(map[string]string{"a": "1", "b": "2"}, true)
	heard(nil, true)
	write("a", "1")
	write("a", "3")
	heard(map[string]string{"a": "1"}, false) // nobody knows which of the commits came first
	heard(nil, true)
	write("a", strings.Repeat("5", 1<<10+1))
	write("b", "6")
	heard(map[string]string{"b": "6"}, false)
	fault = storagetest.ErrorAfter
	write("a", "7")
	heard(nil, false)
	heard(nil, true)
}
