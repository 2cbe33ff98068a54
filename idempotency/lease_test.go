package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// holders returns the leases in a store.
func holders(t testing.TB, s storage.Storage) (all []storage.Entry) {
	t.Helper()
	for e, err := range storage.All(context.Background(), s, storage.Prefix([]byte("idemown:"))) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// Section 3, Alive: one lease for all claims of a holder, written before the first claim, renewed every sixth, Urgent, and removed by Close.
func TestLeaseIsRenewedEverySixth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		var mu sync.Mutex
		var at []time.Time
		claimed := 0
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if renews(b) {
				at = append(at, time.Now())
				if !b.Urgent {
					t.Error("not urgent")
				}
			}
			if claims(b) {
				claimed++
				if len(at) == 0 {
					t.Error("a claim before the lease")
				}
			}
			return apply()
		})
		l, runs := ledger(t, s, lease(6*time.Second)), 0
		time.Sleep(time.Minute)
		if len(at) != 0 || len(holders(t, s)) != 0 {
			t.Error("a lease without claims")
		}
		begun := time.Now()
		var all []<-chan answer
		for i := range 20 {
			k := key
			k.SourceID = fmt.Sprint(i)
			all = append(all, start(t.Context(), l, takes(30*time.Second, &runs, nil), k, one))
		}
		time.Sleep(20*time.Second + time.Millisecond)
		mu.Lock()
		if len(at) != 21 || claimed != 20 {
			t.Errorf("%d leases and renewals in 20 s, %d claims", len(at), claimed)
		}
		for i, when := range at {
			if when.Sub(begun) != time.Duration(i)*time.Second {
				t.Errorf("renewal %d after %v", i, when.Sub(begun))
			}
		}
		s.mu.Lock()
		s.commit = nil
		s.mu.Unlock()
		mu.Unlock()
		if n := len(holders(t, s)); n != 1 {
			t.Errorf("%d leases", n)
		}
		for _, c := range all {
			if a := <-c; a.err != nil {
				t.Error(a.err)
			}
		}
		l.Close()
		if n := len(holders(t, s)); n != 0 {
			t.Errorf("%d leases after Close", n)
		}
	})
}

// Section 3: an Exclusive store needs no renewals.
func TestNoRenewalsOnAnExclusiveStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := exclusiveStore(), 0
		l := ledger(t, s)
		c := start(t.Context(), l, takes(10*time.Hour, &runs, nil), key, one)
		synctest.Wait()
		_, before := s.counts()
		time.Sleep(30 * time.Minute)
		if _, after := s.counts(); after != before {
			t.Errorf("%d commits while Run runs", after-before)
		}
		if l := ledger(t, s); state(t, l, key) != idempotency.StateInProgress || info(t, l, key).Lapsed {
			t.Error("another Ledger of the same opening takes the claim for lapsed")
		}
		_ = c
		l2 := ledger(t, exclusive{&hooked{inner: s.inner}, "second"})
		if !info(t, l2, key).Lapsed {
			t.Error("the claim of another opening has not lapsed at once")
		}
		time.Sleep(10 * time.Hour)
		<-c
	})
}

// untilCut returns an effect whose Run tells when its context ended, and why.
func untilCut(told chan<- error, at *time.Time, end func() error) *idempotency.Effect[refund, string] {
	return &idempotency.Effect[refund, string]{Name: "refund", Timeout: time.Hour, Run: func(ctx context.Context, _ refund) (string, error) {
		<-ctx.Done()
		*at = time.Now()
		told <- context.Cause(ctx)
		return "late", end()
	}}
}

// Section 3: "The holder trusts it for a Lease from when the last stored renewal left; then its Runs' contexts end with activity.ErrLeaseLost". A renewal whose
// answer comes late counts from when it was sent; what those Runs come to still counts where nobody took over; the process goes on as a new holder.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		var j journal
		l := ledger(t, s, lease(6*time.Second), logTo(&j))
		told, at := make(chan error, 1), time.Time{}
		begun := time.Now()
		var once sync.Once
		s.onCommit(func(ctx context.Context, b storage.Batch, apply func() error) error {
			if !renews(b) || time.Since(begun) < 2500*time.Millisecond {
				return apply()
			}
			late := false
			once.Do(func() { late = true })
			if !late {
				return errDown
			}
			time.Sleep(1500 * time.Millisecond) // the one sent after 3 s
			return apply()
		})
		c := start(t.Context(), l, untilCut(told, &at, func() error { return nil }), key, one)
		if err := <-told; err != activity.ErrLeaseLost {
			t.Errorf("cause %v", err)
		}
		if took := at.Sub(begun); took != 9*time.Second {
			t.Errorf("the lease was trusted until %v, want 9s: the renewal left after 3 s", took)
		}
		if a := <-c; a.err != nil || a.Result != "late" {
			t.Errorf("what Run came to: %+v", a)
		}
		synctest.Wait() // for the one who logs it
		if n := len(j.of("idempotency: the lease is lost; claims may be taken over")); n != 1 {
			t.Errorf("%d logs", n)
		}
		s.onCommit(nil)
		before := holders(t, s)
		k := key
		k.Revision = "2"
		if r, err := new(target).effect().Do(t.Context(), l, k, one); err != nil || r.Decision != idempotency.DecidedNew {
			t.Errorf("as a new holder: %+v, %v", r, err)
		}
		if after := holders(t, s); len(after) != len(before)+1 {
			t.Errorf("%d leases, then %d", len(before), len(after))
		}
	})
}

// Section 3: "none begins (its claim is released)": a claim that lands after its lease was lost runs nothing; the call goes on under a
// new lease.
func TestClaimOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l := ledger(t, s, lease(6*time.Second))
		begun := time.Now()
		var tokens []uint64
		var once sync.Once
		s.onCommit(func(ctx context.Context, b storage.Batch, apply func() error) error {
			err := errDown
			if !renews(b) || time.Since(begun) == 0 || time.Since(begun) > 10*time.Second {
				err = apply()
			}
			if claims(b) {
				once.Do(func() { time.Sleep(20 * time.Second) }) // the answer comes late
			}
			return err
		})
		e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(ctx context.Context, _ refund) (string, error) {
			if ctx.Err() != nil {
				t.Error("Run began under a lost lease")
			}
			tokens = append(tokens, activity.InfoFrom(ctx).FencingToken)
			return "done", nil
		}}
		r, err := e.Do(t.Context(), l, key, one)
		if err != nil || r.Decision != idempotency.DecidedNew || len(tokens) != 1 || r.Attempt != 2 {
			t.Errorf("got %+v, %v, %d runs", r, err, len(tokens))
		}
	})
}

// FEN-11, section 3: "Who sees the same bytes for a Lease of his monotonic clock deletes them": not a moment earlier; a renewal starts that time again.
func TestTakeOverAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l := ledger(t, s, lease(6*time.Second))
		other := ledger(t, s.another(), lease(time.Minute)) // the lease's own time counts
		begun, end := time.Now(), make(chan bool)
		e := &idempotency.Effect[refund, string]{Name: "refund", OnAbandoned: idempotency.TakeOver, Wait: -1, Run: func(ctx context.Context, _ refund) (string, error) {
			if activity.InfoFrom(ctx).Attempt > 1 {
				return "second", nil
			}
			<-end
			return "first", nil
		}}
		c := start(t.Context(), l, e, key, one)
		synctest.Wait()
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) && time.Since(begun) > 2500*time.Millisecond {
				return errDown // the last renewal was after 2 s
			}
			return apply()
		})
		look := func() error {
			_, err := e.Do(t.Context(), other, key, one)
			return err
		}
		for time.Since(begun) < 10*time.Second-time.Millisecond {
			switch time.Since(begun) { // it looks after 1 s, and at the last renewal's bytes first after 4 s
			case time.Second, 4 * time.Second, 9 * time.Second, 9900 * time.Millisecond:
				if err := look(); !errors.Is(err, idempotency.ErrInProgress) {
					t.Fatalf("after %v: %v", time.Since(begun), err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		r, err := e.Do(t.Context(), other, key, one)
		if err != nil || r.Result != "second" || r.Attempt != 2 {
			t.Errorf("after %v: %+v, %v", time.Since(begun), r, err)
		}
		close(end)
		// Section 7: paused beyond the lease, taken over: FenceLostError, and the winner's receipt.
		a := <-c
		var lost *idempotency.FenceLostError
		if !errors.As(a.err, &lost) || a.Decision != idempotency.DecidedFenceLost || a.Result != "second" || a.Attempt != 2 || lost.EffectID == "" {
			t.Errorf("the one that was paused: %+v", a)
		}
		s.onCommit(nil)
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Result != "second" {
			t.Errorf("then: %+v, %v", r, err)
		}
	})
}

// Section 3: a release, a failure and a doubt of a claim that was taken over are refused as well.
func TestLateEndsAreRefused(t *testing.T) {
	for name, end := range map[string]error{"released": activity.NoEffect(errBroke), "failed": activity.NoEffect(activity.Permanent(errBroke)), "doubt": errBroke} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := sharedStore()
				l, other := ledger(t, s, lease(time.Second)), ledger(t, s.another(), lease(time.Second))
				release := make(chan bool)
				slow := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) { <-release; return "", end }}
				c := start(t.Context(), l, slow, key, one)
				synctest.Wait()
				s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
					if renews(b) {
						return errDown
					}
					return apply()
				})
				e := new(target).effect()
				e.OnAbandoned = idempotency.TakeOver
				want, err := e.Do(t.Context(), other, key, one)
				must(t, err)
				before := dump(t, s)
				close(release)
				if a := <-c; !errors.Is(a.err, idempotency.ErrFenceLost) || a.Result != want.Result {
					t.Errorf("got %+v", a)
				}
				if after := dump(t, s); after != before {
					t.Errorf("the record has changed: %s\n%s", before, after)
				}
				s.onCommit(nil)
			})
		})
	}
}

// Section 3, Hold: a lapsed claim is left as it is, so that a late seal still counts.
func TestLateSealUnderHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l, other := ledger(t, s, lease(time.Second)), ledger(t, s.another(), lease(time.Second))
		release := make(chan bool)
		e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) { <-release; return "late", nil }}
		c := start(t.Context(), l, e, key, one)
		synctest.Wait()
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				return errDown
			}
			return apply()
		})
		if _, err := e.Do(t.Context(), other, key, one); !errors.Is(err, idempotency.ErrIndeterminate) {
			t.Errorf("the lapsed claim: %v", err)
		}
		close(release)
		if a := <-c; a.err != nil || a.Result != "late" || a.Decision != idempotency.DecidedNew {
			t.Errorf("the late seal: %+v", a)
		}
		if r, err := e.Do(t.Context(), other, key, one); err != nil || r.Result != "late" {
			t.Errorf("then: %+v, %v", r, err)
		}
		s.onCommit(nil)
	})
}

// FEN-11, section 3: "who was found dead claims nothing more": a claim needs its holder's lease. The call goes on as a new holder.
func TestHolderFoundDeadClaimsNothing(t *testing.T) {
	for name, s := range map[string]interface {
		storage.Storage
		onCommit(func(context.Context, storage.Batch, func() error) error)
	}{"shared": sharedStore(), "exclusive": exclusiveStore()} {
		t.Run(name, func(t *testing.T) {
			l, g := ledger(t, s), new(target)
			if _, err := g.effect().Do(t.Context(), l, key, one); err != nil {
				t.Fatal(err)
			}
			old := holders(t, s)
			if len(old) != 1 {
				t.Fatalf("%d leases", len(old))
			}
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete(old[0].Key)}}))
			refused := 0
			s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
				err := apply()
				if claims(b) && errors.Is(err, storage.ErrConflict) {
					refused++
				}
				return err
			})
			k := key
			k.Revision = "2"
			if r, err := g.effect().Do(t.Context(), l, k, one); err != nil || r.Decision != idempotency.DecidedNew {
				t.Errorf("got %+v, %v", r, err)
			}
			if now := holders(t, s); refused != 1 || len(now) != 1 || string(now[0].Key) == string(old[0].Key) {
				t.Errorf("%d claims refused, leases %q", refused, now)
			}
		})
	}
}

// Section 3: the sweep looks at all leases, also if nobody asks for their keys.
func TestSweepRemovesLeasesOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l, runs := ledger(t, s), 0
		c := start(t.Context(), l, takes(time.Hour, &runs, nil), key, one)
		synctest.Wait()
		other := ledger(t, s.another())
		time.Sleep(10 * time.Minute)
		if n := len(holders(t, s)); n != 1 {
			t.Fatalf("%d leases of the living", n)
		}
		s.onCommit(func(context.Context, storage.Batch, func() error) error { return errDown })
		time.Sleep(5 * time.Minute)
		if n := len(holders(t, s)); n != 0 {
			t.Errorf("%d leases of the dead", n)
		}
		if !info(t, other, key).Lapsed {
			t.Error("the claim has not lapsed")
		}
		s.onCommit(nil)
		<-c
	})
}

// Section 3: Close retires the lease: what the Ledger left lapses at once for the others, without waiting for a Lease.
func TestCloseRetires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l, other := ledger(t, s), ledger(t, s.another())
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if ends(b) {
				return errDown
			}
			return apply()
		})
		e := new(target).effect()
		e.Wait = -1
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		l.Close()
		if len(holders(t, s)) != 0 || !info(t, other, key).Lapsed {
			t.Error("the lease is left")
		}
		// If that fails, the log says so.
		var j journal
		l = ledger(t, s, logTo(&j))
		s.onCommit(nil)
		k := key
		k.Revision = "2"
		if _, err := e.Do(t.Context(), l, k, one); err != nil {
			t.Fatal(err)
		}
		s.onCommit(func(context.Context, storage.Batch, func() error) error { return errDown })
		l.Close()
		s.onCommit(nil)
		if all := j.of("idempotency: the lease was not removed; it will run out"); len(all) != 1 || !strings.Contains(all[0].attrs["error"], "down") {
			t.Errorf("%+v", j.all())
		}
	})
}

// On an exclusive store two callers at once may find a lease whose removal failed: both judge its claims.
func TestLeaseThatCouldNotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := exclusiveStore()
		l := ledger(t, s)
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if claims(b) || renews(b) && len(b.Ops[0].Value) > 0 {
				return apply()
			}
			return errDown
		})
		e := new(target).effect()
		e.Wait = -1
		var keys []idempotency.Key
		for i := range 8 {
			k := key
			k.Revision = fmt.Sprint(i)
			keys = append(keys, k)
			if _, err := e.Do(t.Context(), l, k, one); !errors.Is(err, errDown) {
				t.Fatal(err)
			}
		}
		l.Close()
		if n := len(holders(t, s)); n != 1 {
			t.Fatalf("%d leases", n)
		}
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				time.Sleep(time.Second) // all have read it by then
			}
			return apply()
		})
		l = ledger(t, s)
		e.OnAbandoned = idempotency.TakeOver
		var all []<-chan answer
		for _, k := range keys {
			all = append(all, start(t.Context(), l, e, k, one))
		}
		for _, c := range all {
			if a := <-c; a.err != nil || a.Attempt != 2 {
				t.Errorf("got %+v", a)
			}
		}
	})
}
