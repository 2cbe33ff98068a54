package apitest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// compiled is the folder of the clients in TypeScript, which are checked against types that are made of the
// document, by tsc --strict.
func compiled(t testing.TB) string {
	t.Helper()
	folder := npm(t)
	compile.Do(func() {
		document, err := filepath.Abs(jsonFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(folder, "build")); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(folder, "build"), 0o755); err != nil {
			t.Fatal(err)
		}
		tool(t, nil, "openapi-typescript", document, "-o", "build/api.ts")
		tool(t, nil, "tsc", "--strict", "-p", ".")
		compileDone = true
	})
	if !compileDone {
		t.Fatal("the clients in TypeScript are not compiled")
	}
	return filepath.Join(folder, "build", "js")
}

var (
	compile     sync.Once
	compileDone bool
)

// script runs one of the clients in TypeScript, and returns what it prints.
func script(t testing.TB, s *server, name, runID string, into any) {
	t.Helper()
	out := tool(t, []string{"WEFT_URL=" + s.url, "WEFT_SECRET=" + admin}, "node", filepath.Join(compiled(t), name), runID)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%s printed %s: %v", name, out, err)
	}
}

// A client in TypeScript, on types that are made of the document, compiles under tsc --strict, and runs.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	onTwoStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		var got struct {
			Status, Accepted, Code string
			Replayed               bool
			Input, Result          any
			Pending, Events        int
			Runs                   []string
		}
		script(t, s, "rest.js", "order-ts", &got)
		want := got
		want.Status, want.Accepted, want.Code, want.Replayed = "pending", "evt_1", "not_found", true
		want.Input = map[string]any{"cents": 4900.0, "at": "café", "note": nil}
		want.Result = want.Input
		want.Pending, want.Events, want.Runs = 202, 2, []string{"order-ts"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// The client of json-rpc-2.0, which knows nothing of Weft, does all of §5.
func TestJSONRPC20(t *testing.T) {
	t.Parallel()
	onTwoStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		var got, want any
		script(t, s, "rpc.js", "order-rpc", &got)
		if err := json.Unmarshal([]byte(`{"created":"order-rpc","same":true,"batch":[["a",0],[7,-32020]],"result":{"receipt":"r1"},"accepted":"evt_1",
			"codes":[-32020,-32602,-32602,-32601,-32021,-32021,-32025],"statuses":[404,400,409,409,501],"http":[200,204]}`), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// shell runs commands as a person would type them.
func shell(t testing.TB, s *server, commands string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is needed, and is not here: apt-get install curl")
	}
	env := []string{"URL=" + s.url, "AUTH=Authorization: Bearer " + admin}
	return run(t, t.TempDir(), env, "bash", "-euo", "pipefail", "-c", commands)
}

// The commands of the guide, with curl.
func TestCurl(t *testing.T) {
	t.Parallel()
	onTwoStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		const create = `curl -sS -H "$AUTH" -H 'Idempotency-Key: order-42' -H 'Content-Type: application/json' \
			-d '{"workflowName":"checkout","input":{"cents":4900}}' $URL/v1/runs`
		first, again := shell(t, s, create), shell(t, s, create)
		created := decode[wire.RunCreated](t, reply{body: []byte(first)})
		if created.Status != "pending" || !strings.HasPrefix(created.RunID, "wrun_") || again != first {
			t.Errorf("created %s, and again %s", first, again)
		}
		RUN := "RUN=" + created.RunID + "\n"
		shell(t, s, RUN+`curl -sS --fail-with-body -H "$AUTH" -H 'Content-Type: application/json' -d '{"payload":{"receipt":"r1"}}' $URL/v1/runs/$RUN/signals/approved`)
		ended := decode[wire.RunResult](t, reply{body: []byte(shell(t, s, RUN+`curl -sS -H "$AUTH" "$URL/v1/runs/$RUN/result?wait=30"`))})
		if ended.Status != "completed" || string(ended.Result) != `{"receipt":"r1"}` {
			t.Errorf("ended %+v", ended)
		}
		events := shell(t, s, RUN+`curl -sSN -H "$AUTH" -H 'Accept: text/event-stream' $URL/v1/runs/$RUN/events`)
		if !strings.Contains(events, "event: end") {
			t.Errorf("the events are %s", events)
		}
	})
}

// SIG-35, SIG-36, SIG-52: one signal by every transport has one result, and is delivered once.
func TestOneSignalByEveryTransport(t *testing.T) {
	t.Parallel()
	onTwoStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		s.post("/v1/runs", "k", members{"workflowName": "collect", "runId": "order-7"}, 201)
		const payload = `{"receipt":"r1"}`
		var results []string
		add := func(how, result string) {
			t.Helper()
			var v any
			if err := json.Unmarshal([]byte(result), &v); err != nil {
				t.Fatalf("%s: %s: %v", how, result, err)
			}
			canonical, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, string(canonical))
			if results[0] != results[len(results)-1] {
				t.Errorf("%s: accepted %s, want %s", how, result, results[0])
			}
		}
		add("curl", shell(t, s, `curl -sS --fail-with-body -H "$AUTH" -H 'Content-Type: application/json' -d '{"payload":`+payload+`,"signalId":"evt_1"}' $URL/v1/runs/order-7/signals/approved`))
		var accepted json.RawMessage
		params := members{"runId": "order-7", "name": "approved", "payload": json.RawMessage(payload), "signalId": "evt_1"}
		if err := dial(t, s, admin).CallResult(t.Context(), "signals.send", params, &accepted); err != nil {
			t.Fatal(err)
		}
		add("jrpc2", string(accepted))
		for _, name := range []string{"signal-rest.js", "signal-rpc.js"} {
			script(t, s, name, "order-7", &accepted)
			add(name, string(accepted))
		}
		c, err := client.New(s.url, admin, nil)
		if err != nil {
			t.Fatal(err)
		}
		for how, to := range map[string]signal.Sender{"the client": c, "the engine": s.eng} {
			a, err := approved.Send(t.Context(), to, "order-7", json.RawMessage(payload), &signal.Options{ID: "evt_1"})
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			a.AcceptedAt = a.AcceptedAt.UTC()
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			add(how, string(text))
		}
		s.post("/v1/runs/order-7/signals/approved", "", members{"payload": "last"}, 200)
		var delivered []any
		if err := json.Unmarshal(s.ended("order-7").Result, &delivered); err != nil {
			t.Fatal(err)
		}
		if want := []any{map[string]any{"receipt": "r1"}, "last"}; !reflect.DeepEqual(delivered, want) {
			t.Errorf("delivered were %v, want %v", delivered, want)
		}
	})
}
