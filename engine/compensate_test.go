package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// undoable is an activity that counts what it does and what it undoes: "a" and
// "undo a got a" of the call with "a". As an input "-" is refused.
func undoable(c *tally) *activity.Activity[string, string] {
	return &activity.Activity[string, string]{
		Name: "do",
		Run: func(_ context.Context, in string) (string, error) {
			if in == "-" {
				return "", activity.Permanent(errBroke)
			}
			c.add(in)
			return "got " + in, nil
		},
		Compensate: func(_ context.Context, in, out string) error {
			c.add("undo " + in + " " + out)
			return nil
		},
	}
}

// undone are the operations that a history says were undone, in order.
func undone(cs []checkpoint.Checkpoint) (ops []string) {
	for _, c := range cs {
		for _, e := range c.Events {
			if e.Of == "compensation" && e.Kind == checkpoint.KindSettled {
				ops = append(ops, e.Operation)
			}
		}
	}
	return ops
}

func resolve(t testing.TB, p *process, operation string, a activity.Answer) {
	t.Helper()
	if err := p.Resolve(ctx, "o", operation, a, audit); err != nil {
		t.Fatalf("resolve %s: %v", operation, err)
	}
}

// uncompensated waits until a person is asked about an operation of o.
func uncompensated(t testing.TB, p *process, operation string) (asked engine.Attention) {
	t.Helper()
	eventually(t, "a person is asked about "+operation, func() bool {
		for _, a := range describe(t, p, "o").Attention {
			if asked = a; a.Reason == engine.ReasonUncompensated && a.Operation == operation {
				return true
			}
		}
		return false
	})
	return asked
}

// ACT-10: what completed is undone when the workflow fails, the last first, whichever
// branch did it and whether anybody waited for it; what failed is not. The workflow
// then fails of what it failed of.
func TestCompensate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var c tally
		do := undoable(&c)
		late := undoable(&c)
		late.Run = func(_ context.Context, in string) (string, error) {
			time.Sleep(10 * time.Minute)
			c.add(in)
			return "got " + in, nil
		}
		late.Timeout = time.Hour
		wf := flow("trip", func(run *engine.Run) (string, error) {
			late.Go(run, "a") // nobody waits for it; it completes last
			if _, err := do.Do(run, "b"); err != nil {
				return "", err
			}
			if _, err := do.Do(run, "-"); err == nil {
				return "", errors.New("no error")
			}
			if _, err := engine.Map(run, "branch", 1, []string{"c", "d"}, func(run *engine.Run, in string) (string, error) { return do.Do(run, in) }); err != nil {
				return "", err
			}
			if err := run.Sleep(20 * time.Minute); err != nil {
				return "", err
			}
			return "", fmt.Errorf("no hotel: %w", errBroke)
		})
		wf.Errors = []error{errBroke}
		p := boot(t, s, wf)
		_, err := outcome(start(t, wf, p, "o", ""))
		if !errors.Is(err, errBroke) || !strings.Contains(err.Error(), "no hotel") {
			t.Errorf("it failed of %v", err)
		}
		want := []string{"b", "c", "d", "a", "undo a got a", "undo d got d", "undo c got c", "undo b got b"}
		if got := c.all(); !slices.Equal(got, want) {
			t.Errorf("done and undone: %q, want %q", got, want)
		}
		h := historyOf(t, p.Engine, "o")
		if got, want := undone(h), []string{"1.undo", "5.1.undo", "4.1.undo", "2.undo"}; !slices.Equal(got, want) {
			t.Errorf("the history says that %q were undone, want %q", got, want)
		}
		ks := kinds(h)
		if i := slices.Index(ks, checkpoint.KindCompensating); i < 0 || slices.Contains(ks[:i], checkpoint.KindEnded) || ks[len(ks)-1] != checkpoint.KindEnded {
			t.Errorf("events %v", ks)
		}
		if err := p.Resume(ctx, "o", audit); !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), "undone") {
			t.Errorf("retry of what is undone: %v", err)
		}
		p.stop(t)
	})
}

// ACT-10: a workflow that completes undoes nothing, one that is cancelled does.
// A request to stop that comes while it undoes neither stops that nor changes its end.
func TestCompensateAndCancel(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(run *engine.Run) error
		cancel string // when the workflow is asked to stop
		undoes bool
		want   error
	}{
		{"completes", func(run *engine.Run) error { return nil }, "", false, nil},
		{"completes, asked to stop", func(run *engine.Run) error { _ = run.Sleep(time.Hour); return nil }, "before", false, nil},
		{"is cancelled", func(run *engine.Run) error { return run.Sleep(time.Hour) }, "before", true, engine.ErrCancelled},
		{"fails", func(run *engine.Run) error { return errBroke }, "while it undoes", true, errBroke},
		{"fails of a part", func(run *engine.Run) error { return engine.ErrCancelled }, "while it undoes", true, nil},
		{"panics", func(run *engine.Run) error { panic(errBroke) }, "", true, errBroke},
		{"ends its goroutine", func(run *engine.Run) error { runtime.Goexit(); return nil }, "", true, nil},
		{"time is up", func(run *engine.Run) error { return run.WithTimeout(time.Minute).Sleep(time.Hour) }, "", true, engine.ErrTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n tally
				do := undoable(&n)
				do.Compensate = func(ctx context.Context, in, _ string) error {
					time.Sleep(30 * time.Second)
					n.add("undo")
					return ctx.Err()
				}
				wf := flow("w", func(run *engine.Run) (string, error) {
					if _, err := do.Do(run, "a"); err != nil {
						return "", err
					}
					return "", c.end(run)
				})
				wf.Errors = []error{errBroke, engine.ErrTimeout}
				p := boot(t, fresh(t), wf)
				h := start(t, wf, p, "o", "")
				time.Sleep(10 * time.Second)
				if c.cancel != "" {
					if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
						t.Fatal(err)
					}
				}
				_, err := outcome(h)
				completed := !c.undoes
				if (err == nil) != completed || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("result %v, want %v", err, c.want)
				}
				if c.cancel == "while it undoes" && errors.Is(err, engine.ErrCancelled) {
					t.Errorf("it is cancelled: %v", err)
				}
				if got := n.of("undo") == 1; got != c.undoes || n.of("undo") > 1 {
					t.Errorf("undone %d times", n.of("undo"))
				}
				p.stop(t)
			})
		})
	}
}

// ACT-10, ACT-11: an attempt is told its number, with a key and without one. Compensate is
// told of the call that it undoes: its key and its place; and of itself the phase, its own
// attempt, and a token above all others.
func TestInfoOfACompensation(t *testing.T) {
	for _, key := range []string{"", "booking/7"} {
		virtual(t, func(t *testing.T) {
			var done, undone []activity.Info
			do := &activity.Activity[string, string]{
				Name:    "book",
				Timeout: 10 * time.Minute,
				Retry:   activity.Retry{Backoff: time.Minute},
				Run: func(ctx context.Context, _ string) (string, error) {
					if done = append(done, activity.InfoFrom(ctx)); len(done) < 3 {
						return "", activity.NoEffect(errBroke)
					}
					return "seat 7", nil
				},
				Compensate: func(ctx context.Context, in, out string) error {
					i := activity.InfoFrom(ctx)
					if undone = append(undone, i); in != "me" || out != "seat 7" {
						t.Errorf("it is to undo %q of %q", out, in)
					}
					if d, ok := ctx.Deadline(); !ok || !d.Equal(time.Now().Add(10*time.Minute)) || !d.Equal(i.Deadline) {
						t.Errorf("deadline %v, at %v", d, time.Now())
					}
					if len(undone) < 3 {
						return errBroke
					}
					return nil
				},
			}
			if key != "" {
				do.IdempotencyKey = func(string) string { return key }
			}
			wf := flow("trip", func(run *engine.Run) (string, error) {
				_, err := do.Do(run, "me")
				return "", errors.Join(err, errors.New("no hotel"))
			})
			p := boot(t, fresh(t), wf)
			failure(t, start(t, wf, p, "o", ""), "no hotel")
			if len(done) != 3 || len(undone) != 3 {
				t.Fatalf("%d attempts, and %d to undo; want 3", len(done), len(undone))
			}
			for n, got := range done {
				if got.Attempt != n+1 {
					t.Errorf("attempt %d is told that it is number %d", n+1, got.Attempt)
				}
			}
			token := done[2].FencingToken
			for n, got := range undone {
				want := activity.Info{
					Phase: activity.PhaseCompensate, WorkflowID: "o", Workflow: "trip", Activity: "book", Operation: "1",
					IdempotencyKey: key, Attempt: n + 1, FencingToken: got.FencingToken, Deadline: got.Deadline,
				}
				if got != want || got.FencingToken <= token {
					t.Errorf("attempt %d: %+v, want %+v and a token above %d", n+1, got, want, token)
				}
				token = got.FencingToken
			}
			p.stop(t)
		})
	}
}

// Whatever a Compensate does ends in another attempt, until there is none left; then
// a person is asked, and nothing before it is undone.
func TestCompensateFails(t *testing.T) {
	for name, c := range map[string]struct {
		compensate func(ctx context.Context) error
		attempts   int
		detail     string
	}{
		"error":     {func(context.Context) error { return errBroke }, 3, "broke"},
		"permanent": {func(context.Context) error { return activity.Permanent(errBroke) }, 1, "broke"},
		"panic":     {func(context.Context) error { panic("oh") }, 3, "panic: oh"},
		"goexit":    {func(context.Context) error { runtime.Goexit(); return nil }, 3, "Goexit"},
		"timeout":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 3, "timed out after 10s"},
		"no text":   {func(context.Context) error { return errors.New("") }, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n tally
				first, second := undoable(&n), undoable(&n)
				second.Retry, second.Timeout = activity.Retry{MaxAttempts: 3}, 10*time.Second
				second.TotalTimeout = 5 * time.Second // which is not for undoing
				second.Compensate = func(ctx context.Context, in, _ string) error {
					n.add("undo " + in)
					return c.compensate(ctx)
				}
				wf := flow("w", func(run *engine.Run) (string, error) {
					_, a := first.Do(run, "a")
					_, b := second.Do(run, "b")
					return "", errors.Join(a, b, errBroke)
				})
				p := boot(t, fresh(t), wf)
				h := start(t, wf, p, "o", "")
				asked := uncompensated(t, p, "2.undo")
				if asked.Name != "do" || !strings.Contains(asked.Detail, c.detail) || asked.Since.IsZero() {
					t.Errorf("a person is asked %+v", asked)
				}
				time.Sleep(time.Minute)
				if n.of("undo b") != c.attempts || n.of("undo a got a") != 0 {
					t.Errorf("done: %q, want %d attempts and no more", n.all(), c.attempts)
				}
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || len(i.Attention) != 1 {
					t.Errorf("it is %s, for %+v", i.Status, i.Attention)
				}
				resolve(t, p, "2.undo", activity.Failed("let them keep it"))
				failure(t, h, "broke")
				if n.of("undo b") != c.attempts || n.of("undo a got a") != 1 {
					t.Errorf("done: %q", n.all())
				}
				if i := describe(t, p, "o"); len(i.Attention) != 0 {
					t.Errorf("a person is still asked: %+v", i.Attention)
				}
				p.stop(t)
			})
		})
	}
}

// Each answer of a person's, and Resume, does what it says, with who and why in the
// history; before and after a restart, parked or not. What is no answer is refused.
func TestAnswersAboutACompensation(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(p *process) error
		again  bool // it is attempted again
		verb   string
		why    string
	}{
		{"not completed", func(p *process) error {
			return p.Resolve(ctx, "o", "2.undo", activity.NotCompleted[string](), audit)
		}, true, "resolve 2.undo: not-completed", "test"},
		{"undone", func(p *process) error {
			return p.Resolve(ctx, "o", "2.undo", activity.CompletedWithResult[any](nil), audit)
		}, false, "resolve 2.undo: completed-with-result", "test"},
		{"undone, with no result", func(p *process) error {
			return p.Resolve(ctx, "o", "2.undo", activity.CompletedResultUnavailable[string](), audit)
		}, false, "resolve 2.undo: completed-result-unavailable", "test"},
		{"given up", func(p *process) error {
			return p.Resolve(ctx, "o", "2.undo", activity.Failed("a gift"), audit)
		}, false, "resolve 2.undo: failed", "test: a gift"},
		{"retry", func(p *process) error { return p.Resume(ctx, "o", audit) }, true, "retry", "test"},
	} {
		for _, between := range []string{"", "parked", "stop", "kill", "kill twice"} {
			t.Run(c.name+"/"+between, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					s := fresh(t)
					var n tally
					var mended atomic.Bool
					do := undoable(&n)
					do.Retry = activity.Retry{MaxAttempts: 2}
					do.Compensate = func(ctx context.Context, in, _ string) error {
						count, i := n.add("undo "+in), activity.InfoFrom(ctx)
						if i.Attempt != count {
							t.Errorf("attempt %d was told that it is %d", count, i.Attempt)
						}
						if in == "b" && !mended.Load() {
							return errBroke
						}
						return nil
					}
					wf := flow("w", func(run *engine.Run) (string, error) {
						_, a := do.Do(run, "a")
						_, b := do.Do(run, "b")
						return "", errors.Join(a, b, errBroke)
					})
					patience := func(c *engine.Config) {
						if between == "parked" {
							c.ParkAfter = time.Second
						}
					}
					p := boot(t, s, wf, patience)
					h := start(t, wf, p, "o", "")
					uncompensated(t, p, "2.undo")
					time.Sleep(time.Minute)
					if parked := describe(t, p, "o").Owner == ""; parked != (between == "parked") {
						t.Errorf("parked: %v", parked)
					}
					for range strings.Count(between, "twice") + 1 {
						switch {
						case between == "stop":
							p.stop(t)
						case strings.HasPrefix(between, "kill"):
							p.kill()
						default:
							continue
						}
						p = boot(t, s, wf)
						h = wf.Handle(p, "o")
						uncompensated(t, p, "2.undo")
						time.Sleep(time.Minute)
					}
					if n.of("undo b") != 2 || n.of("undo a") != 0 {
						t.Fatalf("done: %q, want two attempts and no more", n.all())
					}
					for _, bad := range []struct {
						operation string
						answer    activity.Answer
						by        engine.Actor
						want      error
					}{
						{"1.undo", activity.NotCompleted[string](), audit, engine.ErrNotApplicable},
						{"2", activity.NotCompleted[string](), audit, engine.ErrNotApplicable},
						{"2.undo", activity.Indeterminate[string]("who knows"), audit, engine.ErrInvalid},
						{"2.undo", activity.CompletedWithResult("ok"), audit, engine.ErrInvalid},
						{"2.undo", nil, audit, engine.ErrInvalid},
						{"2.undo", activity.NotCompleted[string](), engine.Actor{}, engine.ErrInvalid},
					} {
						if err := p.Resolve(ctx, "o", bad.operation, bad.answer, bad.by); !errors.Is(err, bad.want) {
							t.Errorf("resolve %s as %v: %v, want %v", bad.operation, bad.answer, err, bad.want)
						}
					}
					attempts := 2
					if c.again { // first in vain
						if err := c.answer(p); err != nil {
							t.Fatal(err)
						}
						eventually(t, "it is attempted again, twice", func() bool { return n.of("undo b") == 4 })
						uncompensated(t, p, "2.undo")
						attempts = 5
					}
					mended.Store(true)
					if err := c.answer(p); err != nil {
						t.Fatal(err)
					}
					failure(t, h, "broke")
					if n.of("undo b") != attempts || n.of("undo a") != 1 {
						t.Errorf("done: %q, want %d attempts", n.all(), attempts)
					}
					asked := map[string]int{}
					acts := 0
					for _, c2 := range historyOf(t, p.Engine, "o") {
						for _, e := range c2.Events {
							switch e.Kind {
							case checkpoint.KindClaimed:
								clear(asked) // who claims it asks anew
							case checkpoint.KindHeld:
								if asked[e.Operation]++; asked[e.Operation] > 1 {
									t.Error("it is asked twice")
								}
							case checkpoint.KindActed:
								clear(asked)
								acts++
								if e.Name != c.verb || e.By != "ann" || e.Why != c.why {
									t.Errorf("the history tells %q by %q: %q", e.Name, e.By, e.Why)
								}
							}
						}
					}
					if want := 1 + (attempts-2)/3; acts != want {
						t.Errorf("%d acts in the history, want %d", acts, want)
					}
					if err := p.Resolve(ctx, "o", "2.undo", activity.Failed(""), audit); !errors.Is(err, engine.ErrTerminal) {
						t.Errorf("resolve at the end: %v", err)
					}
					p.stop(t)
				})
			})
		}
	}
}

// What is under way when the function fails is given up before anything is undone:
// attempts of which nobody knows what becomes are not undone, branches do not go on,
// their deferred functions run; also in a replay.
func TestCompensateGivesUpTheRest(t *testing.T) {
	for _, between := range []string{"", "kill"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var n tally
			do := undoable(&n)
			slow := undoable(&n)
			slow.Run = func(ctx context.Context, in string) (string, error) {
				n.add(in)
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			slow.Timeout = time.Hour
			keyed := *slow
			keyed.Name, keyed.IdempotencyKey = "keyed", func(in string) string { return in }
			var mended atomic.Bool
			do.Compensate = func(_ context.Context, in, _ string) error {
				if n.add("undo " + in); !mended.Load() {
					return errBroke
				}
				return nil
			}
			do.Retry = activity.Retry{MaxAttempts: -1, Backoff: time.Minute, MaxBackoff: time.Minute}
			child := flow("child", func(run *engine.Run) (string, error) { return "", run.Sleep(1000 * time.Hour) })
			wf := flow("w", func(run *engine.Run) (string, error) {
				slow.Go(run, "slow")
				keyed.Go(run, "keyed")
				child.Go(run, "")
				engine.Go(run, "branch", func(run *engine.Run) (any, error) {
					defer n.add("deferred")
					_ = run.Sleep(2 * time.Minute)
					n.add("the branch goes on")
					return nil, nil
				})
				if err := run.Sleep(time.Minute); err != nil {
					return "", err
				}
				_, err := do.Do(run, "a")
				return "", errors.Join(err, errBroke)
			})
			p := boot(t, s, wf, child)
			h := start(t, wf, p, "o", "")
			eventually(t, "it undoes", func() bool { return n.of("undo a") > 0 })
			if between == "kill" {
				p.kill()
				p = boot(t, s, wf, child)
				h = wf.Handle(p, "o")
			}
			time.Sleep(3 * time.Minute)
			mended.Store(true)
			failure(t, h, "broke")
			if n.of("the branch goes on")+n.of("undo slow")+n.of("undo keyed") > 0 || n.of("deferred") == 0 {
				t.Errorf("done: %q", n.all())
			}
			given := map[string]int{}
			undoing := false
			for _, c := range historyOf(t, p.Engine, "o") {
				for _, e := range c.Events {
					switch {
					case e.Kind == checkpoint.KindCompensating:
						undoing = true
					case e.Kind == checkpoint.KindGivenUp:
						given[e.Of+" "+e.Name]++
						if undoing != (e.Name == "keyed") {
							t.Errorf("%s is given up at the wrong time", e.Name)
						}
					}
				}
			}
			if want := "map[activity do:1 activity keyed:1 branch branch:1 child child:1]"; fmt.Sprint(given) != want {
				t.Errorf("given up: %v, want %s", given, want)
			}
			rs, err := reconcile.Records(ctx, s, "o", generationOf(t, s, "o"))
			if err != nil || len(rs) != 1 || rs[0].Status != reconcile.StatusCancelled || !rs[0].Settled {
				t.Errorf("records %+v, %v", rs, err)
			}
			for i, err := range p.List(ctx, engine.Filter{Parent: "o"}) {
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "the child ends", func() bool { return describe(t, p, i.ID).Status == checkpoint.StatusCancelled })
			}
			p.stop(t)
		})
	}
}

func generationOf(t testing.TB, s storage.Storage, id string) string {
	t.Helper()
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	return wf.Generation
}

// What counts is the history: a call that completed in the checkpoint in which its
// workflow turned away from it is undone, though the workflow was told otherwise; also
// after a replay.
func TestCompensateOfWhatCameLate(t *testing.T) {
	for _, between := range []string{"", "kill"} {
		virtual(t, func(t *testing.T) {
			var n tally
			var mended atomic.Bool
			var told atomic.Value
			do := undoable(&n)
			do.Run = func(_ context.Context, in string) (string, error) {
				time.Sleep(1200 * time.Millisecond)
				n.add(in)
				return "got " + in, nil
			}
			do.Retry = activity.Retry{MaxAttempts: -1, Backoff: time.Minute, MaxBackoff: time.Minute}
			do.Compensate = func(_ context.Context, in, out string) error {
				if n.add("undo " + in + " " + out); !mended.Load() {
					return errBroke
				}
				return nil
			}
			takes := func(run *engine.Run, d time.Duration) error {
				_, err := engine.Step(run, "step", func(context.Context) (any, error) { time.Sleep(d); return nil, nil })
				return err
			}
			wf := flow("w", func(run *engine.Run) (string, error) {
				inner, cancel := run.WithCancel()
				late := do.Go(inner, "a")
				engine.Go(run, "first", func(run *engine.Run) (any, error) { return nil, takes(run, time.Second) })
				if err := takes(run, 1100*time.Millisecond); err != nil {
					return "", err
				}
				cancel()
				_, err := late.Get(run)
				told.Store(errors.Is(err, engine.ErrCancelled))
				return "", errBroke
			})
			// While the first step is being recorded, the other and the activity end.
			began := time.Now()
			store := &hooked{Storage: fresh(t)}
			var once atomic.Bool
			store.beforeCommit = func(b storage.Batch) {
				if appendsTo(b, "o") && time.Since(began) >= time.Second && once.CompareAndSwap(false, true) {
					time.Sleep(time.Second)
				}
			}
			p := boot(t, store, wf)
			h := start(t, wf, p, "o", "")
			eventually(t, "it undoes", func() bool { return n.of("undo a got a") > 0 })
			if told.Load() != true {
				t.Fatal("the workflow was not told that the call is cancelled: this test tests nothing")
			}
			if between == "kill" {
				p.kill()
				p = boot(t, store, wf)
				h = wf.Handle(p, "o")
			}
			mended.Store(true)
			failure(t, h, "broke")
			if got := undone(historyOf(t, p.Engine, "o")); !slices.Equal(got, []string{"1.undo"}) {
				t.Errorf("undone: %q", got)
			}
			p.stop(t)
		})
	}
}

// An engine that stops or dies while a run undoes leaves it to the next, which goes
// on where it was: nothing that is undone is undone again.
func TestCompensateOverARestart(t *testing.T) {
	for _, how := range []string{"stop", "kill"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var n tally
			var mended atomic.Bool
			do := undoable(&n)
			do.Retry = activity.Retry{MaxAttempts: -1, Backoff: time.Minute, MaxBackoff: time.Minute}
			do.Compensate = func(_ context.Context, in, _ string) error {
				if in == "b" && !mended.Load() {
					return errBroke
				}
				n.add("undo " + in)
				return nil
			}
			wf := flow("w", func(run *engine.Run) (string, error) {
				_, err := engine.Map(run, "part", 1, []string{"a", "b", "c"}, func(run *engine.Run, in string) (string, error) { return do.Do(run, in) })
				return "", errors.Join(err, errBroke)
			})
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			eventually(t, "one is undone", func() bool { return n.of("undo c") == 1 })
			for range 2 {
				if time.Sleep(90 * time.Second); how == "stop" {
					p.stop(t)
				} else {
					p.kill()
				}
				p = boot(t, s, wf)
			}
			mended.Store(true)
			failure(t, wf.Handle(p, "o"), "broke")
			if got, want := n.all(), []string{"a", "b", "c", "undo c", "undo b", "undo a"}; !slices.Equal(got, want) {
				t.Errorf("%s: done %q, want %q", how, got, want)
			}
			p.stop(t)
		})
	}
}

// A Compensate waits in line with the attempts of its activity and of its scope.
func TestCompensateIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n tally
		var under atomic.Int32
		do := undoable(&n)
		do.MaxConcurrent = 2
		do.ResourceScope = func(in string) string { return in }
		do.Rate = activity.Rate{Count: 20, Per: time.Minute}
		do.Compensate = func(_ context.Context, in, _ string) error {
			n.add(fmt.Sprint(under.Add(1), " at a time"))
			time.Sleep(time.Second)
			under.Add(-1)
			n.add("undo")
			return nil
		}
		wf := &engine.Workflow[string, string]{Name: "w", Func: func(run *engine.Run, in string) (string, error) {
			_, err := do.Do(run, in)
			return "", errors.Join(err, errBroke)
		}}
		p := boot(t, fresh(t), wf)
		var hs []*engine.Handle[string]
		for i := range 15 {
			hs = append(hs, start(t, wf, p, fmt.Sprint("o", i), fmt.Sprint(i%3)))
		}
		began := time.Now()
		for _, h := range hs {
			failure(t, h, "broke")
		}
		if n.of("2 at a time") == 0 || n.of("3 at a time") > 0 || n.of("undo") != 15 {
			t.Errorf("done: %q, want 15 undone, 2 at a time", n.all())
		}
		if took := time.Since(began); took < 50*time.Second {
			t.Errorf("30 attempts took %v: the rate is 20 a minute", took)
		}
		p.stop(t)
	})
}

// A result that today's code cannot read is for a person, who mends the code.
func TestCompensateOfAnotherResult(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var n tally
		text := &activity.Activity[string, string]{Name: "do", Run: func(context.Context, string) (string, error) { return "seven", nil }}
		number := &activity.Activity[string, int]{
			Name:       "do",
			Run:        func(context.Context, string) (int, error) { return 7, nil },
			Compensate: func(context.Context, string, int) error { n.add("undo"); return nil },
		}
		before := flow("w", func(run *engine.Run) (string, error) {
			text.Go(run, "")
			return "", run.Sleep(5 * time.Minute)
		})
		after := flow("w", func(run *engine.Run) (string, error) {
			number.Go(run, "")
			if err := run.Sleep(5 * time.Minute); err != nil {
				return "", err
			}
			return "", errBroke
		})
		p := boot(t, s, before)
		start(t, before, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, s, after)
		time.Sleep(6 * time.Minute)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonUndecodable) || i.Attention[0].Operation != "1.undo" || !strings.Contains(i.Attention[0].Detail, "decode int") {
			t.Errorf("a person is told %+v", i)
		}
		resolve(t, p, "1.undo", activity.CompletedWithResult[any](nil))
		failure(t, after.Handle(p, "o"), "broke")
		if n.of("undo") != 0 {
			t.Error("it was called with nothing")
		}
		p.stop(t)
	})
}

// A codec need have no bytes for nothing: neither what undoes nor a person's word that
// it has been undone is encoded.
func TestCompensateWithAStrictCodec(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n tally
		do := undoable(&n)
		no := undoable(&n)
		no.Compensate = func(context.Context, string, string) error { return activity.Permanent(errBroke) }
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, a := do.Do(run, "a")
			_, b := no.Do(run, "b")
			return "", errors.Join(a, b, errBroke)
		})
		p := boot(t, fresh(t), wf, func(c *engine.Config) { c.Codec = strict{codec("strict")} })
		h := start(t, wf, p, "o", "")
		uncompensated(t, p, "2.undo")
		resolve(t, p, "2.undo", activity.CompletedWithResult[any](nil))
		failure(t, h, "broke")
		if n.of("undo a got a") != 1 {
			t.Errorf("done: %q", n.all())
		}
		p.stop(t)
	})
}

// A strict codec encodes no nil.
type strict struct{ engine.Codec }

func (s strict) Encode(ctx context.Context, v any) ([]byte, error) {
	if v == nil {
		return nil, errors.New("nil is no message")
	}
	return s.Codec.Encode(ctx, v)
}

// The same answer for the second time, when the first has not helped, is one more: also
// if something else happens to the workflow in between.
func TestSameAnswerAboutACompensation(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n tally
		do := undoable(&n)
		do.Compensate = func(context.Context, string, string) error {
			if n.add("undo") < 3 {
				return activity.Permanent(errBroke)
			}
			return nil
		}
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := do.Do(run, "a")
			return "", errors.Join(err, errBroke)
		})
		store := &hooked{Storage: fresh(t)}
		var cancels atomic.Bool // before the next commit
		var h *engine.Handle[string]
		store.beforeCommit = func(storage.Batch) {
			if cancels.CompareAndSwap(true, false) {
				if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
					t.Error(err)
				}
			}
		}
		p := boot(t, store, wf)
		h = start(t, wf, p, "o", "")
		for i := range 2 {
			eventually(t, "it is attempted", func() bool { return n.of("undo") == i+1 })
			uncompensated(t, p, "1.undo")
			time.Sleep(time.Minute) // it rests
			cancels.Store(i == 1)
			resolve(t, p, "1.undo", activity.NotCompleted[any]())
		}
		failure(t, h, "broke")
		if n.of("undo") != 3 {
			t.Errorf("%d attempts, want 3", n.of("undo"))
		}
		p.stop(t)
	})
}

// A person says that a call has completed at the moment at which its workflow fails: it
// is undone, whether there is something else to undo or not, and the history tells who
// said so.
func TestCompensateOfWhatAPersonToldLast(t *testing.T) {
	for _, operation := range []string{"1", "2"} {
		virtual(t, func(t *testing.T) {
			var n tally
			do, asked := undoable(&n), undoable(&n)
			asked.Run = func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }
			asked.Timeout = time.Second
			asked.OnIndeterminate = activity.AwaitOperator
			asked.IdempotencyKey = func(in string) string { return in }
			var failed atomic.Bool // and that is not durable
			wf := flow("w", func(run *engine.Run) (string, error) {
				if operation == "2" {
					if _, err := do.Do(run, "a"); err != nil {
						return "", err
					}
				}
				asked.Go(run, "b")
				if err := run.Sleep(time.Minute); err != nil {
					return "", err
				}
				failed.Store(true)
				return "", errBroke
			})
			store := &hooked{Storage: fresh(t)}
			var p *process
			store.beforeCommit = func(b storage.Batch) {
				if appendsTo(b, "o") && failed.CompareAndSwap(true, false) {
					resolve(t, p, operation, activity.CompletedWithResult("seat 7"))
				}
			}
			p = boot(t, store, wf)
			failure(t, start(t, wf, p, "o", ""), "broke")
			if n.of("undo b seat 7") != 1 || n.of("undo a got a") != n.of("a") {
				t.Errorf("done: %q", n.all())
			}
			if ks := kinds(historyOf(t, p.Engine, "o")); !slices.Contains(ks, checkpoint.KindActed) {
				t.Errorf("the history does not tell of the answer: %v", ks)
			}
			p.stop(t)
		})
	}
}

// What children did is theirs: one that fails undoes it, one that completed does not,
// also if its parent fails.
func TestCompensateOfChildren(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n tally
		do := undoable(&n)
		child := &engine.Workflow[string, string]{Name: "child", Func: func(run *engine.Run, in string) (string, error) {
			out, err := do.Do(run, in)
			if in == "bad" {
				err = errBroke
			}
			return out, err
		}}
		wf := flow("parent", func(run *engine.Run) (string, error) {
			_, good := child.Do(run, "good")
			_, bad := child.Do(run, "bad")
			n.add("told")
			return "", errors.Join(good, bad)
		})
		p := boot(t, fresh(t), wf, child)
		failure(t, start(t, wf, p, "o", ""), "broke")
		if got, want := n.all(), []string{"good", "bad", "undo bad got bad", "told"}; !slices.Equal(got, want) {
			t.Errorf("done: %q, want %q", got, want)
		}
		p.stop(t)
	})
}

// CK6: a history with what was undone is replayed, as far as it has come. Code that
// ends otherwise than the history tells is told apart.
func TestReplayOfACompensation(t *testing.T) {
	var n tally
	trip := func(end error) *engine.Workflow[string, string] {
		do := undoable(&n)
		do.Retry = activity.Retry{MaxAttempts: 1}
		do.Compensate = func(_ context.Context, in, _ string) error {
			if in == "a" {
				return errBroke
			}
			return nil
		}
		return flow("trip", func(run *engine.Run) (string, error) {
			_, a := do.Do(run, "a")
			_, b := do.Do(run, "b")
			return "", errors.Join(a, b, end)
		})
	}
	var begun, whole []byte
	virtual(t, func(t *testing.T) {
		wf := trip(errBroke)
		p := boot(t, new(memory.Store), wf)
		h := start(t, wf, p, "o", "")
		uncompensated(t, p, "1.undo")
		begun = exported(t, p.Engine, "o")
		resolve(t, p, "1.undo", activity.Failed(""))
		failure(t, h, "broke")
		whole = exported(t, p.Engine, "o")
		p.stop(t)
	})
	ran := sprint(n.all())
	for name, history := range map[string][]byte{"begun": begun, "whole": whole} {
		if err := made(t, new(memory.Store), trip(errBroke)).Replay(ctx, bytes.NewReader(history)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var differs *engine.NonDeterminismError
		err := made(t, new(memory.Store), trip(nil)).Replay(ctx, bytes.NewReader(history))
		if !errors.As(err, &differs) || differs.Recorded != "failed: broke" || differs.Asked != "completed" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := sprint(n.all()); got != ran {
		t.Errorf("ran %s, before the replay %s", got, ran)
	}
}

// A fickle result can be encoded once, and then no more.
type fickle struct{ encodings *atomic.Int64 }

func (f fickle) MarshalJSON() ([]byte, error) {
	if f.encodings.Add(1) > 1 {
		return nil, errBroke
	}
	return []byte(`"booked"`), nil
}

func (f fickle) UnmarshalJSON([]byte) error { return nil }

// Whether something is to be undone is decided on the very result that is then
// recorded: a workflow that has completed does not fail of another encoding of it,
// with what it did left as it is.
func TestCompensateIsDecidedOnWhatIsRecorded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c tally
		var encodings atomic.Int64
		do := undoable(&c)
		wf := &engine.Workflow[string, fickle]{Name: "trip", Func: func(run *engine.Run, _ string) (fickle, error) {
			_, err := do.Do(run, "a")
			return fickle{&encodings}, err
		}}
		p := boot(t, fresh(t), wf)
		h, err := wf.Start(ctx, p, "o", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Result(ctx); err != nil {
			t.Errorf("it failed of %v", err)
		}
		if got := c.all(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("did %q, want only a", got)
		}
		if n := encodings.Load(); n != 1 {
			t.Errorf("the result was encoded %d times, want once", n)
		}
	})
}
