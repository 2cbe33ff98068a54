package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A crowd sees which attempts are under way together, and when they begin.
type crowd struct {
	mu    sync.Mutex
	now   map[string]int // by scope
	most  map[string]int
	all   int
	peak  int
	begun []time.Time
	order []string
}

func (c *crowd) enter(scope, name string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		c.now, c.most = map[string]int{}, map[string]int{}
	}
	c.now[scope]++
	c.all++
	c.most[scope], c.peak = max(c.most[scope], c.now[scope]), max(c.peak, c.all)
	c.begun, c.order = append(c.begun, time.Now()), append(c.order, name)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now[scope]--
		c.all--
	}
}

// began returns the names of the attempts that have begun so far. A test that looks
// while attempts are yet to come asks here; afterwards it may read the fields.
func (c *crowd) began() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order)
}

// A call is what a taking activity gets: "scope/name", and how long it takes.
type call struct {
	Scope, Name string
	For         time.Duration
}

func (c *crowd) taking(name string) *activity.Activity[call, string] {
	return &activity.Activity[call, string]{Name: name, Timeout: 100 * time.Hour, Run: func(ctx context.Context, in call) (string, error) {
		defer c.enter(in.Scope, in.Name)()
		select {
		case <-time.After(in.For):
			return in.Name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}}
}

// keyed is a taking activity whose dispatch is recorded.
func (c *crowd) keyed() *activity.Activity[call, string] {
	act := c.taking("keyed")
	act.Idempotent = true
	return act
}

// calling is a workflow that makes one call.
func calling(name string, act *activity.Activity[call, string]) *engine.Workflow[call, string] {
	return &engine.Workflow[call, string]{Name: name, Errors: []error{activity.ErrTimeout}, Func: func(run *engine.Run, in call) (string, error) { return act.Do(run, in) }}
}

func scopeOf(c call) string { return c.Scope }

// MaxConcurrent bounds the attempts of an activity, across runs and with what is
// tried again, uses all that it allows, and serves first come, first served.
func TestMaxConcurrent(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			const n, most = 20, 3
			var c crowd
			var failed tally
			act := c.taking("work")
			run := act.Run
			act.Run = func(ctx context.Context, in call) (string, error) {
				out, err := run(ctx, in)
				if err == nil && failed.add(in.Name) == 1 {
					err = activity.NoEffect(errBroke)
				}
				return out, err
			}
			act.MaxConcurrent, act.Retry.Backoff, act.Idempotent = most, time.Millisecond, keyed
			wf := calling("w", act)
			p := boot(t, fresh(t), wf)
			begun := time.Now()
			var hs []*engine.Handle[string]
			for i := range n {
				hs = append(hs, start(t, wf, p, sprint("o", i), call{Name: sprint(i), For: time.Minute}))
				synctest.Wait()
			}
			for i, h := range hs {
				if got := result(t, h); got != sprint(i) {
					t.Errorf("keyed %v: %s is %q", keyed, h.ID(), got)
				}
			}
			if c.peak != most {
				t.Errorf("keyed %v: %d at a time, want %d", keyed, c.peak, most)
			}
			if took := time.Since(begun); took > 15*time.Minute {
				t.Errorf("keyed %v: it took %v: 40 minutes of work, 3 at a time, take 14", keyed, took)
			}
			for i := range n { // who begins together, does so in any order
				if at := slices.Index(c.order, sprint(i)); at/most != i/most {
					t.Fatalf("keyed %v: began in the order %v, want that of the calls, and then what is tried again", keyed, c.order)
				}
			}
		})
	}
}

// A Rate bounds how many attempts begin in any span of its length, also where they
// wait for room in between, and lets each begin as soon as that allows.
func TestRate(t *testing.T) {
	for _, room := range []int{0, 1} {
		virtual(t, func(t *testing.T) {
			const n, count, per = 23, 5, time.Minute
			var c crowd
			act := c.taking("work")
			act.Rate = activity.Rate{Count: count, Per: per}
			other := c.taking("other")
			wf, busy := calling("w", act), calling("busy", other)
			p := boot(t, fresh(t), wf, busy, func(c *engine.Config) { c.MaxActivities = room })
			var hs []*engine.Handle[string]
			if room > 0 { // nothing begins for ten minutes
				hs = append(hs, start(t, busy, p, "busy", call{For: 10 * time.Minute}))
				synctest.Wait()
			}
			begun := time.Now()
			for i := range n {
				hs = append(hs, start(t, wf, p, sprint("o", i), call{Name: sprint(i)}))
				synctest.Wait()
				time.Sleep(time.Second)
			}
			time.Sleep(20 * time.Minute)
			for _, h := range hs {
				result(t, h)
			}
			at := c.begun[len(hs)-n:]
			for i := count; i < n; i++ {
				if d := at[i].Sub(at[i-count]); d < per {
					t.Errorf("room %d: attempts %d to %d began within %v", room, i-count, i, d)
				}
			}
			if took := at[n-1].Sub(begun); room == 0 && took > 4*per+5*time.Second {
				t.Errorf("the last began after %v, want 4 minutes and some seconds", took)
			}
			if room == 0 && !slices.IsSortedFunc(c.order, func(a, b string) int { return len(a) - len(b) }) {
				t.Errorf("began in the order %v", c.order)
			}
		})
	}
}

// Attempts of one ResourceScope run one at a time, whatever activity they are of;
// those of other scopes, and of none, do not wait for them.
func TestResourceScope(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			var c crowd
			debit, credit := c.taking("debit"), c.taking("credit")
			debit.ResourceScope, credit.ResourceScope = scopeOf, scopeOf
			debit.Idempotent = keyed
			credit.MaxConcurrent = 2
			wf := flow("w", func(run *engine.Run) (string, error) {
				for i := range 4 {
					for _, account := range []string{"", "a", "b", "c"} {
						in := call{Scope: account, Name: sprint(account, i), For: time.Minute}
						debit.Go(run, in)
						credit.Go(run, in)
					}
				}
				return "", run.Sleep(time.Hour)
			})
			p := boot(t, fresh(t), wf)
			start(t, wf, p, "o", "")
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			for _, account := range []string{"a", "b", "c"} {
				if c.most[account] != 1 {
					t.Errorf("keyed %v: %d of account %s at a time", keyed, c.most[account], account)
				}
			}
			if c.most[""] != 6 { // four debits and two credits
				t.Errorf("keyed %v: %d without an account at a time, want 6", keyed, c.most[""])
			}
			if len(c.order) != 32 || c.all != 0 {
				t.Errorf("keyed %v: %d attempts began, %d are under way, want 32 and 0", keyed, len(c.order), c.all)
			}
			for _, account := range []string{"a", "b", "c"} {
				var order []string
				for _, name := range c.order {
					if name[:max(len(name)-1, 0)] == account {
						order = append(order, name)
					}
				}
				if !slices.IsSorted(order) {
					t.Errorf("keyed %v: account %s was served in the order %v", keyed, account, order)
				}
			}
		})
	}
}

// Who waits in line can be cancelled, has a deadline, and leaves its place to the
// others. Nothing of it was run, and no record says that it might have been.
func TestWaitingInLineEnds(t *testing.T) {
	for _, waits := range []struct{ keyed, room bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var c crowd
			keyed, most := waits.keyed, 100
			act := c.taking("work")
			if act.Idempotent = keyed; waits.room {
				most = 1
			} else {
				act.ResourceScope = scopeOf
			}
			wf := calling("w", act)
			late := calling("late", act.With(activity.Options{TotalTimeout: 10 * time.Minute}))
			scoped := &engine.Workflow[call, string]{Name: "scoped", Errors: []error{engine.ErrTimeout}, Func: func(run *engine.Run, in call) (string, error) {
				_, err := act.Do(run.WithTimeout(20*time.Minute), in)
				return "", err
			}}
			p := boot(t, s, wf, late, scoped, func(c *engine.Config) { c.MaxActivities = most })
			first := start(t, wf, p, "first", call{"s", "first", 50 * time.Minute})
			synctest.Wait()
			cancelled := start(t, wf, p, "cancelled", call{"s", "cancelled", time.Hour})
			timed := start(t, scoped, p, "timed", call{"s", "timed", time.Hour})
			var overdue *engine.Handle[string]
			if !keyed { // with a key, the deadline counts from the first attempt on
				overdue = start(t, late, p, "late", call{"s", "late", time.Hour})
			}
			last := start(t, wf, p, "last", call{"s", "last", time.Minute})
			synctest.Wait()
			if w := describe(t, p, "last").Waiting; !slices.Equal(w, []string{"activity work, in line"}) {
				t.Errorf("%+v: it says that it waits for %q", waits, w)
			}
			if acts := entries(t, s, "act:"); keyed && len(acts) != 1 {
				t.Errorf("records of attempts: %q, want that of the first", acts)
			}
			begun := time.Now()
			if err := cancelled.Cancel(ctx, engine.Actor{Reason: "no more"}); err != nil {
				t.Fatal(err)
			}
			if _, err := outcome(cancelled); !errors.Is(err, engine.ErrCancelled) || time.Since(begun) > time.Minute {
				t.Errorf("%+v: cancelled: %v after %v", waits, err, time.Since(begun))
			}
			if !keyed {
				if _, err := outcome(overdue); !errors.Is(err, activity.ErrTimeout) || time.Since(begun) > 11*time.Minute {
					t.Errorf("past its deadline: %v after %v", err, time.Since(begun))
				}
			}
			if _, err := outcome(timed); !errors.Is(err, engine.ErrTimeout) || time.Since(begun) > 21*time.Minute {
				t.Errorf("%+v: past the scope's end: %v after %v", waits, err, time.Since(begun))
			}
			result(t, first)
			result(t, last)
			if want := []string{"first", "last"}; !slices.Equal(c.order, want) {
				t.Errorf("%+v: %v were run, want %v", waits, c.order, want)
			}
		})
	}
}

// A call that waits for room within MaxActivities has not begun: when its engine stops, or dies, nothing is in doubt, and it begins once in
// the next one. None of its attempts is used up.
func TestEngineEndsWhileACallWaitsForRoom(t *testing.T) {
	for _, killed := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			calls, busy := 0, true
			charge := &activity.Activity[string, string]{
				Name:           "charge",
				IdempotencyKey: func(order string) string { return order },
				Retry:          activity.Retry{MaxAttempts: 1},
				Run:            func(context.Context, string) (string, error) { calls++; return "charged", nil },
			}
			hog := flow("hog", func(run *engine.Run) (string, error) {
				return engine.Step(run, "work", func(ctx context.Context) (string, error) {
					if busy {
						<-ctx.Done()
					}
					return "", ctx.Err()
				})
			})
			wf := flow("checkout", func(run *engine.Run) (string, error) { return charge.Do(run, "o") })
			one := func(c *engine.Config) { c.MaxActivities = 1 }
			p := boot(t, s, hog, wf, one)
			start(t, hog, p, "x", "")
			synctest.Wait()
			start(t, wf, p, "o", "")
			synctest.Wait()
			if acts := entries(t, s, "act:"); len(acts) > 0 {
				t.Errorf("killed %v: there is a record of an attempt that has not begun: %q", killed, acts)
			}
			busy = false
			if killed {
				p.kill()
			} else {
				p.stop(t)
			}
			begun := time.Now()
			p = boot(t, s, hog, wf, one)
			if got, err := outcome(wf.Handle(p, "o")); got != "charged" || err != nil || calls != 1 || time.Since(begun) > 30*time.Second {
				t.Errorf("killed %v: %q, %v after %v and %d calls", killed, got, err, time.Since(begun), calls)
			}
			p.stop(t)
		})
	}
}

// findsRoom fails if a call of another run, which takes a minute, has to wait for a place.
func findsRoom(t *testing.T, p *process, other *engine.Workflow[call, string]) {
	t.Helper()
	begun := time.Now()
	result(t, start(t, other, p, "x", call{Name: "x", For: time.Minute}))
	if took := time.Since(begun); took > 2*time.Minute {
		t.Errorf("the other one took %v", took)
	}
}

// A call that is cancelled between the place that it gets and the commit of its dispatch leaves its place to others.
func TestPlaceOfACallThatNeverBegan(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		client := made(t, s)
		defer client.Close()
		met := false
		store := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
			if touches(b, "act:o") && !met {
				met = true
				if err := client.Cancel(ctx, "o", audit); err != nil {
					t.Error(err)
				}
			}
		}}
		var c crowd
		keyed := c.keyed()
		wf, other := calling("w", keyed), calling("other", c.taking("plain"))
		p := boot(t, store, wf, other, func(c *engine.Config) { c.MaxActivities = 1 })
		if _, err := outcome(start(t, wf, p, "o", call{Name: "o", For: time.Hour})); !errors.Is(err, engine.ErrCancelled) || !met {
			t.Errorf("got %v, want ErrCancelled", err)
		}
		findsRoom(t, p, other)
		if !slices.Equal(c.order, []string{"x"}) {
			t.Errorf("%v were run, want the other one", c.order)
		}
		p.stop(t)
	})
}

// An engine that is asked to stop while a dispatch is being recorded makes the attempt: its outcome would be unknown otherwise.
func TestEngineStopsDuringADispatch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		calls := 0
		charge := &activity.Activity[string, string]{
			Name:           "charge",
			IdempotencyKey: func(order string) string { return order },
			Run:            func(context.Context, string) (string, error) { calls++; return "charged", nil },
		}
		wf := flow("checkout", func(run *engine.Run) (string, error) { return charge.Do(run, "o") })
		var p *process
		stopped, met := make(chan struct{}), false
		p = boot(t, &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
			if touches(b, "act:") && !met {
				met = true
				go func() { p.stop(t); close(stopped) }()
				time.Sleep(time.Second) // it is being stopped
			}
		}}, wf)
		start(t, wf, p, "o", "")
		<-stopped
		p = boot(t, s, wf)
		if got, err := outcome(wf.Handle(p, "o")); got != "charged" || err != nil || calls != 1 || !met {
			t.Errorf("got %q, %v after %d calls", got, err, calls)
		}
		p.stop(t)
	})
}

// Places of calls that were cut when their dispatch was recorded, and before they began, are for others, also while the run makes
// another attempt.
func TestPlacesAreLeftBeforeACleanup(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c crowd
		keyed := c.keyed()
		wf := flow("w", func(run *engine.Run) (string, error) {
			scope, cancel := run.WithCancel()
			one, two := keyed.Go(scope, call{Name: "one", For: time.Hour}), keyed.Go(scope, call{Name: "two", For: time.Hour})
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
			cancel()
			_, err := one.Get(run)
			_, err2 := two.Get(run)
			return engine.Step(run, "cleanup", func(context.Context) (string, error) {
				time.Sleep(time.Hour)
				return fmt.Sprint(errors.Is(err, engine.ErrCancelled), errors.Is(err2, engine.ErrCancelled)), nil
			})
		})
		other := calling("other", c.taking("plain"))
		p := boot(t, fresh(t), wf, other, func(c *engine.Config) { c.MaxActivities = 2 })
		if _, err := yes.SendWithStart(ctx, p, wf.Request("o", ""), "ann", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		findsRoom(t, p, other)
		if got, err := outcome(wf.Handle(p, "o")); got != "true true" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		p.stop(t)
	})
}

// While a run has its transaction, a call that it has begun before has no place: its dispatch comes later.
func TestPlaceIsLeftDuringATransaction(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c crowd
		keyed := c.keyed()
		wf := flow("w", func(run *engine.Run) (string, error) {
			later := keyed.Go(run, call{Name: "later", For: time.Minute})
			var done bool
			err := run.TransactStep("book", &done, func(context.Context) error { time.Sleep(time.Hour); return nil })
			if err != nil {
				return "", err
			}
			return later.Get(run)
		})
		other := calling("other", c.taking("plain"))
		p := boot(t, transacting{fresh(t)}, wf, other, func(c *engine.Config) { c.MaxActivities = 1 })
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		findsRoom(t, p, other)
		if got, err := outcome(h); got != "later" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		p.stop(t)
	})
}

// A run that cannot record a dispatch, because it has found a signal that it cannot decode, leaves the place to others while it waits.
func TestPlaceIsLeftByABlockedRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c crowd
		keyed, plain := c.keyed(), c.taking("plain")
		wf := flow("w", func(run *engine.Run) (string, error) {
			plain.Go(run, call{Name: "long", For: time.Hour})
			keyed.Go(run, call{Name: "later", For: time.Minute})
			return yes.Receive(run)
		})
		other := calling("other", plain)
		p := boot(t, fresh(t), wf, other, func(c *engine.Config) { c.MaxActivities = 2 })
		if _, err := (&signal.Signal[int]{Name: yes.Name}).SendWithStart(ctx, p, wf.Request("o", ""), 1, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		findsRoom(t, p, other)
		if got := c.began(); !slices.Equal(got, []string{"long", "x"}) {
			t.Errorf("%q have begun", got)
		}
		p.stop(t)
	})
}

// A life that waits for its archive has no places, also not for calls whose dispatch was recorded with what ended it.
func TestPlacesAreLeftWhileALifeIsArchived(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c crowd
		keyed := c.keyed()
		wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, life int) (string, error) {
			if life > 0 {
				return "continued", nil
			}
			keyed.Go(run, call{Name: "one", For: time.Hour})
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
			return "", engine.ContinueAsNew(run, 1)
		}}
		other := calling("other", c.taking("plain"))
		var takes atomic.Bool
		p := boot(t, fresh(t), wf, other, func(c *engine.Config) {
			c.MaxActivities = 1
			c.Archive = func(context.Context, engine.Info, io.Reader) error {
				if !takes.Load() {
					return errors.New("the archive is full")
				}
				return nil
			}
		})
		if _, err := yes.SendWithStart(ctx, p, wf.Request("o", 0), "ann", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		findsRoom(t, p, other)
		takes.Store(true)
		if got, err := outcome(wf.Handle(p, "o")); got != "continued" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		p.stop(t)
	})
}

// The deadline of a call with a key holds for what waits in line to be tried again.
func TestDeadlineOfARetryInLine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c crowd
		var tried tally
		act := c.taking("work")
		act.ResourceScope = scopeOf
		again := *act
		again.Name, again.Idempotent, again.TotalTimeout = "again", true, 30*time.Minute
		again.Retry = activity.Retry{MaxAttempts: 9, Backoff: 10 * time.Minute, MaxBackoff: 10 * time.Minute}
		again.Run = func(context.Context, call) (string, error) {
			tried.add("again")
			return "", activity.NoEffect(errBroke)
		}
		wf, other := calling("w", &again), calling("other", act)
		p := boot(t, fresh(t), wf, other)
		begun := time.Now()
		h := start(t, wf, p, "o", call{Scope: "s"})
		synctest.Wait()
		start(t, other, p, "busy", call{"s", "busy", 10 * time.Hour})
		_, err := outcome(h)
		if err == nil || tried.of("again") != 1 {
			t.Errorf("%v after %d attempts, want an error after one", err, tried.of("again"))
		}
		if took := time.Since(begun); took < 29*time.Minute || took > 31*time.Minute {
			t.Errorf("it was over after %v, want 30 minutes", took)
		}
	})
}

// AC4: an attempt that does not heed its context keeps its scope and its place
// until it has returned: nothing of its scope runs beside it.
func TestDeafAttemptKeepsItsScope(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c crowd
		act := c.taking("work")
		unresponsive := &activity.Activity[call, string]{Name: "deaf", ResourceScope: scopeOf, Timeout: time.Minute, Retry: activity.Retry{MaxAttempts: 1}, Run: func(_ context.Context, in call) (string, error) {
			defer c.enter(in.Scope, in.Name)()
			time.Sleep(in.For)
			return "", nil
		}}
		act.ResourceScope = scopeOf
		wf, other := calling("w", act), calling("deaf", unresponsive)
		p := boot(t, fresh(t), wf, other)
		h := start(t, other, p, "deaf", call{"s", "deaf", 50 * time.Minute})
		synctest.Wait()
		next := start(t, wf, p, "next", call{"s", "next", time.Minute})
		if _, err := outcome(h); !errors.Is(err, activity.ErrTimeout) {
			t.Errorf("the deaf one: %v, want ErrTimeout", err)
		}
		if len(c.began()) != 1 {
			t.Error("the next one began while the deaf one runs")
		}
		begun := time.Now()
		if result(t, next); c.most["s"] != 1 || time.Since(begun) < 49*time.Minute {
			t.Errorf("%d at a time; the next one was done after %v", c.most["s"], time.Since(begun))
		}
	})
}

// Limits are those of an engine that lives: who waits in line when it dies, or is
// told to stop, begins in the next one, as attempt 1, without its verifier asked.
func TestCrashInLine(t *testing.T) {
	for _, how := range []string{"kill", "stop"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var c crowd
			var asked tally
			hours := 10 * time.Hour
			act := c.taking("work")
			act.ResourceScope, act.MaxConcurrent, act.Rate = scopeOf, 1, activity.Rate{Count: 10, Per: time.Hour}
			act.IdempotencyKey = func(in call) string { return in.Name }
			act.Verify = func(_ context.Context, in call) (activity.Verification[string], error) {
				asked.add(in.Name)
				return activity.NotCompleted[string](), nil
			}
			act.VerifyFences = true
			run := act.Run
			act.Run = func(ctx context.Context, in call) (string, error) {
				if n := activity.InfoFrom(ctx).Attempt; n != 1 && in.Name != "first" {
					t.Errorf("%s: %s is told that it is attempt %d", how, in.Name, n)
				}
				in.For = hours
				return run(ctx, in)
			}
			wf := calling("w", act)
			p := boot(t, s, wf)
			for _, name := range []string{"first", "second", "third"} {
				start(t, wf, p, name, call{Scope: "s", Name: name})
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			if how == "kill" {
				p.kill()
			} else {
				p.stop(t)
			}
			hours = time.Minute
			p = boot(t, s, wf)
			for _, name := range []string{"first", "second", "third"} {
				if got := result(t, wf.Handle(p, name)); got != name {
					t.Errorf("%s: %q is %q", how, name, got)
				}
			}
			if got := asked.all(); !slices.Equal(got, []string{"first"}) {
				t.Errorf("%s: verifiers were asked about %v, want the first", how, got)
			}
			if c.peak != 1 || len(c.order) != 4 {
				t.Errorf("%s: %d at a time, %d attempts, want 1 and 4", how, c.peak, len(c.order))
			}
		})
	}
}

// What waits in line has no goroutine, and a run that waits there is not put aside.
func TestWaitingInLineIsCheap(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 2000
		var c crowd
		act := c.taking("work")
		act.ResourceScope = scopeOf
		wf := flow("w", func(run *engine.Run) (string, error) {
			for i := range n {
				act.Go(run, call{"s", fmt.Sprint(i), time.Second})
			}
			return "", run.Sleep(40 * time.Minute)
		})
		p := boot(t, fresh(t), wf, parkAfter(-1))
		before := runtime.NumGoroutine()
		h := start(t, wf, p, "o", "")
		synctest.Wait()
		if w := describe(t, p, "o").Owner; w == "" {
			t.Error("it is put aside")
		}
		if more := runtime.NumGoroutine() - before; more > 50 {
			t.Errorf("%d goroutines more for %d calls in line", more, n)
		}
		result(t, h)
		if len(c.order) != n || c.peak != 1 {
			t.Errorf("%d ran, %d at a time", len(c.order), c.peak)
		}
	})
}
