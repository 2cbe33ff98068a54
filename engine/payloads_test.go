package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A wire is a client in another process: between it and the engine there is only JSON. It has a
// codec, and no definitions of workflows.
type wire struct {
	engine.UnimplementedClient
	far   *engine.Engine
	codec engine.Codec
}

// An ended is what a transport says of a workflow that has ended.
type ended struct {
	Workflow string            `json:"workflow"`
	Status   checkpoint.Status `json:"status"`
	Text     string            `json:"text"`
	Result   *engine.Encoded   `json:"result"`
	Message  string            `json:"message"`
	Stack    string            `json:"stack"`
	Sentinel string            `json:"sentinel"`
}

func (w *wire) StartWorkflow(ctx context.Context, r *engine.StartRequest) (engine.Info, error) {
	input, err := json.Marshal(r.Input)
	if err != nil {
		return engine.Info{}, err
	}
	return w.far.StartWorkflow(ctx, &engine.StartRequest{Workflow: r.Workflow, ID: r.ID, Input: json.RawMessage(input)})
}

func (w *wire) Result(ctx context.Context, id, workflow string, result any) error {
	body, err := w.serve(ctx, id, workflow)
	if err != nil {
		return err
	}
	var e ended
	if err := json.Unmarshal(body, &e); err != nil {
		return err
	}
	switch {
	case e.Status == checkpoint.StatusFailed:
		return &engine.WorkflowError{WorkflowID: id, Workflow: e.Workflow, Message: e.Message, Stack: e.Stack, SentinelText: e.Sentinel}
	case e.Status == checkpoint.StatusCancelled:
		return fmt.Errorf("%w: over the wire: %s", engine.ErrCancelled, e.Text)
	case e.Result.Codec == w.codec.Name():
		return w.codec.Decode(ctx, e.Result.Data, result)
	}
	return engine.JSON.Decode(ctx, e.Result.Data, result)
}

// serve is the far side.
func (w *wire) serve(ctx context.Context, id, workflow string) ([]byte, error) {
	if err := w.far.Result(ctx, id, workflow, nil); errors.Is(err, engine.ErrNotFound) || ctx.Err() != nil {
		return nil, err
	}
	p, err := w.far.Payloads(ctx, id)
	if err != nil {
		return nil, err
	}
	e := ended{Workflow: p.Info.Workflow, Status: p.Info.Status, Text: p.Info.Failure, Result: p.Result}
	if f := p.Failure; f != nil {
		e.Message, e.Stack, e.Sentinel = f.Message, f.Stack, f.SentinelText
	}
	return json.Marshal(e)
}

// The handles of a definition work over a client in another process, whatever codec the engine has: a
// result has its type, and a failure matches the sentinels of the definition.
func TestHandleOverTheWire(t *testing.T) {
	type answer struct {
		N    int
		Text string
	}
	other := errors.New("other")
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := &engine.Workflow[string, answer]{Name: "w", Errors: []error{other, errBroke}, Func: func(run *engine.Run, in string) (answer, error) {
			switch in {
			case "break":
				return answer{}, fmt.Errorf("at last: %w", errBroke)
			case "fail":
				return answer{}, errors.New("of no kind")
			case "panic":
				panic("in code")
			case "sleep":
				return answer{}, run.Sleep(24 * time.Hour)
			}
			return answer{1 << 60, in}, nil
		}}
		for name, codec := range map[string]engine.Codec{"json": engine.JSON, "aes": newSealed(t, "aes", 'a')} {
			p := boot(t, s, wf, func(c *engine.Config) { c.Codec = codec })
			c := &wire{far: p.Engine, codec: codec}
			ends := func(in string) (answer, *engine.WorkflowError, error) {
				t.Helper()
				h, err := wf.Start(ctx, c, name+" "+in, in)
				if err != nil {
					t.Fatal(err)
				}
				a, err := soon(h)
				var failed *engine.WorkflowError
				errors.As(err, &failed)
				return a, failed, err
			}
			if a, _, err := ends("fine"); err != nil || a != (answer{1 << 60, "fine"}) {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
			if _, failed, err := ends("break"); failed == nil || !errors.Is(err, errBroke) || errors.Is(err, other) || failed.Message != "at last: broke" || failed.WorkflowID != name+" break" {
				t.Errorf("%s: %+v, want a *WorkflowError that is errBroke", name, err)
			}
			if _, failed, err := ends("fail"); failed == nil || failed.Sentinel != nil || failed.SentinelText != "" {
				t.Errorf("%s: %+v, want a *WorkflowError without a sentinel", name, err)
			}
			if _, failed, err := ends("panic"); failed == nil || !strings.Contains(failed.Stack, "payloads_test.go") {
				t.Errorf("%s: %+v, want the stack of the panic", name, err)
			}
			h, err := wf.Start(ctx, c, name+" sleep", "sleep")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Terminate(ctx, h.ID(), engine.Actor{Name: "ann", Reason: "enough"}); err != nil {
				t.Fatal(err)
			}
			if _, err := soon(h); !errors.Is(err, engine.ErrCancelled) || !strings.Contains(err.Error(), "enough") {
				t.Errorf("%s: %v, want ErrCancelled with its reason", name, err)
			}
			p.stop(t)
		}
	})
}

// What is stored of a workflow is returned as it is, at each state of the workflow, also by an engine
// that has neither its definition nor its codec.
func TestPayloads(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		codec := newSealed(t, "aes", 'a')
		wf := receiving(1)
		p := boot(t, s, wf, func(c *engine.Config) { c.Codec = codec })
		client := made(t, s)
		defer client.Close()
		read := func(id string) engine.Payloads {
			t.Helper()
			got, err := client.Payloads(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		is := func(e engine.Encoded, name, want string) {
			t.Helper()
			var v string
			if err := codec.Decode(ctx, e.Data, &v); e.Codec != name || err != nil || v != want {
				t.Errorf("codec %q, %q, %v; want %q of codec %q", e.Codec, v, err, want, name)
			}
		}
		h := start(t, wf, p, "o", "in")
		got := read("o")
		is(got.Input, "aes", "in")
		if got.Info.ID != "o" || got.Info.Status.Terminal() || got.Result != nil || got.Failure != nil {
			t.Errorf("before its end: %+v", got)
		}
		send(t, approved, p, "o", "out", "")
		if v, err := soon(h); err != nil || v != "out" {
			t.Fatalf("%q, %v", v, err)
		}
		got = read("o")
		is(got.Input, "aes", "in")
		if got.Info.Status != checkpoint.StatusCompleted || got.Result == nil || got.Failure != nil {
			t.Fatalf("at its end: %+v", got)
		}
		is(*got.Result, "aes", "out")

		if _, err := client.StartWorkflow(ctx, &engine.StartRequest{Workflow: "nobody's", ID: "json", Input: json.RawMessage(`{"a":1}`)}); err != nil {
			t.Fatal(err)
		}
		if got := read("json"); got.Input.Codec != "json" || string(got.Input.Data) != `{"a":1}` {
			t.Errorf("in JSON: %+v", got.Input)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]error{"o": engine.ErrNotFound, "nobody": engine.ErrNotFound, "": engine.ErrInvalid} {
			if _, err := client.Payloads(ctx, id); !errors.Is(err, want) {
				t.Errorf("of %q: %v, want %v", id, err, want)
			}
		}
	})
}

// Payloads of a workflow that is purged and started anew while they are read are all of the new one.
func TestPayloadsAreOfOneWorkflow(t *testing.T) {
	s := &hooked{Storage: new(memory.Store)}
	wf := flow("w", func(*engine.Run) (string, error) { return "first", nil })
	p := boot(t, s, wf)
	if v, err := soon(start(t, wf, p, "o", "old")); err != nil || v != "first" {
		t.Fatalf("%q, %v", v, err)
	}
	other := made(t, s.Storage)
	defer other.Close()
	reader := &hooked{Storage: s.Storage}
	r := made(t, reader)
	defer r.Close()
	raced := false
	reader.afterGet = func(key []byte) {
		if !raced && string(key) == "wf:o" {
			raced = true
			if err := other.Purge(ctx, "o", audit); err != nil {
				t.Error(err)
			}
			if _, err := other.StartWorkflow(ctx, &engine.StartRequest{Workflow: "nobody's", ID: "o", Input: "new"}); err != nil {
				t.Error(err)
			}
		}
	}
	got, err := r.Payloads(ctx, "o")
	if err != nil || !raced || got.Info.Workflow != "nobody's" || string(got.Input.Data) != `"new"` || got.Result != nil {
		t.Errorf("%+v, %v, want those of the second", got, err)
	}
}
