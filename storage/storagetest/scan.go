package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weft-go/weft/storage"
)

func emptyStoreScansEmpty(t *trial) {
	t.page(storage.Range{})
	t.page(storage.Range{Reverse: true})
	t.page(storage.Range{Start: []byte("a"), End: []byte("b"), Limit: 1})
	t.holds()
}

func scanIsInByteOrder(t *trial) {
	shuffled := slices.Clone(awkward)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for _, key := range shuffled {
		t.put(key + "=")
	}
	var want []string
	for _, key := range slices.Sorted(slices.Values(awkward)) {
		want = append(want, key+"=")
	}
	t.page(storage.Range{}, want...)
	slices.Reverse(want)
	t.page(storage.Range{Reverse: true}, want...)
}

func startIsIncluded(t *trial) {
	t.put("a=1", "c=2", "e=3")
	t.page(between("a", ""), "a=1", "c=2", "e=3")
	t.page(between("b", ""), "c=2", "e=3")
	t.page(between("c", ""), "c=2", "e=3")
	t.page(between("c\x00", ""), "e=3")
	t.page(between("f", ""))
	t.page(storage.Range{Start: []byte("c"), Reverse: true}, "e=3", "c=2")
	t.page(storage.Range{Start: []byte("c\x00"), Reverse: true}, "e=3")
}

func endIsExcluded(t *trial) {
	t.put("a=1", "c=2", "e=3")
	t.page(between("", "e"), "a=1", "c=2")
	t.page(between("", "e\x00"), "a=1", "c=2", "e=3")
	t.page(between("", "d"), "a=1", "c=2")
	t.page(between("a", "c"), "a=1")
	t.page(between("", "a"))
	t.page(storage.Range{End: []byte("e"), Reverse: true}, "c=2", "a=1")
	t.page(storage.Range{Start: []byte("b"), End: []byte("d"), Reverse: true}, "c=2")
}

func nilBoundsAreOpen(t *trial) {
	t.put("\x00=1", "a=2", "\xff\xff\xff=3")
	t.page(storage.Range{}, "\x00=1", "a=2", "\xff\xff\xff=3")
	t.page(storage.Range{Start: []byte{}}, "\x00=1", "a=2", "\xff\xff\xff=3")
	t.page(storage.Range{Start: []byte("a")}, "a=2", "\xff\xff\xff=3")
	t.page(storage.Range{End: []byte("a")}, "\x00=1")
	t.page(storage.Range{Reverse: true}, "\xff\xff\xff=3", "a=2", "\x00=1")
}

func emptyEndIsNotNil(t *trial) {
	t.put("a=1", "b=2")
	t.page(storage.Range{End: []byte{}})
	t.page(storage.Range{End: []byte{}, Reverse: true})
	t.do(storage.DeleteRange(storage.Range{End: []byte{}}))
	t.holds("a=1", "b=2")
}

func backwardRangeIsEmpty(t *trial) {
	t.put("a=1", "b=2", "c=3")
	for _, r := range []storage.Range{between("b", "b"), between("c", "a"), between("bb", "b")} {
		t.page(r)
		t.do(storage.DeleteRange(r))
		r.Reverse = true
		t.page(r)
	}
	t.holds("a=1", "b=2", "c=3")
}

func prefixIsExact(t *trial) {
	t.put("a=", "a:=", "a:1=", "a:\xff=", "a;=", "b=", "\xfe\xff=", "\xff=", "\xff\xfe=", "\xff\xff=", "\xff\xff\x01=")
	t.page(storage.Prefix([]byte("a:")), "a:=", "a:1=", "a:\xff=")
	t.page(storage.Prefix([]byte("a:\xff")), "a:\xff=")
	t.page(storage.Prefix([]byte("\xfe")), "\xfe\xff=")
	t.page(storage.Prefix([]byte("\xff")), "\xff=", "\xff\xfe=", "\xff\xff=", "\xff\xff\x01=")
	t.page(storage.Prefix([]byte("\xff\xff")), "\xff\xff=", "\xff\xff\x01=")
	t.page(storage.Prefix([]byte("c")))
	t.do(storage.DeleteRange(storage.Prefix([]byte("\xff\xff"))), storage.DeleteRange(storage.Prefix([]byte("a:"))))
	t.page(storage.Prefix(nil), "a=", "a;=", "b=", "\xfe\xff=", "\xff=", "\xff\xfe=")
}

func limitBoundsPage(t *trial) {
	all := numbered("k", 20)
	t.put(all...)
	for _, limit := range []int{1, 2, 19, 20, 21, 5000} {
		t.page(storage.Range{Limit: limit}, all[:min(limit, 20)]...)
		t.page(storage.Range{Start: []byte("k0010"), Limit: limit}, all[10:min(10+limit, 20)]...)
		t.page(storage.Range{End: []byte("k0010"), Limit: limit}, all[:min(limit, 10)]...)
	}
}

func noLimitIsDefault(t *trial) {
	all := numbered("k", storage.DefaultLimit+5)
	t.put(all...)
	t.page(storage.Range{}, all[:storage.DefaultLimit]...)
	t.page(storage.Range{Limit: -1}, all[:storage.DefaultLimit]...)
	t.page(storage.Range{Start: []byte("k0005")}, all[5:]...)
	slices.Reverse(all)
	t.page(storage.Range{Reverse: true}, all[:storage.DefaultLimit]...)
}

// A store that reads in pages of its own must not end the caller's page with one of them: a short
// page means that the range has no more entries.
func longPageIsWhole(t *trial) {
	all := numbered("k", 2*storage.DefaultLimit+5)
	t.put(all...)
	back := slices.Clone(all)
	slices.Reverse(back)
	for _, limit := range []int{storage.DefaultLimit + 1, len(all) - 1, len(all), 1 << 20} {
		t.page(storage.Range{Limit: limit}, all[:min(limit, len(all))]...)
		t.page(storage.Range{Limit: limit, Reverse: true}, back[:min(limit, len(all))]...)
	}
}

// A store must not end a page by its bytes either.
func largePageIsWhole(t *trial) {
	const entries = 24
	size := 512 << 10
	if m := t.caps.MaxBatch.Bytes; m > 0 {
		size = min(size, m-len("k00"))
	}
	rnd := rand.NewChaCha8([32]byte{})
	var all []string
	for i := range entries {
		value := make([]byte, size)
		rnd.Read(value)
		key := fmt.Sprintf("k%02d", i)
		t.do(storage.Put([]byte(key), value))
		all = append(all, key+"="+string(value))
	}
	t.page(storage.Range{Limit: storage.DefaultLimit}, all...)
	slices.Reverse(all)
	t.page(storage.Range{Limit: storage.DefaultLimit, Reverse: true}, all...)
}

func reverseBeginsAtEnd(t *trial) {
	all := numbered("k", 20)
	t.put(all...)
	back := slices.Clone(all)
	slices.Reverse(back)
	t.page(storage.Range{Reverse: true}, back...)
	t.page(storage.Range{Reverse: true, Limit: 3}, back[:3]...)
	t.page(storage.Range{End: []byte("k0010"), Reverse: true, Limit: 3}, "k0009=9", "k0008=8", "k0007=7")
	t.page(storage.Range{Start: []byte("k0008"), End: []byte("k0010"), Reverse: true, Limit: 3}, "k0009=9", "k0008=8")
	t.page(storage.Range{Start: []byte("k00085"), End: []byte("k00105"), Reverse: true}, "k0010=10", "k0009=9")
}

func pagesCoverRange(t *trial) {
	all := numbered("k", 1000)
	t.put(all...)
	t.put("j=before", "l=after")
	for _, c := range []struct {
		prefix string
		limit  int
		want   []string
	}{
		{"k00", 1, all[:100]}, {"k", 7, all}, {"k", 999, all}, {"k", 1000, all}, {"k", 1001, all},
	} {
		r := storage.Prefix([]byte(c.prefix))
		r.Limit = c.limit
		t.same("all of "+rangeWords(r), t.pages(r), c.want)
		r.Reverse = true
		got := t.pages(r)
		slices.Reverse(got)
		t.same("all of "+rangeWords(r), got, c.want)
	}
	// storage.All goes on behind the last key of a page. That bound is longer than any key.
	longest := strings.Repeat("m", storage.MaxKey)
	t.put("m=1", longest+"=2", "n=3")
	behind := []byte(longest + "\x00")
	t.page(storage.Range{Start: behind, Limit: 1}, "n=3")
	t.page(storage.Range{End: behind, Limit: 1, Reverse: true}, longest+"=2")
}

func (t *trial) pages(r storage.Range) []string {
	t.Helper()
	var entries []string
	for e, err := range storage.All(t.Context(), t.store, r) {
		if err != nil {
			t.Fatalf("Scan(%s): got error %v after %d entries, want a page", rangeWords(r), err, len(entries))
		}
		entries = append(entries, entry(e))
	}
	return entries
}

func loopMayWrite(t *trial) {
	t.put(numbered("k", 50)...)
	var seen int
	for e, err := range storage.All(t.Context(), t.store, storage.Range{Start: []byte("k"), End: []byte("l"), Limit: 10}) {
		if err != nil {
			t.Fatalf("Scan: got error %v after %d entries, want a page", err, seen)
		}
		seen++
		t.do(del(string(e.Key)), put("done:"+string(e.Key), string(e.Value)))
	}
	if seen != 50 {
		t.Errorf("All: got %d entries, want 50", seen)
	}
	t.page(storage.Prefix([]byte("k")))
	t.page(storage.Prefix([]byte("done:")), numbered("done:k", 50)...)
}
