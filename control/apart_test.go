package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// An id in an input does not reach a stranger's run: the run that names it fails, and the stranger's
// stays as it is.
func TestARunReachesNoStranger(t *testing.T) {
	s := open(t, nil)
	s.start(other, "wait", "kid", nil)
	s.start(acme, "parent", "p", "@other/prod/kid2")
	if r := s.call(acme, "GET", at("p", "result")+"?wait=20", nil).is(t, 200, ""); r.text("status") != "failed" || strings.Contains(string(r.raw), "@acme/prod") {
		t.Errorf("got %s", r.raw)
	}
	s.start(acme, "parent", "q", "kid")
	s.await("the child", func() bool { return s.call(acme, "GET", at("kid"), nil).status == 200 })
	if r := s.call(other, "GET", at("kid"), nil).is(t, 200, ""); r.body["parent"] != nil {
		t.Errorf("got %s", r.raw)
	}
}

// Deployments, engines and the world belong to the store: only keys of the home namespace may use them,
// except that any may ask which deployment is active.
func TestWhatBelongsToTheStore(t *testing.T) {
	s := idle(t, nil)
	for _, o := range operations() {
		if !o.Home {
			continue
		}
		path := o.Path
		for _, name := range []string{"id", "area", "action"} {
			path = strings.ReplaceAll(path, "{"+name+"}", "x")
		}
		var body any
		if o.TakesBody() {
			body = `{}`
		}
		s.call(acme, o.Method, path, body).is(t, 403, "missing_scope")
	}
	s.call(acme, "GET", "/v1/deployments/active", nil).is(t, 409, "no_active_deployment")
}

// HTTP-11 to HTTP-16: a key has a scope for what it does, or gets 403 with the
// scopes of which it needs one.
func TestScopesOfOperations(t *testing.T) {
	const none = "a-key-that-may-read-audit-0"
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Keys = append(c.Keys[:len(c.Keys):len(c.Keys)], Key{ID: "auditor", Secret: none, Scopes: []string{"audit:read"}})
	})
	want := map[string]string{
		"deployments.active": "[deploy:read]", "runs.create": "[trigger:write]", "runs.resume": "[runs:write]",
		"world.deployment_id": "[world:proxy]", "world.queue.publish": "[world:proxy]", "world.call": "[world:proxy]",
		"runs.get": "[runs:read]", "runs.list": "[runs:read]", "runs.result": "[runs:read]", "runs.events": "[runs:read]", "runs.stream": "[runs:read]",
		"bulks.start": "[runs:operate]", "bulks.stop": "[runs:operate]", "bulks.get": "[runs:read]", "bulks.list": "[runs:read]",
		"runs.cancel": "[runs:write]", "runs.terminate": "[runs:operate]", "runs.reset": "[runs:operate]", "runs.resolve": "[runs:operate]", "runs.purge": "[runs:operate]",
		"signals.send": "[signals:write runs:write]", "signals.list": "[runs:read]", "signals.clear": "[runs:operate]", "hooks.resume": "[signals:write]",
		"updates.call": "[signals:write runs:write]", "values.list": "[runs:read]", "values.get": "[runs:read]",
		"deployments.create": "[deploy:write]", "deployments.list": "[deploy:read]", "deployments.get": "[deploy:read]",
		"deployments.artifact": "[deploy:read]", "deployments.activate": "[deploy:write]",
	}
	seen := 0
	for _, o := range operations() {
		scopes, ok := want[o.Name]
		if !ok {
			continue
		}
		seen++
		path := regexp.MustCompile(`\{[a-zA-Z]+\}`).ReplaceAllString(o.Path, "x")
		var body any
		if o.TakesBody() {
			body = `not even JSON`
		}
		r := s.call(none, o.Method, path, body).is(t, 403, "missing_scope")
		if got := fmt.Sprint(r.body["required"]); got != scopes {
			t.Errorf("%s: required %s, want %s", o.Name, got, scopes)
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d operations", seen, len(want))
	}
}

// Without a world, its operations are answered with 501, after scope and shape.
func TestWithoutAWorld(t *testing.T) {
	s := idle(t, nil)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/queue/publish", `{"queueName":"q","message":{},"opts":{"idempotencyKey":"k"}}`},
		{"POST", "/v1/world/events/create", `{}`},
	} {
		s.call(home, c.method, c.path, c.body).is(t, 501, "not_configured")
	}
	s.call(home, "POST", "/v1/queue/publish", `{"queueName":"q"}`).is(t, 400, "invalid_request")
}

// Webhooks are the host's handlers. They need no key, and get the body as it came.
func TestWebhooks(t *testing.T) {
	idle(t, nil).call("", "POST", "/v1/webhooks/acme", `{}`).is(t, 501, "not_configured")
	release := make(chan struct{})
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Webhooks = map[string]http.Handler{"acme": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			switch {
			case err != nil:
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			case string(body) == "wait":
				<-release
			default:
				fmt.Fprintf(w, `{"got":%q,"type":%q}`, body, r.Header.Get("Content-Type"))
			}
		})}
	})
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end) // otherwise a failure would wait for the handlers
	r := s.call("", "POST", "/v1/webhooks/acme", "not JSON", "Content-Type", "text/plain").is(t, 200, "")
	if string(r.raw) != `{"got":"not JSON","type":"text/plain"}` {
		t.Errorf("got %s", r.raw)
	}
	s.call("", "POST", "/v1/webhooks/none", `{}`).is(t, 404, "not_found")
	large := httptest.NewRecorder() // over a network, the connection may end before the client has read the answer
	answers.Handler(s.plane).ServeHTTP(large, httptest.NewRequest("POST", "/v1/webhooks/acme", strings.NewReader(strings.Repeat("x", 1<<20+1))))
	if large.Code != 413 {
		t.Errorf("a large body: got %d", large.Code)
	}
	done := make(chan struct{}, mostProviderWebhooks)
	for range mostProviderWebhooks {
		go func() {
			defer func() { done <- struct{}{} }()
			s.try("", "POST", "/v1/webhooks/acme", "wait")
		}()
	}
	s.await("48 webhooks", func() bool {
		return s.plane.webhooks.Count() == mostProviderWebhooks
	})
	if r := s.call("", "POST", "/v1/webhooks/acme", "x").is(t, 503, "busy"); r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	end()
	for range mostProviderWebhooks {
		<-done
	}
}

// What the audit and Observe know of a webhook is what the handler answered. Refusals of one network
// are counted together. A panic of Observe changes no answer, and keeps no place from others.
func TestWebhooksAreAccountedAfterwards(t *testing.T) {
	var reports []Report
	boom := false
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Observe = func(_ context.Context, r Report) {
			reports = append(reports, r)
			if boom {
				panic("boom")
			}
		}
		c.Webhooks = map[string]http.Handler{"acme": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		})}
	})
	post := func() {
		defer func() { recover() }()
		answers.Handler(s.plane).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/webhooks/acme", strings.NewReader("x")))
	}
	for range 5 {
		post()
	}
	if len(reports) != 5 || reports[0].Status != 401 || reports[0].Code == "" {
		t.Errorf("got the reports %+v", reports)
	}
	boom = true
	func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("a panic of Observe reached the server: %v", p)
			}
		}()
		answers.Handler(s.plane).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/webhooks/acme", strings.NewReader("x")))
	}()
	w := httptest.NewRecorder()
	answers.Handler(s.plane).ServeHTTP(w, httptest.NewRequest("GET", "/v1/health", nil))
	if w.Code != http.StatusOK {
		t.Errorf("although Observe panics, the answer is %d, want 200", w.Code)
	}
	if n := s.plane.webhooks.Count(); n != 0 {
		t.Errorf("%d places are not free", n)
	}
	s.plane.Close()
	if n := recordsOf(t, s.store, "ctl:audit:"); n != 1 {
		t.Errorf("got %d audit rows, want 1", n)
	}
}

// An outcome that stays unknown is said to be unknown. The same request gets the answer of the first,
// whether that took effect or not.
func TestAnUnknownOutcome(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		synctest.Test(t, func(t *testing.T) {
			inner, failing := new(memory.Store), false
			faulty := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
				for _, o := range c.Batch.Ops {
					if failing && strings.HasPrefix(string(o.Key), "wf:") {
						return fault
					}
				}
				return storagetest.None
			})
			p := boot(t, faulty)
			defer p.close()
			failing = true
			begun := time.Now()
			w := p.post("/v1/runs", "k", `{"workflowName":"echo"}`)
			if w.Code != 503 || !strings.Contains(w.Body.String(), `"code":"outcome_unknown"`) || w.Header().Get("Retry-After") == "" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if took := time.Since(begun); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("it was settled for %v, want 10 s", took)
			}
			failing = false
			if w := p.post("/v1/runs", "k", `{"workflowName":"echo"}`); w.Code != 201 || (w.Header().Get("Idempotent-Replayed") != "") != (fault == storagetest.ErrorAfter) || recordsOf(t, inner, "ix:") != 1 {
				t.Errorf("repeated: %d %s", w.Code, w.Body)
			}
		})
	}
}

// HTTP-51, HTTP-55, HTTP-56, HTTP-58: an answer is kept for 24 h after it was sealed. Then the key is new: a
// runId that is in use is taken.
func TestAKeyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := boot(t, new(memory.Store))
		defer p.close()
		named, free := `{"workflowName":"echo","runId":"order-42"}`, `{"workflowName":"echo"}`
		first, other := p.post("/v1/runs", "a", named), p.post("/v1/runs", "b", free)
		if first.Code != 201 || other.Code != 201 {
			t.Fatal(first.Body, other.Body)
		}
		time.Sleep(23*time.Hour + 59*time.Minute)
		if w := p.post("/v1/runs", "a", named); w.Code != 201 || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("before: %d %s", w.Code, w.Body)
		}
		time.Sleep(2 * time.Hour)
		if w := p.post("/v1/runs", "a", named); w.Code != 409 || !strings.Contains(w.Body.String(), "run_exists") {
			t.Errorf("after: %d %s", w.Code, w.Body)
		}
		if w := p.post("/v1/runs", "b", free); w.Code != 201 || w.Body.String() == other.Body.String() {
			t.Errorf("after: %d %s", w.Code, w.Body)
		}
	})
}
