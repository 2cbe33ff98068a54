package control_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// A plane is an http.Handler. A client starts a run with a key of its own for the request, and may send the
// request again: it takes effect once.
func Example() {
	eng, err := engine.New(engine.Config{Storage: new(memory.Store)})
	if err != nil {
		panic(err)
	}
	defer eng.Close()
	const secret = "a-secret-from-the-environment"
	plane, err := control.New(control.Config{Engine: eng, Keys: []control.Key{
		{ID: "shop", Secret: secret, Scopes: []string{"trigger:write", "runs:read"}},
	}})
	if err != nil {
		panic(err)
	}
	defer plane.Close()
	srv := httptest.NewServer(plane)
	defer srv.Close()

	for range 2 {
		r, err := http.NewRequest("POST", srv.URL+"/v1/runs", strings.NewReader(`{"workflowName":"checkout","runId":"order-42","input":{"cents":4900}}`))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order-42")
		a, err := srv.Client().Do(r)
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil {
			panic(err)
		}
		fmt.Println(a.StatusCode, string(body), a.Header.Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 {"deploymentId":"","runId":"order-42","status":"pending"} false
	// 201 {"deploymentId":"","runId":"order-42","status":"pending"} true
}
