package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A provider makes refunds, and is asked for them. Its answer is found or fails.
type provider struct {
	runs, asks int
	run        func(ctx context.Context) error
	answer     func(ctx context.Context) (activity.Verification[string], error)
	asked      []time.Time
	infos      []activity.Info
}

func (p *provider) effect() *idempotency.Effect[refund, string] {
	return &idempotency.Effect[refund, string]{
		Name: "refund", Timeout: 10 * time.Second, Settle: 20 * time.Second,
		Run: func(ctx context.Context, _ refund) (string, error) {
			p.runs++
			p.infos = append(p.infos, activity.InfoFrom(ctx))
			if err := p.run(ctx); err != nil {
				return "", err
			}
			return "done", nil
		},
		Verify: func(ctx context.Context, _ refund) (activity.Verification[string], error) {
			p.asks++
			p.asked = append(p.asked, time.Now())
			p.infos = append(p.infos, activity.InfoFrom(ctx))
			return p.answer(ctx)
		},
	}
}

var errCut = errors.New("the connection was cut")

func cuts(context.Context) error { return errCut }

func says(v activity.Verification[string]) func(context.Context) (activity.Verification[string], error) {
	return func(context.Context) (activity.Verification[string], error) { return v, nil }
}

// Section 3, "Run's end": all else may have happened, so Verify is asked. Each of its answers, and what is none.
func TestVerifyAfterRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(context.Context) (activity.Verification[string], error)
		state  idempotency.State
		is     error
	}{
		{"completed", says(activity.CompletedWithResult("found")), idempotency.StateSealed, nil},
		{"result lost", says(activity.CompletedResultUnavailable[string]()), idempotency.StateSealed, idempotency.ErrResultUnavailable},
		{"not completed", says(activity.NotCompleted[string]()), idempotency.StateReleased, errCut},
		{"indeterminate", says(activity.Indeterminate[string]("ask later")), idempotency.StateIndeterminate, errCut},
		{"no answer", says(activity.Verification[string]{}), idempotency.StateIndeterminate, errCut},
		{"error", func(context.Context) (activity.Verification[string], error) {
			return activity.NotCompleted[string](), errors.New("refused")
		}, idempotency.StateIndeterminate, errCut},
		{"panic", func(context.Context) (activity.Verification[string], error) { panic("boom") }, idempotency.StateIndeterminate, errCut},
		{"timeout", func(ctx context.Context) (v activity.Verification[string], err error) {
			<-ctx.Done()
			return v, ctx.Err()
		}, idempotency.StateIndeterminate, errCut},
	} {
		for how, run := range map[string]func(context.Context) error{"error": cuts, "panic": func(context.Context) error { panic(errCut) }} {
			t.Run(c.name+" after "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, p := ledger(t, exclusiveStore()), &provider{run: run, answer: c.answer}
					r, err := p.effect().Do(t.Context(), l, key, one)
					if !errors.Is(err, c.is) || c.is == nil && (err != nil || r.Result != "found" || r.Decision != idempotency.DecidedNew) {
						t.Errorf("got %+v, %v", r, err)
					}
					if got := state(t, l, key); got != c.state || p.asks != 1 || p.runs != 1 {
						t.Errorf("the key is %s after %d questions and %d runs", got, p.asks, p.runs)
					}
					var i *idempotency.IndeterminateError
					if errors.As(err, &i) != (c.state == idempotency.StateIndeterminate) {
						t.Errorf("got %v", err)
					}
					if i != nil && c.name == "indeterminate" && !strings.Contains(i.Reason, "ask later") {
						t.Errorf("reason %q", i.Reason)
					}
					if run, verify := p.infos[0], p.infos[1]; verify.Phase != activity.PhaseVerify || verify.Attempt != 1 || verify.FencingToken <= run.FencingToken || verify.IdempotencyKey != run.IdempotencyKey {
						t.Errorf("Run was told %+v, Verify %+v", run, verify)
					}
				})
			})
		}
	}
}

// Section 3: no Verify after NoEffect, nor after success.
func TestVerifyIsNotAskedWhenRunKnows(t *testing.T) {
	for _, err := range []error{nil, activity.NoEffect(errCut), activity.NoEffect(activity.Permanent(errCut))} {
		l, p := ledger(t, exclusiveStore()), &provider{run: func(context.Context) error { return err }, answer: says(activity.NotCompleted[string]())}
		p.effect().Do(t.Context(), l, key, one)
		if p.asks != 0 {
			t.Errorf("asked after %v", err)
		}
	}
}

// Section 3: "After a timeout, not completed counts only Settle later; until then the claim is kept, in the background." The same holds if the
// caller left, or the lease was lost: the request is on its way until its deadline, and for Settle.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  time.Duration // when Run's context ends
	}{{"timeout", 10 * time.Second}, {"caller left", 2 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := ledger(t, exclusiveStore())
				var landed atomic.Bool
				p := &provider{run: func(ctx context.Context) error {
					time.AfterFunc(29*time.Second, func() { landed.Store(true) })
					<-ctx.Done()
					return ctx.Err()
				}}
				p.answer = func(context.Context) (activity.Verification[string], error) {
					if landed.Load() {
						return activity.CompletedWithResult("found"), nil
					}
					return activity.NotCompleted[string](), nil
				}
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.cut)
				defer cancel()
				_, err := p.effect().Do(ctx, l, key, one)
				var busy *idempotency.InProgressError
				if !errors.As(err, &busy) || busy.RetryAfter != 30*time.Second-time.Since(begun) || time.Since(begun) != c.cut {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				e := p.effect()
				e.Wait = -1
				for time.Since(begun) < 29*time.Second {
					if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrInProgress) {
						t.Fatalf("after %v: %v", time.Since(begun), err)
					}
					time.Sleep(time.Second)
				}
				r, err := p.effect().Do(t.Context(), l, key, one) // it waits
				if err != nil || r.Result != "found" || r.Decision != idempotency.DecidedDuplicate || p.runs != 1 || time.Since(begun) < 30*time.Second {
					t.Errorf("after %v: %+v, %v, %d runs", time.Since(begun), r, err, p.runs)
				}
			})
		})
	}
}

// Section 3: what a verifier saw before Settle had passed does not count, also if it answers later.
func TestVerifyThatLooksTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		p := &provider{run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		p.answer = func(context.Context) (activity.Verification[string], error) {
			if p.asks > 1 {
				return activity.CompletedWithResult("found"), nil
			}
			time.Sleep(25 * time.Second) // longer than Settle
			return activity.NotCompleted[string](), nil
		}
		p.effect().Do(t.Context(), l, key, one)
		if r, err := p.effect().Do(t.Context(), l, key, one); err != nil || r.Result != "found" || p.runs != 1 {
			t.Errorf("%+v, %v after %d runs", r, err, p.runs)
		}
	})
}

// Section 3: when nothing has happened Settle later, the key is released and runs.
func TestSettleThenRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		p := &provider{answer: says(activity.NotCompleted[string]())}
		p.run = func(ctx context.Context) error {
			if p.runs > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		begun := time.Now()
		p.effect().Do(t.Context(), l, key, one)
		r, err := p.effect().Do(t.Context(), l, key, one)
		if err != nil || r.Result != "done" || r.Attempt != 2 || time.Since(begun) < 30*time.Second || p.infos[len(p.infos)-1].FencingToken <= p.infos[0].FencingToken {
			t.Errorf("after %v: %+v, %v", time.Since(begun), r, err)
		}
	})
}

// Section 2, VerifyFences: the target refuses what comes late, so there is no waiting for Settle, neither after a timeout nor after a crash.
// The token of Verify is larger than that of the Run that it fences off, and the next Run's is not smaller than Verify's.
func TestVerifyFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := exclusiveStore()
		l := ledger(t, s)
		p := &provider{answer: says(activity.NotCompleted[string]())}
		p.run = func(ctx context.Context) error {
			if p.runs == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		e := p.effect()
		e.VerifyFences = true
		begun := time.Now()
		if r, err := e.Do(t.Context(), l, key, one); r.Decision != idempotency.DecidedReleased || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(begun), r, err)
		}
		r, err := e.Do(t.Context(), l, key, one)
		if err != nil || r.Result != "done" || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(begun), r, err)
		}
		run, verify, again := p.infos[0].FencingToken, p.infos[1].FencingToken, p.infos[2].FencingToken
		if verify <= run || again < verify {
			t.Errorf("tokens: run %d, verify %d, run %d", run, verify, again)
		}
	})
}

// crash leaves the claims of a ledger as a process that dies does: nothing of it is written any more. It returns the store as the
// next process opens it.
func crash(t *testing.T, run func(l *idempotency.Ledger, died func())) exclusive {
	t.Helper()
	s := exclusiveStore()
	l := ledger(t, s)
	run(l, func() {
		s.onCommit(func(context.Context, storage.Batch, func() error) error { return errDown })
	})
	return exclusive{&hooked{inner: s.inner}, "second"}
}

// crashed has an effect whose process dies in Run.
func crashed(t *testing.T, p *provider) exclusive {
	t.Helper()
	e := p.effect()
	e.Wait = -1
	return crash(t, func(l *idempotency.Ledger, died func()) {
		p.run = func(context.Context) error { died(); return nil }
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
	})
}

// Section 7: dies between claim and effect, or between effect and seal, with Verify: sealed if it happened, else it runs, Timeout + Settle
// after the store was opened (FEN-59, FEN-61).
func TestVerifyAfterACrash(t *testing.T) {
	for name, c := range map[string]struct {
		answer activity.Verification[string]
		runs   int
		result string
	}{
		"it happened":          {activity.CompletedWithResult("found"), 1, "found"},
		"it happened, lost":    {activity.CompletedResultUnavailable[string](), 1, ""},
		"it did not":           {activity.NotCompleted[string](), 2, "done"},
		"nobody knows":         {activity.Indeterminate[string]("ask later"), 1, ""},
		"not an answer at all": {activity.Verification[string]{}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answer: says(c.answer)}
				s := crashed(t, p)
				l := ledger(t, s)
				opened := time.Now()
				p.run = func(context.Context) error { return nil }
				e := p.effect()
				e.Wait = -1
				time.Sleep(29 * time.Second)
				var busy *idempotency.InProgressError
				if _, err := e.Do(t.Context(), l, key, one); !errors.As(err, &busy) || p.asks != 0 || busy.RetryAfter < time.Second {
					t.Errorf("%v after it was opened: %v, %d questions", time.Since(opened), err, p.asks)
				}
				e.Wait = time.Minute
				r, err := e.Do(t.Context(), l, key, one)
				if took := time.Since(opened); took < 30*time.Second || took > 31*time.Second {
					t.Errorf("it took %v", took)
				}
				if r.Result != c.result || p.runs != c.runs || p.asks != 1 || (c.result != "") != (err == nil) {
					t.Errorf("got %+v, %v, %d runs, %d questions", r, err, p.runs, p.asks)
				}
				if a := p.infos[1]; a.Attempt != 1 || a.FencingToken <= p.infos[0].FencingToken {
					t.Errorf("Run was told %+v, then Verify %+v", p.infos[0], a)
				}
			})
		})
	}
}

// Section 3: a lapsed claim of an effect that fences needs no waiting.
func TestVerifyFencesAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{answer: says(activity.NotCompleted[string]())}
		l := ledger(t, crashed(t, p))
		p.run = func(context.Context) error { return nil }
		e := p.effect()
		e.VerifyFences, e.Wait = true, -1
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Attempt != 2 || p.asks != 1 {
			t.Errorf("got %+v, %v, %d questions", r, err, p.asks)
		}
	})
}

// Section 7: a crash with Hold is a person's; with TakeOver it runs again at once, with the same hash and reservation.
func TestPoliciesAfterACrash(t *testing.T) {
	for _, policy := range []idempotency.Abandoned{idempotency.VerifyOrHold, idempotency.Hold, idempotency.TakeOver} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{}
				s := crashed(t, p)
				l := ledger(t, s)
				var reserved string
				p.run = func(ctx context.Context) error {
					reserved = idempotency.AttemptFrom(ctx).EffectID
					return nil
				}
				e := p.effect()
				e.OnAbandoned, e.Verify = policy, nil
				before := dump(t, s)
				i := info(t, l, key)
				r, err := e.Do(t.Context(), l, key, one)
				if policy == idempotency.TakeOver {
					if err != nil || r.Attempt != 2 || p.runs != 2 || reserved != i.EffectID || r.EffectID != i.EffectID || !r.FirstSeen.Equal(i.FirstSeen) || p.infos[1].FencingToken <= p.infos[0].FencingToken {
						t.Errorf("got %+v, %v, %d runs", r, err, p.runs)
					}
					return
				}
				var in *idempotency.IndeterminateError
				if !errors.As(err, &in) || in.EffectID != i.EffectID || in.Attempt != 1 || in.Reason == "" || p.runs != 1 {
					t.Errorf("got %v, %d runs", err, p.runs)
				}
				if after := dump(t, s); after != before {
					t.Errorf("Hold has written: %s\n%s", before, after)
				}
				if !i.Lapsed || i.State != idempotency.StateInProgress {
					t.Errorf("%+v", i)
				}
			})
		})
	}
}

// Section 3, OnAbandoned: "a process asks again for a key after 1 s, 2 s, … 1 min". In between the call is *IndeterminateError at once.
func TestAskingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := ledger(t, exclusiveStore()), &provider{run: cuts, answer: says(activity.Indeterminate[string]("ask later"))}
		e := p.effect()
		begun := time.Now()
		for time.Since(begun) < 5*time.Minute {
			if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		var pauses []string
		for i := 1; i < len(p.asked); i++ {
			pauses = append(pauses, p.asked[i].Sub(p.asked[i-1]).String())
		}
		if got := strings.Join(pauses, " "); got != "1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s" || p.runs != 1 {
			t.Errorf("pauses %s, %d runs", got, p.runs)
		}
		if i := info(t, l, key); i.Attempt != 1 {
			t.Errorf("questions count as attempts: %+v", i)
		}
		p.answer = says(activity.CompletedWithResult("found"))
		time.Sleep(time.Minute)
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Result != "found" || r.Attempt != 1 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// Section 3: an indeterminate key that Verify then does not see runs again, not before the attempt's Timeout and Settle; also in a process
// that has just found it.
func TestIndeterminateThenNotCompleted(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint("elsewhere ", elsewhere), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := exclusiveStore()
				l, p := ledger(t, s), &provider{run: cuts, answer: says(activity.Indeterminate[string]("ask later"))}
				e := p.effect()
				begun := time.Now()
				e.Do(t.Context(), l, key, one)
				p.answer, p.run = says(activity.NotCompleted[string]()), func(context.Context) error { return nil }
				if elsewhere {
					l = ledger(t, s)
				}
				for range 120 {
					time.Sleep(time.Second)
					r, err := e.Do(t.Context(), l, key, one)
					if err == nil {
						if took := time.Since(begun); took < 20*time.Second || r.Attempt != 2 {
							t.Errorf("after %v: %+v", took, r)
						}
						return
					}
					if !errors.Is(err, idempotency.ErrIndeterminate) {
						t.Fatal(err)
					}
				}
				t.Error("it never ran")
			})
		})
	}
}

// Whoever sends an event again waits for hours in the end. A Verify that does not see the effect then is believed once Settle is over.
func TestNotCompletedIsBelievedHoursLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := ledger(t, exclusiveStore()), &provider{run: cuts, answer: says(activity.Indeterminate[string]("ask later"))}
		e := p.effect()
		e.Do(t.Context(), l, key, one)
		p.answer, p.run = says(activity.NotCompleted[string]()), func(context.Context) error { return nil }
		time.Sleep(3 * time.Hour)
		if r, err := e.Do(t.Context(), l, key, one); err != nil || r.Attempt != 2 {
			t.Errorf("three hours later: %+v, %v", r, err)
		}
	})
}

// FEN-27, section 3: "NoEffect(err): released; but indeterminate if an earlier attempt is in doubt (TakeOver), so that no other request takes the key"; also
// Permanent. A success, and a Verify that knows, end the doubt.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		name   string
		second error
		verify bool
		state  idempotency.State
	}{
		{"no effect", activity.NoEffect(errBroke), false, idempotency.StateIndeterminate},
		{"failed", activity.NoEffect(activity.Permanent(errBroke)), false, idempotency.StateIndeterminate},
		{"done", nil, false, idempotency.StateSealed},
		{"not completed", errCut, true, idempotency.StateReleased},
	} {
		t.Run(c.name, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				l := ledger(t, s)
				p := &provider{run: cuts, answer: says(activity.NotCompleted[string]())}
				e := p.effect()
				e.OnAbandoned, e.Verify = idempotency.TakeOver, nil
				if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) {
					t.Fatal(err)
				}
				p.run = func(context.Context) error { return c.second }
				if c.verify {
					e.Verify = p.effect().Verify
				}
				e.Do(t.Context(), l, key, one)
				if got := state(t, l, key); got != c.state || p.runs != 2 {
					t.Errorf("the key is %s after %d runs", got, p.runs)
				}
				if c.state != idempotency.StateIndeterminate {
					return
				}
				if _, err := e.Do(t.Context(), l, key, refund{"p1", 200}); !errors.Is(err, idempotency.ErrConflict) {
					t.Errorf("another request took the key: %v", err)
				}
				e.Do(t.Context(), l, key, one) // doubt is not forgotten by the third attempt either
				if got := state(t, l, key); got != c.state || p.runs != 3 {
					t.Errorf("then the key is %s after %d runs", got, p.runs)
				}
			})
		})
	}
}

// FEN-27, FEN-61, section 3: the doubt of an attempt whose process died counts as well.
func TestDoubtAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		l := ledger(t, crashed(t, p))
		p.run = func(context.Context) error { return activity.NoEffect(errBroke) }
		e := p.effect()
		e.OnAbandoned, e.Verify = idempotency.TakeOver, nil
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrIndeterminate) || !errors.Is(err, errBroke) || activity.IsNoEffect(err) {
			t.Errorf("got %v; no effect: %v", err, activity.IsNoEffect(err))
		}
	})
}

// FEN-16, FEN-27, section 3: a verifier that does not see the effect of an earlier attempt says nothing of what that has sent just now: until
// Timeout and Settle have passed, no other request takes the key.
func TestDoubtOutlastsANotCompleted(t *testing.T) {
	other := refund{"p1", 200}
	for _, c := range []struct {
		name  string
		begun func(t *testing.T, p *provider) *idempotency.Ledger // with a first attempt in doubt
		fence bool
	}{
		{"crashed", func(t *testing.T, p *provider) *idempotency.Ledger { return ledger(t, crashed(t, p)) }, false},
		{"cut off", func(t *testing.T, p *provider) *idempotency.Ledger {
			l, e := ledger(t, exclusiveStore()), p.effect()
			p.run = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			e.OnAbandoned, e.Verify = idempotency.TakeOver, nil
			e.Do(t.Context(), l, key, one)
			return l
		}, false},
		{"fenced", func(t *testing.T, p *provider) *idempotency.Ledger { return ledger(t, crashed(t, p)) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answer: says(activity.NotCompleted[string]())}
				l, e := c.begun(t, p), p.effect()
				e.OnAbandoned, e.VerifyFences, e.Wait = idempotency.TakeOver, c.fence, -1
				runs := p.runs
				p.run = func(context.Context) error { return errBroke }
				if !c.fence {
					for i := range 3 {
						if r, err := e.Do(t.Context(), l, key, one); r.Decision != idempotency.DecidedIndeterminate || !errors.Is(err, errBroke) || p.runs != runs+i+1 {
							t.Errorf("%+v, %v after %d runs", r, err, p.runs-runs)
						}
						if r, err := e.Do(t.Context(), l, key, other); !errors.Is(err, idempotency.ErrConflict) {
							t.Errorf("another request takes the key: %+v, %v", r, err)
						}
					}
					time.Sleep(30 * time.Second) // Timeout and Settle
				}
				if r, err := e.Do(t.Context(), l, key, one); r.Decision != idempotency.DecidedReleased || !errors.Is(err, errBroke) {
					t.Errorf("then: %+v, %v", r, err)
				}
				p.run = func(context.Context) error { return nil }
				if r, err := e.Do(t.Context(), l, key, other); err != nil || r.Decision != idempotency.DecidedNew {
					t.Errorf("then another request: %+v, %v", r, err)
				}
			})
		})
	}
}

// ACT, FEN-27: what Run said of itself is no mark of the error that says that nobody knows. An effect, or an activity, whose
// Run returns that error does not take it for one without an effect.
func TestDoubtHasNoMarks(t *testing.T) {
	for _, marked := range []error{activity.NoEffect(errBroke), activity.NoEffect(activity.Permanent(errBroke)), activity.Permanent(errBroke)} {
		synctest.Test(t, func(t *testing.T) {
			p := &provider{}
			l := ledger(t, crashed(t, p))
			p.run = func(context.Context) error { return marked }
			inner := p.effect()
			inner.OnAbandoned, inner.Verify = idempotency.TakeOver, nil
			outer := &idempotency.Effect[refund, string]{Name: "outer", OnAbandoned: idempotency.Hold, Run: func(ctx context.Context, in refund) (string, error) {
				r, err := inner.Do(ctx, l, key, in)
				return r.Result, err
			}}
			r, err := outer.Do(t.Context(), l, key, one)
			if r.Decision != idempotency.DecidedIndeterminate || !errors.Is(err, idempotency.ErrIndeterminate) || !errors.Is(err, errBroke) {
				t.Errorf("%s, %v; want that nobody knows", r.Decision, err)
			}
			if said := activity.NoEffect(err); !activity.IsNoEffect(said) || activity.IsPermanent(said) {
				t.Error("a mark that the author has set does not count")
			}
		})
		for _, err := range []error{&idempotency.IndeterminateError{Err: marked}, &idempotency.InProgressError{Err: marked}} {
			if activity.IsNoEffect(err) || activity.IsPermanent(err) || !errors.Is(err, errBroke) {
				t.Errorf("%v: no effect %v, permanent %v", err, activity.IsNoEffect(err), activity.IsPermanent(err))
			}
		}
	}
}
