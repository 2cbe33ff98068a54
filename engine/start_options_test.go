package engine_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// family is a build's code of workflows that start each other, none of them Pinned. Each returns
// the names of the builds that executed it and its descendants.
func family(deployment string) (outer, detaching *engine.Workflow[string, string], all []any) {
	leaf := flow("leaf", func(run *engine.Run) (string, error) { return deployment, nil })
	middle := flow("middle", func(run *engine.Run) (string, error) {
		s, err := leaf.Do(run, "")
		return deployment + " " + s, err
	})
	outer = flow("outer", func(run *engine.Run) (string, error) {
		if err := run.Sleep(time.Minute); err != nil {
			return "", err
		}
		s, err := middle.Do(run, "")
		if err != nil {
			return "", err
		}
		elsewhere, err := leaf.With(engine.StartOptions{Deployment: "green"}).Do(run, "")
		return deployment + " " + s + " " + elsewhere, err
	})
	detaching = flow("detaching", func(run *engine.Run) (string, error) {
		return leaf.Detach(run, "detached", "")
	})
	return outer, detaching, []any{leaf, middle, outer, detaching, on(deployment), parkAfter(-1)}
}

// UPG-5, HTTP-29, HTTP-32: a run whose start names a deployment is executed there and nowhere else, with its
// children, Pinned or not, whatever deployment is active. While there is no such engine it waits, and
// is shown. A child that names another deployment is on that one; what is detached is on any.
func TestStartOnADeployment(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		opened := store.Open(t)
		defer opened.Close()
		s := sharing{opened}
		outer, detaching, blues := family("blue")
		onBlue := outer.With(engine.StartOptions{Deployment: "blue"})
		_, _, greens := family("green")
		_, _, nowhere := family("nowhere")
		green := boot(t, s, greens...)
		defer green.kill()
		plain := boot(t, s, append(nowhere, func(c *engine.Config) { c.Deployment = "" })...)
		defer plain.kill()
		activate(t, green.Engine, "green")
		time.Sleep(time.Second)

		h := start(t, onBlue, green, "o", "")
		if _, err := yes.SendWithStart(ctx, plain, onBlue.Request("sent", ""), "v", nil); err != nil {
			t.Fatal(err)
		}
		start(t, detaching.With(engine.StartOptions{Deployment: "blue"}), plain, "detaching", "")
		time.Sleep(time.Minute)
		for _, id := range []string{"o", "sent", "detaching"} {
			placed(t, green, id, "blue")
			i := describe(t, green, id)
			if i.Status != checkpoint.StatusPending || !heldFor(i, engine.ReasonUnregistered) || !strings.Contains(i.Attention[0].Detail, `"blue"`) {
				t.Errorf("nobody of blue: %+v, want it shown", i)
			}
		}
		// Another deployment in a repeated start is ignored.
		again, err := outer.With(engine.StartOptions{Deployment: "green"}).Start(ctx, green, "o", "")
		if err != nil || again.ID() != "o" {
			t.Errorf("again: %v", err)
		}
		placed(t, green, "o", "blue")

		blue := boot(t, s, blues...)
		defer blue.kill()
		for _, h := range []*engine.Handle[string]{h, onBlue.Handle(green, "sent"), start(t, onBlue, blue, "local", "")} {
			if got := result(t, h); got != "blue blue blue green" {
				t.Errorf("%s was executed by %s, want itself, its child and its grandchild on blue", h.ID(), got)
			}
		}
		for i, err := range green.List(ctx, engine.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			wf, err := journal.Load(ctx, s, i.ID)
			if err != nil {
				t.Fatal(err)
			}
			switch i.ID {
			case "detached":
				if len(wf.Needs) > 0 {
					t.Errorf("detached needs %q, and uses nothing new", wf.Needs)
				}
				continue
			case "o", "sent", "local", "detaching":
				placed(t, green, i.ID, "blue")
			}
			// A release that would let the children go does not execute it.
			if !slices.Equal(wf.Needs, []string{"deployment"}) {
				t.Errorf("%s needs %q, want that an earlier release leaves it alone", i.ID, wf.Needs)
			}
		}
		result(t, detaching.Handle(green, "detaching"))
		time.Sleep(time.Second)
		placed(t, green, "detached", "")
	})
}

// HTTP-29: a Pinned workflow whose start names a deployment needs no active one.
func TestPinnedStartOnADeployment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		w := build("blue")
		p := boot(t, s, w, on("blue"))
		time.Sleep(time.Second)
		if got := result(t, start(t, w.With(engine.StartOptions{Deployment: "blue"}), p, "o", "")); got != "blue" {
			t.Errorf("executed by %q", got)
		}
		placed(t, p, "o", "blue")
	})
}

// What a start cannot have is refused, and nothing is written.
func TestStartOptionsAtTheDoor(t *testing.T) {
	s := fresh(t)
	wf := receiving(1)
	e := made(t, s)
	defer e.Close()
	before := len(entries(t, s, ""))
	for what, o := range map[string]engine.StartOptions{
		"a long deployment":            {Deployment: strings.Repeat("d", 101)},
		"a deployment that is no text": {Deployment: "\xff"},
		"a queue and none":             {Queue: "q", NoQueue: true},
	} {
		if _, err := wf.With(o).Start(ctx, e, "o", ""); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if after := len(entries(t, s, "")); after != before {
		t.Errorf("%d records were written", after-before)
	}
}

// Options that are not set are those of the definition.
func TestWithLeavesTheOtherDefaults(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour)
	labels := map[string]string{"team": "a", "tier": "1"}
	wf := receiving(1)
	wf.Defaults = engine.StartOptions{Queue: "reports", Deployment: "blue", Labels: labels, StartAt: tomorrow}
	all := wf.Defaults
	tried := map[string]bool{}
	for _, with := range []func(o, want *engine.StartOptions){
		func(o, want *engine.StartOptions) {},
		func(o, want *engine.StartOptions) { o.Queue, want.Queue = "other", "other" },
		func(o, want *engine.StartOptions) { o.NoQueue, want.Queue, want.NoQueue = true, "", true },
		func(o, want *engine.StartOptions) { o.Deployment, want.Deployment = "green", "green" },
		func(o, want *engine.StartOptions) {
			o.Labels, want.Labels = map[string]string{"team": "b"}, map[string]string{"team": "b"}
		},
		func(o, want *engine.StartOptions) {
			o.Labels, want.Labels = map[string]string{}, map[string]string{}
		},
		func(o, want *engine.StartOptions) {
			o.StartAt, want.StartAt = tomorrow.Add(time.Hour), tomorrow.Add(time.Hour)
		},
	} {
		o, want := engine.StartOptions{}, all
		with(&o, &want)
		for _, f := range reflect.VisibleFields(reflect.TypeOf(o)) {
			tried[f.Name] = tried[f.Name] || !reflect.ValueOf(o).FieldByIndex(f.Index).IsZero()
		}
		if got := wf.With(o).Request("o", "").Options; !reflect.DeepEqual(got, want) {
			t.Errorf("with %+v: %+v, want %+v", o, got, want)
		}
	}
	for name, ok := range tried {
		if !ok {
			t.Errorf("no options with %s were tried", name)
		}
	}
	if !reflect.DeepEqual(wf.Defaults, all) {
		t.Errorf("With has changed the definition: %+v", wf.Defaults)
	}
	none := wf.With(engine.StartOptions{NoQueue: true})
	if got := none.With(engine.StartOptions{Queue: "other"}).Request("o", "").Options; got.Queue != "other" || got.NoQueue {
		t.Errorf("with no queue and then with one: %+v", got)
	}
}

// A start by name waits in the queue of the engine's definition. One that says otherwise does not.
func TestStartByNameWaitsInTheDefaultQueue(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := receiving(1)
		wf.Defaults.Queue = "reports"
		e := made(t, s, wf)
		defer e.Close()
		knowsNothing := made(t, s)
		defer knowsNothing.Close()
		byName := func(c engine.Client, id string, o engine.StartOptions) string {
			t.Helper()
			i, err := c.StartWorkflow(ctx, &engine.StartRequest{Workflow: wf.Name, ID: id, Input: "", Options: o})
			if err != nil {
				t.Fatal(err)
			}
			return i.Queue
		}
		start(t, wf, e, "typed", "")
		start(t, wf.With(engine.StartOptions{NoQueue: true}), e, "typed without", "")
		if _, err := approved.SendWithStart(ctx, e, &engine.StartRequest{Workflow: wf.Name, ID: "sent", Input: ""}, "v", nil); err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]struct{ got, want string }{
			"by name":                    {byName(e, "by name", engine.StartOptions{}), "reports"},
			"with a signal":              {describe(t, e, "sent").Queue, "reports"},
			"with another queue":         {byName(e, "another", engine.StartOptions{Queue: "other"}), "other"},
			"without a queue":            {byName(e, "none", engine.StartOptions{NoQueue: true}), ""},
			"where nobody has the queue": {byName(knowsNothing, "unknown", engine.StartOptions{}), ""},
			"typed":                      {describe(t, e, "typed").Queue, "reports"},
			"typed without a queue":      {describe(t, e, "typed without").Queue, ""},
		} {
			if c.got != c.want {
				t.Errorf("%s: it waits in queue %q, want %q", what, c.got, c.want)
			}
		}
	})
}

// OP-22: who starts an id that is in use learns what has it, and whether it is the same start: also
// one that must be new.
func TestIDInUse(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := receiving(1)
		e := made(t, s, wf)
		defer e.Close()
		start(t, wf, e, "o", "in")
		try := func(r *engine.StartRequest) error {
			_, err := e.StartWorkflow(ctx, r)
			if err == nil {
				return nil
			}
			_, withSignal := e.SendSignal(ctx, signal.Message{Start: r, Name: "n", Payload: "v"})
			if sprint(withSignal) != sprint(err) {
				t.Errorf("start: %v; with a signal: %v", err, withSignal)
			}
			return err
		}
		exists := func(what string, err error, want engine.ExistsError) {
			t.Helper()
			var got *engine.ExistsError
			if !errors.As(err, &got) || !errors.Is(err, engine.ErrExists) || *got != want {
				t.Errorf("%s: %+v, want %+v", what, err, want)
			}
		}
		pending := engine.ExistsError{WorkflowID: "o", Workflow: "w", Status: checkpoint.StatusPending, Asked: "w"}
		exists("another input", try(&engine.StartRequest{Workflow: "w", ID: "o", Input: "other"}), pending)
		ofAnother := pending
		ofAnother.Asked = "v"
		exists("another workflow", try(&engine.StartRequest{Workflow: "v", ID: "o", Input: "in"}), ofAnother)
		if err := try(&engine.StartRequest{Workflow: "w", ID: "o", Input: "in"}); err != nil {
			t.Errorf("the same: %v", err)
		}
		same := pending
		same.Same = true
		exists("the same, which must be new", try(&engine.StartRequest{Workflow: "w", ID: "o", Input: "in", New: true}), same)
		exists("another input, which must be new", try(&engine.StartRequest{Workflow: "w", ID: "o", Input: "other", New: true}), pending)

		i, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: "new", Input: "in", New: true})
		if err != nil || i.ID != "new" {
			t.Errorf("a new one: %+v, %v", i, err)
		}
		if err := e.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		same.Status = checkpoint.StatusCancelled
		exists("after its end", try(&engine.StartRequest{Workflow: "w", ID: "o", Input: "in", New: true}), same)
	})
}

// A start that must be new and whose own commit took effect without an answer is not refused.
func TestNewStartMeetsItself(t *testing.T) {
	virtual(t, func(t *testing.T) {
		armed, times := false, 0
		s := &hooked{Storage: fresh(t)}
		s.afterCommit = func(storage.Batch) error {
			if armed {
				if times++; times == 1 {
					return errors.New("the answer is lost")
				}
			}
			return nil
		}
		e := made(t, s)
		defer e.Close()
		armed = true
		if i, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: "o", New: true}); err != nil || i.ID != "o" {
			t.Errorf("%+v, %v", i, err)
		}
	})
}
