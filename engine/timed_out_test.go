package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/storage"
)

// expiring is an activity with a key whose first attempts time out. verify may be nil.
func expiring(attempts int, verify func(n int) activity.Verification[string]) (*charging, *bank) {
	a, b := keyed(func(ctx context.Context, n int) (string, error) {
		if n <= attempts {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return fmt.Sprint("run ", n), nil
	}, verify)
	a.Timeout = 100 * time.Millisecond
	a.Retry = activity.Retry{MaxAttempts: 2, Backoff: time.Millisecond}
	if verify != nil {
		a.Settle = 10 * time.Millisecond
		a.VerifyRetry = activity.Retry{MaxAttempts: 2, Backoff: time.Millisecond}
	}
	return a, b
}

// ACT-42, ACT-43, ACT-48: an attempt that timed out is recorded as that, unless the
// verifier proves more. It is verified before another attempt is dispatched, and what the
// workflow learns is never a success that nobody vouches for.
func TestWhatTimedOutIsRecordedAsThat(t *testing.T) {
	who := func(int) activity.Verification[string] { return activity.Indeterminate[string]("pending") }
	no := func(int) activity.Verification[string] { return activity.NotCompleted[string]() }
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct {
			name     string
			attempts int // that time out
			verify   func(int) activity.Verification[string]
			policy   func(*charging)
			want     string // the beginning of what the workflow learns
			status   reconcile.Status
			runs     int
		}{
			{"no verifier", 1, nil, nil, "*activity.IndeterminateError", reconcile.StatusTimedOut, 1},
			{"indeterminate", 1, who, nil, "*activity.IndeterminateError", reconcile.StatusTimedOut, 1},
			{"invalid answer", 1, func(int) activity.Verification[string] { return activity.Verification[string]{} }, nil, "*activity.IndeterminateError", reconcile.StatusTimedOut, 1},
			{"not completed, and no other attempt", 2, no, nil, "*activity.Error activity charge: attempt 2: timed out", reconcile.StatusTimedOut, 2},
			{"not completed", 1, no, nil, "run 2", reconcile.StatusCompleted, 2},
			{"completed", 1, func(int) activity.Verification[string] { return activity.CompletedWithResult("verified") }, nil, "verified", reconcile.StatusCompleted, 1},
			{"result unavailable", 1, func(int) activity.Verification[string] { return activity.CompletedResultUnavailable[string]() }, nil, "*activity.ResultUnavailableError", reconcile.StatusCompleted, 1},
			{"idempotent", 1, nil, func(a *charging) { a.Idempotent = true }, "run 2", reconcile.StatusCompleted, 2},
			{"idempotent, and no other attempt", 2, nil, func(a *charging) { a.Idempotent = true }, "*activity.Error activity charge: attempt 2: timed out", reconcile.StatusTimedOut, 2},
		} {
			t.Run(c.name, func(t *testing.T) {
				a, b := expiring(c.attempts, c.verify)
				if c.runs > c.attempts { // the last attempt is not to time out, on a slow machine too
					a.Timeout = 500 * time.Millisecond
				}
				if c.policy != nil {
					c.policy(a)
				}
				id := fmt.Sprint("o", i)
				record := func() reconcile.Record {
					r, err := reconcile.ReadRecord(ctx, s, id, "charge", "1", "order/42")
					if err != nil {
						t.Error(err)
					}
					return r
				}
				if verify := a.Verify; verify != nil {
					a.Verify = func(ctx context.Context, in string) (activity.Verification[string], error) {
						if r := record(); r.Status != reconcile.StatusTimedOut || r.Settled {
							t.Errorf("the verifier is called while the record is %s, settled %v", r.Status, r.Settled)
						}
						return verify(ctx, in)
					}
				}
				var learnt error
				wf := learningWith(a, &learnt)
				p := boot(t, s, wf)
				defer p.stop(t)
				got, err := soon(start(t, wf, p, id, ""))
				if err != nil || !strings.HasPrefix(got, c.want) {
					t.Errorf("learnt %q, %v, want %q", got, err, c.want)
				}
				if strings.HasPrefix(c.want, "*activity.Error ") && !errors.Is(learnt, activity.ErrTimeout) {
					t.Errorf("%v is not ErrTimeout", learnt)
				}
				if r := record(); r.Status != c.status || !r.Settled || r.HasResult != (r.Outcome() == nil) {
					t.Errorf("the record is %s, settled %v, %+v, want it %s", r.Status, r.Settled, r.Error, c.status)
				}
				runs, asked, _ := b.counts()
				if runs != c.runs || c.verify != nil && asked == 0 {
					t.Errorf("%d attempts, %d calls of the verifier; want %d attempts", runs, asked, c.runs)
				}
				for i, r := range b.runs {
					if r.info.IdempotencyKey != "order/42" || r.info.Attempt != i+1 {
						t.Errorf("attempt %+v", r.info)
					}
					for _, q := range b.asked {
						if q.info.Attempt == i && q.at.After(r.at) {
							t.Errorf("attempt %d was dispatched before the verifier was called about the one before", r.info.Attempt)
						}
					}
				}
			})
		}
	})
}

// ACT-42: an operator treats what timed out like anything else whose outcome is unknown.
// Describe names it, Resolve accepts each answer, and after a Retry of a failed workflow
// both work as well, in any later process.
func TestAnOperatorDecidesWhatTimedOut(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for i, c := range []struct {
			answer activity.Answer
			want   string
			status reconcile.Status
		}{
			{activity.CompletedWithResult("by hand"), "by hand <nil>", reconcile.StatusCompleted},
			{activity.CompletedResultUnavailable[string](), "*activity.ResultUnavailableError", reconcile.StatusCompleted},
			{activity.Failed("the bank says no"), "the bank says no", reconcile.StatusFailed},
			{activity.NotCompleted[string](), "run 2 <nil>", reconcile.StatusCompleted},
		} {
			for _, how := range []string{"park", "retry"} {
				t.Run(fmt.Sprint(how, "/", c.answer.Verdict().State), func(t *testing.T) {
					a, b := expiring(1, nil)
					if how == "park" {
						a.OnIndeterminate = activity.AwaitOperator
					}
					id := fmt.Sprint("o", how, i)
					record := func() reconcile.Record {
						rs, err := reconcile.Records(ctx, s, id, generationOf(t, s, id))
						if err != nil || len(rs) != 1 {
							t.Fatalf("records %+v, %v, want one", rs, err)
						}
						return rs[0]
					}
					wf := flow("checkout", func(run *engine.Run) (string, error) {
						out, err := a.Do(run, "42")
						if how == "retry" {
							return out, err
						}
						return fmt.Sprintf("%s %v", out, errorType(err)), nil
					})
					p := boot(t, s, wf)
					h := start(t, wf, p, id, "")
					if how == "retry" {
						var unknown *activity.IndeterminateError
						if _, err := soon(h); err == nil || !strings.Contains(err.Error(), "is unknown") {
							t.Fatalf("%v, want %T", err, unknown)
						}
						if r := record(); r.Status != reconcile.StatusTimedOut || !r.Settled {
							t.Errorf("given up, the record is %s, settled %v", r.Status, r.Settled)
						}
						retry(t, p, id)
					}
					waitAttention(t, p, id, "timed out after 100ms")
					if r := record(); r.Status != reconcile.StatusTimedOut || r.Settled && how == "park" {
						t.Errorf("the record is %s, settled %v, and an operator is asked", r.Status, r.Settled)
					}
					p.stop(t)
					a.Timeout = time.Minute // another attempt is not to time out
					p = boot(t, s, wf)
					defer func() { p.stop(t) }()
					waitAttention(t, p, id, "timed out after 100ms")
					if err := p.Resolve(ctx, id, "1", c.answer, audit); err != nil {
						t.Fatal(err)
					}
					out, err := soon(wf.Handle(p, id))
					if how == "retry" && err == nil {
						out += " <nil>"
					}
					want := c.want
					if how == "retry" && strings.HasPrefix(want, "*activity.Result") {
						want = "its result is lost"
					}
					if got := fmt.Sprint(out, err); !strings.Contains(got, want) {
						t.Errorf("learnt %q, want %q", got, want)
					}
					if r := record(); r.Status != c.status || !r.Settled || r.HasResult && r.Error != nil {
						t.Errorf("resolved, the record is %s, settled %v, %+v, want it %s", r.Status, r.Settled, r.Error, c.status)
					}
					if runs, _, _ := b.counts(); runs != 1 && c.want != "run 2 <nil>" {
						t.Errorf("%d attempts", runs)
					}
				})
			}
		}
	})
}

func errorType(err error) string {
	if err == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%T %v", err, err)
}

// waitAttention waits until an operator is asked about operation 1 of a workflow, with
// words that have text in them.
func waitAttention(t *testing.T, p *process, id, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		i, err := p.Describe(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range i.Attention {
			if a.Reason == engine.ReasonIndeterminate && a.Operation == "1" {
				if !strings.Contains(a.Detail, text) {
					t.Errorf("an operator is asked because %q, want %q in it", a.Detail, text)
				}
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no operator is asked: %+v", i)
		}
	}
}
