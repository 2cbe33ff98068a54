package engine_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
)

// LST-9: a label that the function sets is stored with the next checkpoint, at the latest when the
// run has waited for a moment; it is found, and gone when it is removed. LST-1: the next page has it.
func TestSetLabel(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := errors.Join(run.SetLabel("stage", "begun"), run.SetLabel("temp:%", "x")); err != nil {
				return "", err
			}
			v, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			if err := errors.Join(run.SetLabel("stage", v), run.SetLabel("temp:%", "")); err != nil {
				return "", err
			}
			_, err = engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil })
			return v, errors.Join(err, run.SetLabel("stage", "done"))
		})
		p := boot(t, s, wf, parking)
		h := start(t, wf.With(engine.StartOptions{Labels: map[string]string{"team": "blue", "temp:%": "y"}}), p, "o", "")
		has := func(when string, want map[string]string) {
			t.Helper()
			if got := describe(t, p, "o").Labels; !maps.Equal(got, want) {
				t.Errorf("%s: labels %v, want %v", when, got, want)
			}
			for name, value := range want {
				f := engine.Filter{Labels: map[string]string{name: value}}
				if got := idsOf(paged(t, p.Engine, f, 10, false)); len(got) != 1 {
					t.Errorf("%s: %s=%s has %q", when, name, value, got)
				}
			}
			if got := paged(t, p.Engine, engine.Filter{Workflow: "wf"}, 10, false); len(got) != 1 {
				t.Errorf("%s: %d in the list of the type", when, len(got))
			}
		}
		time.Sleep(time.Second)
		has("while it waits", map[string]string{"team": "blue", "stage": "begun", "temp:%": "x"})
		if err := p.Label(ctx, "o", map[string]string{"team": "red", "temp:%": "", "urgent": "yes"}, audit); err != nil {
			t.Fatal(err)
		}
		has("changed by an operator", map[string]string{"team": "red", "stage": "begun", "urgent": "yes"})
		time.Sleep(time.Minute) // it is claimed, replayed, and parked again
		has("after a replay", map[string]string{"team": "red", "stage": "begun", "urgent": "yes"})
		send(t, approved, p, "o", "shipped", "x")
		result(t, h)
		has("at the end", map[string]string{"team": "red", "stage": "done", "urgent": "yes"})
		if err := p.Label(ctx, "o", map[string]string{"urgent": ""}, audit); err != nil {
			t.Fatal(err)
		}
		has("after the end", map[string]string{"team": "red", "stage": "done"})
		acted := 0
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindActed && e.Name == "label" && e.By == audit.Name && e.Why == audit.Reason {
					acted++
				}
			}
		}
		if acted != 1 {
			t.Errorf("the history has %d changes of labels by an operator, want 1", acted)
		}
		p.stop(t)
	})
}

// LST-9: a label that was set just before a crash is set again, and stored.
func TestLabelThatWasNotStored(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			if err := run.SetLabel("stage", "waits"); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		time.Sleep(time.Second)
		start(t, wf, p, "o", "")
		time.Sleep(10 * time.Millisecond)
		if got := describe(t, p, "o"); len(got.Labels) > 0 || len(historyOf(t, p.Engine, "o")) != 2 {
			t.Fatalf("before the crash: %+v", got)
		}
		for range 2 {
			p.kill()
			p = boot(t, s, wf)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if got := describe(t, p, "o").Labels; got["stage"] != "waits" {
			t.Errorf("labels %v", got)
		}
		p.stop(t)
	})
}

// LST-8, LST-9: what is no label is refused, and nothing is stored.
func TestLabelsThatAreRefused(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		refused := map[string][2]string{
			"no name":         {"", "x"},
			"a long name":     {strings.Repeat("n", 65), "x"},
			"a long value":    {"x", strings.Repeat("v", 129)},
			"a reserved name": {"weft.x", "y"},
			"no UTF-8":        {"x", "\xff"},
			"no UTF-8 name":   {"\xff", ""},
		}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for what, l := range refused {
				if err := run.SetLabel(l[0], l[1]); !errors.Is(err, engine.ErrInvalid) {
					t.Errorf("%s: %v, want ErrInvalid", what, err)
				}
			}
			for name, value := range numbered(16, "v") {
				if err := run.SetLabel(name, value); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := run.SetLabel("more", "v"); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("the 17th: %v, want ErrInvalid", err)
			}
			if err := errors.Join(run.SetLabel("00", ""), run.SetLabel("more", "v")); err != nil {
				t.Errorf("the 17th in place of another: %v", err)
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		start(t, wf.With(engine.StartOptions{Labels: map[string]string{"team": "blue"}}), p, "o", "")
		time.Sleep(time.Second)
		want := numbered(16, "v") // "more" is the last, and there is no room for it beside "team"
		delete(want, "00")
		want["team"] = "blue"
		if got := describe(t, p, "o").Labels; !maps.Equal(got, want) {
			t.Errorf("labels %v, want %v", got, want)
		}
		before := sprint(describe(t, p, "o").Labels)
		for what, l := range refused {
			if err := p.Label(ctx, "o", map[string]string{l[0]: l[1]}, audit); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("Label with %s: %v, want ErrInvalid", what, err)
			}
		}
		for what, call := range map[string]error{
			"nothing":     p.Label(ctx, "o", nil, audit),
			"too many":    p.Label(ctx, "o", map[string]string{"even more": "v"}, audit),
			"no actor":    p.Label(ctx, "o", map[string]string{"team": "red"}, engine.Actor{}),
			"an empty id": p.Label(ctx, "", map[string]string{"team": "red"}, audit),
		} {
			if !errors.Is(call, engine.ErrInvalid) {
				t.Errorf("Label with %s: %v, want ErrInvalid", what, call)
			}
		}
		if err := p.Label(ctx, "nobody", map[string]string{"team": "red"}, audit); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("Label of nobody: %v, want ErrNotFound", err)
		}
		if after := sprint(describe(t, p, "o").Labels); after != before {
			t.Errorf("labels %s, want %s", after, before)
		}
		p.stop(t)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Label(ctx, "o", map[string]string{"team": "red"}, audit); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Label with a closed engine: %v, want ErrClosed", err)
		}
	})
}

// labelling: a workflow sets labels between its steps, in its branches and at its end, and an
// operator changes one of them. Whatever is repeated after a crash, the labels are those of the last
// who has set them.
func labelling(*sweep.World) sweep.Scenario {
	child := &engine.Workflow[string, string]{Name: "child", Func: func(run *engine.Run, _ string) (string, error) {
		return "", run.SetLabel("of", "child")
	}}
	wf := &engine.Workflow[string, string]{Name: "labelling", Func: func(run *engine.Run, _ string) (string, error) {
		set := func(name, value string) {
			if err := run.SetLabel(name, value); err != nil {
				panic(err)
			}
		}
		set("stage", "begun")
		set("operator", "unknown")
		if _, err := engine.Step(run, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return "", err
		}
		set("stage", "waits")
		v, err := approved.Receive(run)
		if err != nil {
			return "", err
		}
		set("stage", v)
		if err := run.Sleep(time.Hour); err != nil {
			return "", err
		}
		if _, err := child.Do(run, ""); err != nil {
			return "", err
		}
		set("stage", "")
		set("result", v)
		return v, nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf, child},
		IDs:       []string{"labelling"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.With(engine.StartOptions{Labels: map[string]string{"team": "blue"}}).Start(ctx, eng, "labelling", "")
			if err != nil {
				return "", err
			}
			for { // until it waits; this is repeated in a later life
				i, err := eng.Describe(ctx, "labelling")
				if err != nil {
					return "", err
				}
				if i.Labels["stage"] != "begun" && i.Labels["stage"] != "" || i.Status.Terminal() {
					break
				}
				time.Sleep(time.Hour)
			}
			if err := eng.Label(ctx, "labelling", map[string]string{"operator": "ann"}, engine.Actor{Name: "ann", Reason: "test"}); err != nil {
				return "", err
			}
			if _, err := approved.Send(ctx, eng, "labelling", "yes", &signal.Options{ID: "click"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			if _, err := h.Result(ctx); err != nil {
				return "", err
			}
			i, err := eng.Describe(ctx, "labelling")
			if err != nil {
				return "", err
			}
			n, all, err := eng.Count(ctx, engine.Filter{Labels: map[string]string{"result": "yes", "operator": "ann"}}, 10)
			return sprint(i.Labels, n, all), err
		},
	}
}
