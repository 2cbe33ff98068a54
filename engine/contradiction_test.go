package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
)

// onEveryStore runs f in virtual time on a new store of each kind.
func onEveryStore(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	t.Helper()
	play := func(name string, store sweep.Store) {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := store.Open(t)
				defer s.Close()
				f(t, s)
			})
		})
	}
	for name, store := range sweepStores {
		play(name, store)
	}
	play("postgres", onPostgres(t))
}

// returningLate makes an activity whose first attempt does not heed its timeout of 30 s, and returns
// "A" after a minute. The verifier is first called when that is recorded.
func returningLate(verify func(n int) activity.Verification[string]) (*charging, *bank) {
	a, b := keyed(func(_ context.Context, n int) (string, error) {
		if n == 1 {
			time.Sleep(time.Minute)
			return "A", nil
		}
		return fmt.Sprint("run ", n), nil
	}, verify)
	a.Retry.Backoff, a.Retry.MaxBackoff = 2*time.Minute, 2*time.Minute
	return a, b
}

func observed(o *reconcile.Observation) string {
	if o == nil {
		return "-"
	}
	return string(o.Data)
}

// ACT-49: what an attempt returned and what the verifier answers are compared, not chosen
// from. Where they differ, the outcome is indeterminate, and the record has both.
func TestAVerifierContradictsAnAttempt(t *testing.T) {
	yes, no := activity.CompletedWithResult[string], activity.NotCompleted[string]()
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct {
			name           string
			answer         activity.Verification[string]
			want           string // what the workflow learns begins with this
			status         reconcile.Status
			seen, verified string // the results that the record has
			says           string // the second observation
		}{
			{"the same result", yes("A"), "A", reconcile.StatusCompleted, `"A"`, "-", ""},
			{"another result", yes("B"), "*activity.ContradictionError", reconcile.StatusIndeterminate, `"A"`, `"B"`, "the verifier says that it completed, with another result"},
			{"not completed", no, "*activity.ContradictionError", reconcile.StatusIndeterminate, `"A"`, "-", "the verifier says that it did not complete"},
			{"result unavailable", activity.CompletedResultUnavailable[string](), "*activity.ResultUnavailableError", reconcile.StatusCompleted, `"A"`, "-", ""},
		} {
			a, b := returningLate(func(int) activity.Verification[string] { return c.answer })
			var learnt error
			wf := learningWith(a, &learnt)
			id := fmt.Sprint("o", i)
			p := boot(t, s, wf, rareLeases)
			if got := result(t, start(t, wf, p, id, "")); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: learnt %q, want %q", c.name, got, c.want)
			}
			r, err := reconcile.ReadRecord(ctx, s, id, "charge", "1", "order/42")
			if err != nil || r.Status != c.status || !r.Settled || r.HasResult != (c.want == "A") {
				t.Errorf("%s: the record is %s, settled %v, has a result %v, %v, want it %s", c.name, r.Status, r.Settled, r.HasResult, err, c.status)
			}
			if observed(r.SeenResult) != c.seen || observed(r.VerifiedResult) != c.verified {
				t.Errorf("%s: the record has the results %s and %s, want %s and %s", c.name, observed(r.SeenResult), observed(r.VerifiedResult), c.seen, c.verified)
			}
			var contradiction *activity.ContradictionError
			if c.says != "" && (!errors.As(learnt, &contradiction) || contradiction.First != "attempt 1 returned a result after its time was up" || contradiction.Second != c.says ||
				r.Error.Message != contradiction.First || r.Error.Other != contradiction.Second) {
				t.Errorf("%s: learnt %v, the record says %+v, want both observations, the second %q", c.name, learnt, r.Error, c.says)
			}
			if runs, asked, _ := b.counts(); runs != 1 || asked != 1 {
				t.Errorf("%s: %d attempts and %d calls of the verifier, want one each", c.name, runs, asked)
			}
			p.stop(t)
		}
	})
}

// ACT-49: the same in whichever order the late result and the answer come, and when both
// have come before either is recorded. No answer of the verifier is dropped for a later one,
// except for a not-completed from before the attempt returned: it may have been true then.
func TestAVerifierAnswersWhileAnAttemptReturnsLate(t *testing.T) {
	yes, no := activity.CompletedWithResult[string], activity.NotCompleted[string]()
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct {
			name    string
			at      time.Duration // of the first answer, after the late result
			slow    bool          // the commit before takes from a second before the late result to a second after
			fences  bool
			answers []activity.Verification[string]
			want    string
		}{
			{"the answer is first", -500 * time.Millisecond, true, false, []activity.Verification[string]{yes("B")}, "*activity.ContradictionError"},
			{"the answer is first, and they agree", -500 * time.Millisecond, true, false, []activity.Verification[string]{yes("A")}, "A"},
			{"the result is first", 500 * time.Millisecond, true, false, []activity.Verification[string]{yes("B")}, "*activity.ContradictionError"},
			{"the result is first, and another answer would agree", 500 * time.Millisecond, true, false, []activity.Verification[string]{yes("B"), yes("A")}, "*activity.ContradictionError"},
			{"the result is first, and they agree", 500 * time.Millisecond, true, false, []activity.Verification[string]{yes("A"), yes("B")}, "A"},
			{"the result is first, and the verifier cannot tell yet", 500 * time.Millisecond, true, false, []activity.Verification[string]{activity.Indeterminate[string]("pending"), yes("A")}, "A"},
			{"not completed", -500 * time.Millisecond, true, false, []activity.Verification[string]{no}, "*activity.ContradictionError"},
			{"not completed, and fenced", -500 * time.Millisecond, true, true, []activity.Verification[string]{no}, "*activity.ContradictionError"},
			{"not completed, and then completed", -500 * time.Millisecond, true, false, []activity.Verification[string]{no, yes("A")}, "A"},
			{"not completed of the last attempt, and then completed", -500 * time.Millisecond, true, true, []activity.Verification[string]{no, yes("A")}, "A"},
			{"not completed, and then completed with another result", 500 * time.Millisecond, true, false, []activity.Verification[string]{no, yes("B")}, "*activity.ContradictionError"},
			{"not completed, and fenced, long before", -20 * time.Second, false, true, []activity.Verification[string]{no}, "*activity.ContradictionError"},
			{"not completed, and fenced, and then completed", -20 * time.Second, false, true, []activity.Verification[string]{no, yes("A")}, "A"},
		} {
			var begun atomic.Pointer[time.Time]
			a, b := keyed(func(_ context.Context, n int) (string, error) {
				if n > 1 {
					return fmt.Sprint("run ", n), nil
				}
				now := time.Now()
				begun.Store(&now)
				time.Sleep(time.Minute)
				return "A", nil
			}, nil)
			a.VerifyFences, a.VerifyTimeout = c.fences, time.Hour
			if strings.Contains(c.name, "last attempt") {
				a.Retry.MaxAttempts = 1
			}
			a.Verify = func(ctx context.Context, _ string) (activity.Verification[string], error) {
				n := b.note(&b.asked, ctx)
				if n == 1 {
					time.Sleep(time.Until(begun.Load().Add(time.Minute + c.at)))
				}
				return c.answers[min(n, len(c.answers))-1], nil
			}
			var slow atomic.Bool
			tick := &activity.Activity[string, string]{Name: "tick", Run: func(context.Context, string) (string, error) {
				time.Sleep(59 * time.Second)
				slow.Store(c.slow)
				return "", nil
			}}
			wf := flow("checkout", func(run *engine.Run) (string, error) {
				charge, ticked := a.Go(run, "42"), tick.Go(run, "")
				if _, err := ticked.Get(run); err != nil {
					return "", err
				}
				out, err := charge.Get(run)
				if err != nil {
					return fmt.Sprintf("%T %v", err, err), nil
				}
				return out, nil
			})
			id := fmt.Sprint("o", i)
			p := boot(t, &hooked{Storage: s, afterCommit: func(batch storage.Batch) error {
				if touches(batch, "log:") && slow.CompareAndSwap(true, false) {
					time.Sleep(2 * time.Second)
				}
				return nil
			}}, wf)
			if got := result(t, start(t, wf, p, id, "")); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: learnt %q, want %q", c.name, got, c.want)
			}
			if runs, _, _ := b.counts(); runs != 1 || slow.Load() {
				t.Errorf("%s: %d attempts, want 1", c.name, runs)
			}
			p.stop(t)
		}
	})
}

// ACT-49: a late result that cannot be stored is an observation too.
func TestALateResultThatCannotBeStored(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		runs := 0
		a := &activity.Activity[string, any]{
			Name:           "charge",
			IdempotencyKey: func(order string) string { return "order/" + order },
			Run: func(context.Context, string) (any, error) {
				if runs++; runs > 1 {
					return "run 2", nil
				}
				time.Sleep(time.Minute)
				return make(chan int), nil
			},
			Verify: func(context.Context, string) (activity.Verification[any], error) {
				return activity.NotCompleted[any](), nil
			},
		}
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			out, err := a.Do(run, "42")
			return fmt.Sprintf("%v %T", out, err), nil
		})
		p := boot(t, s, wf, rareLeases)
		if got := result(t, start(t, wf, p, "o", "")); got != "<nil> *activity.ContradictionError" || runs != 1 {
			t.Errorf("learnt %q after %d attempts, want a contradiction after one", got, runs)
		}
		p.stop(t)
	})
}

// ACT-49: two answers of the verifier that disagree. The workflow failed of a contradiction,
// and is retried: no answer decides then, an operator is asked, sees what was observed, and
// decides. Only an answer with which every observation agrees decides by itself.
func TestAVerifierContradictsItself(t *testing.T) {
	yes, no := activity.CompletedWithResult[string], activity.NotCompleted[string]()
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct {
			name        string
			first, then activity.Verification[string]
			verified    string   // the result of the verifier that the record keeps
			asks        []string // what an operator is told; nil: nobody is asked
		}{
			{"completed, then not completed", yes("B"), no, `"B"`, []string{"attempt 1 returned a result after its time was up", "the verifier had said that it completed, with another result", "the verifier says that it did not complete"}},
			{"completed, then completed with another result", yes("B"), yes("C"), `"B"`, []string{"attempt 1 returned a result after its time was up", "the verifier says that it completed, with another result"}},
			{"completed, then completed with the result of the attempt", yes("B"), yes("A"), `"B"`, []string{"the verifier had said that it completed", "the verifier says that it completed, with another result"}},
			{"completed, and again", yes("B"), yes("B"), `"B"`, []string{"attempt 1 returned a result after its time was up", "the verifier says that it completed, with another result"}},
			{"completed, then nobody can tell", yes("B"), activity.Indeterminate[string]("pending"), `"B"`, []string{"pending", "attempt 1 returned a result after its time was up", "another result"}},
			{"not completed, then completed with another result", no, yes("B"), `"B"`, []string{"attempt 1 returned a result after its time was up", "the verifier says that it completed, with another result"}},
			{"not completed, then completed with the result of the attempt", no, yes("A"), "-", nil},
		} {
			var retried atomic.Bool
			a, b := returningLate(nil)
			a.VerifyRetry.MaxAttempts = 1
			a.Verify = func(ctx context.Context, _ string) (activity.Verification[string], error) {
				b.note(&b.asked, ctx)
				if retried.Load() {
					return c.then, nil
				}
				return c.first, nil
			}
			wf := flow("checkout", func(run *engine.Run) (string, error) { return a.Do(run, "42") })
			id := fmt.Sprint("o", i)
			p := boot(t, s, wf, rareLeases)
			failure(t, start(t, wf, p, id, ""), "contradiction")
			retried.Store(true)
			retry(t, p, id)
			time.Sleep(time.Minute)
			p.stop(t)
			p = boot(t, s, wf, rareLeases) // what was observed is in the store
			time.Sleep(time.Minute)
			want := "A"
			if c.asks != nil {
				want = "by hand"
				info := describe(t, p, id)
				if !heldFor(info, engine.ReasonIndeterminate) {
					t.Fatalf("%s: %s, %+v, want an operator asked", c.name, info.Status, info.Attention)
				}
				for _, text := range c.asks {
					if detail := info.Attention[0].Detail; !strings.Contains(detail, text) {
						t.Errorf("%s: an operator is told %q, want %q in it", c.name, detail, text)
					}
				}
				r, err := reconcile.ReadRecord(ctx, s, id, "charge", "1", "order/42")
				if err != nil || r.Settled || r.Status != reconcile.StatusIndeterminate || r.Error == nil || r.Error.Category != activity.CategoryContradiction || r.Error.Other == "" ||
					observed(r.SeenResult) != `"A"` || observed(r.VerifiedResult) != c.verified {
					t.Errorf("%s: the record is %s, settled %v, %+v, with %s and %s, %v", c.name, r.Status, r.Settled, r.Error, observed(r.SeenResult), observed(r.VerifiedResult), err)
				}
				if err := p.Resolve(ctx, id, "1", yes("by hand"), audit); err != nil {
					t.Fatal(err)
				}
			}
			if got := result(t, wf.Handle(p, id)); got != want {
				t.Errorf("%s: result %q, want %q", c.name, got, want)
			}
			if runs, _, _ := b.counts(); runs != 1 {
				t.Errorf("%s: %d attempts, want 1", c.name, runs)
			}
			p.stop(t)
		}
	})
}

// ACT-49: results are compared as values, and not as what a codec makes of them: one that
// encrypts makes other bytes each time.
func TestResultsAreComparedAsValues(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct{ answer, want string }{{"A", "A"}, {"B", "*activity.ContradictionError"}} {
			a, _ := returningLate(func(int) activity.Verification[string] { return activity.CompletedWithResult(c.answer) })
			wf := learning(a)
			p := boot(t, s, wf, rareLeases, func(config *engine.Config) { config.Codec = newSealed(t, "aes", 'a') })
			if got := result(t, start(t, wf, p, fmt.Sprint("o", i), "")); !strings.HasPrefix(got, c.want) {
				t.Errorf("answer %q: learnt %q, want %q", c.answer, got, c.want)
			}
			p.stop(t)
		}
	})
}

// ACT-49: an operator says that an attempt did not complete, while it still runs, and it returns a
// result after that: before the owner has noted the answer, or much later. No other attempt begins. The
// operator is asked again, also by the next owner, and told why.
func TestALateResultRefutesAnOperator(t *testing.T) {
	unsure := func(int) activity.Verification[string] { return activity.Indeterminate[string]("pending") }
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct {
			name     string
			races    bool // the answer is written just before the late result
			verify   func(int) activity.Verification[string]
			attempts int
			want     string // of an answer that knows of the late result
		}{
			{"much later", false, nil, 0, "run 2"},
			{"at the same time", true, nil, 0, "run 2"},
			{"at the same time, and the verifier cannot tell", true, unsure, 0, "run 2"},
			{"at the same time, and there is no further attempt", true, nil, 1, "did not complete"},
		} {
			a, b := keyed(func(_ context.Context, n int) (string, error) {
				if n == 1 {
					time.Sleep(10 * time.Minute)
					return "A", nil
				}
				return fmt.Sprint("run ", n), nil
			}, c.verify)
			a.OnIndeterminate, a.Retry.MaxAttempts = activity.AwaitOperator, c.attempts
			if c.verify != nil {
				a.VerifyRetry.MaxAttempts = 1
			}
			wf := learning(a)
			id := fmt.Sprint("o", i)
			answer := func() {
				client := made(t, s)
				defer client.Close()
				if err := client.Resolve(ctx, id, "1", activity.NotCompleted[string](), audit); err != nil {
					t.Error(err)
				}
			}
			var armed atomic.Bool
			p := boot(t, &hooked{Storage: s, beforeCommit: func(batch storage.Batch) {
				if touches(batch, "act:"+id) && armed.CompareAndSwap(true, false) {
					answer()
				}
			}}, wf, rareLeases)
			start(t, wf, p, id, "")
			time.Sleep(5 * time.Minute)
			if info := describe(t, p, id); !heldFor(info, engine.ReasonIndeterminate) {
				t.Fatalf("%s: %s, %+v, want an operator asked", c.name, info.Status, info.Attention)
			}
			if armed.Store(c.races); !c.races {
				answer()
			}
			for _, owner := range []string{"the owner", "the next owner"} {
				time.Sleep(10 * time.Minute)
				info := describe(t, p, id)
				if runs, _, _ := b.counts(); runs != 1 || armed.Load() || !heldFor(info, engine.ReasonIndeterminate) {
					t.Fatalf("%s, %s: %d attempts, %s, %+v, want one, and the operator asked again", c.name, owner, runs, info.Status, info.Attention)
				}
				for _, text := range []string{"attempt 1: timed out", "the answer by ann that it did not complete is rejected: attempt 1 returned a result after its time was up"} {
					if detail := info.Attention[0].Detail; !strings.Contains(detail, text) {
						t.Errorf("%s, %s: the operator is told %q, want %q in it", c.name, owner, detail, text)
					}
				}
				r, err := reconcile.ReadRecord(ctx, s, id, "charge", "1", "order/42")
				if err != nil || r.Settled || r.Status != reconcile.StatusTimedOut || observed(r.SeenResult) != `"A"` {
					t.Errorf("%s, %s: the record is %s, settled %v, with %s, %v", c.name, owner, r.Status, r.Settled, observed(r.SeenResult), err)
				}
				p.stop(t)
				p = boot(t, s, wf, rareLeases)
			}
			if err := p.Resolve(ctx, id, "1", activity.NotCompleted[string](), audit); err != nil { // knowing that
				t.Fatal(err)
			}
			if got := result(t, wf.Handle(p, id)); !strings.Contains(got, c.want) {
				t.Errorf("%s: result %q, want %q in it", c.name, got, c.want)
			}
			p.stop(t)
		}
	})
}
