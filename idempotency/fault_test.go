package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/storage/memory"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

type event struct {
	ID      string
	Account string
	Version string
}

func inOrderOf(policy idempotency.Abandoned, run func(context.Context, event) (string, error)) *idempotency.Effect[event, string] {
	return &idempotency.Effect[event, string]{
		Name: "apply", OnAbandoned: policy, Run: run,
		Order: &idempotency.Order[event]{
			Source:  func(e event) string { return e.Account },
			Version: func(e event) string { return e.Version },
			Compare: idempotency.CompareInt,
		},
	}
}

func keyOf(e event) idempotency.Key {
	return idempotency.Key{Tenant: "shop:1", SourceType: "acme", SourceID: e.ID}
}

// FEN-15, FEN-44, section 3: no answer precedes its durable seal. An event whose slot a newer one took over,
// because its holder had lost its lease, must not be told that it is sealed.
func TestEvictedEventIsNotSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		mine := ledger(t, s, lease(6*time.Second))
		theirs := ledger(t, s.another(), lease(6*time.Second))
		begun, end := make(chan bool), make(chan bool)
		slow := inOrderOf(idempotency.TakeOver, func(ctx context.Context, e event) (string, error) {
			close(begun)
			<-end // it ignores its context
			return "late", nil
		})
		fast := inOrderOf(idempotency.TakeOver, func(ctx context.Context, e event) (string, error) { return "new", nil })
		old, newer := event{"e1", "a", "1"}, event{"e2", "a", "2"}
		type result struct {
			r   idempotency.Receipt[string]
			err error
		}
		late := make(chan result, 1)
		go func() {
			r, err := slow.Do(t.Context(), mine, keyOf(old), old)
			late <- result{r, err}
		}()
		<-begun
		s.onCommit(func(ctx context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				return errDown
			}
			return apply()
		})
		r, err := fast.Do(t.Context(), theirs, keyOf(newer), newer) // waits until the holder is found dead
		if err != nil || r.Decision != idempotency.DecidedNew {
			t.Fatalf("the newer event: %+v, %v", r, err)
		}
		close(end)
		got := <-late
		if !errors.Is(got.err, idempotency.ErrFenceLost) {
			t.Errorf("the evicted event: %+v, %v, want ErrFenceLost", got.r, got.err)
		}
		if _, err := fast.Lookup(t.Context(), theirs, keyOf(old)); !errors.Is(err, idempotency.ErrNotSealed) {
			t.Errorf("the evicted event: lookup: %v", err)
		}
	})
}

// FEN-15, section 3: a call that lost its key gets nothing of another request that has the key now, and those that
// wait for this call in its process get a conflict.
func TestFenceLostToAnotherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		mine := ledger(t, s, lease(6*time.Second))
		theirs := ledger(t, s.another(), lease(6*time.Second))
		begun, end := make(chan bool), make(chan bool)
		slow := &idempotency.Effect[refund, string]{Name: "refund", OnAbandoned: idempotency.TakeOver, Run: func(context.Context, refund) (string, error) {
			close(begun)
			<-end // it ignores its context
			return "mine", nil
		}}
		type result struct {
			r   idempotency.Receipt[string]
			err error
		}
		ask := func() chan result {
			told := make(chan result, 1)
			go func() {
				r, err := slow.Do(t.Context(), mine, key, one)
				told <- result{r, err}
			}()
			return told
		}
		leads := ask()
		<-begun
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				return errDown
			}
			return apply()
		})
		for i := info(t, theirs, key); i == nil || !i.Lapsed; i = info(t, theirs, key) {
			time.Sleep(time.Second)
		}
		k := key
		k.Action = "refund"
		if err := theirs.Resolve(t.Context(), k, 1, activity.NotCompleted[string](), idempotency.Actor{Name: "ann", Reason: "asked the bank"}); err != nil {
			t.Error(err)
		}
		another, fast := one, *slow
		another.Cents++
		fast.Run = func(context.Context, refund) (string, error) { return "theirs", nil }
		if r, err := fast.Do(t.Context(), theirs, key, another); err != nil || r.Result != "theirs" {
			t.Errorf("the other request: %+v, %v", r, err)
		}
		s.onCommit(nil)
		waits := ask()
		synctest.Wait()
		close(end)
		if got := <-leads; !errors.Is(got.err, idempotency.ErrFenceLost) || got.r.Result != "" || got.r.EffectID != "" {
			t.Errorf("the call that lost its key: %+v, %v; want ErrFenceLost, and nothing of the other request", got.r, got.err)
		}
		if got := <-waits; !errors.Is(got.err, idempotency.ErrConflict) || got.r.Result != "" {
			t.Errorf("the call that waited for it: %+v, %v, want ErrConflict", got.r, got.err)
		}
	})
}

// FEN-13, FEN-15: an EffectID that panics costs the final id, but not the result.
func TestEffectIDThatPanicsKeepsTheResult(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		e := g.effect()
		e.EffectID = func(refund, string) string { panic("no id") }
		for _, want := range []idempotency.Decision{idempotency.DecidedNew, idempotency.DecidedDuplicate} {
			r, err := e.Do(t.Context(), l, key, one)
			if err != nil || r.Result != "refunded p1" || r.Decision != want || r.EffectID == "" {
				t.Errorf("got %+v, %v", r, err)
			}
		}
	})
}

// A verifier says "not completed" only of what was sent long enough ago. Section 3: after a timeout, "not
// completed" counts only Settle later, whatever was known of earlier attempts.
func TestSettleIsOfTheLatestAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		var mu sync.Mutex // guards what follows
		var runs []time.Time
		answer := activity.Indeterminate[string]("the provider is down")
		answers := func(a activity.Verification[string]) {
			mu.Lock()
			defer mu.Unlock()
			answer = a
		}
		e := &idempotency.Effect[refund, string]{
			Name: "refund", Timeout: time.Second, Settle: 30 * time.Second,
			Run: func(ctx context.Context, _ refund) (string, error) {
				mu.Lock()
				runs = append(runs, time.Now())
				mu.Unlock()
				<-ctx.Done()
				return "", ctx.Err()
			},
			Verify: func(context.Context, refund) (activity.Verification[string], error) {
				mu.Lock()
				defer mu.Unlock()
				return answer, nil
			},
		}
		do := func() { e.Do(t.Context(), l, key, one) }
		do()                         // the first attempt is cut off, and nobody knows
		time.Sleep(45 * time.Second) // long enough for its request
		answers(activity.NotCompleted[string]())
		go do() // runs again
		time.Sleep(500 * time.Millisecond)
		answers(activity.Indeterminate[string]("the provider is down")) // when the second one is cut off
		time.Sleep(time.Second)
		synctest.Wait()
		answers(activity.NotCompleted[string]())
		if len(runs) != 2 {
			t.Fatalf("%d runs, want 2", len(runs))
		}
		for range 20 {
			time.Sleep(time.Second)
			do()
		}
		if len(runs) != 2 {
			t.Errorf("attempt 3 began %v after attempt 2 did, whose effect may still happen for 30 s", runs[2].Sub(runs[1]))
		}
	})
}

// Section 3: Settle counts from when Run returned, if that is after its deadline: it may have sent its request just
// before.
func TestSettleIsCountedFromTheEndOfRun(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func() error // of Run, after its deadline
		late activity.Verification[string]
		want idempotency.State // then; a verifier that sees no effect is asked again later, but not after Goexit
	}{
		{"an error, and nobody knows", func() error { return errDown }, activity.Indeterminate[string]("the provider is down"), idempotency.StateIndeterminate},
		{"an error", func() error { return errDown }, activity.NotCompleted[string](), idempotency.StateInProgress},
		{"a panic", func() error { panic("oh") }, activity.NotCompleted[string](), idempotency.StateInProgress},
		{"goexit", func() error { runtime.Goexit(); return nil }, activity.NotCompleted[string](), idempotency.StateIndeterminate},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := ledger(t, exclusiveStore())
				var mu sync.Mutex // guards what follows
				var first time.Time
				var between time.Duration // of the end of the first run and the begin of the second
				answer := c.late
				e := &idempotency.Effect[refund, string]{
					Name: "refund", Timeout: time.Second, Settle: 30 * time.Second, Wait: -1,
					Run: func(context.Context, refund) (string, error) {
						mu.Lock()
						defer mu.Unlock()
						if !first.IsZero() {
							between = time.Since(first)
							return "done", nil
						}
						time.Sleep(time.Minute) // it ignores its context
						first = time.Now()
						return "", c.end()
					},
					Verify: func(context.Context, refund) (activity.Verification[string], error) {
						mu.Lock()
						defer mu.Unlock()
						defer func() { answer = activity.NotCompleted[string]() }()
						return answer, nil
					},
				}
				do := func() {
					ended := make(chan struct{})
					go func() { defer close(ended); e.Do(t.Context(), l, key, one) }()
					<-ended
				}
				do()
				if got := state(t, l, key); got != c.want {
					t.Errorf("after attempt 1: %v, want %v", got, c.want)
				}
				for i := 0; between == 0 && i < 600; i++ {
					time.Sleep(time.Second)
					do()
				}
				if between < 30*time.Second {
					t.Errorf("attempt 2 began %v after attempt 1 had ended, whose effect may happen for 30 s", between)
				}
			})
		})
	}
}

// FEN-16, section 5: exact decimals. Two requests whose numbers differ only beyond the precision of float64
// are two requests, also when the stored one is decoded once more.
func TestRereadingKeepsNumbersExact(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		e := &idempotency.Effect[map[string]any, string]{Name: "refund", Run: func(context.Context, map[string]any) (string, error) { return "done", nil }}
		if _, err := e.Do(t.Context(), l, key, map[string]any{"n": uint64(1<<53 + 1)}); err != nil {
			t.Fatal(err)
		}
		r, err := e.Do(t.Context(), l, key, map[string]any{"n": uint64(1 << 53)})
		if !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("another request: %+v, %v, want a conflict", r, err)
		}
	})
}

// hidden has no exported field: encoding/json writes it, and does not read it.
type hidden struct{ cents int }

func (h hidden) MarshalJSON() ([]byte, error) {
	if h.cents == 0 {
		return []byte(`{"cents":0}`), nil
	}
	return []byte(`{"cents":1}`), nil
}

// FEN-16: a request type that cannot be read back whole makes no two requests equal.
func TestRereadingThatLosesIsNoDuplicate(t *testing.T) {
	l := ledger(t, exclusiveStore())
	e := &idempotency.Effect[hidden, string]{Name: "refund", Run: func(context.Context, hidden) (string, error) { return "done", nil }}
	if _, err := e.Do(t.Context(), l, key, hidden{1}); err != nil {
		t.Fatal(err)
	}
	r, err := e.Do(t.Context(), l, key, hidden{0})
	if !errors.Is(err, idempotency.ErrConflict) {
		t.Errorf("another request: %+v, %v, want a conflict", r, err)
	}
}

// later writes a lease as a newer release would: of a version that this one does not know.
func later(t *testing.T, s storage.Storage) {
	t.Helper()
	for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte("idemown:"))) {
		if err != nil {
			t.Fatal(err)
		}
		newer := golden.Envelope(e.Key, 99, e.Value[7:])
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(e.Key, newer)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Section 3, "all but a live claim": Forget removes no claim of which it cannot tell that its holder is dead.
// Such a lease may be of a newer release, which is at work.
func TestForgetKeepsAClaimWhoseLeaseCannotBeRead(t *testing.T) {
	s := sharedStore()
	theirs, mine := ledger(t, s), ledger(t, s.another())
	begun, end := make(chan bool), make(chan bool)
	e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) {
		close(begun)
		<-end
		return "done", nil
	}}
	got := start(t.Context(), theirs, e, key, one)
	<-begun
	later(t, s.inner)
	k := key
	k.Action = "refund"
	if err := mine.Forget(t.Context(), k, by); !errors.Is(err, storage.ErrFutureFormat) {
		t.Errorf("Forget: %v, want ErrFutureFormat", err)
	}
	infos := 0
	for i, err := range mine.List(t.Context(), idempotency.Filter{}) {
		if err != nil {
			t.Errorf("List ends because of one lease: %v", err)
			break
		}
		if i.Hash != k.Hash() || i.Lapsed {
			t.Errorf("List: %+v", i)
		}
		infos++
	}
	if infos != 1 {
		t.Errorf("List: %d keys", infos)
	}
	close(end)
	if a := <-got; a.err != nil || a.Decision != idempotency.DecidedNew {
		t.Errorf("the holder: %+v", a)
	}
}

// Section 3: an error, a panic and a timeout of Verify are indeterminate; so is a Verify that ends its
// goroutine: the key must not stay claimed while the process lives.
func TestVerifyThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		e := &idempotency.Effect[refund, string]{
			Name: "refund", Wait: -1,
			Run: func(context.Context, refund) (string, error) { return "", errors.New("cut off") },
			Verify: func(context.Context, refund) (activity.Verification[string], error) {
				runtime.Goexit()
				panic("not reached")
			},
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			e.Do(t.Context(), l, key, one)
		}()
		<-done
		if got := state(t, l, key); got != idempotency.StateIndeterminate {
			t.Errorf("the key is %s", got)
		}
	})
}

// Section 3: a timeout of Verify is indeterminate, whatever it answers afterwards.
func TestVerifyThatAnswersTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		e := &idempotency.Effect[refund, string]{
			Name: "refund", VerifyTimeout: time.Second,
			Run: func(context.Context, refund) (string, error) { return "", errors.New("cut off") },
			Verify: func(ctx context.Context, _ refund) (activity.Verification[string], error) {
				<-ctx.Done()
				return activity.NotCompleted[string](), nil
			},
		}
		r, err := e.Do(t.Context(), l, key, one)
		if !errors.Is(err, idempotency.ErrIndeterminate) || r.Decision != idempotency.DecidedIndeterminate {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// wicked panics when it is asked what it wraps.
type wicked struct{}

func (wicked) Error() string { return "wicked" }
func (wicked) Unwrap() error { panic("no cause") }
func (wicked) Is(error) bool { panic("no target") }
func (wicked) As(any) bool   { panic("no type") }

// Section 3: whatever Run returns, its claim ends: an error whose methods panic is one that says nothing.
func TestErrorThatPanics(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		e := &idempotency.Effect[refund, string]{Name: "refund", Wait: -1, Run: func(context.Context, refund) (string, error) { return "", wicked{} }}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("Do panicked: %v", p)
				}
			}()
			e.Do(t.Context(), l, key, one)
		}()
		if got := state(t, l, key); got != idempotency.StateIndeterminate {
			t.Errorf("the key is %s", got)
		}
	})
}

// Section 3: "All else (panic, …) may have happened", whatever value the panic has.
func TestPanicWithNoEffectMayHaveHappened(t *testing.T) {
	l := ledger(t, exclusiveStore())
	e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) {
		panic(activity.NoEffect(errors.New("boom")))
	}}
	if r, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A marking codec panics with the marked error of another effect.
type marking struct{ scrambler }

func (marking) Encode(context.Context, any) ([]byte, error) { panic(errMarked) }

var errMarked = activity.NoEffect(activity.Permanent(errBroke))

// User code may panic with the error of another effect. Its marks say nothing of this one, nor of one whose Run returns what Do did.
func TestPanicsHaveNoMarks(t *testing.T) {
	for name, change := range map[string]func(*idempotency.Effect[event, string], *idempotency.Config){
		"Reserve": func(e *idempotency.Effect[event, string], _ *idempotency.Config) {
			e.Reserve = func(context.Context, event) (idempotency.Reservation, error) { panic(errMarked) }
		},
		"Order.Version": func(e *idempotency.Effect[event, string], _ *idempotency.Config) {
			e.Order.Version = func(event) string { panic(errMarked) }
		},
		"Order.Compare": func(e *idempotency.Effect[event, string], _ *idempotency.Config) {
			e.Order.Compare = func(a, b string) (int, error) {
				if a != b { // one of them is stored
					panic(errMarked)
				}
				return 0, nil
			}
		},
		"codec": func(_ *idempotency.Effect[event, string], c *idempotency.Config) {
			c.Codec = marking{scrambler{"marking", 7}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := exclusiveStore()
			first, second := event{"e1", "a", "1"}, event{"e2", "a", "2"}
			e := new(mirror).effect(idempotency.VerifyOrHold)
			if _, err := e.Do(t.Context(), ledger(t, s), keyOf(first), first); err != nil {
				t.Fatal(err)
			}
			_, err := e.Do(t.Context(), ledger(t, s, func(c *idempotency.Config) { change(e, c) }), keyOf(second), second)
			if !errors.Is(err, errBroke) || activity.IsNoEffect(err) || activity.IsPermanent(err) {
				t.Errorf("%v; no effect: %v, permanent: %v", err, activity.IsNoEffect(err), activity.IsPermanent(err))
			}
		})
	}
}

// Section 3: "A claim that lands after its caller left is released", also if the ledger is closed at once, as when a
// server stops: nothing was run, so no key may stay in doubt.
func TestCloseReleasesWhatNobodyWaitsFor(t *testing.T) {
	s := exclusiveStore()
	l, err := idempotency.New(idempotency.Config{Storage: s, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := true
	s.onCommit(func(c context.Context, b storage.Batch, apply func() error) error {
		if c.Err() != nil {
			return c.Err()
		}
		if claims(b) && first {
			first = false
			apply()
			cancel()
			return c.Err() // the answer is lost
		}
		return apply()
	})
	g := new(target)
	if _, err := g.effect().Do(ctx, l, key, one); err == nil || g.count() != 0 {
		t.Fatalf("%v after %d effects", err, g.count())
	}
	l.Close()
	s.onCommit(nil)
	if r, err := g.effect().Do(t.Context(), ledger(t, s), key, one); err != nil || g.count() != 1 {
		t.Errorf("after it was opened again: %+v, %v, %d effects", r, err, g.count())
	}
}

// Durations of 292 years mean: no limit. They must not overflow.
func TestNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := ledger(t, exclusiveStore(), logTo(&j))
		e := &idempotency.Effect[refund, string]{
			Name: "refund", Timeout: math.MaxInt64, VerifyTimeout: math.MaxInt64, Settle: math.MaxInt64, Wait: math.MaxInt64, Retention: math.MaxInt64, RetryHorizon: math.MaxInt64 / 2,
			Run: func(ctx context.Context, _ refund) (string, error) {
				select {
				case <-ctx.Done():
					return "", ctx.Err()
				case <-time.After(time.Hour):
					return "done", nil
				}
			},
			Verify: func(context.Context, refund) (activity.Verification[string], error) {
				return activity.NotCompleted[string](), nil
			},
		}
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Result != "done" {
			t.Errorf("got %+v, %v", r, err)
		}
		for _, r := range j.all() {
			if r.level > slog.LevelInfo {
				t.Errorf("logged: %+v", r)
			}
		}
		time.Sleep(24 * time.Hour)
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Decision != idempotency.DecidedDuplicate {
			t.Errorf("then: %+v, %v", r, err)
		}
	})
}

// FEN-15: what the first caller is told is what is stored, also if the store's answer was lost while 64 MiB are owed.
func TestLargeResultWhoseSealLanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := exclusiveStore()
		l := ledger(t, s, func(c *idempotency.Config) { c.MaxResult = 4 << 20 })
		e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) { return strings.Repeat("x", 3<<20), nil }}
		var down atomic.Bool
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if down.Load() && ends(b) {
				return errDown
			}
			return apply()
		})
		down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var owed []<-chan answer
		for i := range 22 {
			k := key
			k.SourceID = strings.Repeat("k", i+1)
			owed = append(owed, start(ctx, l, e, k, one))
		}
		for _, c := range owed {
			if a := <-c; !errors.Is(a.err, idempotency.ErrInProgress) || !errors.Is(a.err, errDown) {
				t.Errorf("while the store is down: %v", a.err)
			}
		}
		lost := true
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if down.Load() && ends(b) && !strings.Contains(string(b.Ops[0].Key), ":last:") {
				return errDown
			}
			err := apply()
			if ends(b) && strings.Contains(string(b.Ops[0].Key), ":last:") && lost {
				lost = false
				return errDown
			}
			return err
		})
		k := key
		k.SourceID = "last"
		first, err := e.Do(t.Context(), l, k, one)
		again, err2 := e.Do(t.Context(), l, k, one)
		if err != nil || err2 != nil || first.Result != again.Result {
			t.Errorf("first %v with %d bytes, then %v with %d bytes", err, len(first.Result), err2, len(again.Result))
		}
		down.Store(false)
		s.onCommit(nil)
	})
}

type inKey struct{}

// tenantCodec encrypts with the key of the tenant that it finds in the context.
type tenantCodec struct{}

func (tenantCodec) Name() string { return "tenant" }
func (tenantCodec) Encode(ctx context.Context, v any) ([]byte, error) {
	if ctx.Value(inKey{}) == nil {
		return nil, errors.New("no tenant in the context")
	}
	return json.Marshal(v)
}
func (tenantCodec) Decode(ctx context.Context, data []byte, v any) error {
	if ctx.Value(inKey{}) == nil {
		return errors.New("no tenant in the context")
	}
	return json.Unmarshal(data, v)
}

// A codec gets the values of the caller's context, for requests as for results.
func TestCodecSeesTheContext(t *testing.T) {
	l := ledger(t, exclusiveStore(), func(c *idempotency.Config) { c.Codec = tenantCodec{} })
	g := new(target)
	ctx := context.WithValue(t.Context(), inKey{}, "shop:1")
	if r, err := g.effect().Do(ctx, l, key, one); err != nil || r.Result != "refunded p1" {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := g.effect().Do(ctx, l, key, refund{"p1", 200}); !errors.Is(err, idempotency.ErrConflict) {
		t.Errorf("another request: %v", err)
	}
}

// neither is a store of which nobody can tell whether another process has it open.
type neither struct{ storage.Storage }

func (n neither) Get(ctx context.Context, k []byte) ([]byte, error) { return n.Storage.Get(ctx, k) }

// both is a store that is Shared and has an Opening.
type both struct{ exclusive }

func (b both) Capabilities() storage.Capabilities { return b.hooked.Capabilities() }

// Section 2: Storage is either Shared or Exclusive.
func TestStoreIsSharedOrExclusive(t *testing.T) {
	for what, s := range map[string]storage.Storage{
		"neither": neither{new(memory.Store)},
		"both":    both{exclusive{sharedStore(), "first"}},
	} {
		l, err := idempotency.New(idempotency.Config{Storage: s})
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
}

// Section 3: Timeout ends Run's context and VerifyTimeout Verify's, by the real clock too, with activity.ErrTimeout as
// the cause; both contexts tell their deadline.
func TestTimeoutsInRealTime(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		var causes []error
		waits := func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok || activity.InfoFrom(ctx).Deadline.IsZero() {
				t.Error("the context has no deadline")
			}
			select {
			case <-ctx.Done():
				causes = append(causes, context.Cause(ctx))
				return ctx.Err()
			case <-time.After(time.Minute):
				return errors.New("the context has not ended after a minute")
			}
		}
		e := &idempotency.Effect[refund, string]{
			Name: "refund", Timeout: 20 * time.Millisecond, VerifyTimeout: 20 * time.Millisecond,
			Run:    func(ctx context.Context, _ refund) (string, error) { return "", waits(ctx) },
			Verify: func(ctx context.Context, _ refund) (v activity.Verification[string], err error) { return v, waits(ctx) },
		}
		_, err := e.Do(t.Context(), l, key, one)
		if !errors.Is(err, idempotency.ErrIndeterminate) {
			t.Errorf("got %v", err)
		}
		if len(causes) != 2 || causes[0] != activity.ErrTimeout || causes[1] != activity.ErrTimeout {
			t.Errorf("causes %v", causes)
		}
	})
}
