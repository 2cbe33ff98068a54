package apitest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/world"
)

// withWorld gives a plane a world on its store.
func withWorld(t testing.TB) func(*control.Config) {
	return func(c *control.Config) {
		w, err := world.Open(c.Engine.Store(), &world.Options{Deployment: c.Engine.ActiveDeployment, Logger: c.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		c.World = w
	}
}

// Messages and calls of a world.
func TestWorld(t *testing.T) {
	s := serve(t, new(memory.Store), withWorld(t))
	post := func(path, body string, want int) {
		t.Helper()
		a := s.send(request{method: "POST", path: path, secret: admin, body: body})
		if a.status != want {
			t.Errorf("%s %s: got %d %s, want %d", path, body, a.status, a.body, want)
		}
	}
	post("/v1/queue/publish", `{"queueName":"q","message":1}`, http.StatusConflict)
	post("/v1/queue/publish", `{"queueName":"q","message":1,"opts":{"deploymentId":"blue","idempotencyKey":"k"}}`, http.StatusOK)
	event := func(data string) string { return `{"runId":"wrun_1","data":` + data + `}` }
	post("/v1/world/events/create", event(`{"eventType":"run_created","specVersion":3,"eventData":{"workflowName":"order","deploymentId":"blue","input":1}}`), http.StatusOK)
	post("/v1/world/events/create", event(`{"eventType":"run_created","specVersion":3,"eventData":{"workflowName":"other","deploymentId":"blue","input":1}}`), http.StatusConflict)
	post("/v1/world/events/create", event(`{"eventType":"step_started","correlationId":"s","specVersion":3,"eventData":{"stepName":"pay","input":1}}`), http.StatusOK)
	post("/v1/world/events/create", event(`{"eventType":"step_retrying","correlationId":"s","specVersion":3,"eventData":{"error":"no","retryAfter":"2999-01-01T00:00:00Z"}}`), http.StatusOK)
	post("/v1/world/events/create", event(`{"eventType":"step_started","correlationId":"s","specVersion":3}`), http.StatusTooEarly)
	post("/v1/world/events/create", `{"runId":"wrun_1","data":{"eventType":"run_started","specVersion":3},"params":{"seqInBand":99}}`, http.StatusPreconditionFailed)
	post("/v1/world/runs/get", `{"id":"none"}`, http.StatusNotFound)
	post("/v1/world/runs/get", strings.Repeat(" ", 2<<20), http.StatusRequestEntityTooLarge)
	post("/v1/world/streams/write", `{"runId":"wrun_1","name":"words","chunks":["a"]}`, http.StatusOK)
	post("/v1/world/streams/close", `{"runId":"wrun_1","name":"words"}`, http.StatusOK)
	post("/v1/world/streams/read", `{"runId":"wrun_1","name":"words"}`, http.StatusOK)
}

// Without a world its operations are 501, after the checks that all operations have.
func TestWithoutAWorld(t *testing.T) {
	s := serve(t, new(memory.Store))
	for path, body := range map[string]string{"/v1/queue/publish": `{"queueName":"q","message":null}`, "/v1/world/runs/get": `{"id":"wrun_1"}`} {
		s.refusal(s.send(request{method: "POST", path: path, secret: admin, body: body}), http.StatusNotImplemented, "not_configured")
	}
}
