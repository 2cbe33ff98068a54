package world

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// WLD-8, WLD-9, WLD-11 to WLD-14: a structured error is stored as JSON, and read from whatever was stored.
func TestStructuredErrors(t *testing.T) {
	for _, e := range []StructuredError{{Message: "no"}, {Message: "no", Stack: "at pay", Code: "USER_ERROR"}, {Message: ""}, {Message: "\x00\u2028<&"}} {
		text := encodeError(&e)
		if got := decodeError(text); got == nil || *got != e || text[0] != '{' {
			t.Errorf("%+v is stored as %s, and read as %+v", e, text, got)
		}
	}
	for text, want := range map[string]*StructuredError{
		"":                          nil,
		"null":                      nil,
		`{}`:                        {Message: "Unknown error"},
		`{"stack":"s","code":"c"}`:  {Message: "Unknown error", Stack: "s", Code: "c"},
		`{"message":""}`:            {},
		"card declined":             {Message: "card declined"},
		`{"message":`:               {Message: `{"message":`},
		`5`:                         {Message: "5"},
		`"x"`:                       {Message: `"x"`},
		`[1]`:                       {Message: "[1]"},
		`{"message":5}`:             {Message: `{"message":5}`},
		`{"message":"m","more":[]}`: {Message: "m"},
	} {
		got := decodeError(text)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

// WLD-9, WLD-10, WLD-11: the error of a run and of a step of a runtime up to 4.x keeps its message, stack and code through the
// store. What is no error is a message. It is stored as a JSON string, beside what came. A later runtime gets what
// came.
func TestErrorsOfRuns(t *testing.T) {
	for _, c := range []struct {
		data any
		want map[string]string
	}{
		{map[string]any{"error": map[string]string{"message": "declined", "stack": "at pay"}, "errorCode": "USER_ERROR"}, map[string]string{"message": "declined", "stack": "at pay", "code": "USER_ERROR"}},
		{map[string]any{"error": map[string]string{"message": "declined", "code": "E"}, "stack": "at send"}, map[string]string{"message": "declined", "stack": "at send", "code": "E"}},
		{map[string]any{"error": "declined"}, map[string]string{"message": "declined"}},
		{map[string]any{"error": map[string]string{}}, map[string]string{"message": "Unknown error"}},
		{map[string]any{"error": 5}, map[string]string{"message": "5"}},
		{map[string]any{"error": []any{"a", true}}, map[string]string{"message": `["a", true]`}},
	} {
		s := new(memory.Store)
		w, err := Open(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for spec, structured := range map[int]bool{3: true, 5: false} {
			run := fmt.Sprint("wrun_", spec)
			create := func(e EventType, correlation string, data any) {
				t.Helper()
				raw, err := encoder.Marshal(data)
				if err == nil {
					_, err = w.Create(t.Context(), Request{RunID: run, Type: e, Correlation: correlation, Spec: spec, Data: raw})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			create(RunStarted, "", map[string]any{"workflowName": "order", "deploymentId": "blue", "input": 1})
			create(StepStarted, "step_1", map[string]any{"stepName": "pay", "input": 1})
			create(StepFailed, "step_1", c.data)
			create(RunFailed, "", c.data)
			again, err := Open(s, nil) // after a restart
			if err != nil {
				t.Fatal(err)
			}
			r, err := again.Run(t.Context(), run, ResolveMeta)
			step, err2 := again.Step(t.Context(), run, "step_1", ResolveMeta)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			for what, raw := range map[string]Value{"run": r.Error, "step": step.Error} {
				var got any
				if err := decoder.Unmarshal(raw, &got); err != nil {
					t.Fatalf("the error of the %s of spec %d is %x: %v", what, spec, []byte(raw), err)
				}
				var want any = c.data.(map[string]any)["error"]
				if structured {
					want = c.want
				}
				if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
					t.Errorf("the error of the %s of spec %d: got %s, want %s", what, spec, g, w)
				}
			}
			h, err := w.headOf(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			e, err := w.eventAt(t.Context(), h, h.Outcome)
			if err != nil || (decodeError(e.Error) != nil) != structured || structured && e.Error[0] != '{' {
				t.Errorf("spec %d stores the error %q, %v", spec, e.Error, err)
			}
		}
	}
}

// WLD-17, WLD-18: an Error alone has a status and a code. Any other error is a 500, without the text of the store.
func TestOtherErrorsAreInternal(t *testing.T) {
	s := new(memory.Store)
	w, err := Open(storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault { return storagetest.ErrorBefore }), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Create(t.Context(), Request{RunID: "wrun_1", Type: RunStarted})
	if e, ok := errors.AsType[*Error](err); ok || !errors.Is(err, storagetest.ErrInjected) {
		t.Errorf("an error of the store is %+v (%v)", e, err)
	}
	if a := Answer(err); a.Status != 500 || a.Code != CodeInternal || strings.Contains(a.Message, "inject") {
		t.Errorf("it is answered as %+v", a)
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(keys.World("wrun_1"), []byte("damage"))}}); err != nil {
		t.Fatal(err)
	}
	w, _ = Open(s, nil)
	_, err = w.Run(t.Context(), "wrun_1", "")
	if a := Answer(err); !errors.Is(err, storage.ErrCorrupt) || a.Status != 500 || strings.Contains(a.Message, "wrun_1") || a.Message == internalErrorText {
		t.Errorf("damage is %v, answered as %+v", err, a)
	}
	if a := Answer(fmt.Errorf("wrapped: %w", NotFound("Run", "wrun_1"))); a.Status != 404 || a.Code != CodeNotFound {
		t.Errorf("an Error is answered as %+v", a)
	}
}
