package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage/memory"
)

// unhurried are settings for tests of hours: engines that look rarely, and park what waits.
func unhurried(c *engine.Config) {
	c.PollInterval, c.LeaseTTL, c.ParkAfter = 10*time.Minute, 40*time.Minute, time.Millisecond
}

// weekly is a workflow that works four times, with an hour between. From version 1 of the change
// "check" on it checks before it works; newest 0 is the code before the change.
func weekly(newest int) *engine.Workflow[string, string] {
	wf := flow("weekly", func(run *engine.Run) (string, error) {
		did := ""
		for range 4 {
			if newest > 0 && run.Version("check") >= 1 {
				s, err := engine.Step(run, "check", func(context.Context) (string, error) { return "c", nil })
				if err != nil {
					return "", err
				}
				did += s
			}
			s, err := engine.Step(run, "work", func(context.Context) (string, error) { return "w", nil })
			if err != nil {
				return "", err
			}
			did += s
			if err := run.Sleep(time.Hour); err != nil {
				return "", err
			}
		}
		return did, nil
	})
	if newest > 0 {
		wf.Versions = map[string]int{"check": newest}
	}
	return wf
}

// chosen are the choices in a history: "change=version".
func chosen(cs []checkpoint.Checkpoint) (all []string) {
	for _, c := range cs {
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindVersioned {
				all = append(all, fmt.Sprintf("%s=%d", e.Name, e.Version))
			}
		}
	}
	return all
}

// VER-1, VER-2, VER-3, VER-7: a run that has passed the place goes on as it did, and one that comes there
// later goes the new way. In a loop that is another iteration of the same run. There is one choice, no
// operation gets another number, and without a call there is no choice.
func TestVersion(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		p := boot(t, s, weekly(0), unhurried)
		start(t, weekly(0), p, "before", "")
		time.Sleep(90 * time.Minute)
		if i := describe(t, p, "before"); i.Versions != nil {
			t.Errorf("choices without a call: %v", i.Versions)
		}
		p.stop(t)
		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		p = boot(t, s, weekly(1), unhurried)
		start(t, weekly(1), p, "after", "")
		for id, want := range map[string]string{"before": "wwcwcw", "after": "cwcwcwcw"} {
			h := weekly(1).Handle(p, id)
			ctx, cancel := context.WithTimeout(ctx, 24*time.Hour)
			defer cancel()
			if got, err := h.Result(ctx); got != want || err != nil {
				t.Errorf("%s did %q, %v, want %q", id, got, err, want)
			}
			history := historyOf(t, p.Engine, id)
			if got := chosen(history); !slices.Equal(got, []string{"check=1"}) {
				t.Errorf("%s has the choices %v, want one", id, got)
			}
			if i := describe(t, p, id); !maps.Equal(i.Versions, map[string]int{"check": 1}) {
				t.Errorf("%s: Info.Versions %v", id, i.Versions)
			}
			var ids []string
			for _, c := range history {
				for _, e := range c.Events {
					if e.Kind == checkpoint.KindSettled || e.Kind == checkpoint.KindFired {
						ids = append(ids, e.Operation+e.Name)
					}
				}
			}
			wanted := map[string]string{
				"before": "[1work 2 3work 4 5check 6work 7 8check 9work 10]",
				"after":  "[1check 2work 3 4check 5work 6 7check 8work 9 10check 11work 12]",
			}
			if sprint(ids) != wanted[id] {
				t.Errorf("%s has the operations %v, want %s", id, ids, wanted[id])
			}
		}
		p.stop(t)
	})
}

// VER-4, VER-6, VER-7: calls are deleted in one step, also one of two at the same place, while the change stays in
// Versions. A run that goes by a version which the code does not have any more is left alone, and
// Describe says why.
func TestVersionIsRemoved(t *testing.T) {
	newest := map[string]int{"a": 1, "b": 2}
	both := func(calls ...string) *engine.Workflow[string, string] {
		wf := flow("w", func(run *engine.Run) (string, error) {
			for _, c := range slices.Concat(calls, calls) {
				if v := run.Version(c); v != newest[c] {
					return "", fmt.Errorf("%s is %d", c, v)
				}
			}
			if _, err := engine.Step(run, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			for _, c := range calls {
				run.Version(c)
			}
			by, _, err := yes.ReceiveWithin(run, 30*time.Minute)
			return by, err
		})
		wf.Versions = maps.Clone(newest)
		return wf
	}
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		p := boot(t, s, both("a", "b"), unhurried)
		for _, id := range []string{"1", "2", "3"} {
			start(t, both(), p, id, "")
		}
		time.Sleep(time.Minute)
		if got := sprint(chosen(historyOf(t, p.Engine, "1"))); got != "[a=1 b=2]" {
			t.Errorf("choices %s, want one of each change", got)
		}
		for i, calls := range [][]string{{"a"}, {"b"}, {}} {
			p.stop(t)
			p = boot(t, s, both(calls...), unhurried)
			id := sprint(i + 1)
			send(t, yes, p, id, "ann", "evt")
			if got := result(t, both().Handle(p, id)); got != "ann" {
				t.Errorf("%v: %q", calls, got)
			}
		}
		p.stop(t)
		p = boot(t, s, both("a", "b"), unhurried)
		start(t, both(), p, "old", "")
		time.Sleep(time.Minute)
		p.stop(t)

		gone := both()
		delete(gone.Versions, "a")
		p = boot(t, s, gone, unhurried)
		start(t, gone, p, "new", "")
		send(t, yes, p, "new", "ann", "evt")
		if got := result(t, gone.Handle(p, "new")); got != "ann" {
			t.Errorf("the run without choices: %q", got)
		}
		if i := describe(t, p, "new"); i.Versions != nil {
			t.Errorf("a run that has not asked goes by %v", i.Versions)
		}
		time.Sleep(time.Hour)
		client := made(t, p.store)
		for name, e := range map[string]*engine.Engine{"engine": p.Engine, "client": client} {
			i := describe(t, e, "old")
			if i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonUnregistered) || !strings.Contains(i.Attention[0].Detail, `version 1 of the change "a"`) {
				t.Errorf("%s: %+v, want that no engine has version 1 of the change", name, i)
			}
			page, err := e.Page(ctx, engine.Filter{Attention: true}, engine.PageRequest{})
			if err != nil || len(page.Data) != 1 || page.Data[0].ID != "old" {
				t.Errorf("%s: list of what needs attention: %+v, %v", name, page.Data, err)
			}
		}
		client.Close()
		p.stop(t)
		p = boot(t, s, both("a", "b"), unhurried)
		if got := result(t, both().Handle(p, "old")); got != "" {
			t.Errorf("after the change is back: %q", got)
		}
		p.stop(t)
	})
}

// VER-8: bad Versions are refused by New. A change that is not there holds the run, and continues
// with code that has it. Another branch's Run panics.
func TestVersionsThatAreRefused(t *testing.T) {
	many := map[string]int{}
	for i := range 33 {
		many[sprint(i)] = 1
	}
	for what, versions := range map[string]map[string]int{
		"0":               {"c": 0},
		"negative":        {"c": -1},
		"no name":         {"": 1},
		"a long name":     {strings.Repeat("n", 65): 1},
		"a name in bytes": {"\xff": 1},
		"33":              many,
	} {
		wf := flow("w", func(*engine.Run) (string, error) { return "", nil })
		wf.Versions = versions
		_, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{wf}})
		var refused *engine.ConfigError
		if !errors.As(err, &refused) || refused.Field != "Workflows[0].Versions" {
			t.Errorf("%s: %v, want a *ConfigError", what, err)
		}
	}
	delete(many, "0")
	many[strings.Repeat("n", 64)] = 1
	delete(many, "1")
	wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
	wf.Versions = many
	if _, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{wf}}); err != nil {
		t.Errorf("32 changes: %v", err)
	}

	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		undeclared := flow("w", func(run *engine.Run) (string, error) { return sprint(run.Version("c")), nil })
		p := boot(t, s, undeclared)
		start(t, undeclared, p, "o", "")
		time.Sleep(time.Second)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonBadDefinition) || !strings.Contains(i.Attention[0].Detail, `"c"`) {
			t.Errorf("%+v, want that its definition is bad", i.Attention)
		}
		p.stop(t)
		undeclared.Versions = map[string]int{"c": 3}
		p = boot(t, s, undeclared)
		if got := result(t, undeclared.Handle(p, "o")); got != "3" {
			t.Errorf("version %s, want 3", got)
		}

		foreign := flow("foreign", func(run *engine.Run) (string, error) {
			return engine.Step(run, "s", func(context.Context) (_ string, err error) {
				defer func() {
					if e, ok := recover().(error); ok && errors.Is(e, engine.ErrForeignRun) {
						err = nil
						return
					}
					err = errors.New("it did not panic")
				}()
				run.Version("c")
				return "", nil
			})
		})
		foreign.Versions = map[string]int{"c": 1}
		p.stop(t)
		p = boot(t, s, foreign)
		h := start(t, foreign, p, "f", "")
		result(t, h)
		if got := describe(t, p, "f").Versions; got != nil {
			t.Errorf("a call from outside has chosen %v", got)
		}
		p.stop(t)
	})
}

// VER-11: a run that is parked at the place, or held there, goes the new way if it has recorded nothing
// since. One that failed there has recorded that, and goes on as it did.
func TestVersionForWhatIsHeld(t *testing.T) {
	type kind struct {
		name  string
		old   func(run *engine.Run) (string, error)
		fixed string // what it does with the new code
	}
	kinds := []kind{
		{"parked", func(run *engine.Run) (string, error) { return yes.Receive(run) }, "fixed"},
		{"held", func(run *engine.Run) (string, error) { return sprint(run.Version("nobody has it")), nil }, "fixed"},
		{"failed", func(run *engine.Run) (string, error) { return "", errBroke }, ""},
	}
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		definitions := func(fixed bool) (all []any) {
			for _, k := range kinds {
				wf := flow(k.name, func(run *engine.Run) (string, error) {
					if _, err := engine.Step(run, "before", func(context.Context) (int, error) { return 1, nil }); err != nil {
						return "", err
					}
					if fixed && run.Version("fix") >= 1 {
						return "fixed", nil
					}
					return k.old(run)
				})
				if fixed {
					wf.Versions = map[string]int{"fix": 1}
				}
				all = append(all, wf)
			}
			return append(all, unhurried)
		}
		p := boot(t, s, definitions(false)...)
		for _, k := range kinds {
			start(t, flow(k.name, k.old), p, k.name, "")
		}
		time.Sleep(time.Minute)
		p.stop(t)
		p = boot(t, s, definitions(true)...)
		if err := p.Resume(ctx, "failed", audit); err != nil {
			t.Fatal(err)
		}
		send(t, yes, p, "parked", "ann", "evt") // has it claimed
		for _, k := range kinds {
			got, err := outcome(flow(k.name, k.old).Handle(p, k.name))
			if got != k.fixed || (err == nil) != (k.fixed != "") {
				t.Errorf("%s: %q, %v, want %q", k.name, got, err, k.fixed)
			}
		}
		p.stop(t)
	})
}
