package apitest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// members is a JSON object that a test sends.
type members map[string]any

func decode[T any](t testing.TB, a reply) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

// start starts a run of a workflow, and returns its id.
func (s *server) start(workflow string, input any) string {
	s.t.Helper()
	return s.post("/v1/runs", "start-"+workflow+s.t.Name(), members{"workflowName": workflow, "input": input}, http.StatusCreated).text("runId")
}

// ended waits for the end of a run, and returns its result.
func (s *server) ended(runID string) wire.RunResult {
	s.t.Helper()
	return decode[wire.RunResult](s.t, s.get("/v1/runs/"+runID+"/result?wait=30", http.StatusOK))
}

func TestRunsCreate(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		body := members{"workflowName": "echo", "input": members{"cents": 4900, "note": nil}, "labels": members{"customer": "ann"}}
		first := s.post("/v1/runs", "order-42", body, http.StatusCreated)
		created := decode[wire.RunCreated](t, first)
		if created.Status != "pending" || created.DeploymentID != "" || first.header.Get("Location") != "/v1/runs/"+created.RunID {
			t.Errorf("created %+v at %q", created, first.header.Get("Location"))
		}
		again := s.post("/v1/runs", "order-42", `{"labels":{"customer":"ann"},"input":{"note":null,"cents":4900.0},"workflowName":"echo"}`, http.StatusCreated)
		if string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("the repetition was answered %v %s", again.header, again.body)
		}
		if got := s.ended(created.RunID); string(got.Result) != `{"cents":4900,"note":null}` {
			t.Errorf("the result is %s", got.Result)
		}
		s.refusal(s.post("/v1/runs", "order-42", members{"workflowName": "echo"}, 409), 409, "idempotency_conflict")
		s.refusal(s.post("/v1/runs", "", body, 400), 400, "idempotency_required")
		s.refusal(s.post("/v1/runs", "a,b", body, 400), 400, "idempotency_key_invalid")
		s.refusal(s.post("/v1/runs", "k1", members{"workflowName": "nothing"}, 400), 400, "unknown_workflow")
		s.refusal(s.post("/v1/runs", "k2", members{"workflowName": "echo", "deploymentId": "none"}, 404), 404, "not_found")
		s.refusal(s.post("/v1/runs", "k3", members{"workflowName": "echo", "runId": "@acme/prod/x"}, 400), 400, "invalid_request")
		s.post("/v1/runs", "k4", members{"workflowName": "echo", "runId": "mine"}, http.StatusCreated)
		taken := s.post("/v1/runs", "k5", members{"workflowName": "echo", "runId": "mine"}, 409)
		s.refusal(taken, 409, "run_exists")
		var details struct {
			RunID, Status string
			Same          bool
		}
		if err := json.Unmarshal(decode[wire.Problem](t, taken).Details, &details); err != nil || details.RunID != "mine" || !details.Same {
			t.Errorf("the details are %s", taken.body)
		}
	})
}

// HTTP-25, HTTP-28.
func TestRunsNeedADeployment(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store, func(c *control.Config) { c.RequireDeployment = true })
		a := s.post("/v1/runs", "k", members{"workflowName": "echo"}, 409)
		s.refusal(a, 409, "no_active_deployment")
		if got, want := a.text("message"), "No active deployment. Activate a deployment before triggering runs."; got != want {
			t.Errorf("the message is %q, want %q", got, want)
		}
	})
}

func TestRunsRead(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		waiting := s.start("checkout", members{"cents": 1})
		failed := s.start("refused", nil)
		if got := s.ended(failed); got.Status != "failed" || got.Error == nil || got.Error.Code != errCard.Error() {
			t.Errorf("the result is %+v", got)
		}
		if got := decode[wire.Run](t, s.get("/v1/runs/"+failed, 200)); got.Error == nil || got.Error.Code != errCard.Error() || got.EndedAt.IsZero() {
			t.Errorf("the run is %+v", got)
		}
		eventually(t, "the run waits", func() bool {
			return len(decode[wire.Run](t, s.get("/v1/runs/"+waiting, 200)).Waiting) > 0
		})
		if got := decode[wire.Run](t, s.get("/v1/runs/"+waiting, 200)); string(got.Input) != `{"cents":1}` || got.Status != "running" {
			t.Errorf("the run is %+v", got)
		}
		if got := decode[wire.Run](t, s.get("/v1/runs/"+waiting+"?resolveData=none", 200)); string(got.Input) == `{"cents":1}` {
			t.Errorf("the run has its input: %+v", got)
		}
		if got := decode[wire.RunPending](t, s.get("/v1/runs/"+waiting+"/result", 202)); got.RunID != waiting || got.Status != "running" {
			t.Errorf("the result is %+v", got)
		}
		for query, want := range map[string]int{
			"": 2, "?status=failed": 1, "?workflow=checkout": 1, "?workflow=none": 0, "?label=a:b": 0, "?attention=true": 0,
			"?parent=none": 0, "?deployment=none": 0, "?after=2000-01-01T00:00:00Z": 2, "?before=2000-01-01T00:00:00Z": 0, "?sortOrder=asc": 2,
		} {
			page := decode[wire.RunPage](t, s.get("/v1/runs"+query, 200))
			if len(page.Data) != want || page.HasMore || page.Cursor != nil {
				t.Errorf("%s lists %d runs, want %d: %+v", query, len(page.Data), want, page)
			}
		}
		page := decode[wire.RunPage](t, s.get("/v1/runs?limit=1", 200))
		if len(page.Data) != 1 || page.Data[0].RunID != failed || !page.HasMore || page.Cursor == nil {
			t.Fatalf("the first page is %+v", page)
		}
		page = decode[wire.RunPage](t, s.get("/v1/runs?limit=1&cursor="+*page.Cursor, 200))
		if len(page.Data) != 1 || page.Data[0].RunID != waiting {
			t.Errorf("the second page is %+v", page)
		}
		for _, path := range []string{"", "/result", "/events", "/signals"} {
			s.refusal(s.get("/v1/runs/none"+path, 404), 404, "not_found")
			s.refusal(s.must(request{method: "GET", path: "/v1/runs/" + failed + path, secret: stranger}, 404), 404, "not_found")
		}
		for _, path := range []string{"/v1/runs?limit=0", "/v1/runs?cursor=x", "/v1/runs?status=x", "/v1/runs?workflow=a&workflow=b", "/v1/runs/none/result?wait=61"} {
			s.refusal(s.get(path, 400), 400, "invalid_request")
		}
	})
}

func TestRunsEvents(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("echo", 5)
		s.ended(run)
		page := decode[wire.EventPage](t, s.get("/v1/runs/"+run+"/events", 200))
		if len(page.Data) < 2 || page.HasMore {
			t.Fatalf("the events are %+v", page)
		}
		oldest := decode[wire.EventPage](t, s.get("/v1/runs/"+run+"/events?sortOrder=asc&limit=1&resolveData=none", 200))
		if len(oldest.Data) != 1 || oldest.Data[0].EventID != page.Data[len(page.Data)-1].EventID || !oldest.HasMore {
			t.Errorf("the oldest event is %+v", oldest)
		}
		stream := request{method: "GET", path: "/v1/runs/" + run + "/events", secret: admin, header: map[string]string{"Accept": "text/event-stream"}}
		a := s.must(stream, 200)
		var ids []string
		end := false
		lines := bufio.NewScanner(strings.NewReader(string(a.body)))
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
			}
			end = end || lines.Text() == "event: end"
		}
		if len(ids) != len(page.Data) || !end || ids[0] != oldest.Data[0].EventID {
			t.Errorf("streamed were %q, end %t, want %d events from %s on:\n%s", ids, end, len(page.Data), oldest.Data[0].EventID, a.body)
		}
		stream.header["Last-Event-ID"] = ids[len(ids)-1]
		s.must(stream, 204)
		stream.header["Last-Event-ID"] = "no id"
		s.refusal(s.must(stream, 400), 400, "invalid_request")
	})
}

func TestRunsStream(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("spoken", []any{"a", 2, nil})
		s.ended(run)
		path := "/v1/runs/" + run + "/streams/words"
		page := decode[wire.ChunkPage](t, s.get(path, 200))
		if len(page.Data) != 3 || page.HasMore || !page.Closed || string(page.Data[2].Data) != "null" {
			t.Fatalf("the chunks are %+v", page)
		}
		first := decode[wire.ChunkPage](t, s.get(path+"?limit=1", 200))
		rest := decode[wire.ChunkPage](t, s.get(path+"?cursor="+*first.Cursor, 200))
		if len(first.Data) != 1 || !first.HasMore || len(rest.Data) != 2 || rest.Data[0].ChunkID != page.Data[1].ChunkID {
			t.Errorf("the pages are %+v and %+v", first, rest)
		}
		if none := decode[wire.ChunkPage](t, s.get("/v1/runs/"+run+"/streams/none?at=-1", 200)); len(none.Data) != 0 || !none.Closed {
			t.Errorf("the chunks of another stream are %+v", none)
		}
		follow := request{method: "GET", path: path, secret: admin, header: map[string]string{"Accept": "text/event-stream"}}
		a := s.must(follow, 200)
		if text := string(a.body); strings.Count(text, "\ndata: ") != 4 || !strings.HasSuffix(text, "event: end\ndata: {}\n\n") {
			t.Errorf("streamed was %s", text)
		}
		follow.header["Last-Event-ID"] = "2"
		s.must(follow, 204)
		follow.header["Last-Event-ID"] = "no index"
		s.refusal(s.must(follow, 400), 400, "invalid_request")
		s.refusal(s.must(request{method: "GET", path: path, secret: stranger}, 404), 404, "not_found")
	})
}

func TestRunsEnd(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("checkout", nil)
		cancel := "/v1/runs/" + run + "/cancel"
		s.refusal(s.must(request{method: "DELETE", path: "/v1/runs/" + run, secret: admin}, 409), 409, "not_applicable")
		first := s.post(cancel, "c1", members{"reason": "the customer called"}, 202)
		if again := s.post(cancel, "c1", members{"reason": "the customer called"}, 202); string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", again.header, again.body)
		}
		s.refusal(s.post(cancel, "c1", members{"reason": "another"}, 409), 409, "idempotency_conflict")
		if got := s.ended(run); got.Status != "cancelled" {
			t.Errorf("the run is %+v", got)
		}
		s.post(cancel, "", nil, 200)
		s.refusal(s.post("/v1/runs/resume", "", members{"runId": run}, 409), 409, "run_terminal")
		s.must(request{method: "DELETE", path: "/v1/runs/" + run + "?reason=privacy", secret: admin}, 204)
		s.must(request{method: "DELETE", path: "/v1/runs/" + run, secret: admin}, 204) // again
		s.refusal(s.must(request{method: "DELETE", path: "/v1/runs/none", secret: admin}, 404), 404, "not_found")
		s.refusal(s.get("/v1/runs/"+run, 404), 404, "not_found")
		s.refusal(s.post(cancel, "", nil, 404), 404, "not_found")
		s.refusal(s.post(cancel, "c,1", nil, 400), 400, "idempotency_key_invalid")

		done := s.start("echo", nil)
		s.ended(done)
		s.refusal(s.post("/v1/runs/"+done+"/cancel", "", nil, 409), 409, "run_terminal")

		held := s.start("invoice", 7)
		eventually(t, "the run is held", func() bool {
			return len(decode[wire.Run](t, s.get("/v1/runs/"+held, 200)).Attention) > 0
		})
		if got := decode[wire.RunCancelled](t, s.post("/v1/runs/"+held+"/cancel", "", members{"reason": "wrong input"}, 202)); len(got.Attention) != 1 || got.Attention[0].Reason != "undecodable" {
			t.Errorf("the answer is %+v", got)
		}
		terminate := "/v1/runs/" + held + "/terminate"
		first = s.post(terminate, "t1", members{"reason": "wrong input"}, 200)
		if got := decode[wire.RunCancelled](t, first); got.Status != "cancelled" || got.Attention != nil {
			t.Errorf("the answer is %+v", got)
		}
		if again := s.post(terminate, "t1", members{"reason": "wrong input"}, 200); string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", again.header, again.body)
		}
		s.refusal(s.post(terminate, "t1", members{"reason": "another"}, 409), 409, "idempotency_conflict")
		s.refusal(s.post(terminate, "", members{"reason": "wrong input"}, 409), 409, "run_terminal")
		s.refusal(s.post(terminate, "", members{"reason": ""}, 400), 400, "invalid_request")
		s.refusal(s.post("/v1/runs/none/terminate", "", members{"reason": "r"}, 404), 404, "not_found")
		if got := decode[wire.Run](t, s.get("/v1/runs/"+held, 200)); got.Status != "cancelled" || got.Cancel == nil || !got.Cancel.Terminated {
			t.Errorf("the run is %+v", got)
		}
	})
}

func TestRunsContinue(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		failed := s.start("refused", nil)
		s.ended(failed)
		first := s.post("/v1/runs/resume", "r1", members{"runId": failed, "reason": "the card works again"}, 200)
		s.ended(failed)
		if again := s.post("/v1/runs/resume", "r1", members{"runId": failed, "reason": "the card works again"}, 200); string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", again.header, again.body)
		}
		s.refusal(s.post("/v1/runs/resume", "", members{"runId": "none"}, 404), 404, "not_found")
		s.refusal(s.post("/v1/runs/resume", "", members{"runId": failed, "payload": nil}, 409), 409, "not_applicable")

		reset := "/v1/runs/" + failed + "/reset"
		first = s.post(reset, "b1", members{"before": "", "reason": "the release of Tuesday"}, 200)
		s.ended(failed)
		if again := s.post(reset, "b1", members{"before": "", "reason": "the release of Tuesday"}, 200); string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", again.header, again.body)
		}
		s.refusal(s.post(reset, "b1", members{"before": "1"}, 409), 409, "idempotency_conflict")
		s.refusal(s.post(reset, "", members{"before": "77"}, 404), 404, "not_found")
		s.refusal(s.post(reset, "", members{}, 400), 400, "invalid_request")
		s.refusal(s.post("/v1/runs/none/reset", "", members{"before": ""}, 404), 404, "not_found")

		run := s.start("doubtful", nil)
		var operation string
		eventually(t, "the run needs an operator", func() bool {
			got := decode[wire.Run](t, s.get("/v1/runs/"+run, 200))
			if len(got.Attention) > 0 {
				operation = got.Attention[0].Operation
			}
			return operation != ""
		})
		if page := decode[wire.RunPage](t, s.get("/v1/runs?attention=true", 200)); len(page.Data) != 1 {
			t.Errorf("in need of an operator are %+v", page)
		}
		resolve := "/v1/runs/" + run + "/operations/" + operation + "/resolve"
		answer := members{"answer": "completed", "result": "r1", "reason": "seen at the provider"}
		s.refusal(s.post(resolve, "", members{"answer": "perhaps", "reason": "r"}, 400), 400, "invalid_request")
		s.post(resolve, "o1", answer, 200)
		if got := s.ended(run); string(got.Result) != `"r1"` {
			t.Errorf("the result is %+v", got)
		}
		if a := s.post(resolve, "o1", answer, 200); a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", a.header, a.body)
		}
		if a := s.post(resolve, "", answer, 409); a.code() != "run_terminal" && a.code() != "not_applicable" {
			t.Errorf("answered %s", a.body)
		}
		s.refusal(s.post("/v1/runs/none/operations/1/resolve", "", answer, 404), 404, "not_found")
	})
}

func TestBulks(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		s.ended(s.start("refused", nil))
		mine := s.start("checkout", nil)
		path := "/v1/bulks/all%20failed"
		body := members{"do": "reset", "before": "77", "filter": members{"workflow": "refused", "status": "failed"}, "rate": members{"count": 1000, "perSeconds": 1}, "reason": "the release of Tuesday"}
		first := s.post(path, "k1", body, 200)
		if again := s.post(path, "k1", body, 200); string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", again.header, again.body)
		}
		s.post(path, "", body, 200)
		s.refusal(s.post(path, "k1", members{"do": "purge", "filter": members{"status": "failed"}, "reason": "r"}, 409), 409, "idempotency_conflict")
		s.refusal(s.post(path, "", members{"do": "purge", "filter": members{"status": "failed"}, "reason": "r"}, 409), 409, "bulk_exists")
		s.refusal(s.post(path, "", members{"do": "purge", "filter": members{}, "reason": "r"}, 400), 400, "invalid_request")
		var got wire.Bulk
		eventually(t, "the bulk ends", func() bool {
			got = decode[wire.Bulk](t, s.get(path, 200))
			return !got.EndedAt.IsZero()
		})
		if got.BulkID != "all failed" || got.Done != 0 || got.Refused != 1 || len(got.Refusals) != 1 || got.Refusals[0].Reason == "" || *got.Before != "77" || got.Rate.Count != 1000 {
			t.Errorf("the bulk is %+v", got)
		}
		s.refusal(s.get("/v1/bulks/none", 404), 404, "not_found")
		s.post("/v1/bulks/tell", "", members{"do": "signal", "signal": members{"name": "approved", "payload": members{"by": "ann"}}, "filter": members{"workflow": "checkout"}, "reason": "r"}, 200)
		if ended := s.ended(mine); string(ended.Result) != `{"by":"ann"}` {
			t.Errorf("the result is %s", ended.Result)
		}
		s.post("/v1/bulks/slow", "", members{"do": "purge", "filter": members{"before": time.Now().UTC()}, "rate": members{"count": 1, "perSeconds": 3600}, "reason": "r"}, 200)
		s.post("/v1/bulks/slow/stop", "k2", members{"reason": "enough"}, 200)
		s.refusal(s.post("/v1/bulks/slow/stop", "k2", members{"reason": "another"}, 409), 409, "idempotency_conflict")
		s.post("/v1/bulks/slow/stop", "", nil, 200)
		s.refusal(s.post("/v1/bulks/none/stop", "", nil, 404), 404, "not_found")
		if slow := decode[wire.Bulk](t, s.get("/v1/bulks/slow", 200)); slow.Stopped == nil || slow.Stopped.Reason != "enough" {
			t.Errorf("the bulk is %+v", slow)
		}
		list := decode[wire.BulkPage](t, s.get("/v1/bulks?limit=2&sortOrder=asc", 200))
		rest := decode[wire.BulkPage](t, s.get("/v1/bulks?limit=2&sortOrder=asc&cursor="+list.Tail, 200))
		if all := append(list.Data, rest.Data...); len(all) != 3 || all[0].BulkID != "all failed" || all[1].BulkID != "slow" || all[2].BulkID != "tell" || !list.HasMore || rest.HasMore {
			t.Errorf("the bulks are %+v and %+v", list, rest)
		}
		r := request{method: "GET", path: path, secret: stranger}
		s.refusal(s.must(r, 404), 404, "not_found")
	})
}

func TestSignals(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("checkout", nil)
		path := "/v1/runs/" + run + "/signals/"
		s.post(path+"other", "", members{"payload": 1, "signalId": "evt_0"}, 200)
		listed := decode[wire.SignalPage](t, s.get("/v1/runs/"+run+"/signals", 200))
		if len(listed.Data) != 1 || listed.Data[0].SignalID != "evt_0" || listed.Data[0].Bytes != 1 {
			t.Errorf("the signals are %+v", listed)
		}
		s.refusal(s.must(request{method: "DELETE", path: path + "other/none", secret: admin}, 409), 409, "not_applicable")
		s.refusal(s.must(request{method: "DELETE", path: "/v1/runs/none/signals/other/evt_0", secret: admin}, 404), 404, "not_found")
		s.tear(run, "other", "evt_0")
		torn := s.post(path+"other", "", members{"payload": 1, "signalId": "evt_0"}, 409)
		s.refusal(torn, 409, "SignalAcceptanceIndeterminate")
		s.must(request{method: "DELETE", path: path + "other/evt_0?reason=torn", secret: admin, key: "c1"}, 204)
		s.must(request{method: "DELETE", path: path + "other/evt_0?reason=torn", secret: admin, key: "c1"}, 204)

		first := s.post(path+"approved", "", members{"payload": members{"receipt": "r1"}, "signalId": "evt_1"}, 200)
		s.ended(run)
		if again := s.post(path+"approved", "", members{"payload": members{"receipt": "r1"}, "signalId": "evt_1"}, 200); string(again.body) != string(first.body) {
			t.Errorf("the repetition was answered %s, want %s", again.body, first.body)
		}
		s.refusal(s.post(path+"approved", "", members{"payload": 2, "signalId": "evt_1"}, 409), 409, "SignalPayloadConflict")
		s.refusal(s.post(path+"approved", "", members{"signalId": "evt_2"}, 409), 409, "run_terminal")
		s.refusal(s.post("/v1/runs/none/signals/approved", "", nil, 404), 404, "not_found")
		for _, body := range []string{`{"signalId":""}`, `{"signalId":null}`, `{"signalId":1}`, `{"signalID":"x"}`, `{"signalId":"` + strings.Repeat("x", 129) + `"}`} { // SIG-3
			s.refusal(s.post(path+"approved", "", body, 400), 400, "invalid_request")
		}

		started := s.post("/v1/runs/by-signal/signals/approved", "", members{"payload": 7, "signalId": "evt_1", "start": members{"workflowName": "checkout"}}, 200)
		if got := decode[wire.SignalAccepted](t, started); got.WorkflowID != "by-signal" || got.SignalID != "evt_1" {
			t.Errorf("accepted %+v", got)
		}
		if got := s.ended("by-signal"); string(got.Result) != "7" {
			t.Errorf("the result is %s", got.Result)
		}
		s.refusal(s.post("/v1/runs/by-signal/signals/approved", "", members{"payload": 8, "signalId": "evt_9", "start": members{"workflowName": "echo"}}, 409), 409, "run_exists")
		s.refusal(s.post("/v1/runs/x/signals/approved", "", members{"start": members{"workflowName": "nothing"}}, 400), 400, "unknown_workflow")
	})
}

func TestHooks(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("invoice", "invoice/7")
		for range 6000 { // until it is open
			if strings.Contains(string(s.get("/v1/runs/"+run+"/events", 200).body), `"opened"`) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		const path = "/v1/hooks/resume"
		body := members{"token": "invoice/7", "payload": members{"receipt": "r1"}, "resumeId": "evt_1"}
		first := s.post(path, "", body, 200)
		if got := decode[wire.SignalAccepted](t, first); got.WorkflowID != run || got.SignalID != "evt_1" {
			t.Errorf("accepted %+v", got)
		}
		if got := s.ended(run); string(got.Result) != `{"receipt":"r1"}` {
			t.Errorf("the result is %s", got.Result)
		}
		if again := s.post(path, "", body, 200); string(again.body) != string(first.body) {
			t.Errorf("the repetition was answered %s, want %s", again.body, first.body)
		}
		s.refusal(s.post(path, "", members{"token": "invoice/7", "payload": 2, "resumeId": "evt_1"}, 409), 409, "SignalPayloadConflict")
		s.refusal(s.post(path, "", members{"token": "invoice/7", "payload": 2}, 404), 404, "not_found")
		s.refusal(s.post(path, "", members{"token": "none"}, 404), 404, "not_found")
		s.refusal(s.post(path, "", `{"token":""}`, 400), 400, "invalid_request")
	})
}

func TestUpdates(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("moving", nil)
		path := "/v1/runs/" + run + "/updates/"
		body := members{"input": members{"street": "Park Lane 2"}, "updateId": "click-7"}
		first := s.post(path+"move", "", body, 200)
		if got := decode[wire.UpdateAnswer](t, first); got.RunID != run || got.UpdateName != "move" || got.UpdateID != "click-7" || string(got.Result) != `{"street":"Park Lane 2"}` {
			t.Errorf("answered %+v", got)
		}
		if again := s.post(path+"move?wait=5", "", body, 200); string(again.body) != string(first.body) {
			t.Errorf("the repetition was answered %s, want %s", again.body, first.body)
		}
		if got := decode[wire.UpdatePending](t, s.post(path+"none?wait=1", "", nil, 202)); got.UpdateName != "none" || got.UpdateID == "" {
			t.Errorf("answered %+v", got)
		}
		s.refusal(s.post(path+"move", "", nil, 409), 409, "update_rejected")
		s.refusal(s.post(path+"move", "", members{"input": "far"}, 409), 409, "update_failed")
		s.refusal(s.post(path+"move", "", members{"input": 1, "updateId": "click-7"}, 409), 409, "update_mismatch")
		s.refusal(s.post(path+"move", "", `{"updateId":""}`, 400), 400, "invalid_request")
		s.refusal(s.post("/v1/runs/none/updates/move", "", nil, 404), 404, "not_found")
		started := members{"input": members{"street": "Main Street 1"}, "updateId": "click-8", "start": members{"workflowName": "moving"}}
		for range 2 {
			if got := decode[wire.UpdateAnswer](t, s.post("/v1/runs/shipment-8/updates/move", "", started, 200)); got.RunID != "shipment-8" || string(got.Result) != `{"street":"Main Street 1"}` {
				t.Errorf("answered %+v", got)
			}
		}
		s.refusal(s.post("/v1/runs/"+run+"/updates/move", "", members{"start": members{"workflowName": "moving", "input": 1}}, 409), 409, "run_exists")
		s.refusal(s.post("/v1/runs/none/updates/move", "", members{"start": members{"workflowName": "none"}}, 400), 400, "unknown_workflow")

		values := "/v1/runs/" + run + "/values"
		got := decode[wire.Value](t, s.get(values+"/moved?wait=10", 200))
		if string(got.Value) != `{"street":"Park Lane 2"}` || got.Status != "running" || got.Version == "" {
			t.Errorf("the value is %+v", got)
		}
		if same := decode[wire.Value](t, s.get(values+"/moved?wait=1&after="+got.Version, 200)); same.Version != got.Version {
			t.Errorf("the value is %+v", same)
		}
		page := decode[wire.ValuePage](t, s.get(values+"?limit=1", 200))
		if len(page.Data) != 1 || page.Data[0].Name != "moved" || !page.HasMore || page.Cursor == nil {
			t.Fatalf("the values are %+v", page)
		}
		page = decode[wire.ValuePage](t, s.get(values+"?cursor="+*page.Cursor, 200))
		if len(page.Data) != 1 || page.Data[0].Name != "places" || page.HasMore || page.Cursor != nil {
			t.Errorf("the values are %+v", page)
		}
		s.refusal(s.get(values+"/none", 404), 404, "no_value")
		s.refusal(s.get("/v1/runs/none/values/moved", 404), 404, "not_found")
		s.refusal(s.get("/v1/runs/none/values", 404), 404, "not_found")

		s.post("/v1/runs/"+run+"/signals/approved", "", nil, 200)
		s.ended(run)
		s.refusal(s.post(path+"move", "", members{"input": 2}, 409), 409, "run_terminal")
	})
}

// tear leaves of the acceptance of a signal what a crash between two writes would have left: the payload, and
// nothing else.
func (s *server) tear(runID, name, signalID string) {
	s.t.Helper()
	b := storage.Batch{Ops: []storage.Op{storage.Delete(keys.Accepted(runID, name, signalID))}}
	entries, err := s.store.Scan(s.t.Context(), keys.InboxFrom(runID, 0))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		b.Ops = append(b.Ops, storage.Delete(e.Key))
	}
	if err := s.store.Commit(s.t.Context(), b); err != nil {
		s.t.Fatal(err)
	}
}
