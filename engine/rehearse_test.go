package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// An edit is a change of a workflow's code.
type edit struct {
	name string
	code func(run *engine.Run, in string) error // up to a signal that it waits for

	versions map[string]int
	holds    bool // what the deploy would hold
	other    bool // an operation has another input
	unknown  bool // the run goes by a version that the code does not have
}

// edited is a workflow with an edit.
func edited(effects *tally, e edit) *engine.Workflow[string, string] {
	return &engine.Workflow[string, string]{Name: "edited", Versions: e.versions, Func: func(run *engine.Run, in string) (string, error) {
		if in == "young" {
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
		}
		if err := e.code(run, in); err != nil {
			return "", err
		}
		return yes.Receive(run)
	}}
}

// edits are changes of code that does step a, activity b and step c, which comes with version 1 of the
// change "c".
func edits(effects *tally) []edit {
	b := &activity.Activity[string, string]{Name: "b", Run: func(context.Context, string) (string, error) { return sprint(effects.add("b")), nil }}
	act := func(in string) func(run *engine.Run) error {
		return func(run *engine.Run) error { _, err := b.Do(run, in); return err }
	}
	step := func(name string) func(run *engine.Run) error {
		return func(run *engine.Run) error {
			_, err := engine.Step(run, name, func(context.Context) (int, error) { return effects.add(name), nil })
			return err
		}
	}
	versioned := func(change string, f func(run *engine.Run) error) func(run *engine.Run) error {
		return func(run *engine.Run) error {
			if run.Version(change) >= 1 {
				return f(run)
			}
			return nil
		}
	}
	all := func(fs ...func(run *engine.Run) error) func(*engine.Run, string) error {
		return func(run *engine.Run, _ string) error {
			for _, f := range fs {
				if err := f(run); err != nil {
					return err
				}
			}
			return nil
		}
	}
	c := versioned("c", step("c"))
	know := map[string]int{"c": 1}
	return []edit{
		{name: "none", code: all(step("a"), act("x"), c), versions: know},
		{name: "a call of Version removed", code: all(step("a"), act("x"), step("c")), versions: know},
		{name: "an operation added behind a version", code: all(versioned("new", step("first")), step("a"), act("x"), c), versions: map[string]int{"c": 1, "new": 1}},
		{name: "an operation added at the end", code: all(step("a"), act("x"), c, step("last")), versions: know},
		{name: "an operation added", code: all(step("first"), step("a"), act("x"), c), versions: know, holds: true},
		{name: "an operation removed", code: all(step("a"), c), versions: know, holds: true},
		{name: "an operation renamed", code: all(step("A"), act("x"), c), versions: know, holds: true},
		{name: "operations that swapped places", code: all(act("x"), step("a"), c), versions: know, holds: true},
		{name: "another input", code: all(step("a"), act("y"), c), versions: know, other: true},
		{name: "the change is unknown", code: all(step("a"), act("x"), step("c")), unknown: true},
	}
}

// unwritten is a store that refuses writes.
type unwritten struct{ storage.Storage }

func (s unwritten) Unwrap() storage.Storage { return s.Storage }

func (unwritten) Commit(context.Context, storage.Batch) error {
	return errors.New("the store is opened for reading")
}

// VER-9: Rehearse finds what a deploy would hold, and nothing else, beside an engine that runs and on a
// store that cannot be written. Nothing is executed. What it says comes true.
func TestRehearse(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		var effects tally
		all := edits(&effects)
		s := store.Open(t)
		defer func() { s.Close() }()
		other := flow("other", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		now := edited(&effects, all[0])
		p := boot(t, s, now, other, unhurried)
		start(t, now, p, "o", "o")
		start(t, now, p, "young", "young")
		start(t, now, p, "ended", "o")
		start(t, other, p, "other", "")
		start(t, now.With(engine.StartOptions{Queue: "full"}), p, "in line", "o")
		send(t, yes, p, "ended", "ann", "evt")
		result(t, now.Handle(p, "ended"))
		time.Sleep(time.Minute)
		ran := sprint(effects.all())
		before := entries(t, s, "")

		for _, e := range all {
			code := edited(&effects, e)
			eng := made(t, unwritten{p.store}, code)
			found := map[string]error{}
			for r, err := range eng.Rehearse(ctx, engine.Filter{}) {
				if err != nil || r.Workflow != "edited" {
					t.Errorf("%s: %+v, %v", e.name, r, err)
				}
				found[r.ID] = r.Err
			}
			if got := sprint(slices.Sorted(maps.Keys(found))); got != "[in line o young]" {
				t.Errorf("%s: rehearsed %s", e.name, got)
			}
			if found["young"] != nil || found["in line"] != nil {
				t.Errorf("%s: of runs that have not come there: %v", e.name, found)
			}
			var differs *engine.NonDeterminismError
			var input *engine.InputChangedError
			var unknown *engine.UnknownVersionError
			err := found["o"]
			if errors.As(err, &differs) != e.holds || errors.As(err, &input) != e.other || errors.As(err, &unknown) != e.unknown || (err == nil) != !(e.holds || e.other || e.unknown) {
				t.Errorf("%s: %v", e.name, err)
			}
			for r, err := range eng.Rehearse(ctx, engine.Filter{Status: checkpoint.StatusCompleted}) {
				if r.ID != "ended" || err != nil || (r.Err == nil) != !(e.holds || e.other || e.unknown || strings.Contains(e.name, "at the end")) {
					t.Errorf("%s: of a run that has ended: %+v, %v", e.name, r, err)
				}
			}
			eng.Close()
		}
		if got := sprint(effects.all()); got != ran {
			t.Errorf("ran %s, before the rehearsals %s", got, ran)
		}
		if after := entries(t, s, ""); sprint(after) != sprint(before) {
			t.Errorf("the store has %q, before %q", after, before)
		}

		client := made(t, p.store, edited(&effects, all[0]))
		refused := func(what string, want error, ctx context.Context, f engine.Filter) {
			t.Helper()
			n := 0
			for r, err := range client.Rehearse(ctx, f) {
				if n++; n > 1 || !errors.Is(err, want) {
					t.Errorf("%s: %+v, %v, want %v", what, r, err, want)
				}
			}
			if n != 1 {
				t.Errorf("%s: yielded %d", what, n)
			}
		}
		refused("a type that it does not have", engine.ErrInvalid, ctx, engine.Filter{Workflow: "other"})
		refused("a status that there is not", engine.ErrInvalid, ctx, engine.Filter{Status: "asleep"})
		done, cancel := context.WithCancel(ctx)
		cancel()
		refused("a context that has ended", context.Canceled, done, engine.Filter{})
		client.Close()
		refused("a closed engine", engine.ErrClosed, ctx, engine.Filter{})

		copied := snapshot(t, s)
		p.stop(t)
		for _, e := range all { // what was found comes true
			s := snapshot(t, copied)
			p := boot(t, s, edited(&effects, e), unhurried)
			if _, err := yes.Send(ctx, p, "o", "ann", nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			i := describe(t, p, "o")
			if held := heldFor(i, engine.ReasonNonDeterminism); held != e.holds {
				t.Errorf("%s: held %v, want %v", e.name, held, e.holds)
			}
			if left := heldFor(i, engine.ReasonUnregistered); left != e.unknown {
				t.Errorf("%s: left alone %v, want %v", e.name, left, e.unknown)
			}
			p.stop(t)
		}
	})
}

// A function that does not return to the engine is given up after a minute, and the others follow.
func TestRehearseGivesUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := flow("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, wf)
		start(t, wf, p, "a", "")
		start(t, wf, p, "b", "")
		block := make(chan struct{})
		blocks := flow("w", func(run *engine.Run) (string, error) {
			if run.ID() == "b" {
				<-block
			}
			return yes.Receive(run)
		})
		var found []string
		for r, err := range made(t, s, blocks).Rehearse(ctx, engine.Filter{}) {
			found = append(found, fmt.Sprint(r.ID, " ", err, " ", r.Err != nil && strings.Contains(r.Err.Error(), "1m0s")))
		}
		if got := sprint(found); got != "[b <nil> true a <nil> false]" {
			t.Errorf("%s", got)
		}
		close(block)
		p.stop(t)
	})
}

// VER-10: a sample has so many workflows of each shape, and its files replay, with their choices. An
// error of the file ends it.
func TestExportSample(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		var effects tally
		s := store.Open(t)
		defer func() { s.Close() }()
		none := edits(&effects)[0]
		now := edited(&effects, none)
		other := flow("other", func(run *engine.Run) (string, error) {
			if strings.HasPrefix(run.ID(), "busy") {
				if _, err := engine.Step(run, "work", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
			}
			return yes.Receive(run)
		})
		p := boot(t, s, now, other, unhurried)
		for i := range 3 {
			start(t, now, p, sprint("begun", i), "o")
			start(t, now, p, sprint("ended", i), "o")
			start(t, now, p, sprint("young", i), "young")
			start(t, other, p, sprint("other", i), "")
			start(t, other, p, sprint("busy", i), "")
			send(t, yes, p, sprint("ended", i), "ann", "evt")
			result(t, now.Handle(p, sprint("ended", i)))
		}
		time.Sleep(time.Minute)
		for _, each := range []int{1, 2} {
			files := map[string]*file{}
			err := p.ExportSample(ctx, engine.Filter{}, each, func(i engine.Info) (io.WriteCloser, error) {
				files[i.ID] = new(file)
				return files[i.ID], nil
			})
			if err != nil {
				t.Fatal(err)
			}
			shapes := map[string]int{}
			for id, f := range files {
				shapes[strings.TrimRight(id, "012")]++
				if f.closed != 1 {
					t.Errorf("the file of %s was closed %d times", id, f.closed)
				}
				replay := func(code ...any) error {
					return made(t, new(memory.Store), code...).Replay(ctx, bytes.NewReader(f.Bytes()))
				}
				if err := replay(now, other); err != nil {
					t.Errorf("%s: %v", id, err)
				}
				var unknown *engine.UnknownVersionError
				err := replay(edited(&effects, edits(&effects)[9]), other)
				if chose := strings.HasPrefix(id, "begun") || strings.HasPrefix(id, "ended"); errors.As(err, &unknown) != chose {
					t.Errorf("%s without the change: %v", id, err)
				}
				if old := strings.HasPrefix(f.String(), `{"history":1,`); old == strings.Contains(f.String(), `"versions":[{"change":"c","version":1,`) {
					t.Errorf("%s: %s", id, f)
				}
			}
			if got, want := sprint(shapes), sprint(map[string]int{"begun": each, "ended": each, "young": each, "other": each, "busy": each}); got != want {
				t.Errorf("%d each: %s, want %s", each, got, want)
			}
		}
		create := func(engine.Info) (io.WriteCloser, error) { return nil, errBroke }
		for what, err := range map[string]error{
			"none of each":               p.ExportSample(ctx, engine.Filter{}, 0, create),
			"no create":                  p.ExportSample(ctx, engine.Filter{}, 1, nil),
			"a status that there is not": p.ExportSample(ctx, engine.Filter{Status: "asleep"}, 1, create),
		} {
			if !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if err := p.ExportSample(ctx, engine.Filter{}, 1, create); !errors.Is(err, errBroke) {
			t.Errorf("no file can be created: %v", err)
		}
		full := func(engine.Info) (io.WriteCloser, error) { return &file{full: true}, nil }
		if err := p.ExportSample(ctx, engine.Filter{}, 1, full); !errors.Is(err, errBroke) {
			t.Errorf("the disk is full: %v", err)
		}
		p.stop(t)
	})
}

// A file is in memory.
type file struct {
	bytes.Buffer
	closed int
	full   bool
}

func (f *file) Write(p []byte) (int, error) {
	if f.full {
		return 0, errBroke
	}
	return f.Buffer.Write(p)
}

func (f *file) Close() error { f.closed++; return nil }
