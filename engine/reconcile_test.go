package engine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A bank is the other side of a reconciled activity.
type bank struct {
	mu      sync.Mutex
	runs    []attempted // of Run
	asked   []attempted // of Verify
	effects int
	life    atomic.Pointer[storagetest.Faulty] // of the process that runs now
}

func (b *bank) note(list *[]attempted, ctx context.Context) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, attempted{time.Now(), activity.InfoFrom(ctx)})
	return len(*list)
}

func (b *bank) effect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.effects++
}

func (b *bank) counts() (runs, asked, effects int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.runs), len(b.asked), b.effects
}

// die is the death of the process that runs now, seen by its activity.
func (b *bank) die(ctx context.Context) (string, error) {
	b.life.Load().Crash()
	<-ctx.Done()
	return "", ctx.Err()
}

type charging = activity.Activity[string, string]

// an answer that a verifier gives, and what the workflow learns then.
type answer struct {
	verify  func(ctx context.Context) (activity.Verification[string], error)
	policy  func(a *charging)
	want    string // what the workflow learns; "again": of another attempt
	status  activity.Status
	patient bool // only after Timeout and Settle
	kin     bool // of another, whose way to the store it goes
}

func says(v activity.Verification[string]) func(context.Context) (activity.Verification[string], error) {
	return func(context.Context) (activity.Verification[string], error) { return v, nil }
}

var answers = map[string]answer{
	"not completed":      {verify: says(activity.NotCompleted[string]()), want: "again", status: activity.StatusCompleted, patient: true},
	"completed":          {verify: says(activity.CompletedWithResult("verified")), want: "verified <nil>", status: activity.StatusCompleted},
	"result unavailable": {verify: says(activity.CompletedResultUnavailable[string]()), want: " *activity.ResultUnavailableError", status: activity.StatusCompleted},
	"indeterminate":      {verify: says(activity.Indeterminate[string]("pending")), want: " *activity.IndeterminateError", status: activity.StatusIndeterminate},
	"zero value":         {verify: says(activity.Verification[string]{}), want: " *activity.IndeterminateError", status: activity.StatusIndeterminate, kin: true},
	"error": {verify: func(context.Context) (activity.Verification[string], error) {
		return activity.NotCompleted[string](), errBroke
	}, want: " *activity.IndeterminateError", status: activity.StatusIndeterminate, kin: true},
	"panic": {verify: func(context.Context) (activity.Verification[string], error) { panic("oh") }, want: " *activity.IndeterminateError", status: activity.StatusIndeterminate, kin: true},
	"timeout": {verify: func(ctx context.Context) (activity.Verification[string], error) {
		<-ctx.Done()
		return activity.NotCompleted[string](), nil
	}, want: " *activity.IndeterminateError", status: activity.StatusIndeterminate, kin: true},
	"none":                {want: " *activity.IndeterminateError", status: activity.StatusIndeterminate},
	"none, idempotent":    {policy: func(a *charging) { a.Idempotent = true }, want: "again", status: activity.StatusCompleted, kin: true},
	"not completed, safe": {verify: says(activity.NotCompleted[string]()), policy: func(a *charging) { a.VerifyFences = true }, want: "again", status: activity.StatusCompleted, kin: true},
}

// A window is a moment at which the process dies, or the store errs.
type window struct {
	late  bool              // after the effect: in the activity itself, or with
	fault storagetest.Fault // at the commit of the dispatch, or if late of the outcome
	known bool              // afterwards the store tells what became of it
}

var windows = map[string]window{
	"W0 before the dispatch is recorded":  {fault: storagetest.CrashBefore, known: true},
	"W1 before the attempt leaves":        {fault: storagetest.CrashAfter},
	"W2 before the effect":                {},
	"W3 after the effect":                 {late: true},
	"W4 before the outcome is recorded":   {late: true, fault: storagetest.CrashBefore},
	"W5 the record is refused by an err":  {late: true, fault: storagetest.ErrorBefore, known: true},
	"W5 the record is answered by an err": {late: true, fault: storagetest.ErrorAfter, known: true},
	"W6 after the outcome is recorded":    {late: true, fault: storagetest.CrashAfter, known: true},
}

// ACT-32, ACT-33, ACT-34, ACT-35, ACT-36, ACT-48, ACT-50, ACT-51, ACT-52, AC1, AC3,
// AC6, AC7, interleavings 4 and 7: whenever the process dies, and whatever the
// verifier answers then, nothing is a success that no record and no verifier vouches
// for, and nothing is dispatched twice unless the verifier or Idempotent permits it.
func TestEachWindowAndEachAnswer(t *testing.T) {
	for adapter, store := range sweepStores {
		for at, w := range windows {
			for answered, a := range answers {
				if adapter != "memory" && a.kin && os.Getenv("WEFT_TORTURE") == "" {
					continue
				}
				t.Run(strings.Join([]string{adapter, at, answered}, "/"), func(t *testing.T) {
					virtual(t, func(t *testing.T) { reconcileAfter(t, store, w, a) })
				})
			}
		}
	}
}

// The same on PostgreSQL, where who died is succeeded when its lease has run out.
func TestEachWindowAndEachAnswerOnPostgres(t *testing.T) {
	store := onPostgres(t)
	for at, w := range windows {
		for answered, a := range answers {
			if answered != "completed" && answered != "not completed" && os.Getenv("WEFT_TORTURE") == "" {
				continue
			}
			t.Run(at+"/"+answered, func(t *testing.T) {
				virtual(t, func(t *testing.T) { reconcileAfter(t, store, w, a) })
			})
		}
	}
}

func reconcileAfter(t *testing.T, store sweep.Store, w window, a answer) {
	inner := store.Open(t)
	defer func() { inner.Close() }()
	b := &bank{}
	charge := &charging{
		Name:           "charge",
		Errors:         []error{errBroke},
		IdempotencyKey: func(order string) string { return "order/" + order },
		Run: func(ctx context.Context, _ string) (string, error) {
			n := b.note(&b.runs, ctx)
			dies := n == 1 && w.fault == storagetest.None
			if dies && !w.late {
				return b.die(ctx)
			}
			b.effect()
			if dies {
				return b.die(ctx)
			}
			return fmt.Sprint("run ", n), nil
		},
	}
	if a.verify != nil {
		charge.Verify = func(ctx context.Context, order string) (activity.Verification[string], error) {
			b.note(&b.asked, ctx)
			if order != "42" {
				t.Errorf("the verifier is asked about %q", order)
			}
			return a.verify(ctx)
		}
	}
	if a.policy != nil {
		a.policy(charge)
	}
	var seen []string
	wf := flow("checkout", func(run *engine.Run) (string, error) {
		out, err := charge.Do(run, "42")
		seen = append(seen, fmt.Sprintf("%s %T", out, err))
		return seen[len(seen)-1], run.Sleep(200 * time.Hour)
	})
	rarely := func(c *engine.Config) { c.PollInterval, c.LeaseTTL = sweep.Poll, 3*sweep.Poll }
	boot := func(decide func(storagetest.Call) storagetest.Fault) *process {
		b.life.Store(storagetest.NewFaulty(inner, decide))
		return bootOn(t, b.life.Load(), wf, rarely)
	}
	struck := false
	p := boot(func(call storagetest.Call) storagetest.Fault {
		runs, _, effects := b.counts()
		if !struck && w.fault != storagetest.None && call.Method == "Commit" && touches(call.Batch, "act:") && (runs == 0 && !w.late || effects == 1 && w.late) {
			struck = true
			return w.fault
		}
		return storagetest.None
	})
	start(t, wf, p, "o", "")
	time.Sleep(time.Second)
	if w.fault == storagetest.ErrorBefore || w.fault == storagetest.ErrorAfter {
		time.Sleep(10 * time.Second)
	}
	p.kill()
	if store.Reopen != nil {
		inner = store.Reopen(t, inner)
	}
	restarted := time.Now()
	p = boot(nil)
	time.Sleep(6 * sweep.Poll)
	p.kill() // and what has been learnt is learnt again
	p = boot(nil)
	time.Sleep(300 * time.Hour)
	result(t, wf.Handle(p, "o"))

	runs, asked, effects := b.counts()
	want, times := a.want, 1
	switch {
	case w.known:
		want = "run 1 <nil>"
	case a.want == "again" && w.fault == storagetest.CrashAfter: // nothing had left
		want = "run 1 <nil>"
	case a.want == "again":
		want, times = "run 2 <nil>", 2
	case w.fault == storagetest.CrashAfter:
		times = 0
	}
	for _, s := range seen {
		if s != want {
			t.Errorf("the workflow learnt %q, want %q every time", seen, want)
		}
	}
	if runs != times || w.known && asked > 0 {
		t.Errorf("%d attempts, %d effects, the verifier was asked %d times; want %d attempts", runs, effects, asked, times)
	}
	if !w.known && a.verify != nil && asked == 0 {
		t.Error("the verifier was not asked")
	}
	r, err := activity.ReadRecord(ctx, inner, "o", "charge", "1", "order/42")
	if status := a.status; err != nil || r.Status != status && !w.known || w.known && r.Status != activity.StatusCompleted {
		t.Errorf("the record is %s, %v, want it %s", r.Status, err, status)
	}
	b.checkInfo(t, restarted, a.patient && !w.known)
	p.stop(t)
}

// checkInfo checks what attempts and verifiers were told. ACT-11, AC5, interleaving
// 30: tokens rise from attempt to attempt, and a verifier's is above those before it.
func (b *bank) checkInfo(t *testing.T, restarted time.Time, patient bool) {
	var token uint64
	for _, r := range b.runs {
		if r.info.Phase != activity.PhaseRun || r.info.IdempotencyKey != "order/42" || r.info.FencingToken <= token {
			t.Errorf("an attempt is told %+v, after token %d", r.info, token)
		}
		token = r.info.FencingToken
	}
	for _, q := range b.asked {
		if q.info.Phase != activity.PhaseVerify || q.info.IdempotencyKey != "order/42" || q.info.Attempt != 1 || q.info.Operation != "1" ||
			slices.ContainsFunc(b.runs, func(r attempted) bool {
				return (r.info.FencingToken < q.info.FencingToken) != (r.info.Attempt <= q.info.Attempt)
			}) {
			t.Errorf("the verifier is told %+v, the attempts %+v", q.info, b.runs)
		}
	}
	if last := b.runs[max(len(b.runs)-1, 0):]; patient && (len(last) == 0 || last[0].at.Sub(restarted) < time.Minute) {
		t.Errorf("an attempt left before Timeout and Settle were over: %v after the restart", last)
	}
}

// keyed is an activity whose attempts and verifications are scripts.
func keyed(run func(ctx context.Context, n int) (string, error), verify func(n int) activity.Verification[string]) (*charging, *bank) {
	b := &bank{}
	a := &charging{
		Name:           "charge",
		IdempotencyKey: func(order string) string { return "order/" + order },
		Run: func(ctx context.Context, _ string) (string, error) {
			return run(ctx, b.note(&b.runs, ctx))
		},
	}
	if verify != nil {
		a.Verify = func(ctx context.Context, _ string) (activity.Verification[string], error) {
			return verify(b.note(&b.asked, ctx)), nil
		}
	}
	return a, b
}

// learning is a workflow whose result is what it learns of an activity.
func learning(a *charging) *engine.Workflow[string, string] {
	return flow("checkout", func(run *engine.Run) (string, error) {
		out, err := a.Do(run, "42")
		if err != nil {
			return fmt.Sprintf("%T %v", err, err), nil
		}
		return out, nil
	})
}

func recordOf(t testing.TB, s storage.Storage, key string) activity.Record {
	t.Helper()
	r, err := activity.ReadRecord(ctx, s, "o", "charge", "1", key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Of attempts that come back: their errors, their time, and what is asked then.
func TestReconcileWithoutACrash(t *testing.T) {
	no := func(int) activity.Verification[string] { return activity.NotCompleted[string]() }
	yes := func(int) activity.Verification[string] { return activity.CompletedWithResult("verified") }
	fails := func(err error) func(context.Context, int) (string, error) {
		return func(_ context.Context, n int) (string, error) {
			if n < 3 {
				return "", err
			}
			return fmt.Sprint("run ", n), nil
		}
	}
	deaf := func(ctx context.Context, n int) (string, error) {
		if n == 1 {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return fmt.Sprint("run ", n), nil
	}
	for _, c := range []struct {
		name        string
		run         func(context.Context, int) (string, error)
		verify      func(int) activity.Verification[string]
		policy      func(*charging)
		want        string // how it begins
		runs, asked int
		status      activity.Status
		least       time.Duration // that it takes
	}{
		{"fails, not completed", fails(errBroke), no, nil, "run 3", 3, 2, activity.StatusCompleted, time.Second},                        // ACT-38, ACT-39, ACT-45
		{"fails, completed", fails(errBroke), yes, nil, "verified", 1, 1, activity.StatusCompleted, 0},                                  // ACT-38
		{"fails, without an effect", fails(activity.NoEffect(errBroke)), no, nil, "run 3", 3, 0, activity.StatusCompleted, time.Second}, // ACT-37
		{"fails for good, without an effect", fails(activity.Permanent(activity.NoEffect(errBroke))), no, nil, "*activity.Error activity charge: attempt 1: broke", 1, 0, activity.StatusFailed, 0},
		{"fails for good, not completed", fails(activity.Permanent(errBroke)), no, nil, "*activity.Error activity charge: attempt 1: broke", 1, 1, activity.StatusFailed, 0},
		{"fails for good, completed", fails(activity.Permanent(errBroke)), yes, nil, "verified", 1, 1, activity.StatusCompleted, 0},
		{"fails too often", fails(errBroke), no, func(a *charging) { a.Retry.Attempts = 2 }, "*activity.Error activity charge: attempt 2: broke", 2, 2, activity.StatusFailed, 0}, // ACT-46, ACT-47
		{"fails, to settle", fails(errBroke), no, func(a *charging) { a.SettleAfterError = true }, "run 3", 3, 4, activity.StatusCompleted, time.Minute},
		{"fails, nobody can tell", fails(errBroke), nil, nil, "*activity.IndeterminateError", 1, 0, activity.StatusIndeterminate, 0},
		{"fails, idempotent", fails(errBroke), nil, func(a *charging) { a.Idempotent = true }, "run 3", 3, 0, activity.StatusCompleted, time.Second},
		{"times out, not completed", deaf, no, nil, "run 2", 2, 2, activity.StatusCompleted, time.Minute},      // ACT-42, ACT-43
		{"times out, completed", deaf, yes, nil, "verified", 1, 1, activity.StatusCompleted, 30 * time.Second}, // ACT-42
		{"times out, fenced", deaf, no, func(a *charging) { a.VerifyFences = true }, "run 2", 2, 1, activity.StatusCompleted, 30 * time.Second},
		{"times out too often", deaf, no, func(a *charging) { a.Retry.Attempts = 1 }, "*activity.Error activity charge: attempt 1: timed out after 30s", 1, 2, activity.StatusTimedOut, time.Minute},
		{"cannot tell at first", fails(errBroke), func(n int) activity.Verification[string] {
			if n < 4 {
				return activity.Indeterminate[string]("pending")
			}
			return activity.CompletedWithResult("verified")
		}, nil, "verified", 1, 4, activity.StatusCompleted, 0},
		{"has a deadline", fails(activity.NoEffect(errBroke)), nil, func(a *charging) { a.Deadline = 2 * time.Second; a.Retry.Backoff = 5 * time.Second }, "*activity.Error activity charge: attempt 1: broke", 1, 0, activity.StatusFailed, 0},
		{"has a deadline that cuts an attempt", deaf, yes, func(a *charging) { a.Deadline = 10 * time.Second }, "verified", 1, 1, activity.StatusCompleted, 10 * time.Second},
		{"panics", func(context.Context, int) (string, error) { panic("oh") }, yes, nil, "verified", 1, 1, activity.StatusCompleted, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				a, b := keyed(c.run, c.verify)
				if c.policy != nil {
					c.policy(a)
				}
				wf := learning(a)
				p := boot(t, s, wf)
				begun := time.Now()
				got := result(t, start(t, wf, p, "o", ""))
				runs, asked, _ := b.counts()
				if !strings.HasPrefix(got, c.want) || runs != c.runs || asked != c.asked {
					t.Errorf("learnt %q after %d attempts and %d questions, want %q, %d and %d", got, runs, asked, c.want, c.runs, c.asked)
				}
				if took := time.Since(begun); took < c.least {
					t.Errorf("it took %v, want at least %v", took, c.least)
				}
				if r := recordOf(t, s, "order/42"); r.Status != c.status || !r.Settled || r.Attempt != c.runs {
					t.Errorf("the record is %s of attempt %d, %+v, want it %s", r.Status, r.Attempt, r.Error, c.status)
				}
				p.stop(t)
			})
		})
	}
}
