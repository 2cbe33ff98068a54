package idempotency

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// expired stores entries that were due an hour ago, 1 KiB each.
func expired(t testing.TB, s storage.Storage, entries int) {
	t.Helper()
	sealed := time.Now().Add(-DefaultRetention - time.Hour)
	b := storage.Batch{}
	for n := range entries {
		k := Key{Tenant: "shop", SourceType: "refund-request", SourceID: fmt.Sprint("req-", n), Action: "refund"}
		e := &entry.Entry{
			Key: entry.Key(k), FirstSeen: sealed.UnixMicro(), Keep: DefaultRetention.Microseconds(), Attempt: 1,
			Request: make([]byte, 256), EffectID: "eff_" + ids.ULID(sealed), Owner: make([]byte, 16),
		}
		c, err := entry.Changing(entry.Key(k), k.Hash(), nil, e.Sealed(sealed.Add(time.Duration(n)*time.Microsecond), "", entry.Result{Data: make([]byte, 512)}))
		if err != nil {
			t.Fatal(err)
		}
		if b.Ops = append(b.Ops, c.Ops...); len(b.Ops) >= 2000 || n == entries-1 {
			if err := s.Commit(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			b = storage.Batch{}
		}
	}
}

// sweeper returns a Ledger that is closed with the test.
func sweeper(t testing.TB, s storage.Storage) *Ledger {
	t.Helper()
	l, err := New(Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func remaining(t testing.TB, s storage.Storage) (n int) {
	t.Helper()
	for _, err := range storage.All(context.Background(), s, storage.Prefix([]byte("idem"))) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// Section 8: what is due goes, with all that belongs to it, and the file does not grow with what was forgotten.
func TestSweepLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlite.Open(path, &sqlite.Options{Relaxed: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const entries = 2000
	var sizes []int64
	for range 8 { // the log is copied to the file every 16 MiB
		expired(t, s, entries)
		l := sweeper(t, s) // a new one has not yet begun to sweep by itself
		if n, err := l.sweep(t.Context()); n != entries || err != nil {
			t.Fatalf("removed %d, %v", n, err)
		}
		l.Close()
		if n := remaining(t, s); n != 0 {
			t.Fatalf("%d keys remain", n)
		}
		f, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, f.Size())
	}
	if sizes[3] < 1<<20 || sizes[7] > sizes[3]*5/4 {
		t.Errorf("the file grows, or was not written: %v", sizes)
	}
}

// BenchmarkSweep reports how many entries a second a sweep removes, of as many as WEFT_RECORDS says, and how much of
// the heap it keeps.
func BenchmarkSweep(b *testing.B) {
	entries := 20_000
	if s := os.Getenv("WEFT_RECORDS"); s != "" {
		var err error
		if entries, err = strconv.Atoi(s); err != nil {
			b.Fatal("WEFT_RECORDS:", err)
		}
	}
	for _, store := range []struct {
		name string
		open func() (storage.Storage, error)
	}{
		{"sqlite", func() (storage.Storage, error) { return sqlite.Open(filepath.Join(b.TempDir(), "ledger.db"), nil) }},
		{"bolt", func() (storage.Storage, error) { return bolt.Open(filepath.Join(b.TempDir(), "ledger.bolt"), nil) }},
		{"postgres", func() (storage.Storage, error) { return postgres.Open(context.Background(), pgtest.URL(b), nil) }},
	} {
		b.Run(store.name, func(b *testing.B) {
			s, err := store.open()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			l := sweeper(b, s)
			if err := l.Close(); err != nil { // it does not sweep by itself any more
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				expired(b, s, entries)
				before := inUse()
				b.StartTimer()
				n, err := l.sweep(context.Background())
				b.StopTimer()
				if n != entries || err != nil {
					b.Fatalf("removed %d, %v", n, err)
				}
				if n := remaining(b, s); n != 0 {
					b.Fatalf("%d keys remain", n)
				}
				b.ReportMetric(float64(int64(inUse())-int64(before))/(1<<20), "MiB-kept")
				b.StartTimer()
			}
			b.ReportMetric(float64(entries*b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
