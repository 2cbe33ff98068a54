package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A tour is a workflow that uses everything, or breaks off somewhere. effects
// counts what a replay must not do again.
func tour(effects *tally, kind string) *engine.Workflow[int, string] {
	word := &signal.Signal[string]{Name: "word"}
	flaky := &activity.Activity[int, int]{
		Name:   "flaky",
		Errors: []error{errBroke},
		Run: func(ctx context.Context, n int) (int, error) {
			if effects.add("flaky") == 1 {
				return 0, fmt.Errorf("first: %w", errBroke)
			}
			return n + 1, nil
		},
	}
	refused := &activity.Activity[int, int]{
		Name:   "refused",
		Errors: []error{errBroke},
		Run: func(context.Context, int) (int, error) {
			effects.add("refused")
			return 0, activity.Permanent(errBroke)
		},
	}
	return &engine.Workflow[int, string]{Name: "tour", Errors: []error{errBroke}, Func: func(run *engine.Run, n int) (string, error) {
		s, err := engine.Step(run, "step", func(context.Context) (string, error) {
			effects.add("step")
			return "<s>", nil
		})
		if err != nil {
			return "", err
		}
		if kind == "another step" {
			_, err := engine.Step(run, "another", func(context.Context) (int, error) { return effects.add("another"), nil })
			return "", err
		}
		n, err = flaky.Do(run, n)
		if err != nil {
			return "", err
		}
		_, err = refused.Do(run, n)
		if !errors.Is(err, errBroke) {
			return "", fmt.Errorf("refused: %w", err)
		}
		w, err := word.Receive(run)
		if err != nil {
			return "", err
		}
		_, more, err := word.ReceiveWithin(run, time.Minute)
		if err != nil {
			return "", err
		}
		if kind == "early end" {
			return "", nil
		}
		began, lot := run.Now(), run.Random().IntN(1e9)
		if err := run.Sleep(24 * time.Hour); err != nil {
			return fmt.Sprint(s, n, w, more, lot, run.Now().Sub(began)), err
		}
		switch kind {
		case "failure":
			return "", errBroke
		case "late step":
			_, err := engine.Step(run, "late", func(context.Context) (int, error) { return effects.add("late"), nil })
			return "", err
		}
		return fmt.Sprint(s, n, w, more, lot, run.Now().Sub(began)), nil
	}}
}

// toured is the exported history of a tour, and another of one that sleeps.
func toured(t *testing.T, effects *tally) (whole, begun []byte) {
	virtual(t, func(t *testing.T) {
		wf := tour(effects, "")
		p := boot(t, new(memory.Store), wf, rareLeases)
		h := start(t, wf, p, "o", 7)
		word := &signal.Signal[string]{Name: "word"}
		if _, err := word.Send(ctx, p, "o", "hi", &signal.Options{ID: "click"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		begun = exported(t, p.Engine, "o")
		time.Sleep(24 * time.Hour)
		result(t, h)
		whole = exported(t, p.Engine, "o")
		if again := exported(t, p.Engine, "o"); !bytes.Equal(whole, again) {
			t.Errorf("exported twice:\n%s\n%s", whole, again)
		}
	})
	return whole, begun
}

func exported(t *testing.T, e *engine.Engine, id string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := e.Export(ctx, id, &b); err != nil {
		t.Fatalf("export: %v", err)
	}
	return b.Bytes()
}

// CK6: the code that made a history replays it, with the results that it had,
// without running anything and without writing anything.
func TestReplayOfAnExport(t *testing.T) {
	var effects tally
	whole, begun := toured(t, &effects)
	ran := sprint(effects.all())
	for name, history := range map[string][]byte{"ended": whole, "begun": begun} {
		s := new(memory.Store)
		e := made(t, s, tour(&effects, ""))
		before := entries(t, s, "")
		if err := e.Replay(ctx, bytes.NewReader(history)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, history)
		}
		if after := entries(t, s, ""); sprint(after) != sprint(before) {
			t.Errorf("%s: the store has %q, before %q", name, after, before)
		}
	}
	if got := sprint(effects.all()); got != ran {
		t.Errorf("ran %s, before the replay %s", got, ran)
	}
}

func TestReplayFindsWhatChanged(t *testing.T) {
	var effects tally
	whole, begun := toured(t, &effects)
	ran := sprint(effects.all())
	for _, c := range []struct {
		kind                       string
		history                    []byte
		operation, recorded, asked string // "" is right
	}{
		{"another step", whole, "2", "activity flaky", "step another"},
		{"early end", whole, "6", "timer", "the function has ended"},
		{"early end", begun, "", "", ""}, // nobody knows what it waited for
		{"failure", whole, "", "completed", "failed: broke"},
		{"failure", begun, "", "", ""},
		{"late step", whole, "", "completed", "operation 7, step late"},
		{"late step", begun, "", "", ""},
	} {
		err := made(t, new(memory.Store), tour(&effects, c.kind)).Replay(ctx, bytes.NewReader(c.history))
		var n *engine.NonDeterminismError
		switch {
		case c.recorded == "" && err != nil:
			t.Errorf("%s: %v, want nil", c.kind, err)
		case c.recorded == "":
		case !errors.As(err, &n):
			t.Errorf("%s: %v, want a *NonDeterminismError", c.kind, err)
		case n.WorkflowID != "o" || n.Operation != c.operation || n.Recorded != c.recorded || !strings.Contains(n.Asked, c.asked):
			t.Errorf("%s: %+v, want operation %q, %q and %q", c.kind, n, c.operation, c.recorded, c.asked)
		}
	}
	if got := sprint(effects.all()); got != ran {
		t.Errorf("ran %s, before the replays %s", got, ran)
	}
}

func TestReplayOfWhatIsNoHistory(t *testing.T) {
	whole, _ := toured(t, new(tally))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	wf := tour(new(tally), "")
	for _, c := range []struct {
		name, history string
		want          error // nil: any
		text          string
	}{
		{"nothing", "", storage.ErrCorrupt, ""},
		{"another file", "{\"a\":1}\n", storage.ErrCorrupt, ""},
		{"half a line", string(whole[:len(whole)-10]), storage.ErrCorrupt, ""},
		{"without its last line", string(bytes.Join(lines[:len(lines)-2], nil)), storage.ErrCorrupt, "truncated"},
		{"of a newer release", strings.Replace(string(whole), `{"history":1,`, `{"history":99,"new":1,`, 1), storage.ErrFutureFormat, "version 99"},
		{"of a newer release whose first line this one knows", strings.Replace(string(whole), `{"history":1,`, `{"history":99,`, 1), storage.ErrFutureFormat, "version 99"},
		{"of a newer release with other events", strings.Replace(strings.Replace(string(whole), `{"history":1,`, `{"history":99,`, 1), `"events":[{`, `"events":[{"new":1,`, 1), storage.ErrFutureFormat, "version 99"},
		{"without a version", strings.Replace(string(whole), `{"history":1,`, `{`, 1), storage.ErrCorrupt, "the version 0"},
		{"of a version that there never was", strings.Replace(string(whole), `{"history":1,`, `{"history":-1,`, 1), storage.ErrCorrupt, "the version -1"},
		{"of a workflow that nobody has", strings.Replace(string(whole), `"workflow":"tour"`, `"workflow":"trip"`, 1), nil, `"trip"`},
		{"with another input", strings.Replace(string(whole), `"input":7`, `"input":"seven"`, 1), nil, "input"},
		{"with a codec that nobody has", strings.Replace(string(whole), `"input":7`, `"data":"AAAA","codec":"rot13"`, 1), nil, `"rot13"`},
		{"with another result", strings.Replace(string(whole), `\u003cs\u003e`, `s`, 1), nil, ""},
	} {
		err := made(t, new(memory.Store), wf).Replay(ctx, strings.NewReader(c.history))
		if c.name == "with another result" {
			if err != nil {
				t.Errorf("%s: %v: an edited result is a result", c.name, err)
			}
			continue
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v %q", c.name, err, c.want, c.text)
		}
	}
}

// A function that does not come back is given up when the context ends.
func TestReplayGivesUp(t *testing.T) {
	whole, _ := toured(t, new(tally))
	virtual(t, func(t *testing.T) {
		block := make(chan struct{})
		wf := &engine.Workflow[int, string]{Name: "tour", Func: func(*engine.Run, int) (string, error) {
			<-block
			return "", nil
		}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := made(t, new(memory.Store), wf).Replay(ctx, bytes.NewReader(whole)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's error", err)
		}
		close(block)
	})
}

func TestExportOfNothing(t *testing.T) {
	e := made(t, new(memory.Store))
	if err := e.Export(ctx, "nobody", new(bytes.Buffer)); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if err := e.Export(ctx, "", new(bytes.Buffer)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	e.Close()
	if err := e.Export(ctx, "nobody", new(bytes.Buffer)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

// FMT-10, FMT-22, FMT-23: histories that were exported by any release replay in this one. The
// files are never rewritten: a new version of the format adds some.
func TestReplayOfOldExports(t *testing.T) {
	files, err := filepath.Glob("testdata/exported/*/*.history")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := made(t, new(memory.Store), tour(new(tally), "")).Replay(ctx, f); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
