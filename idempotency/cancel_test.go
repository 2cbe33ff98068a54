package idempotency_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

var errLeft = errors.New("the caller has left")

// Section 3: a call whose context has ended makes no call of the store.
func TestCancelledBefore(t *testing.T) {
	s, g := exclusiveStore(), new(target)
	l := ledger(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLeft)
	if _, err := g.effect().Do(ctx, l, key, one); err != errLeft {
		t.Errorf("Do: %v", err)
	}
	if _, err := g.effect().Lookup(ctx, l, key); err != errLeft {
		t.Errorf("Lookup: %v", err)
	}
	if gets, commits := s.counts(); gets+commits != 0 || g.count() != 0 {
		t.Errorf("%d reads, %d commits, %d effects", gets, commits, g.count())
	}
}

// Section 3: a caller who leaves while its claim is being committed runs nothing, whether the claim lands or not; one that lands
// is released, and the next call runs at once, with the same reservation.
func TestCancelledDuringTheClaim(t *testing.T) {
	for _, c := range []struct {
		name         string
		applied      bool // before the caller leaves
		reportsError bool
	}{
		{"withdrawn", false, true},
		{"of unknown outcome", true, true},
		{"landed", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := exclusiveStore(), new(target)
				l := ledger(t, s)
				ctx, cancel := context.WithCancelCause(t.Context())
				first := true
				s.onCommit(func(commit context.Context, b storage.Batch, apply func() error) error {
					if !claims(b) || !first {
						return apply()
					}
					first = false
					if c.applied {
						if err := apply(); err != nil {
							return err
						}
					}
					cancel(errLeft)
					if c.reportsError {
						return commit.Err()
					}
					return nil
				})
				r, err := g.effect().Do(ctx, l, key, one)
				if err == nil || !errors.Is(err, errLeft) && !errors.Is(err, context.Canceled) || r.Decision != "" {
					t.Errorf("got %+v, %v", r, err)
				}
				synctest.Wait()
				if g.count() != 0 {
					t.Errorf("%d effects", g.count())
				}
				var reserved string
				if i := info(t, l, key); i != nil {
					if i.State != idempotency.StateReleased {
						t.Errorf("the key is %s", i.State)
					}
					reserved = i.EffectID
				} else if c.applied {
					t.Error("nothing is known of the key")
				}
				r, err = g.effect().Do(t.Context(), l, key, one)
				if err != nil || r.Decision != idempotency.DecidedNew || reserved != "" && r.EffectID != reserved || g.count() != 1 {
					t.Errorf("then: %+v, %v, %d effects; reserved was %q", r, err, g.count(), reserved)
				}
			})
		})
	}
}

// A claim under which nothing was asked or run is no attempt: an operator's answer is still about the one before.
func TestClaimThatIsGivenUpIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := exclusiveStore()
		l, p := ledger(t, s), &provider{run: cuts, answer: says(activity.Indeterminate[string]("ask later"))}
		e := p.effect()
		e.Do(t.Context(), l, key, one)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if claims(b) {
				cancel()
			}
			return apply()
		})
		if _, err := e.Do(ctx, l, key, one); !errors.Is(err, context.Canceled) || p.runs != 1 || p.asks != 1 {
			t.Errorf("left while the claim landed: %v, after %d runs and %d questions", err, p.runs, p.asks)
		}
		synctest.Wait()
		by := idempotency.Actor{Name: "ann", Reason: "asked the bank"}
		if err := l.Resolve(t.Context(), whole(key), 1, activity.CompletedWithResult("found"), by); err != nil {
			t.Error(err)
		}
	})
}

// Section 3: cancelling ends Run's context; what Run comes to is recorded nevertheless, and the caller gets it.
func TestCancelledDuringRun(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, c := range []struct {
			name  string
			ends  error
			state idempotency.State
		}{
			{"done", nil, idempotency.StateSealed},
			{"without effect", activity.NoEffect(errLeft), idempotency.StateReleased},
			{"failed", activity.NoEffect(activity.Permanent(errLeft)), idempotency.StateFailed},
			{"unknown", errLeft, idempotency.StateIndeterminate},
		} {
			t.Run(c.name, func(t *testing.T) {
				l := ledger(t, s)
				ctx, cancel := context.WithCancelCause(t.Context())
				e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(ctx context.Context, _ refund) (string, error) {
					cancel(errLeft)
					<-ctx.Done()
					if context.Cause(ctx) != errLeft {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return "done", c.ends
				}}
				k := key
				k.Revision = c.name
				r, err := e.Do(ctx, l, k, one)
				if c.ends == nil && (err != nil || r.Result != "done" || r.Decision != idempotency.DecidedNew) || c.ends != nil && err == nil {
					t.Errorf("got %+v, %v", r, err)
				}
				if got := state(t, l, k); got != c.state {
					t.Errorf("the key is %s, want %s", got, c.state)
				}
			})
		}
	})
}

// Section 3: Verify is settled without the caller: its context does not end with the caller's.
func TestCancelledDuringVerify(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		e := &idempotency.Effect[refund, string]{
			Name: "refund",
			Run:  func(context.Context, refund) (string, error) { return "", errors.New("cut off") },
			Verify: func(ctx context.Context, _ refund) (activity.Verification[string], error) {
				cancel()
				if ctx.Err() != nil {
					t.Error("Verify's context has ended")
				}
				return activity.CompletedWithResult("found"), nil
			},
		}
		r, err := e.Do(ctx, l, key, one)
		if err != nil || r.Result != "found" || r.Decision != idempotency.DecidedNew {
			t.Errorf("got %+v, %v", r, err)
		}
		if got := state(t, l, key); got != idempotency.StateSealed {
			t.Errorf("the key is %s", got)
		}
	})
}

// Section 3, FEN-44: no answer precedes its durable seal. What the store does not take, the Ledger tries again; the caller
// gets *InProgressError with the store's error, and the next call the receipt.
func TestSealThatIsNotTaken(t *testing.T) {
	for _, left := range []bool{false, true} {
		for _, landed := range []bool{false, true} {
			t.Run(map[bool]string{true: "the caller leaves", false: "the caller waits"}[left]+map[bool]string{true: ", landed", false: ", not landed"}[landed], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, g := exclusiveStore(), new(target)
					l := ledger(t, s)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					s.onCommit(func(commit context.Context, b storage.Batch, apply func() error) error {
						if !ends(b) {
							return apply()
						}
						if commit.Err() != nil {
							t.Error("the seal is cancelled with its caller")
						}
						if left {
							cancel()
						}
						if landed {
							apply()
						}
						return errDown
					})
					e := g.effect()
					e.Wait = 10 * time.Second
					begun := time.Now()
					r, err := e.Do(ctx, l, key, one)
					var busy *idempotency.InProgressError
					if !errors.As(err, &busy) || !errors.Is(err, errDown) || busy.RetryAfter <= 0 || busy.EffectID == "" || r.Decision != idempotency.DecidedInProgress || r.Result != "" {
						t.Errorf("while the store is down: %+v, %v", r, err)
					}
					if took := time.Since(begun); left && took > 0 || !left && took != 10*time.Second {
						t.Errorf("it took %v", took)
					}
					e.Wait = -1
					if r, err := e.Do(t.Context(), l, key, one); landed != (err == nil) || !landed && !errors.Is(err, idempotency.ErrInProgress) {
						t.Errorf("meanwhile: %+v, %v", r, err)
					}
					s.onCommit(nil)
					e.Wait = time.Minute
					r, err = e.Do(t.Context(), l, key, one)
					if err != nil || r.Decision != idempotency.DecidedDuplicate || r.Result != "refunded p1" || r.EffectID != busy.EffectID || g.count() != 1 {
						t.Errorf("when the store is back: %+v, %v, %d effects", r, err, g.count())
					}
				})
			})
		}
	}
}

// Section 3: if the store takes the seal while the caller waits, the caller gets its receipt.
func TestSealThatIsTakenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := exclusiveStore(), new(target)
		l := ledger(t, s)
		begun := time.Now()
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if ends(b) && time.Since(begun) < 5*time.Second {
				return errDown
			}
			return apply()
		})
		r, err := g.effect().Do(t.Context(), l, key, one)
		if err != nil || r.Decision != idempotency.DecidedNew || r.Result != "refunded p1" || time.Since(begun) < 5*time.Second {
			t.Errorf("got %+v, %v after %v", r, err, time.Since(begun))
		}
	})
}

// FEN-11, section 3: a claim that the store refuses or does not take runs nothing.
func TestClaimThatIsNotTaken(t *testing.T) {
	for _, fails := range []struct {
		name string
		when func(b storage.Batch) bool
	}{{"lease", renews}, {"claim", claims}} {
		t.Run(fails.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := exclusiveStore(), new(target)
				l := ledger(t, s)
				s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
					if fails.when(b) {
						return errDown
					}
					return apply()
				})
				e := g.effect()
				e.Wait = 3 * time.Second
				begun := time.Now()
				r, err := e.Do(t.Context(), l, key, one)
				if !errors.Is(err, errDown) || r.Decision != "" || g.count() != 0 {
					t.Errorf("got %+v, %v, %d effects", r, err, g.count())
				}
				if took := time.Since(begun); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				s.onCommit(nil)
				synctest.Wait()
				time.Sleep(2 * time.Second) // a claim that lands late is released
				if r, err := e.Do(t.Context(), l, key, one); err != nil || g.count() != 1 {
					t.Errorf("then: %+v, %v, %d effects", r, err, g.count())
				}
			})
		})
	}
}

// A read that fails runs nothing, and is the store's error.
func TestReadThatFails(t *testing.T) {
	s, g := exclusiveStore(), new(target)
	l := ledger(t, s)
	s.onGet(func(context.Context, []byte) error { return errDown })
	if r, err := g.effect().Do(t.Context(), l, key, one); !errors.Is(err, errDown) || r.Decision != "" || g.count() != 0 {
		t.Errorf("Do: %+v, %v, %d effects", r, err, g.count())
	}
	if _, err := g.effect().Lookup(t.Context(), l, key); !errors.Is(err, errDown) {
		t.Errorf("Lookup: %v", err)
	}
}

// Section 2: calls after Close are ErrClosed, each of them; Close may be called again.
func TestAfterClose(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		if _, err := g.effect().Do(t.Context(), l, key, one); err != nil {
			t.Fatal(err)
		}
		must(t, l.Close())
		must(t, l.Close())
		before := dump(t, s)
		k := key
		k.Action = "refund"
		errs := map[string]error{}
		_, errs["Do"] = g.effect().Do(t.Context(), l, key, one)
		_, errs["Lookup"] = g.effect().Lookup(t.Context(), l, key)
		errs["Resolve"] = l.Resolve(t.Context(), k, 0, activity.NotCompleted[string](), by)
		errs["Forget"] = l.Forget(t.Context(), k, by)
		for _, err := range l.List(t.Context(), idempotency.Filter{}) {
			errs["List"] = err
		}
		for _, call := range []string{"Do", "Lookup", "Resolve", "Forget", "List"} {
			if !errors.Is(errs[call], idempotency.ErrClosed) {
				t.Errorf("%s: %v", call, errs[call])
			}
		}
		if g.count() != 1 || dump(t, s) != before {
			t.Errorf("%d effects", g.count())
		}
		for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte("idemown:"))) {
			t.Errorf("a lease is left: %q, %v", e.Key, err)
		}
	})
}

// Section 2: Close waits for calls under way, whose outcome is sealed.
func TestCloseWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l := ledger(t, s)
		e := &idempotency.Effect[refund, string]{Name: "refund", Timeout: time.Hour, Run: func(ctx context.Context, _ refund) (string, error) {
			select {
			case <-time.After(10 * time.Minute): // many leases
				return "done", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}}
		c := start(t.Context(), l, e, key, one)
		synctest.Wait()
		closed := make(chan bool)
		go func() { l.Close(); close(closed) }()
		time.Sleep(9 * time.Minute)
		select {
		case <-closed:
			t.Fatal("Close did not wait")
		default:
		}
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrClosed) {
			t.Errorf("a call meanwhile: %v", err)
		}
		if a := <-c; a.err != nil || a.Result != "done" {
			t.Errorf("got %+v", a)
		}
		<-closed
		if r, err := e.Lookup(t.Context(), ledger(t, s), key); err != nil || r.Result != "done" {
			t.Errorf("sealed: %+v, %v", r, err)
		}
	})
}

// Section 3: what the store does not take, the Ledger tries again until Close. Then the claim lapses: Hold leaves it to a person.
func TestCloseGivesUpWhatTheStoreDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := exclusiveStore(), new(target)
		l := ledger(t, s)
		var tries atomic.Int64
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if ends(b) {
				tries.Add(1)
				return errDown
			}
			return apply()
		})
		e := g.effect()
		e.Wait = -1
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if tries.Load() < 10 {
			t.Errorf("%d tries in a minute", tries.Load())
		}
		begun := time.Now()
		l.Close()
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("Close took %v", took)
		}
		before := tries.Load()
		time.Sleep(time.Minute)
		if tries.Load() != before {
			t.Error("it is tried again after Close")
		}
		s.onCommit(nil)
		l = ledger(t, s)
		if r, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) || g.count() != 1 {
			t.Errorf("then: %+v, %v, %d effects", r, err, g.count())
		}
	})
}

// A Close while a Run that was cut off settles does not wait for that: the claim lapses.
func TestCloseDuringSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		e := &idempotency.Effect[refund, string]{
			Name: "refund", Timeout: time.Second, Settle: time.Hour,
			Run: func(ctx context.Context, _ refund) (string, error) { <-ctx.Done(); return "", ctx.Err() },
			Verify: func(context.Context, refund) (activity.Verification[string], error) {
				return activity.NotCompleted[string](), nil
			},
		}
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrInProgress) {
			t.Fatal(err)
		}
		begun := time.Now()
		l.Close()
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
