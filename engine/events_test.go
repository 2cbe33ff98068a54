package engine_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/storagetest"
)

// callbacks returns an option that has each callback of Events note its name and its event, but
// for those that are told all the time.
func (h *heard) callbacks() func(*engine.Config) {
	return func(c *engine.Config) {
		each(&c.Events, func(name string, args []reflect.Value) {
			if name != "Committed" {
				h.note("%s %+v", name, args[len(args)-1].Interface())
			}
		})
	}
}

// each sets every callback of ev to one that calls f and returns its context.
func each(ev *engine.Events, f func(name string, args []reflect.Value)) {
	for i := range reflect.TypeFor[engine.Events]().NumField() {
		field, name := reflect.ValueOf(ev).Elem().Field(i), reflect.TypeFor[engine.Events]().Field(i).Name
		field.Set(reflect.MakeFunc(field.Type(), func(args []reflect.Value) []reflect.Value {
			f(name, args)
			return args[:field.Type().NumOut()]
		}))
	}
}

// list returns what was heard, in order, and forgets it.
func (h *heard) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	words := h.words
	h.words = nil
	return words
}

// of returns what was heard of these events, in order, and forgets everything.
func (h *heard) of(names ...string) []string {
	return slices.DeleteFunc(h.list(), func(w string) bool {
		name, _, _ := strings.Cut(w, " ")
		return !slices.Contains(names, name)
	})
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// From its start to its end, a run tells each thing once and in order; a replay tells none again.
func TestEventsOfARun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		charge := &activity.Activity[string, string]{
			Name: "charge",
			Run: func(ctx context.Context, _ string) (string, error) {
				time.Sleep(time.Second)
				if activity.InfoFrom(ctx).Attempt == 1 {
					return "", errBroke
				}
				return "paid", nil
			},
		}
		wf := flow("order", func(run *engine.Run) (string, error) {
			if _, err := charge.Do(run, ""); err != nil {
				return "", err
			}
			return yes.Receive(run)
		})
		var told heard
		p := boot(t, fresh(t), wf, told.callbacks(), parkAfter(time.Minute))
		h := start(t, wf, p, "o", "")
		time.Sleep(10 * time.Second)
		attempt := "WorkflowID:o Workflow:order Operation:1 Kind:activity Name:charge Phase:run Attempt:%d"
		began, ended := "AttemptBegan {"+attempt+"}", "AttemptEnded {AttemptBeganEvent:{"+attempt+"} Took:1s Outcome:%s Error:%s}"
		expect(t, "to the receive", told.list(),
			"Starting {WorkflowID:o Workflow:order Queue: Parent:}",
			"Started {WorkflowID:o Workflow:order Queue: Parent:}",
			"ExecutionBegan {WorkflowID:o Workflow:order Queue: First:true}",
			fmt.Sprintf(began, 1),
			fmt.Sprintf(ended, 1, "failed", "broke"),
			fmt.Sprintf("RetryScheduled {WorkflowID:o Workflow:order Operation:1 Kind:activity Name:charge Attempt:1 Failures:1 At:%v Error:broke}", journalled(t, p, "o").UTC()),
			fmt.Sprintf(began, 2),
			fmt.Sprintf(ended, 2, "completed", ""),
		)
		time.Sleep(65 * time.Second)
		if got := told.list(); len(got) != 1 || !strings.HasPrefix(got[0], "ExecutionEnded {WorkflowID:o Workflow:order Exit:parked Status: Error: Took:1m") {
			t.Errorf("parked: %v", got)
		}

		approve := func() {
			t.Helper()
			if _, err := yes.Send(ctx, p, "o", "ann", &signal.Options{ID: "s-1"}); err != nil {
				t.Fatal(err)
			}
		}
		approve()
		if got := result(t, h); got != "ann" {
			t.Errorf("got %q", got)
		}
		time.Sleep(time.Second)
		events := 0
		for _, c := range historyOf(t, p.Engine, "o") {
			events += len(c.Events)
		}
		expect(t, "after the signal", senderThird(told.list()),
			"ExecutionBegan {WorkflowID:o Workflow:order Queue: First:false}",
			fmt.Sprintf("Replayed {WorkflowID:o Workflow:order Events:%d Took:0s}", events-2), // all but the signal and the end
			"SignalAccepted {WorkflowID:o Signal:yes SignalID:s-1 Duplicate:false}",
			"SignalReceived {WorkflowID:o Workflow:order Signal:yes SignalID:s-1}",
			"Ended {WorkflowID:o Workflow:order Queue: Status:completed Took:1m15s}",
			"ExecutionEnded {WorkflowID:o Workflow:order Exit:ended Status:completed Error: Took:0s}",
		)
		approve()
		expect(t, "the signal again", told.list(), "SignalAccepted {WorkflowID:o Signal:yes SignalID:s-1 Duplicate:true}")
		start(t, wf, p, "o", "")
		expect(t, "the start again", told.list(), "Starting {WorkflowID:o Workflow:order Queue: Parent:}")
	})
}

// journalled returns when the next attempt of the first operation that failed is due.
func journalled(t *testing.T, p *process, id string) time.Time {
	t.Helper()
	for _, c := range historyOf(t, p.Engine, id) {
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindAttempted {
				return time.UnixMicro(e.Due)
			}
		}
	}
	t.Fatal("no attempt has failed")
	return time.Time{}
}

// senderThird moves what the sender of a signal was told, in a goroutine of its own, to the third place.
func senderThird(words []string) []string {
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "SignalAccepted") })
	if i < 0 || len(words) < 3 {
		return words
	}
	w := words[i]
	return slices.Insert(slices.Delete(words, i, i+1), 2, w)
}

// How an attempt ends is told once, whatever its function does.
func TestEventsOfAttempts(t *testing.T) {
	once := activity.Retry{MaxAttempts: 1}
	hang := func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	fail := func(context.Context, string) (string, error) { return "", errBroke }
	do := func(a *activity.Activity[string, string]) func(run *engine.Run) (string, error) {
		a.Name = "a"
		return func(run *engine.Run) (string, error) { return a.Do(run, "") }
	}
	for name, c := range map[string]struct {
		f      func(run *engine.Run) (string, error)
		during func(t *testing.T, p *process)
		want   []string // kind, name, phase, number, outcome, error
	}{
		"completed": {do(&activity.Activity[string, string]{Run: func(context.Context, string) (string, error) { return "", nil }}), nil,
			[]string{"activity a run 1 completed "}},
		"failed":   {do(&activity.Activity[string, string]{Retry: once, Run: fail}), nil, []string{"activity a run 1 failed broke"}},
		"timeout":  {do(&activity.Activity[string, string]{Retry: once, Timeout: time.Second, Run: hang}), nil, []string{"activity a run 1 timed-out activity: timed out"}},
		"panicked": {do(&activity.Activity[string, string]{Retry: once, Run: func(context.Context, string) (string, error) { panic("oh") }}), nil, []string{"activity a run 1 panicked panic: oh"}},
		"cancelled": {do(&activity.Activity[string, string]{Retry: once, Run: hang}), func(t *testing.T, p *process) {
			if err := p.Cancel(ctx, "w", audit); err != nil {
				t.Fatal(err)
			}
		}, []string{"activity a run 1 cancelled engine: workflow cancelled"}},
		"terminated": {do(&activity.Activity[string, string]{Retry: once, Run: hang}), func(t *testing.T, p *process) {
			if err := p.Terminate(ctx, "w", audit); err != nil {
				t.Fatal(err)
			}
		}, []string{"activity a run 1 cancelled activity: workflow terminated"}},
		"lease lost": {do(&activity.Activity[string, string]{Retry: once, Run: hang}), func(_ *testing.T, p *process) { p.store.Crash() },
			[]string{"activity a run 1 lease-lost activity: lease lost"}},
		"step": {func(run *engine.Run) (string, error) {
			return engine.Step(run, "s", func(context.Context) (string, error) { return "", nil })
		}, nil, []string{"step s run 1 completed "}},
		"send": {func(run *engine.Run) (string, error) { return "", yes.SendFrom(run, "w", "ann") }, nil,
			[]string{"send yes run 1 completed "}},
		"transaction": {func(run *engine.Run) (string, error) {
			return "", run.TransactStep("book", nil, func(context.Context) error { return errBroke })
		}, nil, []string{"transaction book run 1 failed broke"}},
		"verified": {do(&activity.Activity[string, string]{
			IdempotencyKey: func(string) string { return "k" }, Run: fail,
			Verify: func(context.Context, string) (activity.Verification[string], error) {
				return activity.CompletedWithResult("yes"), nil
			},
		}), nil, []string{"activity a run 1 failed broke", "activity a verify 1 completed "}},
		"verifier panics": {do(&activity.Activity[string, string]{
			IdempotencyKey: func(string) string { return "k" }, Run: fail,
			Verify: func(context.Context, string) (activity.Verification[string], error) { panic("oh") },
		}), func(t *testing.T, p *process) { time.Sleep(time.Minute); p.kill() }, []string{"activity a run 1 failed broke", "activity a verify 1 panicked "}},
		"compensated": {func(run *engine.Run) (string, error) {
			_, err := (&activity.Activity[string, string]{
				Name: "a", Run: func(context.Context, string) (string, error) { return "", nil },
				Compensate: func(context.Context, string, string) error { return nil },
			}).Do(run, "")
			return "", errors.Join(err, errBroke)
		}, nil, []string{"activity a run 1 completed ", "activity a compensate 1 completed "}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var told heard
				wf := flow("w", c.f)
				open := atomic.Int32{}
				p := boot(t, transacting{sharing{fresh(t)}}, wf, func(c *engine.Config) {
					c.Events.AttemptBegan = func(ctx context.Context, e engine.AttemptBeganEvent) context.Context {
						open.Add(1)
						return context.WithValue(ctx, traced{}, e)
					}
					c.Events.AttemptEnded = func(ctx context.Context, e engine.AttemptEndedEvent) {
						open.Add(-1)
						if ctx.Value(traced{}) != any(e.AttemptBeganEvent) {
							t.Errorf("the context of %+v is that of %v", e, ctx.Value(traced{}))
						}
						told.note("%s %s %s %d %s %s", e.Kind, e.Name, e.Phase, e.Attempt, e.Outcome, e.Error)
					}
				})
				start(t, wf, p, "w", "")
				time.Sleep(time.Second / 2)
				if c.during != nil {
					c.during(t, p)
				}
				time.Sleep(time.Minute)
				got := told.list()
				if len(got) > len(c.want) {
					got = slices.Compact(got)
				}
				expect(t, name, got, c.want...)
				if n := open.Load(); n != 0 {
					t.Errorf("%d attempts have begun and not ended", n)
				}
			})
		})
	}
}

type traced struct{}

// What an operator must look at is told, and that it is over: by whoever commits it.
func TestEventsOfAttention(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var known atomic.Bool
		pay := puzzling(&known)
		wf := flow("w", func(run *engine.Run) (string, error) { return pay.Do(run, "key") })
		var told heard
		store := fresh(t)
		p := boot(t, store, wf, told.callbacks())
		start(t, wf, p, "w", "")
		start(t, wf, p, "x", "")
		eventually(t, "both need somebody", func() bool {
			return len(describe(t, p, "w").Attention)+len(describe(t, p, "x").Attention) == 2
		})
		about := []string{"AttentionRaised", "AttentionCleared", "Ended"}
		attention := func(what, id, reason, operation string) string {
			return fmt.Sprintf("Attention%s {WorkflowID:%s Workflow:w Reason:%s Operation:%s}", what, id, reason, operation)
		}
		expect(t, "raised", slices.Sorted(slices.Values(told.of(about...))), attention("Raised", "w", "indeterminate", "1"), attention("Raised", "x", "indeterminate", "1"))

		if err := p.Resolve(ctx, "w", "1", activity.CompletedWithResult("paid"), audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got := told.of(about...)
		expect(t, "resolved", got[:min(1, len(got))], attention("Cleared", "w", "indeterminate", "1"))
		if len(got) != 2 || !strings.HasPrefix(got[1], "Ended {WorkflowID:w Workflow:w Queue: Status:completed Took:") {
			t.Errorf("resolved: %v", got)
		}
		if err := p.Terminate(ctx, "x", audit); err != nil {
			t.Fatal(err)
		}
		got = told.of(about...)
		expect(t, "terminated", got[:min(1, len(got))], attention("Cleared", "x", "indeterminate", "1"))
		if len(got) != 2 || !strings.HasPrefix(got[1], "Ended {WorkflowID:x Workflow:w Queue: Status:cancelled Took:") {
			t.Errorf("terminated: %v", got)
		}
	})
}

// A run whose code does not agree with its history is held: the execution ends with that, and
// each engine that meets the fault says so.
func TestEventsOfAHeldRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		store := fresh(t)
		before := flow("w", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			return yes.Receive(run)
		})
		p := boot(t, store, before)
		start(t, before, p, "w", "")
		time.Sleep(2 * time.Minute)
		p.stop(t)
		now := flow("w", func(run *engine.Run) (string, error) { return no.Receive(run) })
		for range 2 {
			var told heard
			p = boot(t, store, now, told.callbacks())
			tell(t, yes, p, "w", "ann") // a parked run is claimed for it
			time.Sleep(time.Minute)
			p.stop(t)
			expect(t, "held", told.of("ExecutionBegan", "AttentionRaised", "ExecutionEnded"),
				"ExecutionBegan {WorkflowID:w Workflow:w Queue: First:false}",
				"AttentionRaised {WorkflowID:w Workflow:w Reason:non-determinism Operation:1}",
				"ExecutionEnded {WorkflowID:w Workflow:w Exit:held Status: Error: Took:0s}")
		}
	})
}

// Only the first life of a workflow that continues as new begins a run that nobody has executed before.
func TestEventsOfLives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, n int) (string, error) {
			if err := run.Sleep(time.Minute); err != nil || n == 2 {
				return "", err
			}
			return "", engine.ContinueAsNew(run, n+1)
		}}
		var told heard
		p := boot(t, fresh(t), wf, told.callbacks())
		result(t, start(t, wf, p, "w", 1))
		p.stop(t)
		expect(t, "lives", told.of("ExecutionBegan"),
			"ExecutionBegan {WorkflowID:w Workflow:w Queue: First:true}",
			"ExecutionBegan {WorkflowID:w Workflow:w Queue: First:false}")
	})
}

// The start of a child is told by its parent, once, also if the parent is replayed after it.
func TestEventsOfAChild(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var told heard
		sub := flow("sub", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		wf := flow("w", func(run *engine.Run) (string, error) { return sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "") })
		p := boot(t, fresh(t), wf, sub, told.callbacks(), parkAfter(time.Second))
		h := start(t, wf, p, "w", "")
		time.Sleep(time.Minute)
		tell(t, yes, p, "kid", "ann")
		result(t, h)
		expect(t, "starts", told.of("Starting", "Started"),
			"Starting {WorkflowID:w Workflow:w Queue: Parent:}",
			"Started {WorkflowID:w Workflow:w Queue: Parent:}",
			"Starting {WorkflowID:kid Workflow:sub Queue: Parent:w}",
			"Started {WorkflowID:kid Workflow:sub Queue: Parent:w}")
	})
}

// A run that is cut off by its engine's end is released.
func TestEventsOfAReleasedRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var told heard
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		p := boot(t, fresh(t), wf, told.callbacks())
		start(t, wf, p, "w", "")
		time.Sleep(time.Minute)
		p.close()
		expect(t, "closed", told.of("ExecutionEnded", "Ended"), "ExecutionEnded {WorkflowID:w Workflow:w Exit:released Status: Error: Took:1m0s}")
	})
}

// A queue tells how long a run has waited in it; one that is cancelled there has ended.
func TestEventsOfAQueue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var told heard
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Minute) })
		wf.Defaults.Queue = "q"
		p := boot(t, fresh(t), wf, told.callbacks(), func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q", Concurrency: 1}} })
		first := start(t, wf, p, "a", "")
		time.Sleep(time.Second)
		second := start(t, wf, p, "b", "")
		start(t, wf, p, "c", "")
		if err := p.Cancel(ctx, "c", audit); err != nil {
			t.Fatal(err)
		}
		result(t, first)
		result(t, second)
		time.Sleep(time.Second)
		expect(t, "the queue", told.of("Admitted", "Ended"),
			"Admitted {WorkflowID:a Workflow:w Queue:q Waited:0s}",
			"Ended {WorkflowID:c Workflow:w Queue:q Status:cancelled Took:0s}",
			"Ended {WorkflowID:a Workflow:w Queue:q Status:completed Took:1m0s}",
			"Admitted {WorkflowID:b Workflow:w Queue:q Waited:59s}",
			"Ended {WorkflowID:b Workflow:w Queue:q Status:completed Took:1m59s}")
	})
}

// Each answer of the store to a commit is told, with the size of the batch.
func TestEventsOfCommits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var told heard
		fault := storagetest.None
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method != "Commit" || !isOf(c.Batch, "w") {
				return storagetest.None
			}
			defer func() { fault = storagetest.None }()
			return fault
		})
		wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		e := made(t, f, wf, func(c *engine.Config) {
			c.Events.Committed = func(e engine.CommittedEvent) {
				told.note("%s %v %v %v in a group of %d", e.Outcome, e.Operations > 1, e.Bytes > 100, strings.Contains(e.Error, "injected"), e.Group)
			}
		})
		told.list()
		fault = storagetest.ErrorAfter
		start(t, wf, e, "w", "")
		expect(t, "a start that is written and then fails", told.list(),
			"unknown true true true in a group of 1", "conflict true true false in a group of 1")
		start(t, wf, e, "w2", "")
		expect(t, "a start", told.list(), "applied true true false in a group of 1")
	})
}

// A callback that panics is logged. The run does what it would have done.
func TestCallbacksThatPanic(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var log lines
		var told tally
		sub := flow("sub", func(run *engine.Run) (string, error) { return "grown", nil })
		tries := 0
		flaky := &activity.Activity[string, string]{Name: "flaky", Run: func(ctx context.Context, s string) (string, error) {
			if tries++; tries == 1 {
				return "", errBroke
			}
			return s, nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			a, err := flaky.Do(run, "a")
			b, err2 := sub.Do(run, "")
			c, err3 := yes.Receive(run)
			return a + b + c, errors.Join(err, err2, err3)
		})
		wf.Defaults.Queue = "q"
		p := boot(t, fresh(t), wf, sub, log.logger(), parkAfter(time.Second), func(c *engine.Config) {
			c.Queues = []engine.Queue{{Name: "q"}}
			c.Propagator = panicking{}
			each(&c.Events, func(name string, _ []reflect.Value) {
				told.add(name)
				panic("oh, " + name)
			})
		})
		h := start(t, wf, p, "w", "")
		time.Sleep(time.Minute)
		tell(t, yes, p, "w", "ann")
		if got := result(t, h); got != "agrownann" {
			t.Errorf("got %q", got)
		}
		p.stop(t)
		for _, name := range []string{"Starting", "Started", "Admitted", "ExecutionBegan", "Replayed", "ExecutionEnded", "Ended", "AttemptBegan", "AttemptEnded", "RetryScheduled", "SignalAccepted", "SignalReceived", "Committed"} {
			if told.of(name) == 0 || log.count("oh, "+name) != told.of(name) {
				t.Errorf("%s was called %d times, and %d panics were logged", name, told.of(name), log.count("oh, "+name))
			}
		}
		if log.count("no headers today") != 2 {
			t.Errorf("%d panics of Inject were logged, want 2", log.count("no headers today"))
		}
	})
}

type panicking struct{}

func (panicking) Inject(context.Context) map[string]string { panic("no headers today") }
func (panicking) Extract(context.Context, map[string]string) context.Context {
	panic("nothing was stored")
}

// A carrier is a Propagator of one value.
type carrier struct {
	wrong bool // Extract returns a context that is none of the run's
}

func (c carrier) Inject(ctx context.Context) map[string]string {
	if s, ok := ctx.Value(traced{}).(string); ok {
		return map[string]string{"trace": s}
	}
	return nil
}

func (c carrier) Extract(ctx context.Context, h map[string]string) context.Context {
	if c.wrong {
		ctx = context.Background()
	}
	return context.WithValue(ctx, traced{}, h["trace"])
}

// What the host's context carries reaches the attempts: of the run, of one that another engine
// continues, and of children. What an execution adds is theirs, too.
func TestPropagator(t *testing.T) {
	virtual(t, func(t *testing.T) {
		seen := &tally{}
		see := &activity.Activity[string, string]{Name: "see", Run: func(ctx context.Context, who string) (string, error) {
			seen.add(fmt.Sprint(who, " ", ctx.Value(traced{}), " ", activity.InfoFrom(ctx).Operation))
			return "", nil
		}}
		sub := flow("sub", func(run *engine.Run) (string, error) { return see.Do(run, "child") })
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := see.Do(run, "first")
			_, err2 := yes.Receive(run)
			_, err3 := sub.Do(run, "")
			_, err4 := see.Do(run, "then")
			return "", errors.Join(err, err2, err3, err4)
		})
		options := func(c *engine.Config) { c.Propagator = carrier{} }
		store := fresh(t)
		p := boot(t, store, wf, sub, options)
		if _, err := wf.Start(context.WithValue(ctx, traced{}, "t1"), p, "w", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.kill()
		p = boot(t, store, wf, sub, options, func(c *engine.Config) {
			c.Events.ExecutionBegan = func(ctx context.Context, e engine.ExecutionBeganEvent) context.Context {
				return context.WithValue(ctx, traced{}, fmt.Sprint(ctx.Value(traced{}), "/", e.Workflow))
			}
		})
		tell(t, yes, p, "w", "")
		result(t, wf.Handle(p, "w"))
		expect(t, "seen", seen.all(), "first t1 1", "child t1/w/sub 1", "then t1/w 4")

		seen = &tally{}
		result(t, start(t, sub, p, "without", ""))
		expect(t, "seen without a trace", seen.all(), "child <nil>/sub 1")
	})
}

// Headers that are too large or cannot be stored are dropped: the run does without them.
func TestHeadersThatAreDropped(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		kept  bool
	}{
		"most":         {strings.Repeat("x", engine.MaxHeaders-len("trace")), true},
		"too large":    {strings.Repeat("x", engine.MaxHeaders-len("trace")+1), false},
		"not in UTF-8": {"\xff", false},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var log lines
				wf := flow("w", func(run *engine.Run) (string, error) {
					return engine.Step(run, "see", func(ctx context.Context) (string, error) { return fmt.Sprint(ctx.Value(traced{})), nil })
				})
				p := boot(t, fresh(t), wf, log.logger(), func(c *engine.Config) { c.Propagator = carrier{} })
				h, err := wf.Start(context.WithValue(ctx, traced{}, c.value), p, "w", "")
				if err != nil {
					t.Fatal(err)
				}
				if got := result(t, h); (got == c.value) != c.kept {
					t.Errorf("the step got %.20q", got)
				}
				if dropped := log.count("headers of a start are dropped"); (dropped == 0) != c.kept {
					t.Errorf("%d messages", dropped)
				}
			})
		})
	}
}

// Whatever contexts a Propagator and the callbacks return, attempts end when they must.
func TestForeignContexts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ended := tally{}
		wf := flow("w", func(run *engine.Run) (string, error) {
			return engine.Step(run, "hang", func(ctx context.Context) (string, error) {
				if activity.InfoFrom(ctx).Operation != "1" || ctx.Value(traced{}) != "attempt" {
					t.Errorf("in a step: %+v, %v", activity.InfoFrom(ctx), ctx.Value(traced{}))
				}
				<-ctx.Done()
				ended.add(context.Cause(ctx).Error())
				return "", ctx.Err()
			})
		})
		p := boot(t, fresh(t), wf, func(c *engine.Config) {
			c.Propagator = carrier{wrong: true}
			c.Events.ExecutionBegan = func(context.Context, engine.ExecutionBeganEvent) context.Context { return nil }
			c.Events.AttemptBegan = func(context.Context, engine.AttemptBeganEvent) context.Context {
				return context.WithValue(context.Background(), traced{}, "attempt")
			}
		})
		h, err := wf.Start(context.WithValue(ctx, traced{}, "t"), p, "w", "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := h.Cancel(ctx, audit); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Second)
		expect(t, "ended", ended.all(), engine.ErrCancelled.Error())
	})
}

// What is staged in a transaction of the host is not told: the host may roll it back.
func TestEventsOfAHostsTransaction(t *testing.T) {
	store, host := hosted(t)
	var told heard
	wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
	wf.Defaults.Queue = "q"
	e := made(t, store, wf, told.callbacks(), func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q"}} })
	tx, err := host.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	in := e.In(store.WithTx(tx))
	start(t, wf, in, "w", "")
	tell(t, yes, in, "w", "ann")
	if err := in.Cancel(ctx, "w", audit); err != nil {
		t.Fatal(err)
	}
	if i := describe(t, in, "w"); i.Status != checkpoint.StatusCancelled {
		t.Errorf("staged: %+v", i)
	}
	expect(t, "staged", told.list(), "Starting {WorkflowID:w Workflow:w Queue:q Parent:}")
}
