package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// saysThat compares an error with the words that it must have.
func saysThat(t testing.TB, err, is error, words ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("%v, want an error that is %v", err, is)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}

// A Run that is used outside its branch names the call, and says which Run to use.
func TestForeignRunNamesTheCall(t *testing.T) {
	virtual(t, func(t *testing.T) {
		inner := counting(new(tally), "reserve")
		var errs []error
		wf := flow("wf", func(run *engine.Run) (string, error) {
			outer := &activity.Activity[string, string]{Name: "outer", Run: func(context.Context, string) (string, error) {
				_, err := inner.Do(run, "")
				errs = append(errs, err, run.Sleep(time.Hour))
				return "done", nil
			}}
			return outer.Do(run, "")
		})
		p := boot(t, new(memory.Store), wf)
		result(t, start(t, wf, p, "w", ""))
		if len(errs) != 2 {
			t.Fatalf("%d errors", len(errs))
		}
		saysThat(t, errs[0], engine.ErrForeignRun, `: activity reserve in workflow "w"`, "use the Run that the function, or its branch, was given")
		saysThat(t, errs[1], engine.ErrForeignRun, `: timer in workflow "w"`)
	})
}

// What an operator left out is named.
func TestActorNamesWhatItLacks(t *testing.T) {
	e := made(t, new(memory.Store))
	for want, a := range map[string]engine.Actor{
		"lacks Name and Reason: who acts, and why":       {},
		`Name: "", Reason: "test"} lacks Name: who acts`: {Reason: "test"},
		`Name: "ann", Reason: ""} lacks Reason: why`:     {Name: "ann"},
		`Name: "ann", Reason: " \n"} lacks Reason: why`:  {Name: "ann", Reason: " \n"},
		"together, at most 4096":                         {Name: "ann", Reason: strings.Repeat("x", 5000)},
		"not UTF-8":                                      {Name: "ann", Reason: "\xff"},
	} {
		saysThat(t, e.Resume(ctx, "w", a), engine.ErrInvalid, want)
	}
}

// A run that is held because its code differs from its history says which line asked for what,
// what may have changed, and where it is written what to do.
func TestNonDeterminismNamesTheLine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, c := new(memory.Store), new(tally)
		reserve, hire := counting(c, "reserve"), counting(c, "hire")
		calls := func(a *activity.Activity[string, int]) *engine.Workflow[string, string] {
			return flow("wf", func(run *engine.Run) (string, error) {
				if _, err := a.Do(run, ""); err != nil {
					return "", err
				}
				return "", run.Sleep(time.Hour)
			})
		}
		p := boot(t, s, calls(reserve))
		start(t, calls(reserve), p, "w", "")
		eventually(t, "it has reserved", func() bool { return len(historyOf(t, p.Engine, "w")) > 1 })
		p.kill()
		p = boot(t, s, calls(hire))
		eventually(t, "it is held", func() bool { return heldFor(describe(t, p, "w"), engine.ReasonNonDeterminism) })
		detail := describe(t, p, "w").Attention[0].Detail
		for _, words := range []string{
			"operation 1 was activity reserve and is now activity hire (at engine/errors_test.go:",
			"it, or a call before it in the same branch, was changed, added, removed or moved",
			`#when-code-and-history-disagree`,
		} {
			if !strings.Contains(detail, words) {
				t.Errorf("%s does not say %q", detail, words)
			}
		}
	})
}
