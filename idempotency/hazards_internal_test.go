package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A bench is a shared store and what happens in the outer world.
type bench struct {
	*laws
	t       *testing.T
	runs    atomic.Int32
	effects atomic.Int32

	mu     sync.Mutex
	tokens []uint64 // in the order in which Run and Verify got them; guarded by mu
}

func newBench(t *testing.T) *bench {
	b := &bench{laws: newLaws(new(memory.Store)), t: t}
	b.forgets = true
	return b
}

// ledger returns a Ledger whose wall clock is off by skew. It is closed with the test.
func (b *bench) ledger(s storage.Storage, lease time.Duration, skew *atomic.Int64) *Ledger {
	b.t.Helper()
	l := evenLedger(b.t, Config{Storage: s, Lease: lease, Logger: slog.New(slog.DiscardHandler)}, func() time.Time {
		if skew == nil {
			return time.Now()
		}
		return time.Now().Add(time.Duration(skew.Load()))
	})
	b.t.Cleanup(func() { l.Close() })
	return l
}

func (b *bench) effect(policy Abandoned, run func(ctx context.Context, in request) (string, error)) *Effect[request, string] {
	return &Effect[request, string]{
		Name: "pay", OnAbandoned: policy, Timeout: 2 * time.Second, Settle: time.Second, Wait: 10 * time.Second,
		Run: func(ctx context.Context, in request) (string, error) {
			b.runs.Add(1)
			b.token(ctx)
			if ctx.Err() != nil {
				b.t.Errorf("Run begins with a context that has ended: %v", context.Cause(ctx))
			}
			return run(ctx, in)
		},
		Verify: func(ctx context.Context, in request) (activity.Verification[string], error) {
			b.token(ctx)
			if b.effects.Load() > 0 {
				return activity.CompletedWithResult("found"), nil
			}
			return activity.NotCompleted[string](), nil
		},
	}
}

func (b *bench) token(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = append(b.tokens, activity.InfoFrom(ctx).FencingToken)
}

func (b *bench) entry(in request) *entry.Entry {
	b.t.Helper()
	at := entry.Key(in.key()).Place(in.key().Hash())
	raw, err := b.Get(context.Background(), at)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	e, err := decode(at, raw)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bench) must(r Receipt[string], err error) Receipt[string] {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) done() {
	b.t.Helper()
	consistent(b.t, b.Storage)
	if err := b.kept(); err != nil {
		b.t.Error(err)
	}
}

func giving(result string) func(context.Context, request) (string, error) {
	return func(context.Context, request) (string, error) { return result, nil }
}

// FEN-27: the request of a Run that was cut off by its caller may still be on its way. "Not completed" counts only
// when it can have no effect any more.
func TestCutOffRequestIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.ledger(b, faultLease, nil)
		e := b.effect(VerifyOrHold, func(ctx context.Context, _ request) (string, error) {
			time.AfterFunc(2500*time.Millisecond, func() { b.effects.Add(1) }) // within Timeout and Settle
			if b.runs.Load() > 1 {
				return "second", nil
			}
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := e.Do(ctx, l, first.key(), first); !errors.Is(err, ErrInProgress) {
			t.Errorf("the caller that has left: %v, want in progress", err)
		}
		r := b.must(e.Do(t.Context(), l, first.key(), first))
		time.Sleep(time.Minute)
		if r.Result != "found" || b.effects.Load() != 1 || b.runs.Load() != 1 {
			t.Errorf("%+v, %d effects in %d runs", r, b.effects.Load(), b.runs.Load())
		}
		b.done()
	})
}

// Section 3: after the verifier's "not completed", Run does not begin for a caller who has left, and the key is
// released.
func TestRunDoesNotBeginAfterItsCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		e := b.effect(VerifyOrHold, giving("done"))
		lapse(b, e, first)
		verify := e.Verify
		e.Verify = func(ctx context.Context, in request) (activity.Verification[string], error) {
			time.Sleep(time.Second)
			return verify(ctx, in)
		}
		e.VerifyFences = true
		l := b.ledger(b, faultLease, nil)
		ctx, cancel := context.WithTimeout(t.Context(), faultLease+800*time.Millisecond)
		defer cancel()
		if _, err := e.Do(ctx, l, first.key(), first); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if got := b.entry(first); b.runs.Load() != 0 || got.State != entry.Released {
			t.Errorf("%d runs; stored is %+v", b.runs.Load(), got)
		}
		if r := b.must(e.Do(t.Context(), l, first.key(), first)); r.Result != "done" || b.runs.Load() != 1 {
			t.Errorf("%+v in %d runs", r, b.runs.Load())
		}
		b.done()
	})
}

// lapse leaves a claim of a request, whose holder died in Run before it had an effect.
func lapse(b *bench, e *Effect[request, string], in request) {
	f := storagetest.NewFaulty(b, nil)
	l := evenLedger(b.t, Config{Storage: f, Lease: faultLease, Logger: slog.New(slog.DiscardHandler)}, time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	dying := *e
	dying.Run = func(context.Context, request) (string, error) {
		f.Crash()
		f.Close()
		cancel()
		return "", nil
	}
	if _, err := dying.Do(ctx, l, in.key(), in); err == nil {
		b.t.Error("an answer of a dead process")
	}
	l.Close()
}

// Section 3: a holder whose lease was lost while it asked the verifier does not begin Run; the key is claimed anew.
func TestRunDoesNotBeginAfterTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		e := b.effect(VerifyOrHold, func(ctx context.Context, _ request) (string, error) {
			synctest.Wait() // for what ends ctx with the lease
			if ctx.Err() != nil {
				t.Errorf("Run begins without a lease: %v", context.Cause(ctx))
			}
			return "done", nil
		})
		lapse(b, e, first)
		var cut atomic.Bool
		f := storagetest.NewFaulty(b, func(c storagetest.Call) storagetest.Fault {
			if cut.Load() && c.Method == "Commit" && strings.HasPrefix(string(c.Batch.Ops[0].Key), "idemown:") && c.Batch.If[0].Kind == storage.IsEqual {
				return storagetest.ErrorBefore // renewals
			}
			return storagetest.None
		})
		e.VerifyFences = true
		asked := 0
		e.Verify = func(ctx context.Context, in request) (activity.Verification[string], error) {
			asked++
			if asked == 1 {
				cut.Store(true)
				time.Sleep(2 * faultLease)
				cut.Store(false)
			}
			return activity.NotCompleted[string](), nil
		}
		l := b.ledger(f, faultLease, nil)
		before := b.entry(first)
		r := b.must(e.Do(t.Context(), l, first.key(), first))
		if after := b.entry(first); r.Result != "done" || b.runs.Load() != 1 || asked == 0 || after.Holder == before.Holder {
			t.Errorf("%+v, %d runs, asked %d times, %+v", r, b.runs.Load(), asked, after)
		}
		b.done()
	})
}

// VerifyFences: Verify's fencing token is larger than that of each attempt before, also of the one that this
// process has just made, and none is larger than that of the attempt that follows.
func TestVerifyFencesOffTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		e := b.effect(VerifyOrHold, func(context.Context, request) (string, error) {
			if b.runs.Load() == 1 {
				return "", errBoom
			}
			return "done", nil
		})
		e.VerifyFences = true
		lapse(b, e, first)
		lapsed := b.entry(first).Epoch
		l := b.ledger(b, faultLease, nil)
		if _, err := e.Do(t.Context(), l, first.key(), first); !errors.Is(err, errBoom) {
			t.Fatal(err)
		}
		b.must(e.Do(t.Context(), l, first.key(), first))
		// Verify of the lapsed claim, Run, Verify of that, Run.
		if k := b.tokens; len(k) != 4 || k[0] <= lapsed || k[1] < k[0] || k[2] <= k[1] || k[3] < k[2] {
			t.Errorf("after %d: %v", lapsed, k)
		}
		b.done()
	})
}

// Section 3, Forgetting: a ledger reads its wall clock when it is opened, so that a jump from then on is noticed.
func TestClockIsReadAtOnce(t *testing.T) {
	l, err := New(Config{Storage: new(memory.Store), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !l.clock.Begun() {
		t.Error("it has not been read")
	}
}

// Section 3, Forgetting: a wall clock that jumps in the first minute of a ledger, before its first sweep, is noticed:
// nothing is forgotten.
func TestClockThatJumpsAtOnce(t *testing.T) {
	for name, to := range map[string]time.Duration{"a week ahead": 7 * 24 * time.Hour, "2200": time.Until(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var skew atomic.Int64
				l := b.ledger(b, 5*time.Minute, &skew)
				e := b.effect(Hold, giving("done"))
				b.must(e.Do(t.Context(), l, first.key(), first))
				time.Sleep(10 * time.Second)
				skew.Store(int64(to))
				time.Sleep(50 * time.Minute)
				if b.entry(first) == nil {
					t.Error("it is forgotten")
				}
				skew.Store(0)
				time.Sleep(24 * time.Hour)
				if b.entry(first) == nil {
					t.Error("it is forgotten after a day")
				}
				time.Sleep(25 * time.Hour)
				if b.entry(first) != nil {
					t.Error("it is never forgotten")
				}
				b.done()
			})
		})
	}
}

// Section 3 and 7: of two processes, one has been wrong from its start. It forgets nothing while it sees the lease of
// the other, not even before it has seen that renewed.
func TestWrongClockSeesTheLeaseOfAnother(t *testing.T) {
	for _, lease := range []time.Duration{faultLease, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			right := b.ledger(b, lease, nil)
			e := b.effect(Hold, giving("done"))
			b.must(e.Do(t.Context(), right, first.key(), first))
			var skew atomic.Int64
			skew.Store(int64(7 * 24 * time.Hour))
			b.ledger(b, lease, &skew)
			time.Sleep(6 * time.Hour)
			if b.entry(first) == nil {
				t.Errorf("it is forgotten (lease %v)", lease)
			}
			b.done()
		})
	}
}

// Section 7: a clock that is at 1970 for a while gives no seal a time to be forgotten that has long passed.
func TestSealUnderAClockAt1970(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var skew atomic.Int64
		l := b.ledger(b, 5*time.Minute, &skew)
		time.Sleep(2 * time.Minute)
		skew.Store(int64(time.Until(time.Unix(0, 0))))
		e := b.effect(Hold, giving("done"))
		r := b.must(e.Do(t.Context(), l, first.key(), first))
		if off := time.Until(r.SealedAt).Abs(); off > 2*time.Minute {
			t.Errorf("sealed %v away from now", off)
		}
		skew.Store(0)
		b.ledger(b, 5*time.Minute, nil)
		time.Sleep(40 * time.Hour)
		if b.entry(first) == nil {
			t.Error("it is forgotten")
		}
		b.done()
	})
}

// A fakeTx is a transaction that takes effect at once.
type fakeTx struct{ storage.Storage }

func (x fakeTx) Base() storage.Storage { return x.Storage }

// Section 3, In(tx): if the claim cannot be taken back, because Run has forgotten it, the call returns Run's error, and
// what went wrong.
func TestClaimThatCannotBeTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		in := b.ledger(b, faultLease, nil).In(fakeTx{b})
		e := b.effect(Hold, func(ctx context.Context, _ request) (string, error) {
			if err := in.Forget(ctx, first.key(), operator); err != nil {
				t.Error(err)
			}
			return "", errBoom
		})
		if _, err := e.Do(t.Context(), in, first.key(), first); !errors.Is(err, errBoom) || !errors.Is(err, storage.ErrConflict) {
			t.Errorf("got %v", err)
		}
	})
}

// Section 3: a damaged record is an error, and nothing runs: so is one of a state that there is not, and one whose
// end has no time.
func TestRecordThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(e *entry.Entry){
		"no state":               func(e *entry.Entry) { e.State, e.Expires = "", 0 },
		"unknown state":          func(e *entry.Entry) { e.State, e.Expires = "paused", 0 },
		"sealed for ever":        func(e *entry.Entry) { e.Expires = 0 },
		"in progress and due":    func(e *entry.Entry) { e.State = entry.InProgress },
		"indeterminate, and due": func(e *entry.Entry) { e.State = entry.Indeterminate },
	} {
		t.Run(name, func(t *testing.T) {
			s := new(memory.Store)
			l, err := New(Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			b := &bench{laws: newLaws(s), t: t}
			e := b.effect(TakeOver, giving("done"))
			b.must(e.Do(t.Context(), l, first.key(), first))
			stored := b.entry(first)
			change(stored)
			at := entry.Key(first.key()).Place(first.key().Hash())
			raw, err := record.Seal(at, 1, stored, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(at, raw)}}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Do(t.Context(), l, first.key(), first); !errors.Is(err, storage.ErrCorrupt) || b.runs.Load() != 1 {
				t.Errorf("got %v after %d runs", err, b.runs.Load())
			}
			if err := l.Forget(t.Context(), first.key(), operator); err != nil {
				t.Error("Forget:", err)
			}
			b.must(e.Do(t.Context(), l, first.key(), first))
		})
	}
}

// FEN-38, In(tx): if Run fails after its claim has released what lapsed in the slot, all is as it was.
func TestEvictionIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		e := b.effect(TakeOver, func(context.Context, request) (string, error) { return "", errBoom })
		e.Order = &Order[request]{
			Source:  func(request) string { return "account" },
			Version: func(r request) string { return r.ID[1:] }, // of first it is ":1"
			Compare: func(a, b string) (int, error) { return strings.Compare(a, b), nil },
		}
		lapse(b, e, older)
		l := b.ledger(b, faultLease, nil)
		in := l.In(fakeTx{b})
		time.Sleep(3 * time.Minute) // until it has swept, and found the holder dead
		before := stateOf(b)
		if _, err := e.Do(t.Context(), in, newer.key(), newer); !errors.Is(err, errBoom) {
			t.Errorf("got %v", err)
		}
		if after := stateOf(b); after != before || !strings.Contains(before, "idemver:") {
			t.Errorf("%s\nthen\n%s", before, after)
		}
		consistent(t, b.Storage) // a transaction that takes effect at once does not keep the laws
	})
}

// stateOf returns the records but for leases.
func stateOf(b *bench) string {
	var all strings.Builder
	for e := range storage.All(context.Background(), b.Storage, storage.Prefix([]byte("idem"))) {
		if !strings.HasPrefix(string(e.Key), "idemown:") {
			all.WriteString(string(e.Key) + "=" + string(e.Value) + "\n")
		}
	}
	return all.String()
}

// Section 3: what the store does not take, the ledger tries again: also if, after a refusal because the order of the
// source was written, the store fails for a moment.
func TestSealAfterItsOrderWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var fails atomic.Int32
		f := storagetest.NewFaulty(b, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && fails.Add(-1) >= 0 {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		l := b.ledger(f, faultLease, nil)
		e := b.effect(Hold, func(ctx context.Context, in request) (string, error) {
			if in == newer {
				if err := l.Forget(ctx, older.key(), operator); err != nil { // it is the newest that is sealed
					t.Error(err)
				}
				fails.Store(3)
			}
			return "done " + in.ID, nil
		})
		ordered(nil, e)
		b.must(e.Do(t.Context(), l, older.key(), older))
		b.must(e.Do(t.Context(), l, newer.key(), newer))
		if fails.Load() >= 0 {
			t.Error("nothing was read after the refusal")
		}
		b.done()
	})
}

// FEN-38: a key whose definition names another source than when it was claimed, or none, leaves the slot of that.
func TestSourceThatChanges(t *testing.T) {
	for name, change := range map[string]func(e *Effect[request, string]){
		"another": func(e *Effect[request, string]) { e.Order.Source = func(request) string { return "other" } },
		"none":    func(e *Effect[request, string]) { e.Order = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				e := b.effect(TakeOver, giving("done"))
				e.Retention = time.Hour
				ordered(nil, e)
				lapse(b, e, older)
				l := b.ledger(b, faultLease, nil)
				change(e)
				b.must(e.Do(t.Context(), l, older.key(), older))
				b.done()
				time.Sleep(3 * time.Hour)
				if left := stateOf(b); left != "" {
					t.Errorf("left are\n%s", left)
				}
			})
		})
	}
}

// Section 3: a claim that lapsed is in doubt also if the event takes the slot of another one: its NoEffect does not
// release the key.
func TestDoubtOfAnEventThatEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		e := b.effect(TakeOver, func(context.Context, request) (string, error) { return "", activity.NoEffect(errBoom) })
		e.Verify = nil
		e.Fingerprint = func(request) any { return nil }
		ordered(nil, e)
		source := "account:7"
		e.Order.Source = func(request) string { return source }
		lapse(b, e, newer)
		source = "account:8"
		lapse(b, e, older)
		l := b.ledger(b, faultLease, nil)
		if _, err := e.Do(t.Context(), l, newer.key(), newer); !errors.Is(err, ErrIndeterminate) {
			t.Errorf("got %v", err)
		}
		if got := b.entry(newer); got.State != entry.Indeterminate || !got.Doubt {
			t.Errorf("stored is %+v", got)
		}
		if got := b.entry(older); got.State != entry.Released {
			t.Errorf("evicted is %+v", got)
		}
		b.done()
	})
}

// Section 3: the fencing tokens of a source rise, also if the wall clocks of those who claim its events differ, whatever became
// of the claim before.
func TestTokensOfASourceUnderTwoClocks(t *testing.T) {
	for name, end := range map[string]error{"evicted": errBoom, "released": activity.NoEffect(errBoom), "failed": activity.NoEffect(activity.Permanent(errBoom)), "sealed": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var skew atomic.Int64
				skew.Store(int64(time.Hour))
				behind, ahead := b.ledger(b, faultLease, nil), b.ledger(b, faultLease, &skew)
				var err error
				e := b.effect(TakeOver, func(context.Context, request) (string, error) { return "done", err })
				e.Verify = nil
				e.Order = &Order[request]{
					Source:  func(request) string { return "account" },
					Version: func(r request) string { return r.ID },
					Compare: CompareInt,
				}
				do := func(l *Ledger, id string, returns error) {
					err = returns
					in := request{ID: id}
					e.Do(t.Context(), l, in.key(), in)
				}
				do(behind, "1", nil)
				do(ahead, "2", end)
				do(behind, "3", end)
				do(behind, "4", nil)
				if len(b.tokens) != 4 || !slices.IsSorted(b.tokens) || len(slices.Compact(slices.Clone(b.tokens))) != 4 {
					t.Errorf("the tokens are %d", b.tokens)
				}
				b.done()
			})
		})
	}
}

// FEN-38: if the newest event of a source is forgotten while another one is under way, nothing is left of the source
// when that has ended.
func TestForgottenNewestLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.ledger(b, faultLease, nil)
		e := b.effect(Hold, func(ctx context.Context, in request) (string, error) {
			if in == newer {
				if err := l.Forget(ctx, older.key(), operator); err != nil {
					t.Error(err)
				}
				return "", activity.NoEffect(errBoom)
			}
			return "done", nil
		})
		e.Retention = time.Hour
		ordered(nil, e)
		b.must(e.Do(t.Context(), l, older.key(), older))
		if _, err := e.Do(t.Context(), l, newer.key(), newer); !errors.Is(err, errBoom) {
			t.Error(err)
		}
		b.done()
		time.Sleep(3 * time.Hour)
		if left := stateOf(b); left != "" {
			t.Errorf("left are\n%s", left)
		}
	})
}

// A clock before 1970 gives no time that a key cannot have: what ends then is swept some day.
func TestExpiryBefore1970(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var skew atomic.Int64
		skew.Store(int64(time.Until(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC))))
		l := b.ledger(b, faultLease, &skew) // alone, and wrong from its start
		e := b.effect(Hold, giving("done"))
		b.must(e.Do(t.Context(), l, first.key(), first))
		b.done()
		l.Close()
		b.ledger(b, faultLease, nil)
		time.Sleep(time.Hour)
		if left := stateOf(b); left != "" {
			t.Errorf("left are\n%s", left)
		}
	})
}
