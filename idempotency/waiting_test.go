package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

var counting sync.Mutex // guards the counters of takes

// takes returns an effect that takes a time, and then ends as end says.
func takes(d time.Duration, runs *int, end error) *idempotency.Effect[refund, string] {
	return &idempotency.Effect[refund, string]{Name: "refund", Timeout: time.Hour, Run: func(ctx context.Context, _ refund) (string, error) {
		counting.Lock()
		*runs++
		counting.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return "", activity.NoEffect(context.Cause(ctx))
		}
		return "done", end
	}}
}

// Section 2, Wait: 0 is 2 min, negative is not, for claims of this process and of another one. Then *InProgressError says when to ask again: as long
// as it has gone on, 1 s to 30 s.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		name         string
		wait, waited time.Duration
		after        time.Duration
	}{
		{"default", 0, 2 * time.Minute, 30 * time.Second},
		{"negative", -1, 0, 5 * time.Second},
		{"positive", 3 * time.Second, 3 * time.Second, 8 * time.Second},
	} {
		for _, where := range []string{"this process", "another process"} {
			t.Run(c.name+", "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, runs := sharedStore(), 0
					l := ledger(t, s)
					slow := takes(10*time.Minute, &runs, nil)
					first := start(t.Context(), l, slow, key, one)
					time.Sleep(5 * time.Second)
					if where == "another process" {
						l = ledger(t, s.another())
					}
					e := takes(0, &runs, nil)
					e.Wait = c.wait
					begun := time.Now()
					r, err := e.Do(t.Context(), l, key, one)
					var busy *idempotency.InProgressError
					if !errors.As(err, &busy) || r.Decision != idempotency.DecidedInProgress || busy.Err != nil {
						t.Fatalf("got %+v, %v", r, err)
					}
					if took := time.Since(begun); took != c.waited {
						t.Errorf("it took %v", took)
					}
					if busy.RetryAfter < time.Second || busy.RetryAfter > 30*time.Second || where == "another process" && busy.RetryAfter != c.after {
						t.Errorf("ask again after %v, want %v", busy.RetryAfter, c.after)
					}
					e.Wait = time.Hour
					if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Decision != idempotency.DecidedDuplicate || r.Result != "done" || runs != 1 {
						t.Errorf("then: %+v, %v, %d runs", r, err, runs)
					}
					<-first
				})
			})
		}
	}
}

// Section 3: cancelling ends the waiting, in this process and for another one's claim.
func TestCancelledWaiting(t *testing.T) {
	for _, where := range []string{"this process", "another process"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, runs := sharedStore(), 0
				l := ledger(t, s)
				first := start(t.Context(), l, takes(time.Minute, &runs, nil), key, one)
				synctest.Wait()
				if where == "another process" {
					l = ledger(t, s.another())
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(7*time.Second, func() { cancel(errLeft) })
				begun := time.Now()
				_, err := takes(0, &runs, nil).Do(ctx, l, key, one)
				if !errors.Is(err, idempotency.ErrInProgress) || !errors.Is(err, errLeft) || time.Since(begun) != 7*time.Second {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				<-first
			})
		})
	}
}

// FEN-29, section 3: in one process callers of one key share a latch: those behind the first wait in memory. 64 callers make one read and two commits (and
// one for the lease).
func TestLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := exclusiveStore(), 0
		l := ledger(t, s)
		e := takes(time.Minute, &runs, nil)
		var all []<-chan answer
		for range 64 {
			all = append(all, start(t.Context(), l, e, key, one))
		}
		ids, news := map[string]int{}, 0
		for _, c := range all {
			a := <-c
			if a.err != nil {
				t.Error(a.err)
			}
			ids[a.EffectID+a.Result]++
			if a.Decision == idempotency.DecidedNew {
				news++
			}
		}
		if len(ids) != 1 || news != 1 || runs != 1 {
			t.Errorf("%v, %d new, %d runs", ids, news, runs)
		}
		if gets, commits := s.counts(); gets != 1 || commits != 3 {
			t.Errorf("%d reads and %d commits, want 1 and 3", gets, commits)
		}
	})
}

// FEN-16: a caller with another request learns of the conflict at once, although the first one is under way.
func TestLatchWithAnotherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := ledger(t, exclusiveStore()), 0
		first := start(t.Context(), l, takes(time.Minute, &runs, nil), key, one)
		synctest.Wait()
		begun := time.Now()
		r, err := takes(0, &runs, nil).Do(t.Context(), l, key, refund{"p1", 200})
		var c *idempotency.ConflictError
		if !errors.As(err, &c) || c.EffectID == "" || r.Decision != idempotency.DecidedConflict || time.Since(begun) != 0 {
			t.Errorf("after %v: %+v, %v", time.Since(begun), r, err)
		}
		if a := <-first; a.err != nil || a.EffectID != c.EffectID || runs != 1 {
			t.Errorf("%+v, %d runs", a, runs)
		}
	})
}

// FEN-16: one that comes before the first claim is stored waits for it, and is then a conflict; if that is released, it runs.
func TestLatchBeforeTheClaim(t *testing.T) {
	for _, released := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, runs := exclusiveStore(), 0
			l := ledger(t, s)
			e := takes(0, &runs, nil)
			e.Reserve = func(context.Context, refund) (idempotency.Reservation, error) {
				time.Sleep(time.Minute)
				if released {
					return idempotency.Reservation{}, errBroke
				}
				return idempotency.Reservation{EffectID: "first"}, nil
			}
			first := start(t.Context(), l, e, key, one)
			synctest.Wait()
			r, err := takes(0, &runs, nil).Do(t.Context(), l, key, refund{"p1", 200})
			if released && (err != nil || r.Decision != idempotency.DecidedNew) || !released && !errors.Is(err, idempotency.ErrConflict) {
				t.Errorf("got %+v, %v", r, err)
			}
			<-first
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
		})
	}
}

// Section 3: if the first is cancelled or ends without an outcome, those behind it decide anew: one of them runs.
func TestFollowersOfALeaderWithoutAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := ledger(t, exclusiveStore()), 0
		ctx, cancel := context.WithCancelCause(t.Context())
		first := start(ctx, l, takes(time.Minute, &runs, nil), key, one)
		synctest.Wait()
		var others []<-chan answer
		for range 8 {
			others = append(others, start(t.Context(), l, takes(time.Second, &runs, nil), key, one))
		}
		time.Sleep(5 * time.Second)
		cancel(errLeft)
		if a := <-first; !errors.Is(a.err, errLeft) || a.Decision != idempotency.DecidedReleased {
			t.Errorf("the first: %+v", a)
		}
		news := 0
		for _, c := range others {
			a := <-c
			if a.err != nil || a.Result != "done" {
				t.Errorf("got %+v", a)
			}
			if a.Decision == idempotency.DecidedNew {
				news++
			}
		}
		if news != 1 || runs != 2 {
			t.Errorf("%d new, %d runs", news, runs)
		}
	})
}

// A failure is an outcome for all who wait.
func TestFollowersOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := ledger(t, exclusiveStore()), 0
		e := takes(time.Minute, &runs, activity.NoEffect(activity.Permanent(errBroke)))
		e.Errors = []error{errBroke}
		var all []<-chan answer
		for range 8 {
			all = append(all, start(t.Context(), l, e, key, one))
		}
		for _, c := range all {
			if a := <-c; !errors.Is(a.err, idempotency.ErrFailed) || !errors.Is(a.err, errBroke) {
				t.Errorf("got %+v", a)
			}
		}
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	})
}

// FEN-29, FEN-59: holders that share a store: one claims, the others get its receipt (section 8: one claim).
func TestCallersOfSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := sharedStore(), 0
		e := takes(20*time.Second, &runs, nil)
		var all []<-chan answer
		for range 4 {
			l := ledger(t, s.another())
			for range 16 {
				all = append(all, start(t.Context(), l, e, key, one))
			}
		}
		ids := map[string]int{}
		for _, c := range all {
			a := <-c
			if a.err != nil {
				t.Error(a.err)
			}
			ids[a.EffectID+a.Result]++
		}
		if len(ids) != 1 || runs != 1 {
			t.Errorf("%v, %d runs", ids, runs)
		}
	})
}

// A lateStore answers a read after as long as late says.
type lateStore struct {
	exclusive
	late func() time.Duration
}

func (s lateStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := s.exclusive.Get(ctx, key)
	time.Sleep(s.late())
	return v, err
}

// Section 3: after Forget a key is new: who calls after it has returned gets no receipt of before, although a caller is under way whose
// read, or whose seal, was before it.
func TestForgetAmongCalls(t *testing.T) {
	for _, c := range []string{"a duplicate", "a seal", "a seal whose outcome is unknown at first"} {
		t.Run(c, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true // guarded by counting
				late := func() time.Duration {
					counting.Lock()
					defer counting.Unlock()
					if first {
						first = false
						return time.Second
					}
					return 0
				}
				never := func() time.Duration { return 0 }
				s, runs := &lateStore{exclusiveStore(), never}, 0
				l := ledger(t, s)
				e := takes(0, &runs, nil)
				before := idempotency.DecidedNew
				if c == "a duplicate" {
					must(t, (<-start(t.Context(), l, e, key, one)).err)
					s.late, before = late, idempotency.DecidedDuplicate
				} else {
					s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
						err := apply()
						if ends(b) {
							if d := late(); d > 0 {
								time.Sleep(d)
								if c != "a seal" {
									return errDown
								}
							}
						}
						return err
					})
				}
				under := start(t.Context(), l, e, key, one)
				time.Sleep(time.Second / 2)
				must(t, l.Forget(t.Context(), whole(key), by))
				had := runs
				var all []<-chan answer
				for range 8 {
					all = append(all, start(t.Context(), l, e, key, one))
				}
				if a := <-under; c != "a seal whose outcome is unknown at first" && (a.err != nil || a.Decision != before) {
					t.Errorf("the one under way: %+v", a)
				}
				news := 0
				for _, c := range all {
					a := <-c
					if a.err != nil {
						t.Error(a.err)
					}
					if a.Decision == idempotency.DecidedNew {
						news++
					}
				}
				if news != 1 || runs != had+1 {
					t.Errorf("after the key was forgotten, %d calls have run it %d times, want 1", news, runs-had)
				}
			})
		})
	}
}

// Those who come while a duplicate is being read wait for it, and share one more read: theirs must begin after they have come.
func TestReadsOfADuplicateAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := &lateStore{exclusiveStore(), func() time.Duration { return 0 }}, 0
		l := ledger(t, s)
		e := takes(0, &runs, nil)
		must(t, (<-start(t.Context(), l, e, key, one)).err)
		s.late = func() time.Duration { return 10 * time.Millisecond }
		gets, _ := s.counts()
		begun := time.Now()
		var all []<-chan answer
		for range 64 {
			all = append(all, start(t.Context(), l, e, key, one))
		}
		for _, c := range all {
			if a := <-c; a.err != nil || a.Decision != idempotency.DecidedDuplicate || a.Result != "done" {
				t.Errorf("got %+v", a)
			}
		}
		now, _ := s.counts()
		if n, took := now-gets, time.Since(begun); n > 3 || took > 30*time.Millisecond {
			t.Errorf("%d reads in %v, want at most 3, one after the other", n, took)
		}
	})
}
