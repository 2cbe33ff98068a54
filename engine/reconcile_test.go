package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reconcile"
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
	status  reconcile.Status
	patient bool // only after Timeout and Settle
	kin     bool // of another, whose way to the store it goes
}

func says(v activity.Verification[string]) func(context.Context) (activity.Verification[string], error) {
	return func(context.Context) (activity.Verification[string], error) { return v, nil }
}

var answers = map[string]answer{
	"not completed":      {verify: says(activity.NotCompleted[string]()), want: "again", status: reconcile.StatusCompleted, patient: true},
	"completed":          {verify: says(activity.CompletedWithResult("verified")), want: "verified <nil>", status: reconcile.StatusCompleted},
	"result unavailable": {verify: says(activity.CompletedResultUnavailable[string]()), want: " *activity.ResultUnavailableError", status: reconcile.StatusCompleted},
	"indeterminate":      {verify: says(activity.Indeterminate[string]("pending")), want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate},
	"zero value":         {verify: says(activity.Verification[string]{}), want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate, kin: true},
	"error": {verify: func(context.Context) (activity.Verification[string], error) {
		return activity.NotCompleted[string](), errBroke
	}, want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate, kin: true},
	"panic": {verify: func(context.Context) (activity.Verification[string], error) { panic("oh") }, want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate, kin: true},
	"exit": {verify: func(context.Context) (activity.Verification[string], error) {
		runtime.Goexit()
		return activity.NotCompleted[string](), nil
	}, want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate, kin: true},
	"timeout": {verify: func(ctx context.Context) (activity.Verification[string], error) {
		<-ctx.Done()
		return activity.NotCompleted[string](), nil
	}, want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate, kin: true},
	"none":                {want: " *activity.IndeterminateError", status: reconcile.StatusIndeterminate},
	"none, idempotent":    {policy: func(a *charging) { a.Idempotent = true }, want: "again", status: reconcile.StatusCompleted, kin: true},
	"not completed, safe": {verify: says(activity.NotCompleted[string]()), policy: func(a *charging) { a.VerifyFences = true }, want: "again", status: reconcile.StatusCompleted, kin: true},
}

// A window is a moment at which the process dies, or the store errs.
type window struct {
	late  bool              // after the effect: in the activity itself, or with
	fault storagetest.Fault // at the commit of the dispatch, or if late of the outcome
	known bool              // afterwards the store tells what became of it
}

var windows = map[string]window{
	"W0 before the dispatch is recorded":      {fault: storagetest.CrashBefore, known: true},
	"W0 the dispatch is refused by an error":  {fault: storagetest.ErrorBefore, known: true},
	"W1 the dispatch is answered by an error": {fault: storagetest.ErrorAfter, known: true},
	"W1 before the attempt leaves":            {fault: storagetest.CrashAfter},
	"W2 before the effect":                    {},
	"W3 after the effect":                     {late: true},
	"W4 before the outcome is recorded":       {late: true, fault: storagetest.CrashBefore},
	"W5 the record is refused by an err":      {late: true, fault: storagetest.ErrorBefore, known: true},
	"W5 the record is answered by an err":     {late: true, fault: storagetest.ErrorAfter, known: true},
	"W6 after the outcome is recorded":        {late: true, fault: storagetest.CrashAfter, known: true},
}

// ACT-3, ACT-4, ACT-32, ACT-33, ACT-34, ACT-35, ACT-36, ACT-48, ACT-50, ACT-51, ACT-52, AC1, AC3,
// AC6, AC7, interleavings 4 and 7: whenever the process dies, and whatever the
// verifier answers then, nothing is a success that no record and no verifier vouches
// for, and nothing is dispatched twice unless the verifier or Idempotent permits it.
func TestEachWindowAndEachAnswer(t *testing.T) {
	for adapter, store := range sweepStores {
		for at, w := range windows {
			for answered, a := range answers {
				if adapter != "memory" && (a.kin && os.Getenv("WEFT_TORTURE") == "" || testing.Short()) {
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
	r, err := reconcile.ReadRecord(ctx, inner, "o", "charge", "1", "order/42")
	if status := a.status; err != nil || r.Status != status && !w.known || w.known && r.Status != reconcile.StatusCompleted {
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

// ACT-33: what the verifier answers is durable before the workflow learns it. If the process
// dies before that, the workflow has learnt nothing, and the verifier is asked again.
func TestAVerifiersResultIsDurableBeforeItIsLearnt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		a, b := keyed(func(context.Context, int) (string, error) { return "", errBroke },
			func(n int) activity.Verification[string] {
				return activity.CompletedWithResult(fmt.Sprint("answer ", n))
			})
		var learnt []string
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			out, err := a.Do(run, "42")
			learnt = append(learnt, sprint(out, err))
			return out, err
		})
		p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if _, asked, _ := b.counts(); asked > 0 && c.Method == "Commit" && touches(c.Batch, "act:") {
				return storagetest.CrashBefore
			}
			return storagetest.None
		}), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		if _, asked, _ := b.counts(); asked != 1 || len(learnt) > 0 {
			t.Errorf("the verifier was asked %d times, and the workflow has learnt %q from an answer that is not durable", asked, learnt)
		}
		p.kill()
		if r := recordOf(t, s, "order/42"); r.Settled {
			t.Fatalf("the record is %s: this tests nothing", r.Status)
		}
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "answer 2" {
			t.Errorf("learnt %q, want the second answer", got)
		}
		if r := recordOf(t, s, "order/42"); r.Status != reconcile.StatusCompleted || !r.HasResult || string(r.Result) != `"answer 2"` {
			t.Errorf("the record is %s with %s, want the second answer", r.Status, r.Result)
		}
		p.stop(t)
	})
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
	return learningWith(a, nil)
}

// learningWith is learning, and stores the error in learnt unless that is nil.
func learningWith(a *charging, learnt *error) *engine.Workflow[string, string] {
	return flow("checkout", func(run *engine.Run) (string, error) {
		out, err := a.Do(run, "42")
		if learnt != nil {
			*learnt = err
		}
		if err != nil {
			return fmt.Sprintf("%T %v", err, err), nil
		}
		return out, nil
	})
}

func recordOf(t testing.TB, s storage.Storage, key string) reconcile.Record {
	t.Helper()
	r, err := reconcile.ReadRecord(ctx, s, "o", "charge", "1", key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Of attempts that come back: their errors, their time, and what is asked then. ACT-37 to
// ACT-39, ACT-42, ACT-43, ACT-45 to ACT-47
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
	unresponsive := func(ctx context.Context, n int) (string, error) {
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
		status      reconcile.Status
		least       time.Duration // that it takes
	}{
		{"fails, not completed", fails(errBroke), no, nil, "run 3", 3, 2, reconcile.StatusCompleted, time.Second},                        // ACT-38, ACT-39, ACT-45
		{"fails, completed", fails(errBroke), yes, nil, "verified", 1, 1, reconcile.StatusCompleted, 0},                                  // ACT-38
		{"fails, without an effect", fails(activity.NoEffect(errBroke)), no, nil, "run 3", 3, 0, reconcile.StatusCompleted, time.Second}, // ACT-37
		{"fails for good, without an effect", fails(activity.Permanent(activity.NoEffect(errBroke))), no, nil, "*activity.Error activity charge: attempt 1: broke", 1, 0, reconcile.StatusFailed, 0},
		{"fails for good, not completed", fails(activity.Permanent(errBroke)), no, nil, "*activity.Error activity charge: attempt 1: broke", 1, 1, reconcile.StatusFailed, 0},
		{"fails for good, completed", fails(activity.Permanent(errBroke)), yes, nil, "verified", 1, 1, reconcile.StatusCompleted, 0},
		{"fails too often", fails(errBroke), no, func(a *charging) { a.Retry.MaxAttempts = 2 }, "*activity.Error activity charge: attempt 2: broke", 2, 2, reconcile.StatusFailed, 0}, // ACT-46, ACT-47
		{"fails, to settle", fails(errBroke), no, func(a *charging) { a.SettleAfterError = true }, "run 3", 3, 4, reconcile.StatusCompleted, time.Minute},
		{"fails, nobody can tell", fails(errBroke), nil, nil, "*activity.IndeterminateError", 1, 0, reconcile.StatusIndeterminate, 0},
		{"fails, idempotent", fails(errBroke), nil, func(a *charging) { a.Idempotent = true }, "run 3", 3, 0, reconcile.StatusCompleted, time.Second},
		{"times out, not completed", unresponsive, no, nil, "run 2", 2, 2, reconcile.StatusCompleted, time.Minute},      // ACT-42, ACT-43
		{"times out, completed", unresponsive, yes, nil, "verified", 1, 1, reconcile.StatusCompleted, 30 * time.Second}, // ACT-42
		{"times out, fenced", unresponsive, no, func(a *charging) { a.VerifyFences = true }, "run 2", 2, 1, reconcile.StatusCompleted, 30 * time.Second},
		{"times out too often", unresponsive, no, func(a *charging) { a.Retry.MaxAttempts = 1 }, "*activity.Error activity charge: attempt 1: timed out after 30s", 1, 2, reconcile.StatusTimedOut, time.Minute},
		{"cannot tell at first", fails(errBroke), func(n int) activity.Verification[string] {
			if n < 4 {
				return activity.Indeterminate[string]("pending")
			}
			return activity.CompletedWithResult("verified")
		}, nil, "verified", 1, 4, reconcile.StatusCompleted, 0},
		{"has a deadline", fails(activity.NoEffect(errBroke)), nil, func(a *charging) { a.TotalTimeout = 2 * time.Second; a.Retry.Backoff = 5 * time.Second }, "*activity.Error activity charge: attempt 1: broke", 1, 0, reconcile.StatusFailed, 0},
		{"has a deadline that cuts an attempt", unresponsive, yes, func(a *charging) { a.TotalTimeout = 10 * time.Second }, "verified", 1, 1, reconcile.StatusCompleted, 10 * time.Second},
		{"panics", func(context.Context, int) (string, error) { panic("oh") }, yes, nil, "verified", 1, 1, reconcile.StatusCompleted, 0},
		{"exits", func(context.Context, int) (string, error) { runtime.Goexit(); return "", nil }, yes, nil, "verified", 1, 1, reconcile.StatusCompleted, 0},
		{"exits too often", func(context.Context, int) (string, error) { runtime.Goexit(); return "", nil }, no, func(a *charging) { a.Retry.MaxAttempts = 2 }, "*activity.Error activity charge: attempt 2: called runtime.Goexit", 2, 2, reconcile.StatusFailed, 0},
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

// Interleaving 9, second half: an operator settles the record while the owner, which
// has heard that it did not complete, is about to dispatch over it. AC2
func TestOperatorIsQuickerThanTheOwner(t *testing.T) {
	for _, verdict := range []struct {
		answer activity.Answer
		want   string
	}{
		{activity.CompletedWithResult("by hand"), "by hand"},
		{activity.CompletedResultUnavailable[string](), "*activity.ResultUnavailableError"},
		{activity.Failed("the bank says no"), "*activity.Error activity charge: attempt 1: the bank says no"},
	} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			var p *process
			a, b := keyed(
				func(context.Context, int) (string, error) { return "", errBroke },
				func(int) activity.Verification[string] {
					if err := p.Resolve(ctx, "o", "1", verdict.answer, audit); err != nil {
						t.Errorf("resolve: %v", err)
					}
					return activity.NotCompleted[string]()
				})
			wf := learning(a)
			p = boot(t, s, wf)
			if got := result(t, start(t, wf, p, "o", "")); !strings.HasPrefix(got, verdict.want) {
				t.Errorf("learnt %q, want %q", got, verdict.want)
			}
			if runs, _, _ := b.counts(); runs != 1 {
				t.Errorf("%d attempts, want 1", runs)
			}
			acted := 0
			for _, c := range historyOf(t, p.Engine, "o") {
				for _, e := range c.Events {
					if e.Kind == checkpoint.KindActed && e.By == audit.Name && e.Why == audit.Reason && strings.HasPrefix(e.Name, "resolve 1: ") {
						acted++
					}
				}
			}
			if acted != 1 {
				t.Errorf("the history tells %d times who resolved it, want once", acted)
			}
			p.stop(t)
		})
	}
}

// Interleaving 27: a verb under a live owner, whose attempt is under way, is no
// defect: the attempt is told to stop, and what it answers is not used.
func TestOperatorSettlesWhatIsUnderWay(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		log := &lines{}
		a, b := keyed(func(ctx context.Context, _ int) (string, error) {
			<-ctx.Done()
			return "too late", nil
		}, nil)
		wf := learning(a)
		p := boot(t, s, wf, log.logger())
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if err := p.Resolve(ctx, "o", "1", activity.NotCompleted[string](), audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("not completed, while it may be under way: %v, want ErrNotApplicable", err)
		}
		if err := p.Resolve(ctx, "o", "1", activity.CompletedWithResult("by hand"), audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "by hand" {
			t.Errorf("learnt %q", got)
		}
		if r := recordOf(t, s, "order/42"); r.Status != reconcile.StatusCompleted || string(r.Result) != `"by hand"` {
			t.Errorf("the record is %s with %s", r.Status, r.Result)
		}
		if err := p.Resolve(ctx, "o", "1", activity.Failed(""), audit); !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("after the end: %v, want ErrTerminal", err)
		}
		if runs, _, _ := b.counts(); runs != 1 || log.count("defect") > 0 {
			t.Errorf("%d attempts, log %s", runs, log.b.String())
		}
		p.stop(t)
	})
}

// OnIndeterminate AwaitOperator: the operation waits for a person and is listed as such, the
// rest of the run goes on, also after a restart, and the answer is acted on. ACT-35,
// AC7
func TestParkedForAPerson(t *testing.T) {
	for _, c := range []struct {
		answer activity.Answer
		want   string
		runs   int
	}{
		{activity.CompletedWithResult("by hand"), "by hand", 1},
		{activity.NotCompleted[string](), "run 2", 2},
		{activity.Failed("the bank says no"), "*activity.Error activity charge: attempt 1: the bank says no", 1},
	} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			a, b := keyed(func(_ context.Context, n int) (string, error) {
				if n == 1 {
					return "", errBroke
				}
				return fmt.Sprint("run ", n), nil
			}, nil)
			a.OnIndeterminate = activity.AwaitOperator
			slept := 0
			wf := flow("checkout", func(run *engine.Run) (string, error) {
				f := a.Go(run, "42")
				if err := run.Sleep(time.Hour); err != nil {
					return "", err
				}
				slept++
				out, err := f.Get(run)
				if err != nil {
					return fmt.Sprintf("%T %v", err, err), nil
				}
				return out, nil
			})
			listed := func(c *engine.Config) { c.Activities, c.ParkAfter = []activity.Definition{a}, time.Minute }
			p := boot(t, s, wf, listed)
			start(t, wf, p, "o", "")
			asks := func() (list []string) {
				for i, err := range p.List(ctx, engine.Filter{Attention: true}) {
					if err != nil {
						t.Fatal(err)
					}
					for _, at := range i.Attention {
						list = append(list, sprint(i.ID, " ", at.Reason, " ", at.Operation, " ", at.Name, ": ", at.Detail))
					}
				}
				return list
			}
			want := []string{"o indeterminate 1 charge: there is no verifier; attempt 1: broke"}
			time.Sleep(2 * time.Hour)
			if got := asks(); !slices.Equal(got, want) || slept == 0 {
				t.Errorf("a person is asked %q, want %q; slept %d times", got, want, slept)
			}
			p.stop(t)
			p = boot(t, s, wf, listed)
			h := wf.Handle(p, "o")
			time.Sleep(time.Hour)
			if got := asks(); !slices.Equal(got, want) {
				t.Errorf("after a restart a person is asked %q, want %q", got, want)
			}
			for _, bad := range []struct {
				op     string
				answer activity.Answer
				by     engine.Actor
				want   error
			}{
				{"1", activity.Indeterminate[string]("no idea"), audit, engine.ErrInvalid},
				{"1", activity.Verification[string]{}, audit, engine.ErrInvalid},
				{"1", nil, audit, engine.ErrInvalid},
				{"1", activity.CompletedWithResult(5), audit, engine.ErrInvalid}, // of another type
				{"1", activity.CompletedWithResult("x"), engine.Actor{Name: "ann"}, engine.ErrInvalid},
				{"2", activity.CompletedWithResult("x"), audit, engine.ErrNotApplicable}, // the timer
				{"9", activity.CompletedWithResult("x"), audit, engine.ErrNotApplicable},
			} {
				if err := p.Resolve(ctx, "o", bad.op, bad.answer, bad.by); !errors.Is(err, bad.want) {
					t.Errorf("resolve %s with %+v by %v: %v, want %v", bad.op, bad.answer, bad.by, err, bad.want)
				}
			}
			if err := p.Resolve(ctx, "o", "1", c.answer, audit); err != nil {
				t.Fatal(err)
			}
			if got := result(t, h); got != c.want {
				t.Errorf("learnt %q, want %q", got, c.want)
			}
			if runs, _, _ := b.counts(); runs != c.runs {
				t.Errorf("%d attempts, want %d", runs, c.runs)
			}
			if got := asks(); len(got) > 0 {
				t.Errorf("a person is still asked %q", got)
			}
			p.stop(t)
		})
	}
}

// The same answer to the second question, met by another change of the workflow, is not
// taken for the first, which stands in the history.
func TestSameAnswerAboutAnEffect(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a, b := keyed(func(_ context.Context, n int) (string, error) {
			if n < 3 {
				return "", errBroke
			}
			return fmt.Sprint("run ", n), nil
		}, nil)
		a.OnIndeterminate = activity.AwaitOperator
		wf := learning(a)
		store := &hooked{Storage: fresh(t)}
		var p *process
		var clears atomic.Bool // before the next commit of o
		store.beforeCommit = func(b storage.Batch) {
			if isOf(b, "o") && clears.CompareAndSwap(true, false) {
				if err := p.ClearSignal(ctx, "o", "approved", "a", audit); err != nil {
					t.Error(err)
				}
			}
		}
		p = boot(t, store, wf)
		h := start(t, wf, p, "o", "")
		send(t, approved, p, "o", "nobody wants it", "a")
		for i := range 2 {
			eventually(t, "a person is asked", func() bool {
				runs, _, _ := b.counts()
				return runs == i+1 && heldFor(describe(t, p, "o"), engine.ReasonIndeterminate)
			})
			time.Sleep(time.Minute) // it rests
			clears.Store(i == 1)
			resolve(t, p, "1", activity.NotCompleted[string]())
		}
		if got := result(t, h); got != "run 3" || clears.Load() {
			t.Errorf("learnt %q", got)
		}
		answers := 0
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindActed && strings.HasPrefix(e.Name, "resolve 1") {
					answers++
				}
			}
		}
		if answers != 2 {
			t.Errorf("the history tells of %d answers, want 2", answers)
		}
		p.stop(t)
	})
}

// Interleaving 8: under another key than before there is no record, and nothing is
// dispatched: the code does not do what the history tells.
func TestAnotherKeyIsNonDeterminism(t *testing.T) {
	for name, change := range map[string]func(a *charging){
		"another key": func(a *charging) { a.IdempotencyKey = func(order string) string { return "order:" + order } },
		"no key":      func(a *charging) { a.IdempotencyKey, a.Verify = nil, nil },
	} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			f := storagetest.NewFaulty(s, nil)
			a, b := keyed(func(ctx context.Context, n int) (string, error) {
				if n == 1 {
					f.Crash()
					<-ctx.Done()
				}
				return fmt.Sprint("run ", n), nil
			}, func(int) activity.Verification[string] { return activity.CompletedWithResult("verified") })
			wf := learning(a)
			p := bootOn(t, f, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Second)
			p.kill()
			was := *a
			change(a)
			p = boot(t, s, wf)
			time.Sleep(time.Hour)
			if i := describe(t, p, "o"); !heldFor(i, engine.ReasonNonDeterminism) {
				t.Errorf("%s: %+v, want it held", name, i.Attention)
			}
			p.stop(t)
			*a = was
			p = boot(t, s, wf)
			if got := result(t, wf.Handle(p, "o")); got != "verified" {
				t.Errorf("%s: mended, it learnt %q", name, got)
			}
			if runs, _, _ := b.counts(); runs != 1 {
				t.Errorf("%s: %d attempts, want 1", name, runs)
			}
			p.stop(t)
		})
	}
}

// Interleaving 8, ACT-5, OP-28: a key that is made of generation and operation is the same
// for each attempt, and another in the next generation of the id and for each operation.
func TestDerivedKeys(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var told []string
		a := &charging{Name: "charge", Idempotent: true, Run: func(ctx context.Context, _ string) (string, error) {
			i := activity.InfoFrom(ctx)
			told = append(told, i.IdempotencyKey)
			if i.Attempt == 1 {
				return "", errBroke
			}
			return "", nil
		}}
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			_, err := a.Do(run, "42")
			if err == nil {
				_, err = a.Do(run, "42")
			}
			return "", err
		})
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if acts := entries(t, s, "act:"); len(acts) > 0 {
			t.Errorf("purged, and there are records: %q", acts)
		}
		result(t, start(t, wf, p, "o", ""))
		distinct := map[string]int{}
		for _, k := range told {
			distinct[k]++
		}
		if len(told) != 8 || len(distinct) != 4 || told[0] != told[1] || told[0] == "" {
			t.Errorf("attempts were told the keys %q, want two of each of four", told)
		}
		p.stop(t)
	})
}

// ACT-1, ACT-2, ACT-3, ACT-4: a record is of one operation of one workflow, under the name
// that the activity has. A second call with the same key is another operation, and is made.
// A workflow that is started without an id gets one.
func TestEachOperationHasARecordOfItsOwn(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		a, b := keyed(func(_ context.Context, n int) (string, error) { return fmt.Sprint("run ", n), nil }, nil)
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			one, err := a.Do(run, "42")
			two, err2 := a.Do(run, "42")
			return one + ", " + two, errors.Join(err, err2)
		})
		p := boot(t, s, wf)
		for _, c := range [][2]string{{"o:1", "run 1, run 2"}, {"o:2", "run 3, run 4"}, {"", "run 5, run 6"}} {
			if got := result(t, start(t, wf, p, c[0], "")); got != c[1] {
				t.Errorf("%s learnt %q, want %q", c[0], got, c[1])
			}
		}
		if runs, _, _ := b.counts(); runs != 6 {
			t.Errorf("%d attempts, want one for each of six calls", runs)
		}
		want := []string{
			"act:o%3A1:charge:1:order%2F42", "act:o%3A1:charge:2:order%2F42",
			"act:o%3A2:charge:1:order%2F42", "act:o%3A2:charge:2:order%2F42",
		}
		if got := entries(t, s, "act:o"); !slices.Equal(got, want) {
			t.Errorf("records %q, want %q", got, want)
		}
		if got := entries(t, s, "act:"); len(got) != 6 || len(entries(t, s, "act::")) > 0 {
			t.Errorf("records %q, want two more, of a workflow with an id", got)
		}
		p.stop(t)
	})
}

// ACT-5: a call from outside of the run's branches would have another number each time. It
// is refused, and leaves no record.
func TestWhatHasNoPlaceHasNoRecord(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		a, b := keyed(func(context.Context, int) (string, error) { return "", nil }, nil)
		var refused error
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			_, err := engine.Step(run, "step", func(context.Context) (string, error) {
				_, refused = a.Do(run, "42")
				return "", nil
			})
			return "", errors.Join(err, run.Sleep(time.Minute))
		})
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		if !errors.Is(refused, engine.ErrForeignRun) {
			t.Errorf("error %v, want ErrForeignRun", refused)
		}
		if runs, _, _ := b.counts(); runs != 0 {
			t.Errorf("%d attempts, want none", runs)
		}
		if acts := entries(t, s, "act:"); len(acts) != 0 {
			t.Errorf("records %q, want none", acts)
		}
		p.stop(t)
	})
}

// Interleaving 37: a record that an earlier generation left under the same operation and
// key is not seen, and does not stand in the way.
func TestARecordOfAnotherLifeIsNotSeen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		a, b := keyed(func(_ context.Context, n int) (string, error) { return fmt.Sprint("run ", n), nil },
			func(int) activity.Verification[string] { return activity.CompletedWithResult("verified") })
		wf := learning(a)
		old := reconcile.Record{Generation: "EARLIER", WorkflowID: "o", Activity: "charge", Operation: "1", IdempotencyKey: "order/42", Settled: true, HasResult: true, Result: []byte(`"old"`), Status: reconcile.StatusCompleted}
		_, op, err := old.Seal()
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, op.Key, op.Value)
		p := boot(t, s, wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "run 1" {
			t.Errorf("learnt %q, want run 1", got)
		}
		if runs, asked, _ := b.counts(); runs != 1 || asked != 0 {
			t.Errorf("%d attempts, %d questions", runs, asked)
		}
		p.stop(t)
	})
}

// Interleaving 22, ACT-49, AC4: an attempt that does not heed its timeout has no
// other beside it, the wait for what may still land begins when it has returned, and
// a result that it brings then is evidence: not applied, and not to be contradicted.
func TestDeafAttempt(t *testing.T) {
	for _, c := range []struct {
		name        string
		err         error // that it returns at last
		verdict     activity.Verification[string]
		want        string
		runs        int
		least, most time.Duration
	}{
		{"completed", nil, activity.CompletedWithResult("verified"), "verified", 1, 30 * time.Second, 40 * time.Second},
		{"not completed", errBroke, activity.NotCompleted[string](), "run 2", 2, 10*time.Minute + 30*time.Second, 15 * time.Minute},
		{"contradiction", nil, activity.NotCompleted[string](), "*activity.ContradictionError", 1, 10 * time.Minute, 15 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var alive, most atomic.Int32
				a, b := keyed(func(_ context.Context, n int) (string, error) {
					most.Store(max(most.Load(), alive.Add(1)))
					defer alive.Add(-1)
					if n == 1 {
						time.Sleep(10 * time.Minute)
						return "late", c.err
					}
					return fmt.Sprint("run ", n), nil
				}, func(int) activity.Verification[string] { return c.verdict })
				wf := learning(a)
				p := boot(t, new(memory.Store), wf)
				begun := time.Now()
				got := result(t, start(t, wf, p, "o", ""))
				took := time.Since(begun)
				runs, _, _ := b.counts()
				if !strings.HasPrefix(got, c.want) || runs != c.runs || most.Load() != 1 || took < c.least || took > c.most {
					t.Errorf("learnt %q after %v and %d attempts, %d at once; want %q, %v to %v, %d", got, took, runs, most.Load(), c.want, c.least, c.most, c.runs)
				}
				time.Sleep(time.Hour) // lets the deaf one end
				p.stop(t)
			})
		})
	}
}

// ACT-40, ACT-41: what is cancelled before it completes is recorded as that, and
// its result, which comes too late, is not.
func TestCancelledWhileUnderWay(t *testing.T) {
	for _, how := range []string{"cancel", "timeout", "return", "crash"} {
		t.Run(how, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				a, _ := keyed(func(ctx context.Context, _ int) (string, error) {
					<-ctx.Done()
					return "late", nil
				}, func(int) activity.Verification[string] { return activity.CompletedWithResult("late") })
				a.Timeout = time.Hour
				var got error
				wf := flow("checkout", func(run *engine.Run) (string, error) {
					r := run
					switch how {
					case "timeout":
						r = run.WithTimeout(time.Minute)
					case "return":
						a.Go(run, "42")
						return "", run.Sleep(time.Minute)
					}
					_, got = a.Do(r, "42")
					return "", run.WithoutCancel().Sleep(time.Minute)
				})
				var asked atomic.Bool
				p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
					if how == "crash" && asked.Load() && c.Method == "Commit" && touches(c.Batch, "act:") {
						return storagetest.CrashBefore // the request is recorded, and this is not
					}
					return storagetest.None
				}), wf)
				h := start(t, wf, p, "o", "")
				time.Sleep(time.Second)
				var want error
				switch how {
				case "timeout":
					want = engine.ErrTimeout
				case "cancel", "crash":
					want = engine.ErrCancelled
					asked.Store(true)
					if err := p.Cancel(ctx, "o", engine.Actor{Reason: "changed my mind"}); err != nil {
						t.Fatal(err)
					}
				}
				if how == "crash" {
					time.Sleep(time.Second)
					p.kill()
					if r := recordOf(t, s, "order/42"); r.Settled {
						t.Fatalf("the record is %s: this tests nothing", r.Status)
					}
					p = boot(t, s, wf)
					h = wf.Handle(p, "o")
				}
				if _, err := outcome(h); err != nil && !errors.Is(err, engine.ErrCancelled) {
					t.Fatal(err)
				}
				if !errors.Is(got, want) {
					t.Errorf("learnt %v, want %v", got, want)
				}
				rs, err := reconcile.Records(ctx, s, "o", generation(t, s))
				if err != nil || len(rs) != 1 || rs[0].Status != reconcile.StatusCancelled || rs[0].HasResult || !rs[0].Settled {
					t.Errorf("records %+v, %v, want one that is cancelled", rs, err)
				}
				p.stop(t)
			})
		})
	}
}

// Interleaving 29: a run that waits for what might still land stays in memory, and
// what a process that was told to stop has waited, the next one does not wait again.
func TestTheWaitToSettleIsNotBegunAnew(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		f := storagetest.NewFaulty(s, nil)
		a, b := keyed(func(ctx context.Context, n int) (string, error) {
			if n == 1 {
				f.Crash()
				<-ctx.Done()
			}
			return fmt.Sprint("run ", n), nil
		}, func(int) activity.Verification[string] { return activity.NotCompleted[string]() })
		a.Timeout, a.Settle = time.Hour, time.Hour
		wf := learning(a)
		p := bootOn(t, f, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.kill()
		down := time.Duration(0)
		begun := time.Now()
		for range 4 {
			p = boot(t, s, wf, parkAfter(time.Second))
			time.Sleep(25 * time.Minute)
			if ks := kinds(historyOf(t, p.Engine, "o")); slices.Contains(ks, checkpoint.KindParked) {
				t.Fatalf("it was parked: %v", ks)
			}
			p.stop(t)
			time.Sleep(time.Hour) // and this, nobody can tell
			down += time.Hour
		}
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "run 2" {
			t.Errorf("learnt %q", got)
		}
		if took := time.Since(begun) - down; took < 2*time.Hour || took > 2*time.Hour+time.Minute {
			t.Errorf("the second attempt left after %v of waiting, want 2h", took)
		}
		if runs, _, _ := b.counts(); runs != 2 {
			t.Errorf("%d attempts", runs)
		}
		p.stop(t)
	})
}

// T-23, ACT-46: attempts are bounded also when each of them ends in a crash.
func TestAttemptsThatCrashAreBounded(t *testing.T) {
	for _, idempotent := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			var life atomic.Pointer[storagetest.Faulty]
			verify := func(int) activity.Verification[string] { return activity.NotCompleted[string]() }
			want := "*activity.Error activity charge: attempt 3: its process died"
			if idempotent {
				verify, want = nil, "*activity.IndeterminateError"
			}
			a, b := keyed(func(ctx context.Context, _ int) (string, error) {
				life.Load().Crash()
				<-ctx.Done()
				return "", ctx.Err()
			}, verify)
			a.Idempotent, a.Retry.MaxAttempts = idempotent, 3
			wf := learning(a)
			var p *process
			for n := range 6 {
				life.Store(storagetest.NewFaulty(s, nil))
				p = bootOn(t, life.Load(), wf)
				if n == 0 { // later, its store may have crashed by now
					start(t, wf, p, "o", "")
				}
				time.Sleep(10 * time.Minute)
				p.kill()
			}
			p = boot(t, s, wf)
			if got := result(t, wf.Handle(p, "o")); !strings.HasPrefix(got, want) {
				t.Errorf("learnt %q, want %q", got, want)
			}
			if runs, _, _ := b.counts(); runs != 3 {
				t.Errorf("%d attempts, want 3", runs)
			}
			p.stop(t)
		})
	}
}

// AC8, F12: a result that cannot be kept is a recorded failure, and the effect is not
// repeated for it. ACT-24
func TestAResultThatCannotBeKept(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		runs := 0
		a := &activity.Activity[string, any]{
			Name:           "charge",
			IdempotencyKey: func(order string) string { return order },
			Run:            func(context.Context, string) (any, error) { runs++; return make(chan int), nil },
		}
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			_, err := a.Do(run, "42")
			var lost *activity.ResultUnavailableError
			return sprint(errors.As(err, &lost), " ", err), nil
		})
		p := boot(t, s, wf)
		if got := result(t, start(t, wf, p, "o", "")); !strings.HasPrefix(got, "true ") || runs != 1 {
			t.Errorf("learnt %q after %d attempts", got, runs)
		}
		if r := recordOf(t, s, "42"); r.Status != reconcile.StatusCompleted || r.HasResult {
			t.Errorf("the record is %s, with a result %v", r.Status, r.HasResult)
		}
		p.stop(t)
	})
}

// OP-29: one verifier at a time, also if one does not heed its time; it is bounded
// all the same.
func TestOneVerifierAtATime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var alive, most, asked atomic.Int32
		a, _ := keyed(func(context.Context, int) (string, error) { return "", errBroke }, nil)
		a.Verify = func(context.Context, string) (activity.Verification[string], error) {
			asked.Add(1)
			most.Store(max(most.Load(), alive.Add(1)))
			defer alive.Add(-1)
			time.Sleep(time.Hour) // deaf
			return activity.CompletedWithResult("late"), nil
		}
		wf := learning(a)
		p := boot(t, new(memory.Store), wf)
		begun := time.Now()
		if got := result(t, start(t, wf, p, "o", "")); !strings.HasPrefix(got, "*activity.IndeterminateError") {
			t.Errorf("learnt %q", got)
		}
		if took := time.Since(begun); most.Load() != 1 || asked.Load() != 1 || took > 5*time.Minute {
			t.Errorf("%d verifiers, %d at once, in %v", asked.Load(), most.Load(), took)
		}
		time.Sleep(2 * time.Hour)
		p.stop(t)
	})
}

// ACT-6: operations of branches have keys and records of their own, the same after a
// crash and a replay.
func TestBranchesAreReconciledByThemselves(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var life atomic.Pointer[storagetest.Faulty]
		var runs tally
		a := &charging{
			Name:           "charge",
			IdempotencyKey: func(order string) string { return order },
			Verify: func(ctx context.Context, order string) (activity.Verification[string], error) {
				return activity.CompletedWithResult("verified " + order), nil
			},
			Run: func(ctx context.Context, order string) (string, error) {
				if runs.add(order); order == "3" && runs.of(order) == 1 {
					life.Load().Crash()
					<-ctx.Done()
				}
				return "run " + order, nil
			},
		}
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "charge all", 4, []string{"1", "2", "3", "4"}, func(run *engine.Run, order string) (string, error) {
				if order == "3" {
					if err := run.Sleep(time.Second); err != nil {
						return "", err
					}
				}
				return a.Do(run, order)
			})
			return strings.Join(out, ", "), err
		})
		life.Store(storagetest.NewFaulty(s, nil))
		p := bootOn(t, life.Load(), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "run 1, run 2, verified 3, run 4" || len(runs.all()) != 4 {
			t.Errorf("learnt %q after %v", got, runs.all())
		}
		records, err := reconcile.Records(ctx, s, "o", generation(t, s))
		if err != nil || len(records) != 4 {
			t.Errorf("%d records, %v, want 4", len(records), err)
		}
		p.stop(t)
	})
}

func generation(t testing.TB, s storage.Storage) string {
	t.Helper()
	wf, err := journal.Load(ctx, s, "o")
	if err != nil {
		t.Fatal(err)
	}
	return wf.Generation
}

// ACT-54, CAP-4, CAP-5: where a record cannot be claimed atomically, an activity
// with a key is refused, and nothing is run.
func TestAKeyNeedsConditions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a, b := keyed(func(context.Context, int) (string, error) { return "", nil }, nil)
		wf := learning(a)
		p := boot(t, storagetest.NoConditions(new(memory.Store)), wf, func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		if got := result(t, start(t, wf, p, "o", "")); !strings.HasPrefix(got, "*storage.CapabilityError") {
			t.Errorf("learnt %q", got)
		}
		if runs, _, _ := b.counts(); runs != 0 {
			t.Errorf("%d attempts", runs)
		}
		p.stop(t)
	})
}

// A key that is none holds the run, and code that makes a right one goes on.
func TestBadKeysHoldTheRun(t *testing.T) {
	for _, key := range []string{"", strings.Repeat("k", keys.MaxIdempotencyKey+1), "\xff"} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			a, b := keyed(func(context.Context, int) (string, error) { return "done", nil }, nil)
			right := a.IdempotencyKey
			a.IdempotencyKey = func(string) string { return key }
			wf := learning(a)
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Minute)
			if i := describe(t, p, "o"); !heldFor(i, engine.ReasonBadDefinition) {
				t.Errorf("key %.10q: %+v, want it held", key, i.Attention)
			}
			if runs, _, _ := b.counts(); runs != 0 {
				t.Errorf("key %.10q: %d attempts", key, runs)
			}
			p.stop(t)
			a.IdempotencyKey = right
			p = boot(t, s, wf)
			if got := result(t, wf.Handle(p, "o")); got != "done" {
				t.Errorf("mended: learnt %q", got)
			}
			p.stop(t)
		})
	}
}

// W7, AC2, AC5, AC9: an owner that is out of reach of the store is succeeded while its
// attempt, which does not heed that its lease is lost, is still under way. What the
// attempt brings then is not taken: the verifier decides, and another attempt has a
// higher token.
func TestZombie(t *testing.T) {
	for _, c := range []struct {
		name    string
		verdict activity.Verification[string]
		want    string
		runs    int
	}{
		{"completed", activity.CompletedWithResult("verified"), "verified", 1},
		{"not completed", activity.NotCompleted[string](), "run 2", 2},
		{"indeterminate", activity.Indeterminate[string]("pending"), "*activity.IndeterminateError", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				store := sharing{new(memory.Store)}
				var cut atomic.Bool
				f := storagetest.NewFaulty(store, func(storagetest.Call) storagetest.Fault {
					if cut.Load() {
						return storagetest.ErrorBefore
					}
					return storagetest.None
				})
				causes := make(chan error, 1)
				a, b := keyed(func(ctx context.Context, n int) (string, error) {
					if n == 1 {
						<-ctx.Done()
						causes <- context.Cause(ctx)
						time.Sleep(5 * time.Minute)
						cut.Store(false) // and it may write again
						return "zombie", nil
					}
					return fmt.Sprint("run ", n), nil
				}, func(int) activity.Verification[string] { return c.verdict })
				wf := learning(a)
				first, endFirst := begin(t, f, wf)
				time.Sleep(time.Second)
				start(t, wf, first, "o", "")
				second, endSecond := begin(t, store, wf)
				time.Sleep(time.Second)
				cut.Store(true)
				if got := result(t, wf.Handle(second, "o")); !strings.HasPrefix(got, c.want) {
					t.Errorf("learnt %q, want %q", got, c.want)
				}
				if cause := <-causes; cause != activity.ErrLeaseLost {
					t.Errorf("the attempt was told %v, want ErrLeaseLost", cause)
				}
				time.Sleep(time.Hour) // the zombie comes back
				if got := result(t, wf.Handle(first, "o")); !strings.HasPrefix(got, c.want) {
					t.Errorf("afterwards it is %q, want %q", got, c.want)
				}
				if len(b.runs) != c.runs || c.runs == 2 && b.runs[1].info.FencingToken <= b.runs[0].info.FencingToken {
					t.Errorf("attempts %+v, want %d with rising tokens", b.runs, c.runs)
				}
				if c.runs == 2 && b.runs[1].info.Attempt != 2 {
					t.Errorf("the second attempt is told that it is %d", b.runs[1].info.Attempt)
				}
				endFirst()
				endSecond()
			})
		})
	}
}

// Engine.Resume of a run that waits for a person has the verifier asked once more.
func TestRetryAsksTheVerifierAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a, b := keyed(func(context.Context, int) (string, error) { return "", errBroke },
			func(n int) activity.Verification[string] {
				if n < 3 {
					return activity.Indeterminate[string]("pending")
				}
				return activity.CompletedWithResult("verified")
			})
		a.OnIndeterminate, a.VerifyRetry = activity.AwaitOperator, activity.Retry{MaxAttempts: 1}
		wf := learning(a)
		p := boot(t, new(memory.Store), wf)
		h := start(t, wf, p, "o", "")
		for n := 1; n <= 2; n++ {
			time.Sleep(time.Minute)
			if _, asked, _ := b.counts(); asked != n || !heldFor(describe(t, p, "o"), engine.ReasonIndeterminate) {
				t.Errorf("asked %d times, attention %+v", asked, describe(t, p, "o").Attention)
			}
			if err := p.Resume(ctx, "o", audit); err != nil {
				t.Fatal(err)
			}
		}
		if got := result(t, h); got != "verified" {
			t.Errorf("learnt %q", got)
		}
		p.stop(t)
	})
}

// A run whose activity was cancelled before it left, or while it waited, is parked
// like any other that only waits.
func TestCancelledActivitiesDoNotKeepARunInMemory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a, _ := keyed(func(ctx context.Context, _ int) (string, error) { <-ctx.Done(); return "", ctx.Err() }, nil)
		wf := flow("checkout", func(run *engine.Run) (string, error) {
			r, cancel := run.WithCancel()
			a.Go(r, "41")
			cancel() // it has not left
			r, cancel = run.WithCancel()
			a.Go(r, "42")
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			cancel()
			return "", run.Sleep(24 * time.Hour)
		})
		s := new(memory.Store)
		p := boot(t, s, wf, parkAfter(time.Second))
		start(t, wf, p, "o", "")
		time.Sleep(time.Hour)
		ks := kinds(historyOf(t, p.Engine, "o"))
		if ks[len(ks)-1] != checkpoint.KindParked || !slices.Contains(ks, checkpoint.KindGivenUp) {
			t.Errorf("its history is %v, want it given up and parked", ks)
		}
		if rs, err := reconcile.Records(ctx, s, "o", generation(t, s)); err != nil || len(rs) != 1 || rs[0].Status != reconcile.StatusCancelled {
			t.Errorf("records %+v, %v", rs, err)
		}
		p.stop(t)
	})
}

// AC6, LV1: while a commit of the run is under way its attempt comes back, after its
// time, and then the verifier answers. The answer counts, and the run goes on.
func TestVerifierAnswersBehindALateReturn(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var began atomic.Value
		var asked tally
		charge := &activity.Activity[int, int]{
			Name: "charge", Timeout: time.Second, VerifyTimeout: time.Minute, VerifyFences: true,
			IdempotencyKey: func(int) string { return "order" },
			Run: func(_ context.Context, i int) (int, error) {
				began.Store(time.Now())
				time.Sleep(3 * time.Second)
				return i, nil
			},
			Verify: func(context.Context, int) (activity.Verification[int], error) {
				asked.add("")
				time.Sleep(time.Until(began.Load().(time.Time).Add(3050 * time.Millisecond)))
				return activity.CompletedWithResult(7), nil
			},
		}
		wf := flow("w", func(run *engine.Run) (string, error) {
			alarm := run.After(3800 * time.Millisecond) // it fires before the attempt comes back
			f := charge.Go(run, 7)
			if _, err := engine.Select(run, alarm, f); err != nil {
				return "", err
			}
			n, err := f.Get(run)
			return sprint(n), err
		})
		p := boot(t, slow{fresh(t), func() time.Duration { return 500 * time.Millisecond }}, wf)
		time.Sleep(time.Second)
		h := start(t, wf, p, "o", "")
		if got := result(t, h); got != "7" || asked.of("") != 1 {
			t.Errorf("result %q, and the verifier was asked %d times; want 7 and 1", got, asked.of(""))
		}
	})
}

// ACT-50, interleaving 7: a Timeout that means none is longer than any wait. What left
// under it may still land, also years after its process died: a not-completed tells
// nothing, and the card is not charged twice.
func TestTimeoutOfCenturies(t *testing.T) {
	for adapter, store := range sweepStores {
		t.Run(adapter, func(t *testing.T) { virtual(t, func(t *testing.T) { chargeWithoutLimit(t, store) }) })
	}
	t.Run("postgres", func(t *testing.T) {
		store := onPostgres(t)
		virtual(t, func(t *testing.T) { chargeWithoutLimit(t, store) })
	})
}

func chargeWithoutLimit(t *testing.T, store sweep.Store) {
	const centuries = 147 * 365 * 24 * time.Hour // and as much to settle is more than a Duration
	inner := store.Open(t)
	defer func() { inner.Close() }()
	var b *bank
	charge, b := keyed(func(ctx context.Context, n int) (string, error) {
		b.effect()
		if n == 1 {
			return b.die(ctx)
		}
		return "twice", nil
	}, func(int) activity.Verification[string] { return activity.NotCompleted[string]() })
	charge.Timeout = centuries
	wf := learning(charge)
	boot := func() *process {
		b.life.Store(storagetest.NewFaulty(inner, nil))
		return bootOn(t, b.life.Load(), wf, func(c *engine.Config) { c.PollInterval, c.LeaseTTL = sweep.Poll, 3*sweep.Poll })
	}
	p := boot()
	start(t, wf, p, "o", "")
	time.Sleep(time.Second)
	p.kill()
	if store.Reopen != nil {
		inner = store.Reopen(t, inner)
	}
	p = boot()
	defer p.kill()
	time.Sleep(30 * sweep.Poll)
	runs, asked, effects := b.counts()
	if runs != 1 || effects != 1 || asked == 0 {
		t.Errorf("%d attempts with %d effects, the verifier was asked %d times; want one attempt, and the verifier asked", runs, effects, asked)
	}
	if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || len(i.Attention) > 0 {
		t.Errorf("the run is %s, %+v; want it running", i.Status, i.Attention)
	}
}
