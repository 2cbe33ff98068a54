package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

var by = weft.Actor{Name: "ann", Reason: "why not"}

// Each method sends the request of its operation, and one that writes has an idempotency key if
// the operation looks at it.
func TestRequests(t *testing.T) {
	evt, key, manifest := "evt 1", "deployer", json.RawMessage(`{"deploymentId":"v1"}`)
	for _, c := range []struct {
		want   string // method, path and query, "+" if there is a key, body
		answer string
		call   func(ctx context.Context, c *Client) error
	}{
		{`POST /v1/runs + {"deploymentId":"v1","input":{"a":1},"labels":{"x":"y"},"queue":"q","runId":"o/1","workflowName":"w"}`, `{"runId":"o/1"}`, func(ctx context.Context, c *Client) error {
			_, err := c.StartWorkflow(ctx, &weft.StartRequest{Workflow: "w", ID: "o/1", Input: json.RawMessage(`{"a":1}`), Options: weft.StartOptions{Queue: "q", Deployment: "v1", Labels: map[string]string{"x": "y"}}})
			return err
		}},
		{`POST /v1/runs + {"input":null,"workflowName":"w"}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.StartWorkflow(ctx, &weft.StartRequest{Workflow: "w"})
			return err
		}},
		{`GET /v1/runs/o%2F1?resolveData=none`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Describe(ctx, "o/1"); return err }},
		{`GET /v1/runs/o%2F1?resolveData=all`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, "o/1"); return err }},
		{`GET /v1/runs/o/result?wait=30`, `{"status":"completed"}`, func(ctx context.Context, c *Client) error { return c.Result(ctx, "o", "", nil) }},
		{`POST /v1/runs/o/cancel + {"reason":"ann: why not"}`, `{}`, func(ctx context.Context, c *Client) error {
			if err := c.Cancel(ctx, "o", by); !errors.Is(err, weft.ErrTerminal) {
				return fmt.Errorf("200 means that it was cancelled before, and the error is %v", err)
			}
			return nil
		}},
		{`POST /v1/runs/o/terminate + {"reason":"ann: why not"}`, `{}`, func(ctx context.Context, c *Client) error { return c.Terminate(ctx, "o", by) }},
		{`POST /v1/runs/resume + {"reason":"ann: why not","runId":"o"}`, `{}`, func(ctx context.Context, c *Client) error { return c.Resume(ctx, "o", by) }},
		{`POST /v1/runs/o/reset + {"before":"3.1","reason":"ann: why not"}`, `{}`, func(ctx context.Context, c *Client) error { return c.Reset(ctx, "o", "3.1", by) }},
		{`POST /v1/runs/o/reset + {"before":""}`, `{}`, func(ctx context.Context, c *Client) error { return c.Reset(ctx, "o", "", weft.Actor{}) }},
		{`POST /v1/bulks/a%20b + {"before":"","do":"reset","filter":{"labels":{"x":"y"},"status":"failed","workflow":"w"},"rate":{"count":3,"perSeconds":2},"reason":"ann: why not"}`, `{}`, func(ctx context.Context, c *Client) error {
			f := weft.Filter{Workflow: "w", Status: checkpoint.StatusFailed, Labels: map[string]string{"x": "y"}}
			return c.StartBulk(ctx, "a b", weft.Bulk{Do: weft.BulkReset, Filter: f, Rate: activity.Rate{Count: 3, Per: 2 * time.Second}}, by)
		}},
		{`POST /v1/bulks/b + {"do":"signal","filter":{"after":"2026-01-02T03:04:05Z","attention":true,"parent":"p"},"reason":"ann: why not","signal":{"name":"s","payload":1}}`, `{}`, func(ctx context.Context, c *Client) error {
			f := weft.Filter{Attention: true, Parent: "p", After: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
			return c.StartBulk(ctx, "b", weft.Bulk{Do: weft.BulkSignal, Filter: f, Signal: signal.Message{Name: "s", Payload: 1}}, by)
		}},
		{`POST /v1/bulks/b/stop + {"reason":"ann: why not"}`, `{}`, func(ctx context.Context, c *Client) error { return c.StopBulk(ctx, "b", by) }},
		{`GET /v1/bulks?cursor=c&limit=3&sortOrder=asc`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Bulks(ctx, weft.PageRequest{Limit: 3, Cursor: "c", Ascending: true})
			return err
		}},
		{`GET /v1/bulks/b`, `{"bulkId":"b","do":"reset","before":"3","filter":{"workflow":"w"},"rate":{"count":3,"perSeconds":2},"by":"shop","reason":"r","createdAt":"2026-01-02T03:04:05Z","stopped":{"by":"ann","reason":"no"},"done":1,"refused":2,"last":"o","refusals":[{"runId":"o","reason":"gone"}]}`, func(ctx context.Context, c *Client) error {
			got, err := c.Bulk(ctx, "b")
			want := weft.BulkInfo{
				ID: "b", Bulk: weft.Bulk{Do: weft.BulkReset, Before: "3", Filter: weft.Filter{Workflow: "w"}, Rate: activity.Rate{Count: 3, Per: 2 * time.Second}},
				By: weft.Actor{Name: "shop", Reason: "r"}, Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Stopped: &weft.Actor{Name: "ann", Reason: "no"},
				Done: 1, Refused: 2, Last: "o", Refusals: []weft.Refusal{{ID: "o", Reason: "gone"}},
			}
			if err == nil && !reflect.DeepEqual(got, want) {
				err = fmt.Errorf("got %+v, want %+v", got, want)
			}
			return err
		}},
		{`POST /v1/runs/o/operations/3.undo/resolve + {"answer":"failed","error":"gone","reason":"ann: why not"}`, `{}`, func(ctx context.Context, c *Client) error {
			return c.Resolve(ctx, "o", "3.undo", Answer{Outcome: Failed, Error: "gone"}, by)
		}},
		{`DELETE /v1/runs/o?reason=ann%3A+why+not`, ``, func(ctx context.Context, c *Client) error { return c.Purge(ctx, "o", by) }},
		{`POST /v1/runs/o/signals/a%20b {"payload":{"ok":true},"signalId":"evt 1"}`, `{}`, func(ctx context.Context, c *Client) error { // SIG-3
			_, err := c.SendSignal(ctx, signal.Message{WorkflowID: "o", Name: "a b", ID: &evt, Payload: map[string]bool{"ok": true}})
			return err
		}},
		{`POST /v1/runs/o/signals/s {"payload":null,"signalId":"evt 1","start":{"input":1,"workflowName":"w"}}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.SendSignal(ctx, signal.Message{Start: &weft.StartRequest{Workflow: "w", ID: "o", Input: 1}, Name: "s", ID: &evt})
			return err
		}},
		{`POST /v1/hooks/resume {"payload":1,"resumeId":"evt 1","token":"a/b"}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := (&signal.Hook[int]{Name: "paid"}).Resume(ctx, c, "a/b", 1, &signal.Options{ID: evt})
			return err
		}},
		{`POST /v1/runs/o/updates/a%20b?wait=30 {"input":{"to":"x"},"updateId":"evt 1"}`, `{"result":1}`, func(ctx context.Context, c *Client) error {
			n, err := (&engine.Update[map[string]string, int]{Name: "a b"}).Call(ctx, c, "o", map[string]string{"to": "x"}, &engine.UpdateOptions{ID: evt})
			if err == nil && n != 1 {
				err = fmt.Errorf("the answer is %d", n)
			}
			return err
		}},
		{`POST /v1/runs/o/updates/u?wait=30 {"input":2,"start":{"input":1,"workflowName":"w"},"updateId":"evt 1"}`, `{"result":1}`, func(ctx context.Context, c *Client) error {
			_, err := (&engine.Update[int, int]{Name: "u"}).CallWithStart(ctx, c, &weft.StartRequest{Workflow: "w", ID: "o", Input: 1}, 2, &engine.UpdateOptions{ID: evt})
			return err
		}},
		{`GET /v1/runs/o/values/a%20b`, `{"value":1}`, func(ctx context.Context, c *Client) error {
			_, err := (&engine.Value[int]{Name: "a b"}).Read(ctx, c, "o")
			return err
		}},
		{`GET /v1/runs/o/values/v?wait=30`, `{"value":1,"version":"x"}`, func(ctx context.Context, c *Client) error {
			_, err := (&engine.Value[int]{Name: "v"}).Await(ctx, c, "o", func(n int) bool { return n == 1 })
			return err
		}},
		{`GET /v1/runs/o/values`, `{}`, func(ctx context.Context, c *Client) error {
			for _, err := range c.Values(ctx, "o") {
				return err
			}
			return nil
		}},
		{`GET /v1/runs/o/signals?cursor=c&limit=3&sortOrder=asc`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Signals(ctx, "o", weft.PageRequest{Limit: 3, Cursor: "c", Ascending: true})
			return err
		}},
		{`DELETE /v1/runs/o/signals/s/evt%201 +`, ``, func(ctx context.Context, c *Client) error { return c.ClearSignal(ctx, "o", "s", evt, weft.Actor{}) }},
		{`GET /v1/runs?after=2026-07-29T10%3A00%3A00.000001Z&attention=true&before=2026-07-30T10%3A00%3A00Z&deployment=v1&label=a%3Ab&label=c%3Ad%3Ae&parent=p&status=running&workflow=w`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Page(ctx, weft.Filter{
				Workflow: "w", Status: checkpoint.StatusRunning, Attention: true, Parent: "p", Deployment: "v1", Labels: map[string]string{"c": "d:e", "a": "b"},
				After: time.Date(2026, 7, 29, 10, 0, 0, 1000, time.UTC), Before: time.Date(2026, 7, 30, 12, 0, 0, 0, time.FixedZone("", 7200)),
			}, weft.PageRequest{})
			return err
		}},
		{`GET /v1/runs/o/events`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Events(ctx, "o", weft.PageRequest{})
			return err
		}},
		{`GET /v1/runs/o/events?limit=3&resolveData=none`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Events(ctx, "o", weft.PageRequest{Limit: 3, NoData: true})
			return err
		}},
		{`POST /v1/deployments + {"manifest":{"deploymentId":"v1"}}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.CreateDeployment(ctx, manifest, nil)
			return err
		}},
		{`GET /v1/deployments`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Deployments(ctx, weft.PageRequest{})
			return err
		}},
		{`GET /v1/deployments/v1`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Deployment(ctx, "v1"); return err }},
		{`GET /v1/deployments/active`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.ActiveDeployment(ctx); return err }},
		{`POST /v1/deployments/v2/activate + {"reason":"why not"}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Activate(ctx, "v2", Expected{}, weft.Actor{Reason: "why not"})
			return err
		}},
		{`POST /v1/deployments/v2/activate + {"expectedActive":"v1"}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Activate(ctx, "v2", IfActive("v1"), weft.Actor{})
			return err
		}},
		{`POST /v1/deployments/v2/activate + {"expectedActive":null}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Activate(ctx, "v2", IfNoneActive(), weft.Actor{})
			return err
		}},
		{`POST /v1/keys {"keyId":"deployer","scopes":["deploy:write"]}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.CreateKey(ctx, wire.CreateKey{KeyID: &key, Scopes: []wire.Scope{wire.ScopeDeployWrite}})
			return err
		}},
		{`GET /v1/keys`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Keys(ctx, weft.PageRequest{}); return err }},
		{`POST /v1/keys/deployer/rotate {}`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.RotateKey(ctx, key, wire.RotateKey{})
			return err
		}},
		{`DELETE /v1/keys/deployer?environment=prod&project=acme`, ``, func(ctx context.Context, c *Client) error { return c.RevokeKey(ctx, key, "acme", "prod") }},
		{`GET /v1/audit?action=runs.create&from=2026-07-29T10%3A00%3A00Z&keyId=k&result=success&runId=o`, `{}`, func(ctx context.Context, c *Client) error {
			_, err := c.Audit(ctx, AuditFilter{Action: "runs.create", Result: "success", KeyID: "k", RunID: "o", From: time.Date(2026, 7, 29, 10, 0, 0, 0, time.UTC)}, weft.PageRequest{})
			return err
		}},
		{`GET /v1/engines`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Engines(ctx, weft.PageRequest{}); return err }},
		{`GET /v1/ready`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Ready(ctx); return err }},
		{`GET /v1/diagnostics/ownership`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Ownership(ctx); return err }},
	} {
		got := ""
		client := over(t, func(q *http.Request) (*http.Response, error) {
			got = q.Method + " " + strings.TrimPrefix(q.URL.RequestURI(), "/weft")
			if q.Header.Get("Idempotency-Key") != "" {
				got += " +"
			}
			if q.Body != nil {
				body, err := io.ReadAll(q.Body)
				var v any
				if err != nil || json.Unmarshal(body, &v) != nil || q.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: %s is no JSON by its type", c.want, body)
				}
				sorted, _ := json.Marshal(v)
				got += " " + string(sorted)
			}
			if c.answer == "" {
				return answer(204, ""), nil
			}
			return answer(200, c.answer), nil
		})
		if err := c.call(t.Context(), client); err != nil || got != c.want {
			t.Errorf("sent is  %s\nwant     %s\n%v", got, c.want, err)
		}
	}
}

// The name of a label is escaped, so that a colon in it is not taken for its end.
func TestLabelsWithColons(t *testing.T) {
	var asked []string
	c := over(t, func(q *http.Request) (*http.Response, error) {
		asked = q.URL.Query()["label"]
		return answer(200, `{"data":[]}`), nil
	})
	if _, err := c.Page(t.Context(), weft.Filter{Labels: map[string]string{"a:b": "c:d%", "p%": "q", "r": "s"}}, weft.PageRequest{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a%3Ab:c:d%", "p%25:q", "r:s"}; !slices.Equal(asked, want) {
		t.Errorf("asked was %q, want %q", asked, want)
	}
}

// The bytes of an artifact go with the manifest.
func TestUpload(t *testing.T) {
	c := over(t, func(q *http.Request) (*http.Response, error) {
		f, err := q.MultipartReader()
		if err != nil {
			return nil, err
		}
		got := ""
		for {
			part, err := f.NextPart()
			if err == io.EOF {
				break
			}
			data, _ := io.ReadAll(part)
			got += fmt.Sprintf("%s %s %s;", part.FormName(), part.Header.Get("Content-Type"), data)
		}
		if want := `manifest application/json {"deploymentId":"v1"};artifact application/octet-stream bytes;`; got != want {
			t.Errorf("sent was %s, want %s", got, want)
		}
		return answer(201, `{"deploymentId":"v1","manifest":{},"status":"created"}`), nil
	})
	if d, err := c.UploadDeployment(t.Context(), json.RawMessage(`{"deploymentId":"v1"}`), []byte("bytes")); err != nil || d.DeploymentID != "v1" {
		t.Errorf("%+v, %v", d, err)
	}
}

// Ready returns what a control plane says that is not ready, at once.
func TestNotReady(t *testing.T) {
	const body = `{"ready":false,"store":false,"engine":true}`
	n := 0
	c := over(t, func(*http.Request) (*http.Response, error) {
		n++
		return answer(503, body, "Content-Type", "application/json", "Retry-After", "1"), nil
	})
	if r, err := c.Ready(t.Context()); err != nil || n != 1 || r.Ready || r.Store || !r.Engine {
		t.Errorf("after %d attempts: %+v, %v", n, r, err)
	}
	synctest.Test(t, func(t *testing.T) {
		for name, a := range map[string]func() *http.Response{
			"a gateway": func() *http.Response {
				a := gateway(503, body)
				a.Header.Set("Content-Type", "application/json")
				return a
			},
			"a problem": func() *http.Response { return answer(503, `{"code":"busy","message":"m"}`) },
		} {
			c := over(t, func(*http.Request) (*http.Response, error) { return a(), nil })
			if _, err := c.Ready(t.Context()); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		c := over(t, func(*http.Request) (*http.Response, error) {
			return answer(503, body, "Content-Type", "application/json"), nil
		})
		if _, err := c.Ownership(t.Context()); err == nil {
			t.Error("another call: no error")
		}
	})
}

// What a request cannot say is refused, and nothing is sent.
func TestWhatCannotBeSent(t *testing.T) {
	c := over(t, func(q *http.Request) (*http.Response, error) {
		t.Errorf("sent was %s %s", q.Method, q.URL)
		return answer(200, `{}`), nil
	})
	ctx := t.Context()
	start := func(r *weft.StartRequest) error { _, err := c.StartWorkflow(ctx, r); return err }
	token := "t"
	send := func(m signal.Message) error { _, err := c.SendSignal(ctx, m); return err }
	bulk := func(b weft.Bulk) error { return c.StartBulk(ctx, "b", b, by) }
	page := func(f weft.Filter) error { _, err := c.Page(ctx, f, weft.PageRequest{}); return err }
	for name, x := range map[string]struct{ err, want error }{
		"an input without JSON":   {start(&weft.StartRequest{Workflow: "w", Input: func() {}}), weft.ErrInvalid},
		"a payload without JSON":  {send(signal.Message{WorkflowID: "o", Name: "s", Payload: make(chan int)}), weft.ErrInvalid},
		"an id of two dots":       {c.Purge(ctx, "..", by), weft.ErrInvalid},
		"no id":                   {c.Cancel(ctx, "", by), weft.ErrInvalid},
		"a key that is a dot":     {c.RevokeKey(ctx, ".", "", ""), weft.ErrInvalid},
		"a signal that expires":   {send(signal.Message{WorkflowID: "o", Name: "s", ExpiresAfter: time.Hour}), errors.ErrUnsupported},
		"a token and a workflow":  {send(signal.Message{WorkflowID: "o", Token: &token, Name: "s"}), weft.ErrInvalid},
		"a resume that expires":   {send(signal.Message{Token: &token, Name: "s", ExpiresAfter: time.Hour}), errors.ErrUnsupported},
		"labels of another start": {send(signal.Message{Start: &weft.StartRequest{Workflow: "w", ID: "o", Options: weft.StartOptions{Labels: map[string]string{"a": "b"}}}, Name: "s"}), errors.ErrUnsupported},
		"queue of an update":      {c.CallUpdate(ctx, &weft.UpdateRequest{Start: &weft.StartRequest{Workflow: "w", ID: "o", Options: weft.StartOptions{Queue: "q"}}, Update: "u"}, nil), errors.ErrUnsupported},
		"an input that is none":   {c.CallUpdate(ctx, &weft.UpdateRequest{WorkflowID: "o", Update: "u", Input: func() {}}, nil), weft.ErrInvalid},
		"no name of a value":      {c.ReadValue(ctx, "o", "", nil), weft.ErrInvalid},
		"a bulk by prefix":        {bulk(weft.Bulk{Do: weft.BulkCancel, Filter: weft.Filter{IDPrefix: "o"}}), errors.ErrUnsupported},
		"a bulk with a signal id": {bulk(weft.Bulk{Do: weft.BulkSignal, Signal: signal.Message{Name: "s", ID: &token}}), errors.ErrUnsupported},
		"a bulk within half a s":  {bulk(weft.Bulk{Do: weft.BulkCancel, Rate: activity.Rate{Count: 1, Per: time.Second / 2}}), errors.ErrUnsupported},
		"a bulk to a workflow":    {bulk(weft.Bulk{Do: weft.BulkSignal, Signal: signal.Message{Name: "s", WorkflowID: "o"}}), weft.ErrInvalid},
		"no id of a bulk":         {c.StopBulk(ctx, "", by), weft.ErrInvalid},
		"no child":                {page(weft.Filter{TopLevel: true}), errors.ErrUnsupported},
		"by prefix":               {page(weft.Filter{IDPrefix: "o"}), errors.ErrUnsupported},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", name, x.err, x.want)
		}
	}
	if _, err := c.Deployment(ctx, "active"); !errors.Is(err, weft.ErrNotFound) {
		t.Errorf("the deployment active: %v", err)
	}
}

// SIG-3: a signal without an ID gets one, which its attempts share; each call gets another.
func TestASignalGetsAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		c := over(t, func(q *http.Request) (*http.Response, error) {
			var body wire.SendSignal
			if err := json.NewDecoder(q.Body).Decode(&body); err != nil || body.SignalID == nil {
				t.Fatal("a signal without an id")
			}
			ids = append(ids, *body.SignalID)
			if len(ids)%2 == 1 {
				return nil, io.EOF
			}
			return answer(200, `{"accepted":true,"workflowId":"o","signalName":"s","signalId":"`+*body.SignalID+`","acceptedAt":"2026-07-29T10:00:00.000001Z","signalStorageKey":"k"}`), nil
		})
		for range 2 {
			a, err := c.SendSignal(t.Context(), signal.Message{WorkflowID: "o", Name: "s"})
			want := signal.Accepted{Accepted: true, WorkflowID: "o", SignalName: "s", SignalID: ids[len(ids)-1], AcceptedAt: time.Date(2026, 7, 29, 10, 0, 0, 1000, time.UTC), SignalStorageKey: "k"}
			if err != nil || a != want {
				t.Errorf("%+v, %v; want %+v", a, err, want)
			}
		}
		if len(ids) != 4 || ids[0] != ids[1] || ids[2] != ids[3] || ids[0] == ids[2] || len(ids[0]) < 20 {
			t.Errorf("the ids were %q", ids)
		}
	})
}

// Errors of a control plane are those of an engine, so that a caller branches as in process.
// SIG-48: an indeterminate acceptance is a *Error with this code, and a *signal.IndeterminateError.
func TestErrorsAreThoseOfTheEngine(t *testing.T) {
	for _, c := range []struct {
		status        int
		code, details string
		is            error
	}{
		{400, "invalid_request", `{"issues":[]}`, weft.ErrInvalid},
		{400, "unknown_workflow", `null`, weft.ErrInvalid},
		{413, "too_large", `null`, weft.ErrInvalid},
		{404, "not_found", `null`, weft.ErrNotFound},
		{409, "run_exists", `{"runId":"o","status":"failed","same":false}`, weft.ErrExists},
		{409, "run_terminal", `{"status":"failed"}`, weft.ErrTerminal},
		{409, "not_applicable", `null`, weft.ErrNotApplicable},
		{409, "not_applicable", `{"holder":"p"}`, signal.ErrTokenTaken},
		{409, "active_changed", `null`, weft.ErrNotApplicable},
		{409, "no_active_deployment", `null`, weft.ErrNoActiveDeployment},
		{409, "SignalPayloadConflict", `null`, signal.ErrConflict},
		{409, "SignalAcceptanceIndeterminate", `{"workflowId":"o","signalName":"s","signalId":"evt"}`, signal.ErrConflict},
		{500, "damaged", `null`, storage.ErrCorrupt},
		{503, "closing", `null`, weft.ErrClosed},
	} {
		client := over(t, func(q *http.Request) (*http.Response, error) {
			return answer(c.status, fmt.Sprintf(`{"code":%q,"message":"m","retry":"never","correlationId":"engine-1","details":%s}`, c.code, c.details), "Content-Type", "application/problem+json"), nil
		})
		evt := "evt"
		_, err := client.SendSignal(t.Context(), signal.Message{WorkflowID: "o", Name: "s", ID: &evt})
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Status != c.status || e.Code != c.code || e.Message != "m" || e.Retry != "never" || e.CorrelationID != "c-0" || !errors.Is(err, c.is) {
			t.Errorf("%s: %#v", c.code, err)
		}
		var want error
		switch c.code {
		case "run_exists":
			want = &weft.ExistsError{WorkflowID: "o", Status: checkpoint.StatusFailed}
		case "run_terminal":
			want = &weft.TerminalError{WorkflowID: "o", Status: checkpoint.StatusFailed}
		case "SignalPayloadConflict":
			want = &signal.ConflictError{WorkflowID: "o", SignalName: "s", SignalID: "evt"}
		case "SignalAcceptanceIndeterminate":
			want = &signal.IndeterminateError{WorkflowID: "o", SignalName: "s", SignalID: "evt", CorrelationID: "engine-1"}
		default:
			continue
		}
		if diff := cmp.Diff(want, errors.Unwrap(err)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.code, diff)
		}
	}
}

// The message of a request that is not valid has each problem of it.
func TestAnErrorSaysWhatIsNotValid(t *testing.T) {
	c := over(t, func(*http.Request) (*http.Response, error) {
		return answer(400, `{"code":"invalid_request","message":"The request is not valid.","details":{"issues":[
			{"path":"/scopes","problem":"has an unknown one"},{"path":"","problem":"is not an object"}]}}`), nil
	})
	_, err := c.SendSignal(t.Context(), signal.Message{WorkflowID: "o", Name: "s"})
	e, ok := errors.AsType[*Error](err)
	if want := "The request is not valid: /scopes has an unknown one; is not an object"; !ok || e.Message != want || !strings.Contains(e.Error(), want) {
		t.Errorf("got %v, want it to say %q", err, want)
	}
}

// OP-22: the id is taken by the same start. The client returns that run, as Start does. For another
// run it does not.
func TestStartingWhatIsThere(t *testing.T) {
	for _, same := range []bool{true, false} {
		c := over(t, func(q *http.Request) (*http.Response, error) {
			return answer(409, fmt.Sprintf(`{"code":"run_exists","message":"m","retry":"never","details":{"runId":"o","status":"running","same":%v}}`, same)), nil
		})
		if _, err := c.StartWorkflow(t.Context(), &weft.StartRequest{Workflow: "w", ID: "o", Input: 1, New: true}); !errors.Is(err, weft.ErrExists) {
			t.Errorf("it must be new, and the error is %v", err)
		}
		i, err := c.StartWorkflow(t.Context(), &weft.StartRequest{Workflow: "w", ID: "o", Input: 1})
		if same && (err != nil || i.ID != "o" || i.Workflow != "w" || i.Status != checkpoint.StatusRunning) || !same && !errors.Is(err, weft.ErrExists) {
			t.Errorf("same: %v: %+v, %v", same, i, err)
		}
	}
}

var (
	errRefused = errors.New("the card is refused")
	checkout   = &engine.Workflow[int, string]{Name: "checkout", Errors: []error{errRefused}}
)

// A handle waits over the wire, for as long as the run lasts, and gets the workflow's result or its
// error.
func TestResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name, workflow, end, result string
			is                          error
		}{
			{"completed", "checkout", `{"runId":"o","status":"completed","result":"r-7"}`, "r-7", nil},
			{"failed", "checkout", `{"runId":"o","status":"failed","error":{"message":"no: the card is refused","code":"the card is refused"}}`, "", errRefused},
			{"cancelled", "checkout", `{"runId":"o","status":"cancelled","error":{"message":"it was cancelled"}}`, "", weft.ErrCancelled},
			{"another workflow", "parcel", `{}`, "", weft.ErrNotFound},
		} {
			polls := 0
			client := over(t, func(q *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(q.URL.Path, "/result") {
					return answer(200, `{"runId":"o","workflowName":"`+c.workflow+`"}`), nil
				}
				switch polls++; polls {
				case 1: // it waits, as it is asked to
					time.Sleep(30 * time.Second)
					return answer(202, `{"runId":"o","status":"running"}`), nil
				case 2: // it closes
					return answer(202, `{"runId":"o","status":"running"}`), nil
				}
				return answer(200, c.end), nil
			})
			began := time.Now()
			got, err := checkout.Handle(client, "o").Result(t.Context())
			if got != c.result || !errors.Is(err, c.is) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
			if took := time.Since(began); c.name != "another workflow" && (polls != 3 || took < 30500*time.Millisecond || took > 32*time.Second) {
				t.Errorf("%s: %d requests in %v", c.name, polls, took)
			}
			if failed, ok := errors.AsType[*weft.WorkflowError](err); ok && (failed.Workflow != "checkout" || failed.WorkflowID != "o") {
				t.Errorf("%s: %+v", c.name, failed)
			}
		}
	})
}

// Waiting ends with the context.
func TestResultIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []string
		client := over(t, func(q *http.Request) (*http.Response, error) {
			wait := q.URL.Query().Get("wait")
			waits = append(waits, wait)
			d, _ := time.ParseDuration(wait + "s")
			time.Sleep(d)
			return answer(202, `{"runId":"o","status":"running"}`), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		defer cancel()
		err := client.Result(ctx, "o", "", nil)
		e, ok := errors.AsType[*weft.InterruptedError](err)
		if !ok || e.Unknown || !e.ReadOnly || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if len(waits) < 2 || waits[0] != "30" || waits[1] != "15" {
			t.Errorf("it has asked to wait for %q", waits)
		}
	})
}

type reversed struct{}

func (reversed) Name() string { return "reversed" }
func (reversed) Encode(context.Context, any) ([]byte, error) {
	return nil, errors.ErrUnsupported
}
func (reversed) Decode(_ context.Context, data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}

// A result that is not JSON is decoded by its codec, if the client has it.
func TestResultsOfOtherCodecs(t *testing.T) {
	w := roundTrip(func(q *http.Request) (*http.Response, error) {
		return answer(200, `{"runId":"o","status":"completed","result":{"codec":"reversed","base64":"cjc="}}`), nil
	})
	c, err := New("https://shop.internal", secret, &Options{Transport: w, Codecs: []weft.Codec{reversed{}}})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := c.Result(t.Context(), "o", "", &got); err != nil || got != "r7" {
		t.Errorf("%q, %v", got, err)
	}
	if _, ok := errors.AsType[*weft.DecodeError](over(t, w).Result(t.Context(), "o", "", &got)); !ok {
		t.Error("without the codec there is no *weft.DecodeError")
	}
}

// Cancel returns a *HeldError of a run that is held for any reason for which an engine does, and of no other run.
func TestCancelOfARunThatIsHeld(t *testing.T) {
	for _, r := range []weft.Reason{
		weft.ReasonNonDeterminism, weft.ReasonNoProgress, weft.ReasonDamaged, weft.ReasonBadDefinition, weft.ReasonBadInput, weft.ReasonUndecodable,
		weft.ReasonStuck, weft.ReasonUnresponsive, weft.ReasonIndeterminate, weft.ReasonUncompensated, weft.ReasonUnregistered, weft.ReasonNewerRelease,
	} {
		c := over(t, func(*http.Request) (*http.Response, error) {
			return answer(202, fmt.Sprintf(`{"accepted":true,"status":"running","attention":[{"reason":"stuck"},{"reason":%q,"detail":"why"}]}`, r)), nil
		})
		want := run.Holds(r) && r != weft.ReasonUnregistered && r != weft.ReasonNewerRelease // an engine does not say these two
		err := c.Cancel(t.Context(), "o", by)
		held, is := errors.AsType[*weft.HeldError](err)
		if is != want || !want && err != nil || want && (held.WorkflowID != "o" || held.Reason != r || held.Detail != "why") {
			t.Errorf("%s: got %v", r, err)
		}
	}
}

// List reads one page after the other.
func TestList(t *testing.T) {
	pages := map[string]string{
		"":  `{"data":[{"runId":"a"},{"runId":"b"}],"cursor":"x","hasMore":true,"tail":"x"}`,
		"x": `{"data":[],"cursor":"y","hasMore":true,"tail":"y"}`,
		"y": `{"data":[{"runId":"c","attention":[{"reason":"stuck"}],"cancel":{"by":"k"},"workflowName":"w","status":"failed","error":{"message":"no"}}],"cursor":null,"hasMore":false,"tail":"z"}`,
	}
	c := over(t, func(q *http.Request) (*http.Response, error) {
		return answer(200, pages[q.URL.Query().Get("cursor")]), nil
	})
	var ids string
	for i, err := range c.List(t.Context(), weft.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids += i.ID
		if i.ID == "c" && (i.Attention[0].Reason != weft.ReasonStuck || i.Cancel.By != "k" || i.Failure != `engine: workflow w "c": no`) {
			t.Errorf("%+v", i)
		}
	}
	if ids != "abc" {
		t.Errorf("listed are %q", ids)
	}
}
