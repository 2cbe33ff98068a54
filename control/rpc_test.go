package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage/memory"
)

// An rpcAnswer is one answer of JSON-RPC.
type rpcAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	} `json:"error"`
}

func (x *site) rpc(key, body string, header ...string) []rpcAnswer {
	x.t.Helper()
	r := x.do("POST", "/v1/rpc", key, body, header...)
	if r.status == http.StatusNoContent {
		if len(r.body) > 0 {
			x.t.Fatalf("204 with the body %s", r.body)
		}
		return nil
	}
	r.is(200)
	if r.header.Get("Content-Type") != "application/json" {
		x.t.Fatalf("got the type %q", r.header.Get("Content-Type"))
	}
	var answers []rpcAnswer
	one := rpcAnswer{}
	var err error
	if bytes.HasPrefix(r.body, []byte("[")) {
		err = json.Unmarshal(r.body, &answers)
	} else {
		err = json.Unmarshal(r.body, &one)
		answers = []rpcAnswer{one}
	}
	if err != nil {
		x.t.Fatalf("%s: %v", r.body, err)
	}
	return answers
}

// SIG-47, §5: what is no request of JSON-RPC 2.0, and what is one that fails. The id comes back as it was sent.
func TestRPCErrors(t *testing.T) {
	x := serve(t, new(memory.Store))
	hundred := `{"jsonrpc":"2.0","id":1,"method":"health.get"}`
	tooMany := "[" + strings.Repeat(hundred+",", 100) + hundred + "]"
	for body, want := range map[string]string{
		`{`:                      "null -32700",
		`{} {}`:                  "null -32700",
		"\xef\xbb\xbf" + hundred: "null -32700",
		`{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"health.get"}`:                          "null -32700",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":{"limit":1,"limit":1}}`:            "null -32700",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"keys.revoke\",\"params\":{\"id\":\"a\xff\"}}": "null -32700",
		`{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"\ud800"}}`:                "null -32700",
		`{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"a","\u0069d":"b"}}`:       "null -32700",
		`{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"a"}} x`:                   "null -32700",
		strings.Repeat("[", 10000): "null -32700",
		`[]`:                       "null -32600",
		`1`:                        "null -32600",
		`null`:                     "null -32600",
		`"x"`:                      "null -32600",
		`{}`:                       "null -32600",
		`[1]`:                      "null -32600",
		tooMany:                    "null -32600",
		`{"jsonrpc":"1.0","id":1,"method":"health.get"}`:                                                     "null -32600",
		`{"id":1,"method":"health.get"}`:                                                                     "null -32600",
		`{"jsonrpc":"2.0","id":1}`:                                                                           "null -32600",
		`{"jsonrpc":"2.0","id":1,"method":7}`:                                                                "null -32600",
		`{"jsonrpc":"2.0","id":true,"method":"health.get"}`:                                                  "null -32600",
		`{"jsonrpc":"2.0","id":{},"method":"health.get"}`:                                                    "null -32600",
		`{"jsonrpc":"2.0","id":1,"method":"health.get","more":1}`:                                            "null -32600",
		`{"jsonrpc":"2.0","id":1,"method":"health.get","params":"x"}`:                                        "null -32600",
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 127) + `","method":"health.get"}`:                    "null -32600",
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                                               "null -32600",
		`{"jsonrpc":"2.0","id":1,"method":"nothing"}`:                                                        "1 -32601",
		`{"jsonrpc":"2.0","id":1,"method":"rpc"}`:                                                            "1 -32601",
		`{"jsonrpc":"2.0","id":1,"method":"deployments.artifact","params":{"id":"a"}}`:                       "1 -32601",
		`{"jsonrpc":"2.0","id":1,"method":"webhooks.receive"}`:                                               "1 -32601",
		`{"jsonrpc":"2.0","id":1,"method":"Keys.List"}`:                                                      "1 -32601",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":[]}`:                                          "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":[1]}`:                                         "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":{"Limit":1}}`:                                 "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":{"limit":"1"}}`:                               "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":{"limit":null}}`:                              "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"keys.list","params":{"idempotencyKey":"k"}}`:                      "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"keys.rotate","params":{}}`:                                        "1 -32602",
		`{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"workflowName":"w"}}`:                      "1 -32602",
		`{"jsonrpc":"2.0","id":-1.5e3,"method":"keys.rotate","params":{"id":"nobody"}}`:                      "-1.5e3 -32020",
		`{"jsonrpc":"2.0","id":"\u0061<é","method":"keys.rotate","params":{"id":"nobody"}}`:                  `"\u0061<é" -32020`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"deployments.active","params":{}}`:                  "9007199254740993 -32021",
		`{"jsonrpc":"2.0","id":1,"method":"keys.create","params":{"keyId":"reader","scopes":["runs:read"]}}`: "1 -32021",
	} {
		a := x.rpc(adminSecret, body)
		if len(a) != 1 || a[0].Error == nil || a[0].Version != "2.0" {
			t.Errorf("%.100s: got %+v, want an error", body, a)
			continue
		}
		if got := fmt.Sprintf("%s %d", a[0].ID, a[0].Error.Code); got != want || a[0].Error.Message == "" {
			t.Errorf("%.100s: got %s (%s), want %s", body, got, a[0].Error.Message, want)
		}
	}
}

// §5: data of an error is the error of REST, with the status.
func TestRPCData(t *testing.T) {
	x := serve(t, new(memory.Store), limited(3))
	a := x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"keys.rotate","params":{"id":"nobody"}}`, "X-Workflow-Correlation-Id", "c1")
	if d := a[0].Error.Data; d["httpStatus"] != 404.0 || d["status"] != 404.0 || d["code"] != "not_found" || d["message"] != a[0].Error.Message ||
		d["retry"] != "never" || d["correlationId"] != "c1" || d["retryAfter"] != nil {
		t.Errorf("got %v", d)
	}
	a = x.rpc(readerSecret, `{"jsonrpc":"2.0","id":1,"method":"keys.list"}`)
	if d := a[0].Error.Data; a[0].Error.Code != -32011 || fmt.Sprint(d["required"]) != "[admin]" {
		t.Errorf("got %+v", a[0].Error)
	}
	x.rpc(adminSecret, `[{"jsonrpc":"2.0","id":1,"method":"keys.list"},{"jsonrpc":"2.0","id":2,"method":"keys.list"}]`)
	a = x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"keys.list"}`)
	if d := a[0].Error.Data; a[0].Error.Code != -32024 || d["httpStatus"] != 429.0 || d["retryAfter"].(float64) < 1 || d["retry"] != "same-key" {
		t.Errorf("got %+v", a[0].Error)
	}
	a = x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"health.get"}`) // not counted
	if a[0].Error != nil || !strings.Contains(string(a[0].Result), `"healthy":true`) {
		t.Errorf("got %+v", a[0])
	}
}

// §5: what fails as a whole has its status of HTTP, and the envelope.
func TestRPCAsAWhole(t *testing.T) {
	x := serve(t, new(memory.Store), func(c *control.Config) { c.MaxBody = 200 })
	one := `{"jsonrpc":"2.0","id":1,"method":"keys.list"}`
	for _, c := range []struct {
		what   string
		r      *reply
		status int
		code   float64
	}{
		{"no key", x.do("POST", "/v1/rpc", "", one), 401, -32010},
		{"an unknown key", x.do("POST", "/v1/rpc", "nobody", one), 401, -32010},
		{"a large body", x.do("POST", "/v1/rpc", adminSecret, one+strings.Repeat(" ", 200)), 413, -32602},
		{"text", x.do("POST", "/v1/rpc", adminSecret, one, "Content-Type", "text/plain"), 415, -32000},
		{"gzip", x.do("POST", "/v1/rpc", adminSecret, one, "Content-Encoding", "gzip"), 415, -32000},
		{"no body", x.do("POST", "/v1/rpc", adminSecret, nil), 200, -32700},
	} {
		c.r.is(c.status)
		o := c.r.object()
		e := o["error"].(map[string]any)
		if id, ok := o["id"]; !ok || id != nil || o["jsonrpc"] != "2.0" || e["code"] != c.code || c.r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %s", c.what, c.r.body)
		}
		if c.status == 401 && c.r.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: got no WWW-Authenticate", c.what)
		}
	}
}

// What is refused as a whole, or has nothing that counts, counts as one request, and refusals of one kind are
// one row of the audit.
func TestRPCRefusalsAreCounted(t *testing.T) {
	for what, c := range map[string]struct{ body, kind string }{
		"text":               {`{}`, "text/plain"},
		"bad JSON":           {`{`, "application/json"},
		"an empty batch":     {`[]`, "application/json"},
		"no request":         {`7`, "application/json"},
		"an unknown method":  {`[{"jsonrpc":"2.0","method":"nothing"}]`, "application/json"},
		"hidden by a health": {`[{"jsonrpc":"2.0","method":"health.get"},7]`, "application/json"},
		"large":              {`"` + strings.Repeat("x", 300) + `"`, "application/json"},
	} {
		x := serve(t, new(memory.Store), limited(3), func(c *control.Config) { c.MaxBody = 200 })
		for range 3 {
			x.do("POST", "/v1/rpc", adminSecret, c.body, "Content-Type", c.kind)
		}
		a := x.do("POST", "/v1/rpc", adminSecret, c.body, "Content-Type", c.kind).object()
		if e, _ := a["error"].(map[string]any); e["code"] != -32024.0 {
			t.Errorf("%s: the fourth: got %v, want the limit", what, a)
		}
		x.plane.Close()
		n := 0
		for key := range dump(t, x.store) {
			if strings.HasPrefix(key, "ctl:audit:") {
				n++
			}
		}
		if n > 2 {
			t.Errorf("%s: got %d audit rows, want one for each code", what, n)
		}
	}
}

// SIG-36, §5: the requests of a batch are answered in their order, each authorised, counted and audited by itself;
// notifications are executed and not answered.
func TestRPCBatch(t *testing.T) {
	x := serve(t, new(memory.Store), limited(5))
	a := x.rpc(adminSecret, `[
		{"jsonrpc":"2.0","id":"a","method":"keys.create","params":{"keyId":"k1","scopes":["runs:read"]}},
		{"jsonrpc":"2.0","method":"keys.create","params":{"keyId":"k2","scopes":["runs:read"]}},
		{"jsonrpc":"2.0","id":null,"method":"keys.revoke","params":{"id":"k1"}},
		{"jsonrpc":"2.0","method":"nothing"},
		7,
		{"jsonrpc":"2.0","id":"b","method":"keys.rotate","params":{"id":"k1"}},
		{"jsonrpc":"2.0","id":"c","method":"keys.revoke","params":{"id":"k2"}},
		{"jsonrpc":"2.0","id":"d","method":"keys.list","params":{}}]`)
	var got []string
	for _, one := range a {
		code := 0
		if one.Error != nil {
			code = one.Error.Code
		}
		got = append(got, fmt.Sprintf("%s %d", one.ID, code))
	}
	if want := `"a" 0, null -32600, "b" -32020, "c" 0, "d" -32024`; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	if string(a[3].Result) != "null" { // of 204
		t.Errorf("got the result %s, want null", a[3].Result)
	}
	resources := map[any]int{}
	z := serve(t, x.store, withKeys(control.Key{ID: "auditor", Secret: "secret-of-the-auditor-of-home", Scopes: []string{"audit:read"}}))
	for _, row := range z.audit("secret-of-the-auditor-of-home", "keyId=root", 6) {
		resources[fmt.Sprint(row["action"], " ", row["resource"], " ", row["result"])]++
	}
	if n := resources["rpc /v1/rpc success"]; n > 0 {
		t.Errorf("the audit has %d rows of the batch itself", n)
	}
	for _, want := range []string{
		"keys.create /v1/keys success", "keys.revoke /v1/keys/k1 success", "keys.rotate /v1/keys/k1/rotate failure", "keys.revoke /v1/keys/k2 success", "keys.list /v1/keys failure",
	} {
		if resources[want] == 0 {
			t.Errorf("the audit has no %s: %v", want, resources)
		}
	}
	if got := x.rpc(otherSecret, `[{"jsonrpc":"2.0","method":"health.get"},{"jsonrpc":"2.0","method":"nothing"}]`); got != nil {
		t.Errorf("only notifications: got %+v", got)
	}
	if got := x.rpc(otherSecret, `{"jsonrpc":"2.0","method":"health.get"}`); got != nil {
		t.Errorf("a notification: got %+v", got)
	}
}

// The result of JSON-RPC is the body of REST, and an idempotency key is the same in both.
func TestRPCIsREST(t *testing.T) {
	x := serve(t, new(memory.Store))
	rest := x.do("POST", "/v1/runs", adminSecret, `{"workflowName":"w","input":{"a":1,"b":[1.0]}}`, "Idempotency-Key", "k1").is(201)
	a := x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"idempotencyKey":"k1","input":{"b":[1],"a":1e0},"workflowName":"w"}}`)
	if a[0].Error != nil || string(a[0].Result) != string(rest.body) {
		t.Errorf("got %s %+v, want %s", a[0].Result, a[0].Error, rest.body)
	}
	a = x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"idempotencyKey":"k1","workflowName":"w"}}`)
	if a[0].Error == nil || a[0].Error.Code != -32021 || a[0].Error.Data["code"] != "idempotency_conflict" || a[0].Error.Data["retry"] != "new-key" {
		t.Errorf("another request: got %+v", a[0])
	}
	for _, key := range []string{"", "a b", strings.Repeat("k", 256)} {
		a = x.rpc(adminSecret, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"idempotencyKey":%q,"workflowName":"w"}}`, key))
		if a[0].Error == nil || a[0].Error.Code != -32602 || !strings.HasPrefix(a[0].Error.Data["code"].(string), "idempotency_") {
			t.Errorf("the key %q: got %+v", key, a[0])
		}
	}
	a = x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"runs.resume","params":{"idempotencyKey":"","runId":"r"}}`)
	if a[0].Error == nil || a[0].Error.Data["code"] != "idempotency_key_invalid" {
		t.Errorf("an empty key where none is needed: got %+v", a[0])
	}
	a = x.rpc(adminSecret, `{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"idempotencyKey":7,"workflowName":"w"}}`)
	if a[0].Error == nil || a[0].Error.Code != -32602 {
		t.Errorf("a number as the key: got %+v", a[0])
	}
}
