package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/jhttp"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// rpc sends a body of JSON-RPC.
func (s *server) rpc(secret string, body any) reply {
	s.t.Helper()
	return s.send(request{method: "POST", path: "/v1/rpc", secret: secret, body: body})
}

// An rpcAnswer is one answer of JSON-RPC. What it has of an answer of REST is in Data, or in Result.
type rpcAnswer struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

type rpcData struct {
	wire.Problem
	HTTPStatus int `json:"httpStatus"`
	RetryAfter int `json:"retryAfter"`
}

// §5: envelopes, ids, batches, notifications and codes.
func TestRPC(t *testing.T) {
	s := serve(t, new(memory.Store))
	for name, c := range map[string]struct {
		body   string
		status int
		want   string // the answer, or how its error begins
	}{
		"a number as id":            {`{"jsonrpc":"2.0","id":1.50,"method":"runs.list"}`, 200, `"id":1.50`},
		"a string as id":            {`{"jsonrpc":"2.0","id":"\u00e9","method":"runs.list"}`, 200, `"id":"\u00e9"`},
		"no id":                     {`{"jsonrpc":"2.0","method":"runs.list"}`, 204, ``},
		"an id of null":             {`{"jsonrpc":"2.0","id":null,"method":"runs.list"}`, 204, ``},
		"a long id":                 {`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 127) + `","method":"runs.list"}`, 200, `"code":-32600`},
		"bad JSON":                  {`{"jsonrpc":"2.0"`, 200, `"code":-32700`},
		"no method":                 {`{"jsonrpc":"2.0","id":1}`, 200, `"code":-32600`},
		"another version":           {`{"jsonrpc":"1.0","id":1,"method":"runs.list"}`, 200, `"code":-32600`},
		"an empty batch":            {`[]`, 200, `"code":-32600`},
		"a large batch":             {"[" + strings.Repeat(`{"jsonrpc":"2.0","method":"runs.list"},`, 100) + `{"jsonrpc":"2.0","method":"runs.list"}]`, 200, `"code":-32600`},
		"a batch of 100":            {"[" + strings.Repeat(`{"jsonrpc":"2.0","method":"runs.list"},`, 99) + `{"jsonrpc":"2.0","method":"runs.list"}]`, 204, ``},
		"an unknown method":         {`{"jsonrpc":"2.0","id":1,"method":"runs.destroy"}`, 200, `"code":-32601`},
		"what has no method":        {`{"jsonrpc":"2.0","id":1,"method":"webhooks.receive"}`, 200, `"code":-32601`},
		"parameters in an array":    {`{"jsonrpc":"2.0","id":1,"method":"runs.get","params":["x"]}`, 200, `"code":-32602`},
		"an unknown parameter":      {`{"jsonrpc":"2.0","id":1,"method":"runs.get","params":{"runId":"x","more":1}}`, 200, `"code":-32602`},
		"400":                       {`{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"workflowName":"echo"}}`, 200, `"code":-32602`},
		"404":                       {`{"jsonrpc":"2.0","id":1,"method":"runs.get","params":{"runId":"x"}}`, 200, `"code":-32020`},
		"409":                       {`{"jsonrpc":"2.0","id":1,"method":"deployments.active"}`, 200, `"code":-32021`},
		"501":                       {`{"jsonrpc":"2.0","id":1,"method":"world.queue.publish","params":{"queueName":"q","message":{}}}`, 200, `"code":-32025`},
		"a batch of notifications":  {`[{"jsonrpc":"2.0","method":"runs.list"},{"jsonrpc":"2.0","method":"runs.destroy"}]`, 204, ``},
		"health":                    {`{"jsonrpc":"2.0","id":1,"method":"health.get"}`, 200, `"healthy":true`},
		"an answer without content": {`{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"spare"}}`, 200, `"result":null`},
	} {
		if name == "an answer without content" {
			s.post("/v1/keys", "", members{"keyId": "spare", "scopes": []string{"runs:read"}}, 201)
		}
		a := s.rpc(admin, c.body)
		if a.status != c.status || !strings.Contains(string(a.body), c.want) {
			t.Errorf("%s: answered %d %s, want %d %s", name, a.status, a.body, c.status, c.want)
		}
		if strings.Contains(c.want, "-32600") || strings.Contains(c.want, "-32700") {
			if !strings.Contains(string(a.body), `"id":null`) {
				t.Errorf("%s: the id is not null: %s", name, a.body)
			}
		}
	}
	batch := s.rpc(admin, `[{"jsonrpc":"2.0","id":"a","method":"health.get"},{"jsonrpc":"2.0","method":"runs.list"},5,{"jsonrpc":"2.0","id":"b","method":"runs.get","params":{"runId":"x"}}]`)
	answers := decode[[]rpcAnswer](t, batch)
	if len(answers) != 3 || string(answers[0].ID) != `"a"` || string(answers[1].ID) != "null" || string(answers[2].ID) != `"b"` {
		t.Fatalf("the batch was answered %s", batch.body)
	}
	var data rpcData
	if e := answers[2].Error; e == nil || e.Code != -32020 || json.Unmarshal(e.Data, &data) != nil || data.HTTPStatus != 404 || data.Code != wire.CodeNotFound || data.Retry != wire.RetryNever || data.CorrelationID == "" {
		t.Errorf("the data are %+v", data)
	}
}

// §5: what the whole body is refused for has a status of HTTP; the rest is 200.
func TestRPCRefusals(t *testing.T) {
	s := serve(t, new(memory.Store), func(c *control.Config) {
		c.Keys = append(c.Keys, control.Key{ID: "reader", Secret: secretFor("runs:read"), Scopes: []string{"runs:read"}})
		c.MaxBody = 1 << 10
	})
	body := `{"jsonrpc":"2.0","id":1,"method":"runs.list"}`
	one := func(a reply, status, code int) {
		t.Helper()
		got := decode[rpcAnswer](t, a)
		if a.status != status || got.Error == nil || got.Error.Code != code || status != 200 && string(got.ID) != "null" {
			t.Errorf("answered %d %s, want %d and %d", a.status, a.body, status, code)
		}
	}
	one(s.rpc("", body), 401, -32010)
	one(s.rpc("an-unknown-secret-of-at-least-24-bytes", body), 401, -32010)
	one(s.rpc(admin, `{"a":"`+strings.Repeat("a", 2<<10)+`"}`), 413, -32602)
	one(s.send(request{method: "POST", path: "/v1/rpc", secret: admin, body: body, header: map[string]string{"Content-Type": "text/plain"}}), 415, -32000)
	one(s.rpc(secretFor("runs:read"), `{"jsonrpc":"2.0","id":1,"method":"keys.list"}`), 200, -32011)
	if err := s.plane.Close(); err != nil {
		t.Fatal(err)
	}
	one(s.rpc(admin, body), 503, -32026)
	t.Run("rate", func(t *testing.T) {
		s := serve(t, new(memory.Store), func(c *control.Config) { c.RateLimit = 1 })
		var got rpcAnswer
		eventually(t, "the rate is used up", func() bool {
			got = decode[rpcAnswer](t, s.rpc(admin, body))
			return got.Error != nil
		})
		var data rpcData
		if err := json.Unmarshal(got.Error.Data, &data); err != nil || got.Error.Code != -32024 || data.HTTPStatus != 429 || data.RetryAfter < 1 {
			t.Errorf("the error is %d %s", got.Error.Code, got.Error.Data)
		}
	})
}

// What operations answer by JSON-RPC is what they answer by REST.
func TestRPCAnswersAreThoseOfREST(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		d := loadDocument(t)
		run := s.start("echo", members{"cents": 1})
		s.ended(run)
		s.post("/v1/deployments", "", members{"manifest": members{"deploymentId": "shop-7"}}, 201)
		s.post("/v1/deployments/shop-7/activate", "", nil, 200)
		for _, c := range []struct {
			method, path string
			params       members
		}{
			{"runs.get", "/v1/runs/" + run, members{"runId": run}},
			{"runs.result", "/v1/runs/" + run + "/result?wait=1", members{"runId": run, "wait": 1}},
			{"runs.events", "/v1/runs/" + run + "/events?limit=2&sortOrder=asc", members{"runId": run, "limit": 2, "sortOrder": "asc"}},
			{"runs.list", "/v1/runs?workflow=echo&limit=1", members{"workflow": "echo", "limit": 1}},
			{"runs.list", "/v1/runs?label=a:b", members{"label": []string{"a:b"}}},
			{"signals.list", "/v1/runs/" + run + "/signals", members{"runId": run}},
			{"values.list", "/v1/runs/" + run + "/values?limit=2", members{"runId": run, "limit": 2}},
			{"deployments.get", "/v1/deployments/shop-7", members{"id": "shop-7"}},
			{"deployments.list", "/v1/deployments", nil},
			{"deployments.active", "/v1/deployments/active", nil},
			{"world.deployment_id", "/v1/world/deployment-id", nil},
			{"keys.list", "/v1/keys", nil},
			{"openapi.get", "/v1/openapi.json", nil},
		} {
			want := s.get(c.path, 200)
			a := decode[rpcAnswer](t, s.rpc(admin, members{"jsonrpc": "2.0", "id": 1, "method": c.method, "params": c.params}))
			if a.Error != nil {
				t.Errorf("%s: %d %s %s", c.method, a.Error.Code, a.Error.Message, a.Error.Data)
			} else if string(a.Result) != strings.TrimSpace(string(want.body)) {
				t.Errorf("%s is %s by JSON-RPC, and %s by REST", c.method, a.Result, want.body)
			}
			if d.byID(c.method) == nil {
				t.Errorf("%s is not documented", c.method)
			}
		}
		// A key of one transport is one of the other.
		body := members{"workflowName": "echo", "input": 5}
		byREST := s.post("/v1/runs", "order-43", body, 201)
		params := members{"workflowName": "echo", "input": 5, "idempotencyKey": "order-43"}
		a := decode[rpcAnswer](t, s.rpc(admin, members{"jsonrpc": "2.0", "id": 1, "method": "runs.create", "params": params}))
		if string(a.Result) != strings.TrimSpace(string(byREST.body)) {
			t.Errorf("runs.create is %s by JSON-RPC, and %s by REST", a.Result, byREST.body)
		}
	})
}

// bearer is an http.Client of a key.
type bearer string

func (b bearer) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultClient.Do(r)
}

func dial(t testing.TB, s *server, secret string) *jrpc2.Client {
	c := jrpc2.NewClient(jhttp.NewChannel(s.url+"/v1/rpc", &jhttp.ChannelOptions{Client: bearer(secret)}), nil)
	t.Cleanup(func() { c.Close() })
	return c
}

// The client of jrpc2, which knows nothing of Weft, calls, notifies, sends batches and reads errors.
func TestJRPC2(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		c := dial(t, s, admin)
		var created wire.RunCreated
		if err := c.CallResult(t.Context(), "runs.create", members{"workflowName": "checkout", "runId": "order-42", "idempotencyKey": "order-42"}, &created); err != nil {
			t.Fatal(err)
		}
		if created.RunID != "order-42" || created.Status != "pending" {
			t.Errorf("created %+v", created)
		}
		answers, err := c.Batch(t.Context(), []jrpc2.Spec{
			{Method: "runs.get", Params: members{"runId": "order-42"}},
			{Method: "runs.list", Notify: true},
			{Method: "runs.get", Params: members{"runId": "none"}},
			{Method: "runs.result", Params: members{"runId": "order-42", "wait": 60}}, // does not wait in a batch
		})
		if err != nil || len(answers) != 3 {
			t.Fatalf("%d answers, %v", len(answers), err)
		}
		var run wire.Run
		if err := answers[0].UnmarshalResult(&run); err != nil || run.RunID != "order-42" {
			t.Errorf("the run is %+v, %v", run, err)
		}
		if e := answers[1].Error(); e == nil || e.Code != -32020 || !strings.Contains(string(e.Data), `"httpStatus":404`) {
			t.Errorf("the error is %+v", e)
		}
		if err := c.Notify(t.Context(), "signals.send", members{"runId": "order-42", "name": "approved", "payload": members{"receipt": "r1"}}); err != nil {
			t.Fatal(err)
		}
		var result wire.RunResult
		if err := c.CallResult(t.Context(), "runs.result", members{"runId": "order-42", "wait": 30}, &result); err != nil {
			t.Fatal(err)
		}
		if string(result.Result) != `{"receipt":"r1"}` {
			t.Errorf("the result is %s", result.Result)
		}
		for method, want := range map[string]jrpc2.Code{"runs.destroy": jrpc2.MethodNotFound, "deployments.activate": jrpc2.InvalidParams} {
			_, err := c.Call(t.Context(), method, members{"more": 1})
			var e *jrpc2.Error
			if !errors.As(err, &e) || e.Code != want {
				t.Errorf("%s: %v, want code %d", method, err, want)
			}
		}
		if _, err := c.Call(t.Context(), "runs.get", []string{"order-42"}); jrpc2.ErrorCode(err) != jrpc2.InvalidParams {
			t.Errorf("parameters in an array: %v", err)
		}
		if _, err := dial(t, s, "an-unknown-secret-of-at-least-24-bytes").Call(t.Context(), "runs.list", nil); err == nil || !strings.Contains(fmt.Sprint(err), "401") {
			t.Errorf("an unknown key: %v", err)
		}
	})
}
