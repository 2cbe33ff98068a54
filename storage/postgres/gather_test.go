package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// Reads that arrive while others are in progress are sent together, and each gets its own
// answer. If their connection is cut, they are sent again one by one.
func TestReadsShareRoundTrips(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	s := open(t, url, &postgres.Options{NoListen: true})
	const n = 50
	var ops []storage.Op
	for i := range n {
		ops = append(ops, put(fmt.Sprintf("key%02d", i), fmt.Sprint("value", i)))
	}
	must(t, s.Commit(t.Context(), storage.Batch{Ops: append(ops, put("empty", ""))}))

	for _, cut := range []bool{false, false, true} {
		var stopped, trips atomic.Int32
		released := make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		defer release()
		p.on(func(m message) action {
			if m.kind != 'S' {
				return pass
			}
			switch trip := trips.Add(1); {
			case trip <= postgres.RoundTrips:
				stopped.Add(1)
				p.mu.Unlock()
				<-released
				p.mu.Lock()
			case cut && trip == postgres.RoundTrips+1:
				return cutBefore
			}
			return pass
		})
		var all sync.WaitGroup
		for i := range postgres.RoundTrips {
			all.Go(func() { found(t, s, "key00", "value0") })
			eventually(t, func() bool { return stopped.Load() == int32(i+1) })
		}
		given, giveUp := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := s.Get(given, []byte("key00")); !errors.Is(err, context.Canceled) {
				t.Errorf("a read that was given up answered %v", err)
			}
		})
		eventually(t, func() bool { return s.Reading() == 1 })
		giveUp()
		eventually(t, func() bool { return s.Reading() == 0 })

		for i := range n {
			key := fmt.Sprintf("key%02d", i)
			all.Go(func() { found(t, s, key, fmt.Sprint("value", i)) })
			all.Go(func() { paged(t, s, i) })
		}
		all.Go(func() { found(t, s, "key07", "value7") }) // twice
		all.Go(func() { found(t, s, "empty", "") })
		all.Go(func() {
			if _, err := s.Get(t.Context(), []byte("none")); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("got %v of a key that is not there", err)
			}
		})
		eventually(t, func() bool { return s.Reading() == 2*n+3 })
		release()
		all.Wait()
		// Two groups, and the statements to prepare on each connection.
		if got := trips.Load() - postgres.RoundTrips; !cut && got > 8 {
			t.Errorf("%d reads took %d round trips, want at most 8", 2*n+3, got)
		}
		p.on(nil)
	}
}

func found(t *testing.T, s storage.Storage, key, want string) {
	got, err := s.Get(t.Context(), []byte(key))
	if err != nil || got == nil || string(got) != want {
		t.Errorf("%s is %q, %v, want %q", key, got, err, want)
	}
}

// paged reads two keys from i, forwards or backwards.
func paged(t *testing.T, s storage.Storage, i int) {
	r := storage.Range{Start: fmt.Appendf(nil, "key%02d", i), End: fmt.Appendf(nil, "key%02d", i+2), Limit: 2, Reverse: i%2 == 1}
	page, err := s.Scan(t.Context(), r)
	var got []string
	for _, e := range page {
		got = append(got, string(e.Key)+" "+string(e.Value))
	}
	want := []string{fmt.Sprintf("key%02d value%d", i, i)}
	if i < 49 {
		want = append(want, fmt.Sprintf("key%02d value%d", i+1, i+1))
	}
	if r.Reverse {
		slices.Reverse(want)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("page %d is %q, %v, want %q", i, got, err, want)
	}
}
