package idempotency_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestMain(m *testing.M) { leaks.Main(pgtest.Tests{M: m}) }

// onAllStores runs a test on every adapter. open opens the store once more: it is closed with the test.
func onAllStores(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	t.Run("memory", func(t *testing.T) { f(t, new(memory.Store)) })
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(filepath.Join(t.TempDir(), "ledger.db"), nil)
		f(t, opened(t, s, err))
	})
	t.Run("bolt", func(t *testing.T) {
		s, err := bolt.Open(filepath.Join(t.TempDir(), "ledger.bolt"), nil)
		f(t, opened(t, s, err))
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.URL(t), nil)
		f(t, opened(t, s, err))
	})
}

func opened[S storage.Storage](t *testing.T, s S, err error) storage.Storage {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ledger returns a Ledger that is closed with the test.
func ledger(t testing.TB, s storage.Storage, change ...func(*idempotency.Config)) *idempotency.Ledger {
	t.Helper()
	c := idempotency.Config{Storage: s, Logger: discard}
	for _, f := range change {
		f(&c)
	}
	l, err := idempotency.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

type refund struct {
	Payment string
	Cents   int
}

// A target counts effects, as an external system does.
type target struct {
	mu      sync.Mutex
	effects []string // hashes of keys
	fail    func(n int) error
}

func (g *target) effect() *idempotency.Effect[refund, string] {
	return &idempotency.Effect[refund, string]{Name: "refund", Run: g.run}
}

func (g *target) run(ctx context.Context, r refund) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.effects = append(g.effects, idempotency.AttemptFrom(ctx).Hash)
	if g.fail != nil {
		if err := g.fail(len(g.effects)); err != nil {
			return "", err
		}
	}
	return "refunded " + r.Payment, nil
}

func (g *target) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.effects)
}

var key = idempotency.Key{Tenant: "shop:1", SourceType: "refund-request", SourceID: "req%1"}

// FEN-12, FEN-13, FEN-15: the second call gets the receipt of the first, also from another Ledger.
func TestDo(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		g := new(target)
		e := g.effect()
		first, err := e.Do(t.Context(), ledger(t, s), key, refund{"p1", 100})
		if err != nil || first.Decision != idempotency.DecidedNew || first.Result != "refunded p1" || first.Attempt != 1 || first.SealedAt.IsZero() {
			t.Fatalf("first: %+v, %v", first, err)
		}
		for range 2 {
			again, err := e.Do(t.Context(), ledger(t, s), key, refund{"p1", 100})
			want := first
			want.Decision = idempotency.DecidedDuplicate
			if err != nil || again != want {
				t.Errorf("again: %+v, %v, want %+v", again, err, want)
			}
		}
		if g.count() != 1 {
			t.Errorf("%d effects", g.count())
		}
		found, err := e.Lookup(t.Context(), ledger(t, s), key)
		if err != nil || found.Result != first.Result || found.EffectID != first.EffectID {
			t.Errorf("lookup: %+v, %v", found, err)
		}
	})
}

// FEN-16: another request under the same key is a conflict that says where they differ; nothing is run,
// and the record is as it was.
func TestConflict(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		g, l := new(target), ledger(t, s)
		e := g.effect()
		first, err := e.Do(t.Context(), l, key, refund{"p1", 100})
		if err != nil {
			t.Fatal(err)
		}
		before := dump(t, s)
		r, err := e.Do(t.Context(), l, key, refund{"p1", 200})
		var c *idempotency.ConflictError
		if !errors.As(err, &c) || !errors.Is(err, idempotency.ErrConflict) || r.Decision != idempotency.DecidedConflict {
			t.Fatalf("got %+v, %v", r, err)
		}
		if c.EffectID != first.EffectID || len(c.Diff) != 1 || c.Diff[0].Path != "/Cents" || c.Diff[0].Value != nil {
			t.Errorf("got %+v", c)
		}
		if after := dump(t, s); after != before {
			t.Errorf("the store has changed: %s\n%s", before, after)
		}
		if g.count() != 1 {
			t.Errorf("%d effects", g.count())
		}
	})
}

// FEN-29: many callers at once: one effect, and the same receipt for each.
func TestAtOnce(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		g, l := new(target), ledger(t, s)
		e := g.effect()
		const callers = 64
		var all sync.WaitGroup
		var news atomic.Int32
		ids := make(chan string, callers)
		for range callers {
			all.Go(func() {
				r, err := e.Do(t.Context(), l, key, refund{"p1", 100})
				if err != nil {
					t.Error(err)
				}
				if r.Decision == idempotency.DecidedNew {
					news.Add(1)
				}
				ids <- r.EffectID + r.Result
			})
		}
		all.Wait()
		close(ids)
		seen := map[string]int{}
		for id := range ids {
			seen[id]++
		}
		if len(seen) != 1 || news.Load() != 1 || g.count() != 1 {
			t.Errorf("receipts %v, %d new, %d effects", seen, news.Load(), g.count())
		}
	})
}

// What Run's error says decides what is recorded.
func TestEndings(t *testing.T) {
	boom := errors.New("boom")
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, c := range []struct {
			name     string
			err      error
			decision idempotency.Decision
			is       error
			then     idempotency.Decision // of the next call
			effects  int
		}{
			{"released", activity.NoEffect(boom), idempotency.DecidedReleased, boom, idempotency.DecidedNew, 2},
			{"failed", activity.NoEffect(activity.Permanent(boom)), idempotency.DecidedFailed, boom, idempotency.DecidedFailed, 1},
			{"unknown", boom, idempotency.DecidedIndeterminate, boom, idempotency.DecidedIndeterminate, 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				g, l := &target{fail: func(n int) error {
					if n > 1 {
						return nil
					}
					return c.err
				}}, ledger(t, s)
				e := g.effect()
				e.Errors = []error{boom}
				k := key
				k.Revision = c.name
				r, err := e.Do(t.Context(), l, k, refund{"p1", 100})
				if r.Decision != c.decision || !errors.Is(err, c.is) {
					t.Errorf("first: %+v, %v", r, err)
				}
				again, err := e.Do(t.Context(), l, k, refund{"p1", 100})
				if again.Decision != c.then || g.count() != c.effects {
					t.Errorf("then: %+v, %v after %d effects", again, err, g.count())
				}
				if c.then == idempotency.DecidedFailed && !errors.Is(err, boom) {
					t.Errorf("the recorded failure does not match its sentinel: %v", err)
				}
				if c.then == idempotency.DecidedNew && again.EffectID != r.EffectID {
					t.Errorf("reserved %q, then %q", r.EffectID, again.EffectID)
				}
			})
		}
	})
}

func dump(t testing.TB, s storage.Storage) string {
	t.Helper()
	var all []byte
	for e, err := range storage.All(context.Background(), s, storage.Prefix([]byte("idem"))) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Key[:8]) == "idemown:" {
			continue
		}
		all = append(append(append(append(all, e.Key...), '='), e.Value...), '\n')
	}
	return string(all)
}

// An operator's answer about an attempt is not that about a later one.
func TestResolveOfAnEarlierAttempt(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		g, l := &target{fail: func(int) error { return errors.New("no reply") }}, ledger(t, s)
		e := g.effect()
		e.OnAbandoned = idempotency.TakeOver
		for range 2 {
			if _, err := e.Do(t.Context(), l, key, refund{"p1", 100}); !errors.Is(err, idempotency.ErrIndeterminate) {
				t.Fatal(err)
			}
		}
		k, by := key, idempotency.Actor{Name: "ann", Reason: "asked the bank"}
		k.Action = e.Name
		if err := l.Resolve(t.Context(), k, 1, activity.NotCompleted[string](), by); !errors.Is(err, idempotency.ErrNotApplicable) {
			t.Errorf("about the first of two attempts: %v, want ErrNotApplicable", err)
		}
		if err := l.Resolve(t.Context(), k, 2, activity.CompletedWithResult("found"), by); err != nil {
			t.Error(err)
		}
		if r, err := e.Do(t.Context(), l, key, refund{"p1", 100}); err != nil || r.Result != "found" {
			t.Errorf("then: %+v, %v", r, err)
		}
	})
}
