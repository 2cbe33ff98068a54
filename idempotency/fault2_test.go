package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// Section 8: growth 0. A process that always meets some lease that it has not seen before, as of jobs that live for seconds, forgets what is due nevertheless.
func TestSweepIsNotStarvedByShortLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l := ledger(t, s)
		e := new(target).effect()
		e.Retention = 2 * time.Hour
		if _, err := e.Do(t.Context(), l, key, one); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for n := 0; time.Since(begun) < 6*time.Hour; n++ {
			job := ledger(t, s.another())
			k := key
			k.SourceID = fmt.Sprint("job ", n)
			if _, err := e.Do(t.Context(), job, k, one); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			job.Close()
		}
		if i := info(t, l, key); i != nil {
			t.Errorf("4 h after it was due: %+v", i)
		}
	})
}

// Section 3: Do with the key of the Run *that calls it*: when that Run is over, and for the key in another ledger, there is nothing to refuse.
func TestNotNested(t *testing.T) {
	l, other := ledger(t, exclusiveStore()), ledger(t, exclusiveStore())
	var kept context.Context
	e := &idempotency.Effect[refund, string]{Name: "refund", Wait: -1}
	outer := *e
	e.Run = func(ctx context.Context, _ refund) (string, error) { return "inner", nil }
	outer.Run = func(ctx context.Context, _ refund) (string, error) {
		kept = context.WithoutCancel(ctx)
		if r, err := e.Do(ctx, other, key, one); err != nil || r.Result != "inner" {
			t.Errorf("in another ledger: %+v, %v", r, err)
		}
		return "outer", nil
	}
	if _, err := outer.Do(t.Context(), l, key, one); err != nil {
		t.Fatal(err)
	}
	if r, err := e.Do(kept, l, key, one); err != nil || r.Result != "outer" || r.Decision != idempotency.DecidedDuplicate {
		t.Errorf("when the Run was over: %+v, %v", r, err)
	}
}

// A Reserve that asks for its own key is told at once, as a Run is: it would wait for itself.
func TestNestedInReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		e := new(target).effect()
		begun := time.Now()
		e.Reserve = func(ctx context.Context, _ refund) (idempotency.Reservation, error) {
			_, err := new(target).effect().Do(ctx, l, key, one)
			return idempotency.Reservation{}, err
		}
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrInProgress) || time.Since(begun) != 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// FEN-30, section 5: a call that waited in vain behind another one of its process says which effect it is, and when to ask again: as
// long as it has gone on.
func TestInProgressBehindTheLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := ledger(t, exclusiveStore()), 0
		first := start(t.Context(), l, takes(time.Minute, &runs, nil), key, one)
		time.Sleep(5 * time.Second)
		e := takes(0, &runs, nil)
		e.Wait = 3 * time.Second
		r, err := e.Do(t.Context(), l, key, one)
		var busy *idempotency.InProgressError
		if !errors.As(err, &busy) || busy.RetryAfter != 8*time.Second || busy.EffectID == "" || r.EffectID != busy.EffectID {
			t.Errorf("%+v, %v", r, err)
		}
		if a := <-first; a.EffectID != busy.EffectID {
			t.Errorf("%+v", a)
		}
	})
}

// Section 3: a damaged order is an error, and nothing runs; there is a way out: Forget of a key of the source.
func TestDamagedOrder(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, m := ledger(t, s), new(mirror)
		e := m.effect(idempotency.TakeOver)
		first, next := event{"e1", "a", "1"}, event{"e2", "a", "2"}
		if _, err := e.Do(t.Context(), l, keyOf(first), first); err != nil {
			t.Fatal(err)
		}
		for entry, err := range storage.All(t.Context(), s, storage.Prefix([]byte("idemver:"))) {
			must(t, err)
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(entry.Key, []byte("damaged"))}}))
		}
		if _, err := e.Do(t.Context(), l, keyOf(next), next); !errors.Is(err, storage.ErrCorrupt) || m.got() != "e1" {
			t.Errorf("%v, applied %s", err, m.got())
		}
		if err := l.Forget(t.Context(), acting(keyOf(first)), by); err != nil {
			t.Errorf("Forget: %v", err)
		}
		if _, err := e.Do(t.Context(), l, keyOf(next), next); err != nil {
			t.Errorf("then: %v", err)
		}
	})
}

// Section 2: a panic and a Goexit of a Run in a transaction reach the host, which rolls back; the ledger can be closed.
func TestInPanic(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		for name, breaks := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
			l := ledger(t, h.store)
			tx := h.begin()
			done := make(chan any)
			go func() {
				defer close(done)
				defer func() { done <- recover() }()
				e := inserting(tx, nil)
				e.Run = func(context.Context, refund) (string, error) { breaks(); return "", nil }
				e.Do(t.Context(), l.In(tx), key, one)
				t.Error("Do returned")
			}()
			if p := await(t, done, "end"); name == "panic" && p != "boom" {
				t.Errorf("recovered %v", p)
			}
			must(t, tx.rollback())
			must(t, l.Close())
			if left := dump(t, h.store); left != "" {
				t.Errorf("%s: left %s", name, left)
			}
		}
	})
}

// Section 2: Close among many calls: each has its outcome, or is ErrClosed; what has an answer is sealed.
func TestCloseAmongCalls(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		var all sync.WaitGroup
		var mu sync.Mutex
		receipts := map[idempotency.Key]string{}
		for i := range 64 {
			all.Go(func() {
				k := key
				k.SourceID = fmt.Sprint(i % 16)
				if i == 20 {
					l.Close()
				}
				r, err := g.effect().Do(t.Context(), l, k, one)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && receipts[k] != "" && receipts[k] != r.EffectID:
					t.Errorf("two receipts: %s and %s", receipts[k], r.EffectID)
				case err == nil:
					receipts[k] = r.EffectID
				case !errors.Is(err, idempotency.ErrClosed):
					t.Error(err)
				}
			})
		}
		all.Wait()
		l.Close()
		again := ledger(t, s)
		for k, id := range receipts {
			if r, err := g.effect().Lookup(t.Context(), again, k); err != nil || r.EffectID != id {
				t.Errorf("%+v, %v, want %s", r, err, id)
			}
		}
		if g.count() != len(receipts) {
			t.Errorf("%d effects, %d receipts", g.count(), len(receipts))
		}
	})
}

// Section 3: "After an unknown outcome the same batch goes again; if it is refused, a record with my owner is mine": of the lease, the claim, and each end.
func TestUnknownOutcomes(t *testing.T) {
	for _, end := range []error{nil, activity.NoEffect(errBroke), activity.NoEffect(activity.Permanent(errBroke)), errBroke} {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprint(end, ", applied ", applied), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := exclusiveStore()
					l := ledger(t, s)
					seen := map[string]int{}
					s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
						id := fmt.Sprint(b)
						if seen[id]++; seen[id] > 1 {
							return apply()
						}
						if applied {
							if err := apply(); err != nil {
								t.Errorf("a first commit: %v", err)
							}
						}
						return errDown
					})
					m := &mirror{end: func(event) error { return end }}
					v := event{"e1", "a", "1"}
					e := m.effect(idempotency.VerifyOrHold)
					runs := 0
					run := e.Run
					e.Run = func(ctx context.Context, v event) (string, error) { runs++; return run(ctx, v) }
					e.Wait = time.Minute
					r, err := e.Do(t.Context(), l, keyOf(v), v)
					want := map[error]idempotency.Decision{nil: idempotency.DecidedNew, errBroke: idempotency.DecidedIndeterminate}[end]
					if end != nil && want == "" {
						want = map[bool]idempotency.Decision{true: idempotency.DecidedFailed, false: idempotency.DecidedReleased}[activity.IsPermanent(end)]
					}
					if r.Decision != want || r.Attempt != 1 || runs != 1 || (end == nil) != (err == nil) {
						t.Errorf("%+v, %v, %d runs", r, err, runs)
					}
					if len(seen) != 3 {
						t.Errorf("%d batches, want lease, claim and end", len(seen))
					}
					for id, n := range seen {
						if n != 2 {
							t.Errorf("committed %d times: %.200s", n, id)
						}
					}
				})
			})
		}
	}
}

// Section 3: a renewal that is refused means that the holder was found dead: its Runs' contexts end at once.
func TestRenewalThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l := ledger(t, s, lease(6*time.Second))
		told, at := make(chan error, 1), time.Time{}
		begun := time.Now()
		c := start(t.Context(), l, untilCut(told, &at, func() error { return nil }), key, one)
		time.Sleep(2500 * time.Millisecond)
		for _, h := range holders(t, s) {
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete(h.Key)}}))
		}
		if err := <-told; err != activity.ErrLeaseLost || at.Sub(begun) != 3*time.Second {
			t.Errorf("after %v: %v", at.Sub(begun), err)
		}
		if a := <-c; a.err != nil {
			t.Errorf("%+v", a)
		}
	})
}

// A Verify that ignores its context ends the call in time; Close waits for it, or at least nothing of the ledger's is touched by it any more.
func TestVerifyThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		e := &idempotency.Effect[refund, string]{
			Name: "refund", VerifyTimeout: time.Second,
			Run: func(context.Context, refund) (string, error) { return "", errCut },
			Verify: func(context.Context, refund) (activity.Verification[string], error) {
				time.Sleep(time.Hour)
				return activity.NotCompleted[string](), nil
			},
		}
		begun := time.Now()
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) || time.Since(begun) < time.Second || time.Since(begun) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		time.Sleep(2 * time.Hour)
		if got := state(t, l, key); got != idempotency.StateIndeterminate {
			t.Errorf("a late answer counted: %s", got)
		}
	})
}

// Section 3: a claim of unknown outcome is taken back. However many there are while the store takes none, one is committed at a time, and
// there is a bound: above it calls claim nothing. When the store takes them again, they are taken back together.
func TestClaimsOfUnknownOutcomeAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := exclusiveStore()
		l := ledger(t, s)
		g := new(target)
		if _, err := g.effect().Do(t.Context(), l, key, one); err != nil { // the holder is registered
			t.Fatal(err)
		}
		for round := range 2 {
			applied := 0
			s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
				counting.Lock()
				defer counting.Unlock()
				if claims(b) && applied < 3 && apply() == nil { // the answers of these are lost
					applied++
				}
				return errDown
			})
			call := func(n int) error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				k := key
				k.SourceID = fmt.Sprintf("e%d-%d", round, n)
				_, err := g.effect().Do(ctx, l, k, one)
				return err
			}
			const many = 1500
			refused := 0
			for n := range many {
				_, before := s.counts()
				begun := time.Now()
				err := call(n)
				if err == nil {
					t.Fatal("no error")
				}
				if _, after := s.counts(); after-before <= 1 && time.Since(begun) == 0 {
					refused++
				}
			}
			if want := many - 1000; refused < want-1 || refused > want {
				t.Errorf("%d calls of %d were refused at once, want %d", refused, many, want)
			}
			_, before := s.counts()
			time.Sleep(time.Minute)
			if _, after := s.counts(); after-before > 300 {
				t.Errorf("%d commits in a minute, want at most 5 a second", after-before)
			}
			s.onCommit(func(_ context.Context, _ storage.Batch, apply func() error) error {
				time.Sleep(20 * time.Millisecond)
				return apply()
			})
			time.Sleep(5 * time.Second) // a thousand, one after the other, would take 20
			s.onCommit(nil)
			for i, err := range l.List(t.Context(), idempotency.Filter{State: idempotency.StateInProgress}) {
				t.Errorf("left: %+v, %v", i, err)
			}
			for n := range many {
				if err := call(n); err != nil {
					t.Fatal(err)
				}
			}
			if want := 1 + many*(round+1); g.count() != want {
				t.Errorf("%d effects, want %d", g.count(), want)
			}
		}
	})
}

// A claim that certainly was not written is not taken back: under load that would add to the load.
func TestWithdrawnClaimIsNotTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := exclusiveStore()
		l := ledger(t, s)
		s.onCommit(func(ctx context.Context, b storage.Batch, apply func() error) error {
			if !claims(b) {
				return apply()
			}
			<-ctx.Done()
			return &storage.WithdrawnError{Ended: ctx.Err()}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := new(target).effect().Do(ctx, l, key, one); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		s.onCommit(nil)
		_, before := s.counts()
		time.Sleep(time.Minute)
		if _, after := s.counts(); after != before {
			t.Errorf("%d commits after a claim that was withdrawn, want none", after-before)
		}
	})
}
