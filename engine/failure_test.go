package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
)

// A grumpy error panics when it is asked what it is.
type grumpy struct{ text *string }

func (g *grumpy) Error() string { return *g.text }

// ACT-51: no success is invented out of a failure, whatever its text is; and
// nothing that user code returns or panics with ends the host or the history.
var failures = map[string]struct {
	fail func() (string, error)
	text string // that the message has
}{
	"an error":            {func() (string, error) { return "", errBroke }, "broke"},
	"no text":             {func() (string, error) { return "", errors.New("") }, ""},
	"not UTF-8":           {func() (string, error) { return "", errors.New("garbage \xff\xfe") }, "garbage"},
	"huge text":           {func() (string, error) { return "", errors.New(strings.Repeat("x", 70<<20)) }, "xxx"},
	"error that panics":   {func() (string, error) { return "", (*grumpy)(nil) }, "grumpy"},
	"panic":               {func() (string, error) { panic("boom") }, "boom"},
	"panic with an error": {func() (string, error) { panic(errBroke) }, "broke"},
	"panic not UTF-8":     {func() (string, error) { panic("\xff boom") }, "boom"},
	"nil dereference":     {func() (string, error) { return *(*string)(nil), nil }, "nil pointer"},
	"Goexit":              {func() (string, error) { runtime.Goexit(); return "", nil }, "Goexit"},
	"huge result":         {func() (string, error) { return strings.Repeat("x", engine.MaxPayload), nil }, "at most"},
}

// F12, AC8: what an activity fails with is recorded; after a restart the workflow
// reads the same error.
func TestActivityFailuresAreContained(t *testing.T) {
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				var runs tally
				act := &activity.Activity[string, string]{
					Name:  "act",
					Retry: activity.Retry{MaxAttempts: 1},
					Run:   func(context.Context, string) (string, error) { runs.add("act"); return c.fail() },
				}
				var seen []string
				wf := flow("order", func(run *engine.Run) (string, error) {
					_, err := act.Do(run, "")
					var e *activity.Error
					if !errors.As(err, &e) || !strings.Contains(e.Message, c.text) || e.Activity != "act" || e.Attempt != 1 {
						return "", fmt.Errorf("got %.100v, want an *activity.Error with %q", err, c.text)
					}
					seen = append(seen, err.Error())
					return "went on", run.Sleep(10 * time.Minute)
				})
				p := boot(t, s, wf)
				h := start(t, wf, p, "o", "")
				time.Sleep(time.Minute)
				p.kill()
				p = boot(t, s, wf)
				if out, err := outcome(wf.Handle(p, h.ID())); err != nil || out != "went on" {
					t.Errorf("result %q, %v; attention %v", out, err, describe(t, p, "o").Attention)
				}
				if len(seen) != 2 || seen[0] != seen[1] {
					t.Errorf("the workflow saw %d errors; want two that are the same", len(seen))
				}
				if n := runs.of("act"); n != 1 {
					t.Errorf("the activity ran %d times, want once", n)
				}
			})
		})
	}
}

// F12: what a workflow function ends with is recorded, and reads the same in the
// process that ran it and in the next.
func TestWorkflowFailuresAreContained(t *testing.T) {
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				wf := flow("order", func(*engine.Run) (string, error) { return c.fail() })
				p := boot(t, s, wf)
				h := start(t, wf, p, "o", "")
				_, before := outcome(h)
				p.stop(t)
				_, after := outcome(wf.Handle(boot(t, s, wf), "o"))
				for when, err := range map[string]error{"before": before, "after": after} {
					var e *engine.WorkflowError
					if !errors.As(err, &e) || !strings.Contains(e.Message, c.text) || e.WorkflowID != "o" || e.Workflow != "order" {
						t.Errorf("%s a restart: %.200v, want a *WorkflowError with %q", when, err, c.text)
						continue
					}
					if panics := strings.HasPrefix(name, "panic") || name == "nil dereference"; panics != strings.Contains(e.Stack, "goroutine") {
						t.Errorf("%s a restart: stack %.100q, want one: %v", when, e.Stack, panics)
					}
				}
				if before != nil && after != nil && before.Error() != after.Error() {
					t.Errorf("before a restart %.100v, after it %.100v", before, after)
				}
			})
		})
	}
}

// AC8: a result that cannot be stored is a failure at once; the effect is not
// repeated for it.
func TestUnencodableResultIsFinal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var runs tally
		act := &activity.Activity[string, any]{Name: "act", Run: func(context.Context, string) (any, error) {
			runs.add("act")
			return make(chan int), nil
		}}
		wf := flow("order", func(run *engine.Run) (string, error) {
			_, err := act.Do(run, "")
			_, err2 := engine.Step(run, "inf", func(context.Context) (float64, error) { runs.add("step"); return math.Inf(1), nil })
			return sprint(err != nil, err2 != nil), nil
		})
		odd := &engine.Workflow[string, any]{Name: "odd", Func: func(*engine.Run, string) (any, error) { return func() {}, nil }}
		p := boot(t, fresh(t), wf, odd)
		if got := result(t, start(t, wf, p, "o", "")); got != "true true" {
			t.Errorf("failed: %s, want both", got)
		}
		if runs.of("act") != 1 || runs.of("step") != 1 {
			t.Errorf("runs %v, want one each", runs.all())
		}
		var e *engine.WorkflowError
		if _, err := outcome(start(t, odd, p, "odd", "")); !errors.As(err, &e) {
			t.Errorf("a workflow that returns a func: %v, want a *WorkflowError", err)
		}
		if i := describe(t, p, "odd"); i.Status != checkpoint.StatusFailed {
			t.Errorf("status %s, want failed", i.Status)
		}
	})
}
