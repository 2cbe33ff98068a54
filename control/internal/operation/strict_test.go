package operation

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// HTTP-42: what is exactly one JSON value, and what is not.
func TestCheckJSON(t *testing.T) {
	for doc, problem := range map[string]string{
		`{}`:                          "",
		` {"a":[1,"é",null]} ` + "\n": "",
		`{"a":9007199254740993}`:      "",
		`{"a":"\ud83d\ude00"}`:        "",
		``:                            "ends too early",
		`{"a":1`:                      "unexpected EOF",
		"\xef\xbb\xbf{}":              "begins with a byte order mark",
		`{}{}`:                        "has something after its end",
		`{} x`:                        "invalid character",
		`{"a":1,"a":1}`:               "/a: occurs twice",
		`{"b":{"a":1,"a":1}}`:         "/b/a: occurs twice",
		`{"b":[{"a":1,"\u0061":1}]}`:  "/b/0/a: occurs twice",
		`{"a":"\ud800"}`:              "surrogate",
		`{"a":"\udc00\ud800"}`:        "surrogate",
		"{\"a\":\"\xff\"}":            "/a: invalid UTF-8",
		"{\"\xff\":1}":                "invalid UTF-8",
		`{"a":01}`:                    "invalid character",
		`{"a":+1}`:                    "invalid character",
		`{"a":NaN}`:                   "invalid",
		`{'a':1}`:                     "invalid character",
		`{"a":1,}`:                    "invalid character",
		`// x`:                        "invalid character",
		"{\"a\":\"\x00\"}":            "invalid character",
		strings.Repeat("[", 100) + strings.Repeat("]", 100):       "",
		strings.Repeat("[", 101) + strings.Repeat("]", 101):       "more than 100 levels",
		strings.Repeat("[", 10000) + strings.Repeat("]", 10000):   "more than 100 levels",
		strings.Repeat(`{"a":`, 10000) + strings.Repeat("}", 999): "more than 100 levels",
	} {
		err := CheckJSON([]byte(doc), MaxDepth)
		switch {
		case problem == "" && err != nil:
			t.Errorf("%.80q: got %v, want none", doc, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%.80q: got %v, want %q", doc, err, problem)
		}
	}
}

type startLike struct {
	Name string          `json:"workflowName"`
	In   json.RawMessage `json:"input,omitempty"`
}

type createLike struct {
	Name string `json:"workflowName"`
}

type paramsLike struct {
	RunID    string          `json:"runId" in:"path"`
	Wait     *int            `json:"wait,omitempty" in:"query"`
	All      bool            `json:"all,omitempty" in:"query"`
	Labels   []string        `json:"label,omitempty" in:"query"`
	Name     string          `json:"name"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	SignalID *string         `json:"signalId,omitempty"`
	Start    *startLike      `json:"start,omitempty"`
}

// HTTP-42: parameters are read by their exact names, each once, and null is no value except of JSON.
func TestReadParams(t *testing.T) {
	const rest = `"runId":"r","name":"n"`
	for members, want := range map[string]Issue{
		``:                                   {},
		`"payload":null`:                     {},
		`"payload":{"a":null}`:               {},
		`"wait":3`:                           {},
		`"start":{"workflowName":"w"}`:       {},
		`"unknown":1`:                        {"/unknown", "is unknown"},
		`"Wait":3`:                           {"/Wait", "is unknown"},
		`"signalID":"s"`:                     {"/signalID", "is unknown"},
		`"start":{"WorkflowName":"w"}`:       {"/start/WorkflowName", "is unknown"},
		`"signalId":null`:                    {"/signalId", "must not be null"},
		`"signalId":1`:                       {"/signalId", "must be a string"},
		`"wait":null`:                        {"/wait", "must not be null"},
		`"wait":"3"`:                         {"/wait", "must be a whole number"},
		`"wait":1.5`:                         {"/wait", "must be a whole number"},
		`"wait":99999999999999999999`:        {"/wait", "is out of range"},
		`"all":"true"`:                       {"/all", "must be true or false"},
		`"label":"a"`:                        {"/label", "must be an array"},
		`"label":[null]`:                     {"/label/0", "must not be null"},
		`"start":null`:                       {"/start", "must not be null"},
		`"start":[]`:                         {"/start", "must be an object"},
		`"start":{"workflowName":null}`:      {"/start/workflowName", "must not be null"},
		`"signalId":"a","signalId":"a"`:      {"/signalId", "occurs twice"},
		`"signalId":"a","\u0073ignalId":"a"`: {"/signalId", "occurs twice"},
		`"start":{"input":1,"input":1}`:      {"/start/input", "occurs twice"},
		`"start":{"input":{"a":1,"a":1}}`:    {"/start/input/a", "occurs twice"},
		`"payload":"\ud800"`:                 {"/payload", "surrogate"},
	} {
		raw := "{" + rest
		if members != "" {
			raw += "," + members
		}
		_, issues := readerOf[paramsLike]()([]byte(raw + "}"))
		switch {
		case want == Issue{}:
			if len(issues) > 0 {
				t.Errorf("%s: got %v, want none", members, issues)
			}
		case len(issues) != 1 || issues[0].Path != want.Path || !strings.Contains(issues[0].Problem, want.Problem):
			t.Errorf("%s: got %v, want %v", members, issues, want)
		}
	}
	if _, issues := readerOf[paramsLike]()([]byte(`{"wait":1}`)); len(issues) != 2 || issues[0] != (Issue{Path: "/runId", Problem: "is required"}) || issues[1] != (Issue{Path: "/name", Problem: "is required"}) {
		t.Errorf("without what is required: got %v", issues)
	}
}

// The parameters of a REST request are those of its path, its query and its body, and none may be in
// the place of another.
func TestGather(t *testing.T) {
	o := &Operation{Do: Act[paramsLike](nil)}
	path := map[string]string{"runId": `a"b<é`}
	for _, c := range []struct{ query, body, raw, problem string }{
		{"", "", `{"runId":"a\"b<é"}`, ""},
		{"wait=3&all=true&label=a:1&label=b:2", `{"name":"n"}`, `{"all":true,"label":["a:1","b:2"],"name":"n","runId":"a\"b<é","wait":3}`, ""},
		{"", `{"payload":{"x":1.0,"a":[9007199254740993]}}`, `{"payload":{"x":1.0,"a":[9007199254740993]},"runId":"a\"b<é"}`, ""},
		{"wait=x", "", "", "/wait must be a number"},
		{"wait=", "", "", "/wait must be a number"},
		{"wait=[1]", "", "", "/wait must be a number"},
		{"wait=1&wait=1", "", "", "/wait occurs twice"},
		{"all=1", "", "", "/all must be true or false"},
		{"all=%ff", "", "", "/all is not valid UTF-8"},
		{"label=%ff", "", "", "/label is not valid UTF-8"},
		{"Wait=1", "", "", "/Wait is unknown"},
		{"name=n", "", "", "/name is unknown"},
		{"runId=r", "", "", "/runId is unknown"},
		{"", `{"runId":"other"}`, "", "/runId is unknown"},
		{"", `{"wait":3}`, "", "/wait is unknown"},
		{"", `{"a/b~":3}`, "", "/a~1b~0 is unknown"},
		{"", `[]`, "", " must be an object"},
		{"", `"x"`, "", " must be an object"},
		{"", `null`, "", " must be an object"},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		raw, issues := o.Gather(path, query, []byte(c.body))
		got := ""
		if len(issues) > 0 {
			got = issues[0].Path + " " + issues[0].Problem
		}
		if string(raw) != c.raw || got != c.problem {
			t.Errorf("%s %s: got %s, %q, want %s, %q", c.query, c.body, raw, got, c.raw, c.problem)
		}
	}
	if _, issues := o.Gather(nil, nil, []byte(`{"wait":3}`)); len(issues) != 1 || issues[0] != (Issue{Path: "/wait", Problem: "is unknown"}) {
		t.Errorf("a parameter of the query in the body: got %v", issues)
	}
	// Nothing is added to a body that has all the parameters: decoding it refuses what is unknown.
	o = &Operation{Do: Act[createLike](nil)}
	const body = `{ "workflowName":"w", "a":1 }`
	raw, issues := o.Gather(nil, nil, []byte(body))
	if string(raw) != body || len(issues) > 0 {
		t.Errorf("got %s, %v, want the body", raw, issues)
	}
	if _, issues := o.Do.read(raw); len(issues) != 1 || issues[0] != (Issue{Path: "/a", Problem: "is unknown"}) {
		t.Errorf("an unknown member: got %v", issues)
	}
}

// What CheckJSON accepts is JSON for encoding/json too, and what a decoder of the body makes of it does not
// depend on which of two equal names counts.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"a":2}`, `[1,"\ud800"]`, "\xef\xbb\xbf{}", `{"a":{"b":[{}]}} x`, "{\"\xff\":1}", strings.Repeat("[", 200)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if CheckJSON(data, MaxDepth) != nil {
			return
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatalf("%q is accepted: %v", data, err)
		}
		if !utf8.Valid(data) {
			t.Fatalf("%q is accepted, and is not UTF-8", data)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckJSON(again, MaxDepth); err != nil {
			t.Fatalf("%q is accepted, and %q is not: %v", data, again, err)
		}
		if d := depthOf(data); d > MaxDepth {
			t.Fatalf("%q has %d levels and is accepted", data, d)
		}
	})
}

// depthOf counts brackets outside of strings.
func depthOf(data []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case bytes.IndexByte([]byte("[{"), c) >= 0:
			depth++
			most = max(most, depth)
		case bytes.IndexByte([]byte("]}"), c) >= 0:
			depth--
		}
	}
	return most
}

// Whatever a client sends, its parameters are read as they were sent, or refused.
func FuzzGather(f *testing.F) {
	f.Add("wait=3&label=a", `{"name":"n","payload":1}`)
	f.Add("x=1;y=2", `{"runId":"x"}`)
	f.Fuzz(func(t *testing.T, query, body string) {
		values, err := url.ParseQuery(query)
		if err != nil || body != "" && CheckJSON([]byte(body), MaxDepth) != nil {
			return
		}
		o := &Operation{Do: Act[paramsLike](nil)}
		raw, issues := o.Gather(map[string]string{"runId": "r"}, values, []byte(body))
		if len(issues) > 0 {
			return
		}
		if err := CheckJSON(raw, MaxDepth); err != nil {
			t.Fatalf("%q %q: gathered %q: %v", query, body, raw, err)
		}
		p, issues := readerOf[paramsLike]()(raw)
		if len(issues) > 0 {
			return
		}
		if q := p.(*paramsLike); q.RunID != "r" || values.Has("all") && q.All != (values.Get("all") == "true") {
			t.Fatalf("%q %q: read %+v", query, body, q)
		}
	})
}
