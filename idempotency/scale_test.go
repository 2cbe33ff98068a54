package idempotency_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// many is how many keys are under way at once. The race detector allows 8,128 goroutines.
const many = 2000

func numbered(n int) idempotency.Key {
	return idempotency.Key{SourceType: "refund", SourceID: fmt.Sprint(n)}
}

// blocking returns an effect whose Run waits until it is let go, and counts its calls.
func blocking(begun *atomic.Int32, let <-chan struct{}) *idempotency.Effect[int, int] {
	return &idempotency.Effect[int, int]{
		Name: "refund", OnAbandoned: idempotency.TakeOver, Timeout: time.Hour,
		Run: func(ctx context.Context, n int) (int, error) {
			begun.Add(1)
			select {
			case <-let:
				return n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
	}
}

// FEN-29, FEN-52: 64 callers of one key in one process read it once, and write a claim and a seal.
func TestCallersOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l := ledger(t, s)
		var begun atomic.Int32
		let := make(chan struct{})
		e := blocking(&begun, let)
		begin := func(n int) *sync.WaitGroup {
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					if r, err := e.Do(t.Context(), l, numbered(n), n); err != nil || r.Result != n {
						t.Errorf("got %+v, %v", r, err)
					}
				})
			}
			return &all
		}
		first := begin(1) // registers the holder
		synctest.Wait()
		gets, commits := s.counts()
		second := begin(2)
		synctest.Wait()
		close(let)
		second.Wait()
		first.Wait()
		g, c := s.counts()
		if g -= gets; g != 1 {
			t.Errorf("%d reads, want 1", g)
		}
		if c -= commits + 1; c != 2 { // the other one is the seal of the first key
			t.Errorf("%d commits, want 2", c)
		}
		if begun.Load() != 2 {
			t.Errorf("Run was called %d times for 2 keys", begun.Load())
		}
	})
}

// FEN-52, FEN-59: the callers of four processes make one claim.
func TestCallersOfFourProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		var begun, claimed atomic.Int32
		let := make(chan struct{})
		e := blocking(&begun, let)
		var all sync.WaitGroup
		for range 4 {
			mine := s.another()
			mine.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
				err := apply()
				if err == nil && claims(b) {
					claimed.Add(1)
				}
				return err
			})
			l := ledger(t, mine)
			for range 16 {
				all.Go(func() {
					if r, err := e.Do(t.Context(), l, numbered(1), 1); err != nil || r.Result != 1 || r.Attempt != 1 {
						t.Errorf("got %+v, %v", r, err)
					}
				})
			}
		}
		time.Sleep(time.Minute)
		close(let)
		all.Wait()
		if begun.Load() != 1 || claimed.Load() != 1 {
			t.Errorf("Run was called %d times under %d claims", begun.Load(), claimed.Load())
		}
	})
}

// Section 8: all claims of a dead holder lapse at the same time, and are taken over within three leases.
func TestClaimsOfADeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		dying := s.another()
		killed := abandon(t, dying, many)
		dying.onCommit(func(context.Context, storage.Batch, func() error) error { return errDown })
		at := time.Now()
		finishAll(t, ledger(t, s), many)
		if took := time.Since(at); took > 3*idempotency.DefaultLease {
			t.Errorf("%v after its holder's death the last key was sealed", took)
		}
		killed()
	})
}

// abandon has a Ledger on s claim keys that it does not end. killed ends what is left of it.
func abandon(t testing.TB, s storage.Storage, keys int, change ...func(*idempotency.Config)) (killed func()) {
	t.Helper()
	l := ledger(t, s, change...)
	var begun atomic.Int32
	e := blocking(&begun, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for n := range keys {
		all.Go(func() { _, _ = e.Do(ctx, l, numbered(n), n) })
	}
	for begun.Load() < int32(keys) {
		time.Sleep(time.Millisecond)
	}
	return func() { cancel(); all.Wait() }
}

// finishAll asks for all keys at once, 200 at a time, until they are sealed.
func finishAll(t testing.TB, l *idempotency.Ledger, keys int) {
	t.Helper()
	var begun atomic.Int32
	let := make(chan struct{})
	close(let)
	e := blocking(&begun, let)
	next := make(chan int)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			for n := range next {
				if r, err := e.Do(context.Background(), l, numbered(n), n); err != nil || r.Result != n || r.Attempt != 2 {
					t.Errorf("%d: got %+v, %v", n, r, err)
				}
			}
		})
	}
	for n := range keys {
		next <- n
	}
	close(next)
	all.Wait()
}

// Section 8: what is under way costs some 4,100 bytes a key beside its caller's goroutine, so 10,000 cost
// less than 40 MiB, and one lease for all.
func TestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		var renewals atomic.Int32
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				renewals.Add(1)
			}
			return apply()
		})
		l := ledger(t, s)
		let := make(chan struct{})
		done := hold(t, l, 0, many, let)
		before := renewals.Load()
		time.Sleep(30*time.Second + time.Millisecond) // which may be at the instant of a renewal
		if n := renewals.Load() - before; n != 6 {
			t.Errorf("%d renewals in 30 s, want one in 5 s", n)
		}
		close(let)
		done.Wait()
	})
	if bytes := bytesUnderWay(t, many); bytes > 40<<20/10_000 {
		t.Errorf("%d bytes a key", bytes)
	}
}

// hold has the keys with numbers from first to last under way, without last.
func hold(t testing.TB, l *idempotency.Ledger, first, last int, let <-chan struct{}) *sync.WaitGroup {
	var begun atomic.Int32
	e := blocking(&begun, let)
	var all sync.WaitGroup
	for n := first; n < last; n++ {
		all.Go(func() {
			if _, err := e.Do(context.Background(), l, numbered(n), n); err != nil {
				t.Error(err)
			}
		})
	}
	for begun.Load() < int32(last-first) {
		time.Sleep(time.Millisecond)
	}
	return &all
}

// bytesUnderWay returns how many bytes of the heap a key takes that is under way. The store is a file.
func bytesUnderWay(t testing.TB, keys int) uint64 {
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "ledger.db"), &sqlite.Options{Relaxed: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := ledger(t, s)
	let := make(chan struct{})
	hold(t, l, 0, 1, closed).Wait() // registers the holder
	goroutines(keys)
	before := heap()
	all := hold(t, l, 1, keys+1, let)
	after := heap()
	close(let)
	all.Wait()
	return (max(after, before) - before) / uint64(keys)
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// goroutines has so many goroutines at once. The runtime keeps what it needs for them, so later ones take nothing of the heap.
func goroutines(n int) {
	let := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { <-let })
	}
	close(let)
	all.Wait()
}

// heap returns how many bytes of the heap are in use. Stacks of goroutines are not among them.
func heap() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkUnderWay reports what 10,000 keys take that are under way, on SQLite.
func BenchmarkUnderWay(b *testing.B) {
	var bytes uint64
	for b.Loop() {
		bytes = bytesUnderWay(b, 10_000)
	}
	b.ReportMetric(float64(bytes), "B/key")
	b.ReportMetric(float64(bytes)*10_000/(1<<20), "MiB")
}

// BenchmarkClaimsOfADeadHolder reports how long after the death of a holder with 10,000 claims and a lease
// of 5 s the last of them is sealed.
func BenchmarkClaimsOfADeadHolder(b *testing.B) {
	lease := func(c *idempotency.Config) { c.Lease = 5 * time.Second }
	for _, store := range []struct {
		name string
		make func() (open func() (storage.Storage, error))
	}{
		{"postgres", func() func() (storage.Storage, error) {
			url := pgtest.URL(b)
			return func() (storage.Storage, error) { return postgres.Open(b.Context(), url, nil) }
		}},
		{"sqlite", func() func() (storage.Storage, error) {
			path := filepath.Join(b.TempDir(), "ledger.db")
			return func() (storage.Storage, error) { return sqlite.Open(path, &sqlite.Options{Shared: true}) }
		}},
	} {
		b.Run(store.name, func(b *testing.B) {
			for b.Loop() {
				open := store.make()
				dying, err := open()
				if err != nil {
					b.Fatal(err)
				}
				living, err := open()
				if err != nil {
					b.Fatal(err)
				}
				killed := abandon(b, dying, 10_000, lease)
				if err := dying.Close(); err != nil {
					b.Fatal(err)
				}
				at := time.Now()
				finishAll(b, ledger(b, living, lease), 10_000)
				b.ReportMetric(time.Since(at).Seconds()/5, "leases")
				killed()
				if err := living.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
