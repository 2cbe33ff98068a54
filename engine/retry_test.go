package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// failure waits for the end of a workflow that must fail.
func failure(t testing.TB, h *engine.Handle[string], text string) {
	t.Helper()
	var failed *engine.WorkflowError
	if out, err := outcome(h); !errors.As(err, &failed) || !strings.Contains(err.Error(), text) {
		t.Fatalf("result %q, %v; want a *WorkflowError with %q", out, err, text)
	}
}

func retry(t testing.TB, p *process, id string) {
	t.Helper()
	if err := p.Resume(ctx, id, audit); err != nil {
		t.Fatalf("retry %q: %v", id, err)
	}
}

// CK7, OP-29: a failed workflow goes on from its last checkpoint: what it had learnt is
// not done again, what made it fail is, with all its attempts; before and after a
// restart, and as often as somebody wants. Its history says who and why.
func TestRetryOfAFailedWorkflow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		var attempts []int
		var good atomic.Int32
		first := counting(&runs, "first")
		flaky := &activity.Activity[string, string]{
			Name:         "flaky",
			Retry:        activity.Retry{MaxAttempts: 2},
			TotalTimeout: time.Minute,
			Run: func(ctx context.Context, _ string) (string, error) {
				attempts = append(attempts, activity.InfoFrom(ctx).Attempt)
				if len(attempts) < int(good.Load()) {
					return "", errBroke
				}
				return "done", nil
			},
		}
		good.Store(6)
		var drawn []uint64
		wf := flow("order", func(run *engine.Run) (string, error) {
			drawn = append(drawn, run.Random().Uint64())
			if _, err := first.Do(run, ""); err != nil {
				return "", err
			}
			out, err := flaky.Do(run, "")
			if err != nil {
				return "", err
			}
			n, err := first.Do(run, "")
			return sprint(out, n), err
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		failure(t, h, "broke")
		time.Sleep(time.Hour) // the deadline of all attempts is long over
		retry(t, p, "o")
		failure(t, h, "attempt 4: broke")
		p.stop(t)
		office := made(t, s, wf) // which does not run
		if err := office.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if i := describe(t, office, "o"); i.Status != checkpoint.StatusRunning || !i.EndedAt.IsZero() {
			t.Errorf("retried, it is %+v", i)
		}
		office.Close()
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "done2" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "done2" {
			t.Errorf("after a restart, result %q", got)
		}
		if want := []int{1, 2, 3, 4, 5, 6}; !slices.Equal(attempts, want) || runs.of("first") != 2 {
			t.Errorf("attempts %v, want %v; the others ran %d times, want 2", attempts, want, runs.of("first"))
		}
		if drawn = slices.Compact(drawn); len(drawn) != 1 {
			t.Errorf("Random draws %v, want the same each time", drawn)
		}
		ended, acted := 0, 0
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				switch {
				case e.Kind == checkpoint.KindEnded:
					ended++
				case e.Kind == checkpoint.KindActed && e.Name == "retry" && e.By == audit.Name && e.Why == audit.Reason:
					acted++
				}
			}
		}
		if ended != 3 || acted != 2 {
			t.Errorf("the history has %d ends and %d retries, want 3 and 2", ended, acted)
		}
		var history bytes.Buffer
		if err := p.Export(ctx, "o", &history); err != nil {
			t.Fatal(err)
		}
		if err := p.Replay(ctx, &history); err != nil {
			t.Errorf("its exported history: %v", err)
		}
		p.stop(t)
	})
}

// ACT-35, ACT-45, ACT-49, AC3: what a retry of the workflow means to an activity with a
// key. It is not attempted again unless the verifier permits it; what nobody can tell,
// a person is asked, and answers. A success, and an effect whose result is lost, stay.
func TestRetryOfAReconciledActivity(t *testing.T) {
	says := func(first, then activity.Verification[string]) func(retried bool) activity.Verification[string] {
		return func(retried bool) activity.Verification[string] {
			if retried {
				return then
			}
			return first
		}
	}
	no, yes, lost, who := activity.NotCompleted[string](), activity.CompletedWithResult("verified"), activity.CompletedResultUnavailable[string](), activity.Indeterminate[string]("pending")
	for _, c := range []struct {
		name     string
		fails    error
		verify   func(retried bool) activity.Verification[string]
		resolve  activity.Answer // by the person who is asked; nil: nobody is
		deaf     bool            // the first attempt brings a result when its time is up
		want     string          // after the retry: the result, or a part of the failure
		attempts int
	}{
		{"no effect", activity.Permanent(activity.NoEffect(errBroke)), nil, nil, false, "run 2", 2},
		{"not completed", activity.Permanent(errBroke), says(no, no), nil, false, "run 2", 2},
		{"not completed, and then it is", activity.Permanent(errBroke), says(no, yes), nil, false, "verified", 1},
		{"indeterminate, and then not completed", errBroke, says(who, no), nil, false, "run 2", 2},
		{"indeterminate, and then completed", errBroke, says(who, yes), nil, false, "verified", 1},
		{"indeterminate, and then it still is", errBroke, says(who, who), activity.CompletedWithResult("by hand"), false, "by hand", 1},
		{"indeterminate, without a verifier", errBroke, nil, activity.NotCompleted[string](), false, "run 2", 2},
		{"indeterminate, and it did not complete", errBroke, nil, activity.Failed("the bank says no"), false, "the bank says no", 1},
		{"result lost", errBroke, says(lost, yes), nil, false, "result", 1},
		{"contradiction", nil, says(no, no), activity.CompletedWithResult("by hand"), true, "by hand", 1},
		{"contradiction, and then completed with another result", nil, says(no, yes), activity.Failed("the bank says no"), true, "the bank says no", 1},
		{"contradiction, and then completed", nil, says(no, activity.CompletedWithResult("late")), nil, true, "late", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				var retried atomic.Bool
				a, b := keyed(func(ctx context.Context, n int) (string, error) {
					switch {
					case n > 1:
						return fmt.Sprint("run ", n), nil
					case c.deaf:
						time.Sleep(time.Hour)
						return "late", nil
					}
					return "", c.fails
				}, nil)
				if c.verify != nil {
					a.Verify = func(ctx context.Context, _ string) (activity.Verification[string], error) {
						b.note(&b.asked, ctx)
						return c.verify(retried.Load()), nil
					}
				}
				first := counting(&tally{}, "first")
				wf := flow("checkout", func(run *engine.Run) (string, error) {
					if _, err := first.Do(run, ""); err != nil {
						return "", err
					}
					return a.Do(run, "42")
				})
				p := boot(t, s, wf, rareLeases)
				h := start(t, wf, p, "o", "")
				time.Sleep(2 * time.Hour)
				if out, err := outcome(h); err == nil {
					t.Fatalf("result %q: this tests nothing", out)
				}
				retried.Store(true)
				retry(t, p, "o")
				time.Sleep(time.Hour)
				p.kill()
				p = boot(t, s, wf, rareLeases)
				h = wf.Handle(p, "o")
				time.Sleep(time.Hour)
				if c.resolve != nil {
					if i := describe(t, p, "o"); !heldFor(i, engine.ReasonIndeterminate) {
						t.Errorf("%+v, want a person asked", i)
					}
					if err := p.Resolve(ctx, "o", "2", c.resolve, audit); err != nil {
						t.Error(err)
					}
				}
				out, err := outcome(h)
				if got := sprint(out, err); !strings.Contains(got, c.want) {
					t.Errorf("result %q, want %q", got, c.want)
				}
				if runs, _, _ := b.counts(); runs != c.attempts {
					t.Errorf("%d attempts, want %d", runs, c.attempts)
				}
				for i, r := range b.runs[1:] {
					if r.info.Attempt != i+2 || r.info.FencingToken <= b.runs[i].info.FencingToken || r.info.IdempotencyKey != "order/42" {
						t.Errorf("attempt %+v follows %+v", r.info, b.runs[i].info)
					}
				}
				p.stop(t)
			})
		})
	}
}

// An outcome that the workflow went on from before it failed stays after a retry, and so does one that came after it: nobody
// answers for it, and a reset that passes over it does not begin it again. If the workflow then fails of it, the next retry
// takes it back.
func TestOutcomeStaysAfterARetry(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var mended, strict, mendedLate atomic.Bool
		var attempts tally
		act := func(name string, mended *atomic.Bool) *activity.Activity[string, string] {
			return &activity.Activity[string, string]{
				Name:           name,
				IdempotencyKey: func(string) string { return name },
				Run: func(context.Context, string) (string, error) {
					attempts.add(name)
					if time.Sleep(3 * time.Second); !mended.Load() {
						return "", activity.Permanent(activity.NoEffect(errBroke))
					}
					return name, nil
				},
			}
		}
		var fine atomic.Bool
		fine.Store(true)
		early, mark, fatal, late := act("early", new(atomic.Bool)), act("mark", &fine), act("fatal", &mended), act("late", &mendedLate)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			first := early.Go(run, "")                     // 1
			if err := run.Sleep(time.Second); err != nil { // 2
				return "", err
			}
			if _, err := mark.Do(run, ""); err != nil { // 3: its dispatch is recorded at once
				return "", err
			}
			if _, err := first.Get(run); err == nil {
				return "", errors.New("early succeeded")
			}
			if _, err := fatal.Do(run, ""); err != nil { // 4
				return "", err
			}
			last := late.Go(run, "")                       // 5
			if err := run.Sleep(time.Second); err != nil { // 6
				return "", err
			}
			if _, err := mark.Do(run, ""); err != nil { // 7: its dispatch is recorded at once
				return "", err
			}
			got, err := last.Get(run)
			if err != nil && strict.Load() {
				return "", err
			}
			v, err := yes.Receive(run)
			return got + v, err
		})
		p := boot(t, s, wf, rareLeases)
		h := start(t, wf, p, "o", "")
		failure(t, h, "fatal")
		mended.Store(true)
		retry(t, p, "o")
		time.Sleep(2 * time.Minute)
		for _, operation := range []string{"1", "5"} {
			if err := p.Resolve(ctx, "o", operation, activity.CompletedWithResult("by hand"), audit); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("resolve of operation %s, from whose failure the workflow went on: %v", operation, err)
			}
		}
		strict.Store(true)
		reset(t, p, "o", "7")
		failure(t, h, "late")
		if n := attempts.of("late"); n != 1 {
			t.Errorf("after a reset behind its beginning: %d attempts of what had failed after the retry, want 1", n)
		}
		mendedLate.Store(true)
		retry(t, p, "o")
		time.Sleep(2 * time.Minute)
		if n := attempts.of("late"); n != 2 {
			t.Errorf("after a retry that took it back: %d attempts, want 2", n)
		}
		reset(t, p, "o", "3")
		send(t, yes, p, "o", "!", "")
		if got := result(t, h); got != "late!" {
			t.Errorf("result %q", got)
		}
		if n := attempts.of("early"); n != 1 {
			t.Errorf("after a reset behind its beginning: %d attempts of what had failed before the retry, want 1", n)
		}
		whole(t, s)
		p.stop(t)
	})
}

// Interleaving 7: that somebody retries the workflow does not shorten the wait for
// what a dead sender may have under way.
func TestRetryWaitsForWhatMayStillLand(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		f := storagetest.NewFaulty(s, nil)
		var retried atomic.Bool
		a, b := keyed(func(ctx context.Context, n int) (string, error) {
			if n == 1 {
				f.Crash()
				<-ctx.Done()
			}
			return fmt.Sprint("run ", n), nil
		}, func(int) activity.Verification[string] {
			if !retried.Load() {
				return activity.Indeterminate[string]("pending")
			}
			return activity.NotCompleted[string]()
		})
		a.VerifyRetry, a.Timeout, a.Settle = activity.Retry{MaxAttempts: 1}, time.Minute, time.Hour
		wf := flow("checkout", func(run *engine.Run) (string, error) { return a.Do(run, "42") })
		p := bootOn(t, f, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.kill()
		p = boot(t, s, wf)
		h := wf.Handle(p, "o")
		failure(t, h, "pending")
		retried.Store(true)
		begun := time.Now()
		retry(t, p, "o")
		time.Sleep(2 * time.Hour)
		if got := result(t, h); got != "run 2" {
			t.Errorf("result %q", got)
		}
		if waited := b.runs[1].at.Sub(begun); waited < time.Hour+time.Minute {
			t.Errorf("attempt 2 left %v after the retry, want Timeout and Settle at least", waited)
		}
		p.stop(t)
	})
}

// A retry takes back the failures that made the workflow fail, and not those that it
// went on from: what it did about these is done.
func TestRetryTakesBackWhatItFailedOf(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mended atomic.Bool
		var runs tally
		act := func(name string, fails bool) *activity.Activity[int, int] {
			return &activity.Activity[int, int]{
				Name:  name,
				Retry: activity.Retry{MaxAttempts: 1},
				Run: func(_ context.Context, i int) (int, error) {
					runs.add(fmt.Sprint(name, i))
					if fails && !mended.Load() && i%2 == 1 {
						return 0, errBroke
					}
					return i, nil
				},
			}
		}
		charge, refund, book := act("charge", true), act("refund", false), act("book", true)
		wf := flow("trip", func(run *engine.Run) (string, error) {
			if _, err := charge.Do(run, 1); err != nil {
				if _, err := refund.Do(run, 1); err != nil {
					return "", err
				}
			}
			var all []*future.Future[int]
			for i := range 6 {
				all = append(all, book.Go(run, i))
			}
			timer := run.After(time.Hour)
			got, err := engine.All(run, all...)
			if err != nil {
				return "", err
			}
			_, err = timer.Get(run)
			return fmt.Sprint(got), err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		failure(t, h, "broke")
		mended.Store(true)
		retry(t, p, "o")
		time.Sleep(2 * time.Hour)
		if got := result(t, h); got != "[0 1 2 3 4 5]" {
			t.Errorf("result %q", got)
		}
		for name, want := range map[string]int{"charge1": 1, "refund1": 1, "book0": 1, "book1": 2, "book2": 1, "book3": 2, "book4": 1, "book5": 2} {
			if got := runs.of(name); got != want {
				t.Errorf("%s ran %d times, want %d", name, got, want)
			}
		}
		p.stop(t)
	})
}

// A workflow that compensated by itself, and then failed, fails again without doing
// anything again: nothing is skipped silently, and nothing that was undone is done.
func TestRetryOfAWorkflowThatCompensated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var runs tally
		charge := &activity.Activity[string, int]{Name: "charge", Run: func(context.Context, string) (int, error) {
			runs.add("charge")
			return 0, activity.Permanent(errBroke)
		}}
		refund := counting(&runs, "refund")
		var mended atomic.Bool
		wf := flow("trip", func(run *engine.Run) (string, error) {
			_, err := charge.Do(run, "")
			if _, e := refund.Do(run, ""); e != nil {
				return "", e
			}
			if mended.Load() {
				return "refunded", nil
			}
			return "", err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		for range 2 {
			failure(t, h, "broke")
			retry(t, p, "o")
		}
		failure(t, h, "broke")
		mended.Store(true)
		retry(t, p, "o")
		if got := result(t, h); got != "refunded" || runs.of("charge") != 1 || runs.of("refund") != 1 {
			t.Errorf("result %q after %v", got, runs.all())
		}
		p.stop(t)
	})
}

// A slowEnd does not return from the first commit that ends a run before it may.
type slowEnd struct {
	storage.Storage
	of  []byte // a key that it writes
	may chan struct{}
}

func (s *slowEnd) Unwrap() storage.Storage { return s.Storage }

func (s *slowEnd) Commit(ctx context.Context, b storage.Batch) error {
	err := s.Storage.Commit(ctx, b)
	if touches(b, string(s.of)) {
		<-s.may
	}
	return err
}

// The end of a run is durable, and its engine does not know that yet. Who resumes the run then, and asks for its result, does
// not get the end from which it was resumed.
func TestResultAfterAResumeIsThatOfTheResume(t *testing.T) {
	virtual(t, func(t *testing.T) {
		inner := fresh(t)
		s := &slowEnd{inner, keys.Output("o"), make(chan struct{})}
		var mended atomic.Bool
		wf := flow("flaky", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			if !mended.Load() {
				return "", errBroke
			}
			return "mended", nil
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		early := make(chan error, 1)
		go func() { early <- outcomeOf(h) }()
		synctest.Wait()
		time.Sleep(time.Hour / 2)
		failure(t, h, "broke") // as the store has it
		mended.Store(true)
		retry(t, &process{Engine: made(t, inner)}, "o")
		late := make(chan string, 1)
		go func() {
			out, err := outcome(h)
			late <- fmt.Sprint(out, " ", err)
		}()
		synctest.Wait()
		close(s.may)
		if got := <-late; got != "mended <nil>" {
			t.Errorf("the result is %s", got)
		}
		if err := <-early; err == nil || !strings.Contains(err.Error(), "broke") {
			t.Errorf("who had asked before the end got %v", err)
		}
		p.stop(t)
	})
}

// An engine executes a resumed run before the commit that ended it has returned. Who asks for its result from then on does not
// get the end from which it was resumed.
func TestResultWhileTheEndBeforeIsNotTold(t *testing.T) {
	virtual(t, func(t *testing.T) {
		inner := fresh(t)
		s := &slowEnd{inner, keys.Output("o"), make(chan struct{})}
		var mended atomic.Bool
		wf := flow("flaky", func(run *engine.Run) (string, error) {
			if !mended.Load() {
				return "", errBroke
			}
			return "mended", run.Sleep(time.Hour)
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		synctest.Wait()
		failure(t, h, "broke") // as the store has it
		mended.Store(true)
		retry(t, p, "o")
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Fatalf("the run is %s", i.Status)
		}
		late := make(chan string, 1)
		go func() {
			out, err := outcome(h)
			late <- fmt.Sprint(out, " ", err)
		}()
		synctest.Wait()
		close(s.may)
		if got := <-late; got != "mended <nil>" {
			t.Errorf("the result is %s", got)
		}
		p.stop(t)
	})
}

// Every way in which a retry does not apply is an error of its kind, and writes nothing.
func TestRetryThatDoesNotApply(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		good := flow("good", func(*engine.Run) (string, error) { return "done", nil })
		bad := flow("bad", func(*engine.Run) (string, error) { return "", errBroke })
		long := flow("long", func(run *engine.Run) (string, error) { return "", run.Sleep(1000 * time.Hour) })
		parent := flow("parent", func(run *engine.Run) (string, error) {
			_, err := bad.AsChild(engine.ChildOptions{ID: "child"}).Do(run, "")
			return sprint(err != nil), run.Sleep(1000 * time.Hour)
		})
		p := boot(t, s, good, bad, long, parent)
		result(t, start(t, good, p, "completed", ""))
		if err := start(t, long, p, "cancelled", "").Cancel(ctx, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		_, err := outcome(long.Handle(p, "cancelled"))
		if !errors.Is(err, engine.ErrCancelled) {
			t.Fatal(err)
		}
		start(t, long, p, "running", "")
		start(t, parent, p, "parent", "")
		time.Sleep(time.Minute)
		failure(t, bad.Handle(p, "child"), "broke")
		failure(t, start(t, bad, p, "failed", ""), "broke")
		for range 100 {
			retry(t, p, "failed")
			failure(t, bad.Handle(p, "failed"), "broke")
		}
		before := len(recordsOfRuns(t, s))
		for _, c := range []struct {
			id   string
			by   engine.Actor
			want error
		}{
			{"completed", audit, engine.ErrTerminal},
			{"cancelled", audit, engine.ErrTerminal},
			{"running", audit, engine.ErrNotApplicable},
			{"child", audit, engine.ErrNotApplicable},
			{"failed", audit, engine.ErrNotApplicable}, // after a hundred retries
			{"nobody", audit, engine.ErrNotFound},
			{"failed", engine.Actor{Name: "ann"}, engine.ErrInvalid},
			{"failed", engine.Actor{Reason: "why not"}, engine.ErrInvalid},
		} {
			if err := p.Resume(ctx, c.id, c.by); !errors.Is(err, c.want) {
				t.Errorf("retry %q by %v: %v, want %v", c.id, c.by, err, c.want)
			}
		}
		if after := len(recordsOfRuns(t, s)); after != before {
			t.Errorf("%d records, before %d", after, before)
		}
		p.close()
		if err := p.Resume(ctx, "failed", audit); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// CK2, CK5: of two who retry at once, one does, and the other is told; and a retry
// whose outcome was unknown is done once, also if it was claimed before that was known.
func TestRetriesAtOnce(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.None, storagetest.ErrorBefore, storagetest.ErrorAfter} {
		virtual(t, func(t *testing.T) {
			var armed atomic.Bool
			var mended atomic.Bool
			wf := flow("w", func(run *engine.Run) (string, error) {
				if !mended.Load() {
					return "", errBroke
				}
				return "done", run.Sleep(time.Minute)
			})
			p := bootOn(t, storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" && isOf(c.Batch, "o") && armed.CompareAndSwap(true, false) {
					return fault
				}
				return storagetest.None
			}), wf)
			h := start(t, wf, p, "o", "")
			failure(t, h, "broke")
			mended.Store(true)
			armed.Store(true)
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- p.Resume(ctx, "o", audit) }()
			}
			done := 0
			for range 2 {
				if err := <-errs; err == nil {
					done++
				} else if !errors.Is(err, engine.ErrNotApplicable) {
					t.Errorf("fault %d: %v, want ErrNotApplicable", fault, err)
				}
			}
			if got := result(t, h); got != "done" || done != 1 {
				t.Errorf("fault %d: %q, and %d retries were done; want one", fault, got, done)
			}
			acted := 0
			for _, k := range kinds(historyOf(t, p.Engine, "o")) {
				if k == checkpoint.KindActed {
					acted++
				}
			}
			if acted != 1 {
				t.Errorf("fault %d: the history has %d retries, want one", fault, acted)
			}
			p.stop(t)
		})
	}
}

// A retried workflow takes signals again, and has those that it had not received; who
// waits for its result learns the new one.
func TestRetriedWorkflowReceives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mended atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) {
			first, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			if !mended.Load() {
				return "", errBroke
			}
			second, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			third, err := approved.Receive(run)
			return first + second + third, err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		send(t, approved, p, "o", "a", "1")
		failure(t, h, "broke")
		if _, err := approved.Send(ctx, p, "o", "x", nil); !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("to a failed workflow: %v, want ErrTerminal", err)
		}
		mended.Store(true)
		retry(t, p, "o")
		send(t, approved, p, "o", "b", "2")
		send(t, approved, p, "o", "a", "1") // accepted once
		send(t, approved, p, "o", "c", "3")
		if got := result(t, h); got != "abc" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
	})
}

// A child that ended after its parent had failed, so that nobody told, is known to the
// retried parent; so is one that ends later, and one that was purged.
func TestRetriedParent(t *testing.T) {
	for _, how := range []string{"dismissed", "abandoned", "ended later", "purged"} {
		t.Run(how, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var mended atomic.Bool
				kid := flow("kid", func(run *engine.Run) (string, error) { return "grown", run.Sleep(time.Hour) })
				o := engine.ChildOptions{ID: "k", OnParentEnd: engine.ParentEndAbandon}
				if how == "dismissed" {
					o.OnParentEnd = engine.ParentEndCancel
				}
				wf := flow("parent", func(run *engine.Run) (string, error) {
					f := kid.AsChild(o).Go(run, "")
					if err := run.Sleep(time.Minute); err != nil {
						return "", err
					}
					if !mended.Load() {
						return "", errBroke
					}
					out, err := f.Get(run)
					if err != nil {
						return fmt.Sprintf("%v %v", errors.Is(err, engine.ErrCancelled), err), nil
					}
					return out, nil
				})
				p := boot(t, fresh(t), wf, kid)
				h := start(t, wf, p, "o", "")
				failure(t, h, "broke")
				if how != "ended later" {
					time.Sleep(2 * time.Hour)
				}
				if how == "purged" {
					if err := p.Purge(ctx, "k", audit); err != nil {
						t.Fatal(err)
					}
				}
				mended.Store(true)
				retry(t, p, "o")
				want := map[string]string{"dismissed": "true ", "abandoned": "grown", "ended later": "grown", "purged": "false "}[how]
				if got := result(t, h); !strings.HasPrefix(got, want) {
					t.Errorf("result %q, want %q", got, want)
				}
				p.stop(t)
			})
		})
	}
}

// A parent gives up a child because a call has failed for good, then learns how another child ends, and fails. A retry takes
// back that failure. If the function then waits for the child after all, it gets its end.
func TestRetriedParentHadGivenUpItsChild(t *testing.T) {
	for onEnd, want := range map[engine.ParentEnd]string{engine.ParentEndCancel: "cancelled", engine.ParentEndAbandon: "grown"} {
		t.Run(want, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer func() { s.Close() }()
				var mended atomic.Bool
				brother, kid := sleeper(10*time.Second), flow("kid", func(run *engine.Run) (string, error) { return "grown", run.Sleep(5 * time.Second) })
				wf := flow("parent", func(run *engine.Run) (string, error) {
					other := brother.Go(run, "")
					scope, cancel := run.WithCancel()
					child := kid.AsChild(engine.ChildOptions{OnParentEnd: onEnd}).Go(scope, "")
					if _, err := engine.Step(run, "charge", func(context.Context) (string, error) {
						if !mended.Load() {
							return "", activity.Permanent(errBroke)
						}
						return "", nil
					}); err != nil {
						cancel()
						_, _ = other.Get(run)
						return "", err
					}
					out, err := child.Get(run)
					if errors.Is(err, engine.ErrCancelled) {
						return "cancelled", nil
					}
					return out, err
				})
				p := boot(t, s, wf, brother, kid, leases)
				h := start(t, wf, p, "o", "")
				failure(t, h, "broke")
				mended.Store(true)
				retry(t, p, "o")
				soon, stop := context.WithTimeout(ctx, time.Minute)
				defer stop()
				if got, err := h.Result(soon); got != want || err != nil {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
				whole(t, s)
			})
		})
	}
}

// A child that failed when its parent had ended already, so that nobody was told, can
// be retried; and then the parent too, which learns how the child ends now.
func TestRetriedChild(t *testing.T) {
	for _, c := range []struct {
		parent string // how it had ended, or what became of it
		late   bool   // the child failed after that
		want   error
	}{
		{"completed", true, nil},
		{"failed", true, nil},
		{"purged", true, nil},
		{"restarted", true, nil},
		{"retried", true, engine.ErrNotApplicable},
		{"retried meanwhile", true, engine.ErrNotApplicable},
		{"failed", false, engine.ErrNotApplicable},
		{"completed", false, engine.ErrNotApplicable},
		{"running", false, engine.ErrNotApplicable},
	} {
		t.Run(fmt.Sprint(c.parent, c.late), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var mended atomic.Bool
				kid := flow("kid", func(run *engine.Run) (string, error) {
					if err := run.Sleep(time.Minute); err != nil || !mended.Load() {
						return "", errors.Join(err, errBroke)
					}
					return "grown", run.Sleep(time.Minute)
				})
				wf := flow("parent", func(run *engine.Run) (string, error) {
					f := kid.AsChild(engine.ChildOptions{ID: "k", OnParentEnd: engine.ParentEndAbandon}).Go(run, "")
					err := run.Sleep(time.Second)
					if !c.late {
						_, _ = f.Get(run)
					}
					switch {
					case c.parent == "running":
						return "", run.Sleep(1000 * time.Hour)
					case mended.Load():
						return f.Get(run)
					case c.parent == "completed":
						return "", err
					}
					return "", errBroke
				})
				store := &hooked{Storage: fresh(t)}
				p := boot(t, store, wf, kid)
				h := start(t, wf, p, "o", "")
				time.Sleep(10 * time.Second)
				if c.parent == "purged" || c.parent == "restarted" {
					if err := p.Purge(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
				}
				failure(t, kid.Handle(p, "k"), "broke")
				time.Sleep(time.Second)
				mended.Store(true)
				switch c.parent {
				case "restarted":
					start(t, kid, p, "o", "")
				case "retried":
					retry(t, p, "o")
				case "retried meanwhile":
					var once atomic.Bool
					store.beforeCommit = func(b storage.Batch) {
						if isOf(b, "k") && once.CompareAndSwap(false, true) {
							retry(t, p, "o")
						}
					}
				}
				if err := p.Resume(ctx, "k", audit); !errors.Is(err, c.want) {
					t.Fatalf("retry of the child: %v, want %v", err, c.want)
				}
				switch {
				case strings.HasPrefix(c.parent, "retried"):
					failure(t, h, "broke")
				case c.want != nil:
				case c.parent == "failed":
					retry(t, p, "o")
					if got := result(t, h); got != "grown" {
						t.Errorf("the parent has %q of its child", got)
					}
					fallthrough
				default:
					if got := result(t, kid.Handle(p, "k")); got != "grown" {
						t.Errorf("result of the child: %q", got)
					}
				}
				p.stop(t)
			})
		})
	}
}

// OPS-4, OPS-5, CAN-6: a child that fails after its parent has continued as new has told nobody, and never will. It can be resumed and
// reset, whether its parent still runs or has ended since. One whose parent was told before it continued cannot.
func TestVerbsOfAChildOfAnEarlierLife(t *testing.T) {
	resume := func(p *process) error { return p.Resume(ctx, "k", audit) }
	again := func(p *process) error { return p.Reset(ctx, "k", "", audit) }
	for _, c := range []struct {
		name  string
		verb  func(p *process) error
		told  bool
		ended string // before the child, or after it
	}{
		{"resumed", resume, false, ""},
		{"reset", again, false, ""},
		{"resumed, the parent ended before", resume, false, "before"},
		{"resumed, the parent ended after", resume, false, "after"},
		{"resumed, the parent was told", resume, true, ""},
		{"reset, the parent was told", again, true, "after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer func() { s.Close() }()
				var mended atomic.Bool
				kid := flow("kid", func(run *engine.Run) (string, error) {
					if err := run.Sleep(time.Minute); err != nil || !mended.Load() {
						return "", errors.Join(err, errBroke)
					}
					return "grown", nil
				})
				wf := flow("parent", nil)
				wf.Func = func(run *engine.Run, life string) (string, error) {
					if life == "second" {
						return yes.Receive(run)
					}
					f := kid.AsChild(engine.ChildOptions{ID: "k", OnParentEnd: engine.ParentEndAbandon}).Go(run, "")
					if err := run.Sleep(time.Second); err != nil {
						return "", err
					}
					if c.told {
						_, _ = f.Get(run)
					}
					return "", engine.ContinueAsNew(run, "second")
				}
				p := boot(t, s, wf, kid, leases)
				h := start(t, wf, p, "o", "first")
				eventually(t, "the child is there", func() bool { _, err := p.Describe(ctx, "k"); return err == nil })
				for _, when := range []string{"before", "after"} {
					if when == "after" {
						failure(t, kid.Handle(p, "k"), "broke")
					}
					if when == c.ended {
						send(t, yes, p, "o", "done", "")
						result(t, h)
					}
				}
				eventually(t, "the parent is in its second life", func() bool { return describe(t, p, "o").Life == 1 })
				mended.Store(true)
				err := c.verb(p)
				if c.told {
					if !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), "told") {
						t.Errorf("got %v, want ErrNotApplicable", err)
					}
				} else if err != nil {
					t.Errorf("got %v", err)
				} else if got := result(t, kid.Handle(p, "k")); got != "grown" {
					t.Errorf("got %q", got)
				}
				whole(t, s)
			})
		})
	}
}

// AC4: while an attempt that was left behind by the end of the workflow lives, the
// retried one attempts nothing in this process. What was given up is attempted anew.
// This holds from the moment that the end is durable, before the engine has been told.
func TestRetryWaitsForAttemptsLeftBehind(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprint("early ", early), func(t *testing.T) { retryWithAttemptsLeftBehind(t, early) })
	}
}

func retryWithAttemptsLeftBehind(t *testing.T, early bool) {
	virtual(t, func(t *testing.T) {
		var mended atomic.Bool
		var alive, most atomic.Int32
		var mu sync.Mutex
		var attempts []int
		seen := func() []int { mu.Lock(); defer mu.Unlock(); return slices.Clone(attempts) }
		deaf := &activity.Activity[string, string]{Name: "deaf", Timeout: 3 * time.Hour, Run: func(ctx context.Context, _ string) (string, error) {
			most.Store(max(most.Load(), alive.Add(1)))
			defer alive.Add(-1)
			mu.Lock()
			attempts = append(attempts, activity.InfoFrom(ctx).Attempt)
			mu.Unlock()
			if !mended.Load() {
				time.Sleep(time.Hour)
			}
			return "done", nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			f := deaf.Go(run, "")
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			if !mended.Load() {
				return "", errBroke
			}
			return f.Get(run)
		})
		store := &hooked{Storage: fresh(t)}
		p := boot(t, store, wf)
		again := func() {
			mended.Store(true)
			retry(t, p, "o")
		}
		var once atomic.Bool
		store.afterCommit = func(b storage.Batch) error {
			if early && touches(b, "wf:o:out") && once.CompareAndSwap(false, true) {
				again()
				time.Sleep(time.Minute) // polls pass before the engine knows of the end
			}
			return nil
		}
		h := start(t, wf, p, "o", "")
		if early {
			time.Sleep(2 * time.Minute)
		} else {
			failure(t, h, "broke")
			again()
		}
		send(t, approved, p, "o", "come on", "") // nor does a signal have it claimed
		time.Sleep(30 * time.Minute)
		if got := seen(); len(got) != 1 {
			t.Errorf("attempts %v while the first lives", got)
		}
		if got := result(t, h); got != "done" || most.Load() != 1 || !slices.Equal(seen(), []int{1, 2}) {
			t.Errorf("result %q after attempts %v, %d at once", got, seen(), most.Load())
		}
		p.stop(t)
	})
}

// revival: a workflow that fails, and that the client has go on when the bank is open.
func revival(w *sweep.World) sweep.Scenario {
	var mu sync.Mutex
	open := false
	is := func() bool { mu.Lock(); defer mu.Unlock(); return open }
	made := map[string]bool{}
	charge := &activity.Activity[int, string]{
		Name:           "charge",
		IdempotencyKey: func(i int) string { return fmt.Sprint("order/", i) },
		Run: func(ctx context.Context, i int) (string, error) {
			if i == 2 && !is() {
				return "", activity.Permanent(activity.NoEffect(errBroke))
			}
			mu.Lock()
			defer mu.Unlock()
			key := activity.InfoFrom(ctx).IdempotencyKey
			if w.Effect(key); made[key] {
				w.Effect("charged twice")
			}
			made[key] = true
			return key, nil
		},
		Verify: func(ctx context.Context, i int) (activity.Verification[string], error) {
			mu.Lock()
			defer mu.Unlock()
			if key := activity.InfoFrom(ctx).IdempotencyKey; made[key] {
				return activity.CompletedWithResult(key), nil
			}
			return activity.NotCompleted[string](), nil
		},
	}
	wf := &engine.Workflow[int, string]{Name: "revival", Errors: []error{errBroke}, Func: func(run *engine.Run, _ int) (string, error) {
		first := charge.Go(run, 1)
		second, err := charge.Do(run, 2)
		if err != nil {
			_, e := first.Get(run)
			return "", errors.Join(err, e)
		}
		got, err := first.Get(run)
		return got + second, err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"revival"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.With(engine.StartOptions{Labels: widest()}).Start(ctx, eng, "revival", 7)
			if err != nil {
				return "", err
			}
			var failed *engine.WorkflowError
			if _, err := h.Result(ctx); errors.As(err, &failed) {
				mu.Lock()
				open = true
				mu.Unlock()
				if err := eng.Resume(ctx, "revival", audit); err != nil && !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) {
					return "", err
				}
			} else if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// orphan: a child fails when its parent has ended, and is retried.
func orphan(w *sweep.World) sweep.Scenario {
	var mended atomic.Bool
	act := effect(w, "a")
	kid := &engine.Workflow[int, string]{Name: "kid", Errors: []error{errBroke}, Func: func(run *engine.Run, i int) (string, error) {
		s, err := act.Do(run, i)
		if _, e := yes.Receive(run); e != nil || !mended.Load() { // until the parent has ended
			return "", errors.Join(err, e, errBroke)
		}
		return s, err
	}}
	wf := &engine.Workflow[int, string]{Name: "parent", Func: func(run *engine.Run, i int) (string, error) {
		kid.AsChild(engine.ChildOptions{ID: "kid", OnParentEnd: engine.ParentEndAbandon}).Go(run, i)
		return "over", nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf, kid},
		IDs:       []string{"orphan", "kid"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "orphan", 7)
			if err != nil {
				return "", err
			}
			if _, err := h.Result(ctx); err != nil {
				return "", err
			}
			if _, err := yes.Send(ctx, eng, "kid", "", &signal.Options{ID: "over"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			var failed *engine.WorkflowError
			if _, err := kid.Handle(eng, "kid").Result(ctx); errors.As(err, &failed) {
				mended.Store(true)
				if err := eng.Resume(ctx, "kid", audit); err != nil && !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) {
					return "", err
				}
			} else if err != nil {
				return "", err
			}
			return kid.Handle(eng, "kid").Result(ctx)
		},
	}
}

// A second retry with the words of the first does not apply when somebody else was
// quicker, and is not taken for the first, which stands in the history.
func TestSameRetryOfWhatIsHeldNoMore(t *testing.T) {
	for name, reason := range map[string]engine.Reason{
		"a run that goes on":     engine.ReasonIndeterminate,
		"a run that stood still": engine.ReasonBadDefinition,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var mended atomic.Bool
				act := puzzling(&mended)
				wf := flow("w", func(run *engine.Run) (string, error) {
					a := *act
					if reason == engine.ReasonBadDefinition && !mended.Load() {
						a.Run = nil
					}
					if _, err := a.Do(run, "key"); err != nil && reason == engine.ReasonIndeterminate {
						return "", err
					}
					return approved.Receive(run)
				})
				store := &hooked{Storage: fresh(t)}
				var p *process
				var meets atomic.Bool // before the next commit of o
				store.beforeCommit = func(b storage.Batch) {
					if !isOf(b, "o") || !meets.CompareAndSwap(true, false) {
						return
					}
					mended.Store(true)
					if err := p.Resume(ctx, "o", engine.Actor{Name: "bob", Reason: "was quicker"}); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Minute)
				}
				p = boot(t, store, wf)
				h := start(t, wf, p, "o", "")
				isHeld := func() bool { return heldFor(describe(t, p, "o"), reason) }
				eventually(t, "it is held", isHeld)
				time.Sleep(time.Minute)
				retry(t, p, "o")
				time.Sleep(time.Minute)
				eventually(t, "it is held again", isHeld)
				time.Sleep(time.Hour)
				meets.Store(true)
				if err := p.Resume(ctx, "o", audit); !errors.Is(err, engine.ErrNotApplicable) {
					t.Errorf("retry: %v, want ErrNotApplicable", err)
				}
				send(t, approved, p, "o", "done", "")
				if got := result(t, h); got != "done" || meets.Load() {
					t.Errorf("result %q", got)
				}
				p.stop(t)
			})
		})
	}
}

// An operator's retry reaches a held run whose activity has not returned yet, so
// that its former driver is still being put down.
func TestRetryOfARunThatIsBeingPutDown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		slow := &activity.Activity[string, int]{Name: "slow", Timeout: time.Hour, Run: func(context.Context, string) (int, error) {
			time.Sleep(time.Minute) // heeds nothing
			return 1, nil
		}}
		var mended atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) {
			f := slow.Go(run, "")
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			next := &activity.Activity[string, int]{Name: "next", Run: func(context.Context, string) (int, error) { return 1, nil }}
			if !mended.Load() {
				next.Run = nil
			}
			if _, err := next.Do(run, ""); err != nil {
				return "", err
			}
			_, err := f.Get(run)
			return "done", err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		eventually(t, "the run is held", func() bool { return heldFor(describe(t, p, "o"), engine.ReasonBadDefinition) })
		mended.Store(true)
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// A retry whose outcome was unknown and which has been acted on is not reported
// as one that did not apply.
func TestRetryOfUnknownOutcomeIsRecognised(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mended, armed atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) {
			next := &activity.Activity[string, int]{Name: "next", Run: func(context.Context, string) (int, error) { return 1, nil }}
			if !mended.Load() {
				next.Run = nil
			}
			_, err := next.Do(run, "")
			return "done", err
		})
		p := bootOn(t, storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && isOf(c.Batch, "o") && armed.CompareAndSwap(true, false) {
				return storagetest.ErrorAfter
			}
			return storagetest.None
		}), wf)
		h := start(t, wf, p, "o", "")
		eventually(t, "the run is held", func() bool { return heldFor(describe(t, p, "o"), engine.ReasonBadDefinition) })
		time.Sleep(time.Minute)
		mended.Store(true)
		armed.Store(true)
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Errorf("retry: %v", err)
		}
		if got := result(t, h); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}
