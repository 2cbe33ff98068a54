package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/control/internal/deployments"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A process is a plane, and an engine that executes nothing, on a store that may fail.
type process struct {
	t     *testing.T
	plane *Plane
	close func()
}

func boot(t *testing.T, s storage.Storage) *process {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	e, err := engine.New(engine.Config{Storage: s, Workflows: workflows(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Engine: e, Keys: siteKeys[:1], Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return &process{t, p, func() {
		p.Close()
		e.Close()
	}}
}

// post makes a request without a network.
func (p *process) post(path, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+home)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	answers.Handler(p.plane).ServeHTTP(w, r)
	return w
}

// following returns the request of a key for the server-sent events at a path.
func following(t *testing.T, key, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Accept", "text/event-stream")
	return r
}

// everyFault calls f once for each fault at each call to a store that comes after f has armed it, in
// virtual time. inner is the store behind it, which has no faults.
func everyFault(t *testing.T, f func(t *testing.T, inner, faulty storage.Storage, arm func())) {
	for fault, name := range map[storagetest.Fault]string{
		storagetest.ErrorBefore: "error before", storagetest.ErrorAfter: "error after",
		storagetest.CrashBefore: "crash before", storagetest.CrashAfter: "crash after",
	} {
		for n, hit := 1, true; hit; n++ {
			hit = false
			synctest.Test(t, func(t *testing.T) {
				inner := new(memory.Store)
				armed, calls := false, 0
				faulty := storagetest.NewFaulty(inner, func(storagetest.Call) storagetest.Fault {
					if !armed {
						return storagetest.None
					}
					if calls++; calls != n {
						return storagetest.None
					}
					hit = true
					return fault
				})
				f(t, inner, faulty, func() { armed = true })
			})
			if t.Failed() {
				t.Fatalf("with %s call %d", name, n)
			}
			if !hit && n < 5 {
				t.Fatalf("there were only %d calls", n-1)
			}
		}
	}
}

// A process that dies, or whose store fails, before or after any call to the store while it answers a
// create: the client repeats it and gets one run, and its answer never changes.
func TestACreateSurvivesEveryFault(t *testing.T) {
	const body = `{"workflowName":"echo","input":{"cents":4900}}`
	everyFault(t, func(t *testing.T, inner, faulty storage.Storage, arm func()) {
		first := boot(t, faulty)
		arm()
		w := first.post("/v1/runs", "k", body)
		first.close()
		answers := map[string]bool{}
		if w.Code == 201 {
			answers[w.Body.String()] = true
		} else if w.Code < 500 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		second := boot(t, storagetest.NewFaulty(inner, nil))
		defer second.close()
		for range 2 {
			w := second.post("/v1/runs", "k", body)
			if w.Code != 201 {
				t.Errorf("repeated: %d %s", w.Code, w.Body)
			}
			answers[w.Body.String()] = true
		}
		if len(answers) != 1 {
			t.Errorf("the answers are %v", answers)
		}
		if n := recordsOf(t, inner, "ix:"); n != 1 {
			t.Errorf("%d runs", n)
		}
		for a := range answers {
			var created struct{ RunID string }
			if err := json.Unmarshal([]byte(a), &created); err != nil {
				t.Fatal(err)
			}
			oneAuditRow(t, second, "runs.create", created.RunID)
		}
	})
}

// oneAuditRow checks that a run has one audit row of an action that is not of a repetition.
func oneAuditRow(t *testing.T, p *process, action, runID string) {
	t.Helper()
	p.plane.env.Auditor.Flush(context.Background())
	if n := auditRows(t, p.plane.env.Store, action, runID); n != 1 {
		t.Errorf("%d audit rows of %s with run %q, want 1", n, action, runID)
	}
}

// auditRows counts the audit rows of an action on a run that succeeded and was no repetition.
func auditRows(t *testing.T, s storage.Storage, action, runID string) (n int) {
	t.Helper()
	for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte("ctl:audit:"))) {
		if err != nil {
			t.Fatal(err)
		}
		var row audit.Row
		if _, err := record.Open(e.Key, e.Value, records.Version, &row); err != nil {
			t.Fatal(err)
		}
		if row.Action == action && row.Result == audit.Success && !row.Deduped && row.RunID == runID {
			n++
		}
	}
	return n
}

// The same for the end of a run by an operator: the end, the audit row and the answer under the key are one commit, so a
// process that dies leaves all of them or none.
func TestATerminationSurvivesEveryFault(t *testing.T) {
	everyFault(t, func(t *testing.T, inner, faulty storage.Storage, arm func()) {
		first := boot(t, faulty)
		if w := first.post("/v1/runs", "s", `{"workflowName":"wait","runId":"r"}`); w.Code != 201 {
			t.Fatal(w.Body)
		}
		terminate := func(p *process) *httptest.ResponseRecorder {
			return p.post("/v1/runs/r/terminate", "k", `{"reason":"wrong input"}`)
		}
		arm()
		w := terminate(first)
		rows := auditRows(t, inner, "runs.terminate", "r")
		first.close()
		if w.Code != 200 && w.Code < 500 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		second := boot(t, storagetest.NewFaulty(inner, nil))
		defer second.close()
		info, err := second.plane.env.Engine.Describe(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if ended := info.Status.Terminal(); ended != (rows == 1) || w.Code == 200 && !ended {
			t.Errorf("answered %d, the run is %s, and there are %d audit rows", w.Code, info.Status, rows)
		}
		for range 2 {
			again := terminate(second)
			if again.Code != 200 || again.Body.String() != `{"accepted":true,"status":"cancelled"}` {
				t.Errorf("repeated: %d %s", again.Code, again.Body)
			}
			if replayed := again.Header().Get("Idempotent-Replayed") == "true"; !replayed && info.Status.Terminal() {
				t.Errorf("the run had ended, and the key has no answer")
			}
		}
		oneAuditRow(t, second, "runs.terminate", "r")
		if info, err := second.plane.env.Engine.Describe(t.Context(), "r"); err != nil || info.Cancel == nil || info.Cancel.Reason != "wrong input" {
			t.Errorf("the run is %+v, %v", info, err)
		}
	})
}

// The same for an activation: the answer never changes, and the deployment is active.
func TestAnActivationSurvivesEveryFault(t *testing.T) {
	everyFault(t, func(t *testing.T, inner, faulty storage.Storage, arm func()) {
		first := boot(t, faulty)
		for _, id := range []string{"v1", "v2"} {
			if w := first.post("/v1/deployments", id, fmt.Sprintf(`{"manifest":{"deploymentId":%q}}`, id)); w.Code != 201 {
				t.Fatal(w.Body)
			}
		}
		if w := first.post("/v1/deployments/v1/activate", "k1", `{}`); w.Code != 200 {
			t.Fatal(w.Body)
		}
		arm()
		w := first.post("/v1/deployments/v2/activate", "k", `{"expectedActive":"v1"}`)
		first.close()
		answers := map[string]bool{}
		if w.Code == 200 {
			answers[w.Body.String()] = true
		} else if w.Code < 500 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		second := boot(t, storagetest.NewFaulty(inner, nil))
		defer second.close()
		for range 2 {
			w := second.post("/v1/deployments/v2/activate", "k", `{"expectedActive":"v1"}`)
			if w.Code != 200 {
				t.Errorf("repeated: %d %s", w.Code, w.Body)
			}
			answers[w.Body.String()] = true
		}
		if len(answers) != 1 {
			t.Errorf("the answers are %v", answers)
		}
		pointer, err := deployments.ReadActive(t.Context(), inner)
		if err != nil || pointer.Deployment != "v2" || pointer.Before != "v1" {
			t.Errorf("the pointer is %+v, %v", pointer, err)
		}
		row, err := deployment.Load(t.Context(), inner, "v2")
		if err != nil || row.ActivatedAt != pointer.At {
			t.Errorf("the record was activated at %d, the pointer at %d, %v", row.ActivatedAt, pointer.At, err)
		}
	})
}
