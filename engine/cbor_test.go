package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	fxcbor "github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/codec/cbor"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/stream"
)

// A cargo has what JSON has no types for. Its text is looked for in the store.
type cargo struct {
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	Data []byte    `json:"data"`
}

func (p cargo) equal(o cargo) bool {
	return p.Text == o.Text && p.At.Equal(o.At) && bytes.Equal(p.Data, o.Data)
}

func newCargo(text string) cargo {
	return cargo{"needle " + text, time.Date(2026, 11, 26, 12, 0, 0, 7, time.UTC), []byte{0, 255, '"'}}
}

// everywhere is a workflow that stores a cargo in every way in which a run can.
type everywhere struct {
	flow  *engine.Workflow[cargo, cargo]
	child *engine.Workflow[cargo, cargo]
	keyed *activity.Activity[cargo, cargo]
	news  *signal.Signal[cargo]
	hook  *signal.Hook[cargo]
	value *engine.Value[cargo]
	ask   *engine.Update[cargo, cargo]
	words *stream.Stream[cargo]
	wrong func(got cargo)
}

func newEverywhere(t *testing.T) *everywhere {
	w := &everywhere{
		news: &signal.Signal[cargo]{Name: "news"}, hook: &signal.Hook[cargo]{Name: "hook"}, value: &engine.Value[cargo]{Name: "value"},
		ask: &engine.Update[cargo, cargo]{Name: "ask"}, words: &stream.Stream[cargo]{Name: "words"},
	}
	w.wrong = func(got cargo) {
		if want := newCargo(strings.TrimPrefix(got.Text, "needle ")); !got.equal(want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	w.keyed = &activity.Activity[cargo, cargo]{
		Name: "keyed", IdempotencyKey: func(p cargo) string { return p.Text },
		Run: func(ctx context.Context, in cargo) (cargo, error) {
			w.wrong(in)
			if err := activity.Heartbeat(ctx, newCargo("progress")); err != nil {
				return cargo{}, err
			}
			return newCargo("result"), w.words.Writer(ctx).Write(newCargo("chunk"))
		},
		Verify: func(context.Context, cargo) (activity.Verification[cargo], error) {
			return activity.CompletedWithResult(newCargo("result")), nil
		},
	}
	w.child = &engine.Workflow[cargo, cargo]{Name: "child", Func: func(_ *engine.Run, in cargo) (cargo, error) { return in, nil }}
	w.flow = &engine.Workflow[cargo, cargo]{Name: "everywhere", Func: w.run}
	return w
}

func (w *everywhere) run(run *engine.Run, in cargo) (out cargo, err error) {
	w.wrong(in)
	if err := w.ask.Handle(run, nil, func(_ *engine.Run, in cargo) (cargo, error) { return in, nil }); err != nil {
		return out, err
	}
	if in.Text == "needle start" {
		return out, engine.ContinueAsNew(run, newCargo("continued"))
	}
	h, err := w.hook.Open(run, &signal.HookOptions{Token: "token"})
	if err != nil {
		return out, err
	}
	for _, do := range []func() (cargo, error){
		func() (cargo, error) { return w.keyed.Do(run, newCargo("input")) },
		func() (cargo, error) {
			return engine.Step(run, "step", func(context.Context) (cargo, error) { return newCargo("step"), nil })
		},
		func() (cargo, error) { return w.child.Do(run, newCargo("child")) },
		func() (cargo, error) { return newCargo("value"), w.value.Set(run, newCargo("value")) },
		func() (cargo, error) { return w.news.Receive(run) },
		func() (cargo, error) { return w.news.Receive(run) },
		func() (cargo, error) { return h.Receive(run) },
	} {
		if out, err = do(); err != nil {
			return out, err
		}
		w.wrong(out)
	}
	return out, nil
}

// WLD-62 to WLD-65: with cbor.Codec all that users give to an engine is stored in CBOR, each payload names this, and
// nothing is stored as JSON. It comes back with its times and bytes.
func TestPayloadsInCBOR(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		w := newEverywhere(t)
		p := boot(t, s, w.flow, w.child, func(c *engine.Config) { c.Codec = cbor.Codec })
		h := start(t, w.flow, p, "o", newCargo("start"))
		if err := p.PutSchedule(ctx, engine.Schedule{ID: "s", Start: w.child.Request("", newCargo("scheduled")), Every: time.Hour}, audit); err != nil {
			t.Fatal(err)
		}
		if _, err := w.value.Await(ctx, p, "o", func(p cargo) bool { w.wrong(p); return true }); err != nil {
			t.Fatal(err)
		}
		if got, err := w.ask.Call(ctx, p, "o", newCargo("update"), nil); err != nil {
			t.Fatal(err)
		} else {
			w.wrong(got)
		}
		if _, err := w.news.Send(ctx, p, "o", newCargo("signal"), &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.hook.Resume(ctx, p, "token", newCargo("resume"), &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if err := p.StartBulk(ctx, "b", engine.Bulk{
			Do: engine.BulkSignal, Filter: engine.Filter{Workflow: "everywhere"}, Signal: signal.Message{Name: "news", Payload: newCargo("bulk")},
		}, audit); err != nil {
			t.Fatal(err)
		}
		got, err := soon(h)
		if err != nil {
			t.Fatal(err)
		}
		w.wrong(got)
		if v, err := w.value.Read(ctx, p, "o"); err != nil || !v.equal(newCargo("value")) {
			t.Errorf("value: %+v, %v", v, err)
		}
		for c, err := range w.words.Read(ctx, p, "o", 0) {
			if err != nil {
				t.Fatal(err)
			}
			w.wrong(c.Data)
		}
		inCBOR(t, s, p)
	})
}

// inCBOR checks that whatever of the cargo is stored is CBOR.
func inCBOR(t *testing.T, s storage.Storage, p *process) {
	t.Helper()
	found := map[string]bool{}
	for key, record := range dumped(t, s) {
		if strings.Contains(record, `"text":`) || strings.Contains(record, `"needle `) {
			t.Errorf("%q has a cargo in JSON", key)
		}
		for _, text := range []string{
			"progress", "result", "chunk", "step", "child", "value", "signal", "resume", "update", "continued", "bulk", "scheduled",
		} {
			if strings.Contains(record, "needle "+text) {
				found[text] = true
				if !strings.Contains(record, "cbor") {
					t.Errorf("%q has a cargo, and no name of its codec", key)
				}
			}
		}
	}
	for _, text := range []string{"result", "chunk", "step", "child", "value", "signal", "resume", "update", "continued", "scheduled"} {
		if !found[text] {
			t.Errorf("the cargo %q is not in the store", text)
		}
	}
	for _, c := range historyOf(t, p.Engine, "o") {
		for _, e := range c.Events {
			if e.Result == nil {
				continue
			}
			if err := fxcbor.Wellformed(e.Result); err != nil || e.Codec != "cbor" {
				t.Errorf("%s of %q has a result of codec %q, %q: %v", e.Kind, e.Name, e.Codec, e.Result, err)
			}
		}
	}
	stored, err := p.Payloads(ctx, "o")
	if err != nil || stored.Input.Codec != "cbor" || stored.Result == nil || stored.Result.Codec != "cbor" {
		t.Errorf("payloads: %+v, %v", stored, err)
	}
}

// WLD-64, WLD-66: an engine with cbor.Codec goes on with what was stored as JSON, and does not rewrite it. One that has only
// JSON holds what is in CBOR, and goes on when it has the codec, even if it writes JSON itself.
func TestFromJSONToCBORAndBack(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		news := &signal.Signal[cargo]{Name: "news"}
		reached := &engine.Value[int]{Name: "reached"}
		wf := &engine.Workflow[cargo, []cargo]{Name: "wf", Func: func(run *engine.Run, in cargo) (all []cargo, err error) {
			all = append(all, in)
			for n := range 4 {
				step, err := engine.Step(run, "step", func(context.Context) (cargo, error) { return newCargo("step"), nil })
				if err != nil {
					return all, err
				}
				if err := reached.Set(run, n); err != nil {
					return all, err
				}
				next, err := news.Receive(run)
				if err != nil {
					return all, err
				}
				all = append(all, step, next)
			}
			return all, nil
		}}
		reach := func(p *process, n int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if _, err := reached.Await(ctx, p, "o", func(x int) bool { return x == n }); err != nil {
				t.Fatal(err)
			}
		}
		say := func(p *process) {
			t.Helper()
			if _, err := news.Send(ctx, p, "o", newCargo("signal"), nil); err != nil {
				t.Fatal(err)
			}
		}
		codec := func(own engine.Codec, others ...engine.Codec) func(*engine.Config) {
			return func(c *engine.Config) { c.Codec, c.Codecs = own, others }
		}

		p := boot(t, s, wf)
		h := start(t, wf, p, "o", newCargo("start"))
		reach(p, 0)
		say(p)
		reach(p, 1)
		say(p)
		reach(p, 2)
		p.stop(t)
		payloads := func() map[string]string { // records that are written once
			kept := map[string]string{}
			for key, record := range dumped(t, s) {
				if strings.HasPrefix(key, "log:") || key == "wf:o:in" {
					kept[key] = record
				}
			}
			return kept
		}
		before := payloads()
		if len(before) < 3 {
			t.Fatalf("%d records of payloads: %q", len(before), entries(t, s, ""))
		}

		p = boot(t, s, wf, codec(cbor.Codec))
		start(t, wf, p, "o", newCargo("start")) // the same input in another codec is the same start
		say(p)
		reach(p, 3)
		p.stop(t)
		after := payloads()
		for key, record := range before {
			if after[key] != record {
				t.Errorf("%q was rewritten", key)
			}
		}

		p = boot(t, s, wf) // a release before this one knows JSON alone
		kinds := map[string]int{}
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Result != nil {
					kinds[e.Codec]++
				}
			}
		}
		if kinds[""] == 0 || kinds["cbor"] == 0 || len(kinds) != 2 {
			t.Errorf("payloads by codec: %v", kinds)
		}
		say(p) // it is waiting
		eventually(t, "the run is held", func() bool {
			i := describe(t, p, "o")
			return i.Status == checkpoint.StatusRunning && heldFor(i, engine.ReasonUndecodable) && strings.Contains(i.Attention[0].Detail, "cbor")
		})
		p.stop(t)

		p = boot(t, s, wf, codec(engine.JSON, cbor.Codec)) // and with the codec, it goes on
		got, err := soon(wf.Handle(p, h.ID()))
		if err != nil || len(got) != 9 {
			t.Fatalf("got %d cargo, %v", len(got), err)
		}
		for n, g := range got {
			want := newCargo([]string{"signal", "step"}[n%2])
			if n == 0 {
				want = newCargo("start")
			}
			if !g.equal(want) {
				t.Errorf("cargo %d: %+v", n, g)
			}
		}
	})
}

// WLD-65: what comes as JSON, such as over HTTP, is stored in CBOR too: its type is not known yet, so it is stored as embedded JSON,
// and decoded as the type of its receiver. A repetition, also from a client with types, is the same start.
func TestRawJSONInCBOR(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		w := newEverywhere(t)
		p := boot(t, s, w.flow, w.child, func(c *engine.Config) { c.Codec = cbor.Codec })
		raw, err := json.Marshal(newCargo("start"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.StartWorkflow(ctx, &engine.StartRequest{Workflow: "child", ID: "o", Input: json.RawMessage(raw)}); err != nil {
			t.Fatal(err)
		}
		got := result(t, start(t, w.child, p, "o", newCargo("start")))
		if !got.equal(newCargo("start")) {
			t.Errorf("got %+v", got)
		}
		stored, err := p.Payloads(ctx, "o")
		if err != nil {
			t.Fatal(err)
		}
		var tag fxcbor.Tag
		if err := fxcbor.Unmarshal(stored.Input.Data, &tag); err != nil || tag.Number != 262 || stored.Input.Codec != "cbor" {
			t.Errorf("stored as %s, %+v, %v", stored.Input.Codec, tag, err)
		}
		var asked json.RawMessage
		if err := p.Result(ctx, "o", "child", &asked); err != nil || !json.Valid(asked) {
			t.Errorf("the result as JSON: %s, %v", asked, err)
		}
	})
}
