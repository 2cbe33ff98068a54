package control_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

// HTTP-93 to HTTP-97: in which environments New refuses.
func TestGuard(t *testing.T) {
	const expected = "workflow-studio/world-remote"
	for _, c := range []struct {
		what    string
		env     map[string]string
		refused string // the expected world in the error; "": it is not refused
	}{
		{"nothing is set", nil, ""},
		{"local", map[string]string{"WORKFLOW_EXECUTION_MODE": "local", "WORKFLOW_STRICT_REMOTE": "1"}, ""},
		{"remote, not strict", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote"}, ""},
		{"remote and strict", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "WORKFLOW_STRICT_REMOTE": "1"}, expected},
		{"strict is 1", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "WORKFLOW_STRICT_REMOTE": "true"}, ""},
		{"in production", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "NODE_ENV": "production"}, expected},
		{"in development", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "NODE_ENV": "development"}, ""},
		{"the world is as expected", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "NODE_ENV": "production", "WORKFLOW_TARGET_WORLD": expected}, ""},
		{"another world", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "NODE_ENV": "production", "WORKFLOW_TARGET_WORLD": "local"}, expected},
		{"another one is expected", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "NODE_ENV": "production", "WORKFLOW_TARGET_WORLD": expected, "WORKFLOW_STUDIO_REMOTE_WORLD_TARGET": "w2"}, "w2"},
		{"and is there", map[string]string{"WORKFLOW_EXECUTION_MODE": "remote", "NODE_ENV": "production", "WORKFLOW_TARGET_WORLD": "w2", "WORKFLOW_STUDIO_REMOTE_WORLD_TARGET": "w2"}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := new(memory.Store)
			cfg, _ := configOf(t, s)
			before := dump(t, s)
			cfg.Guard = control.GuardFromEnv(env(c.env))
			p, err := control.New(cfg)
			if p != nil {
				defer p.Close()
			}
			bad, refused := errors.AsType[*control.GuardError](err)
			if refused != (c.refused != "") || !refused && err != nil {
				t.Fatalf("got %v", err)
			}
			if !refused {
				return
			}
			if !strings.HasPrefix(err.Error(), "Remote execution guard failed: WORKFLOW_TARGET_WORLD must equal") || bad.ExpectedWorld != c.refused {
				t.Errorf("got %v, want one about %s", err, c.refused)
			}
			if after := dump(t, s); len(after) != len(before) {
				t.Errorf("it wrote %v", after)
			}
		})
	}
}

func message(path string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Vqs-Signature", "s")
	return r
}

// HTTP-100: which requests are unexpected while the mode is remote, and that no other is touched.
func TestWatch(t *testing.T) {
	const flow, step = "/.well-known/workflow/v1/flow", "/.well-known/workflow/v1/step"
	with := func(change func(*http.Request)) func() *http.Request {
		return func() *http.Request {
			r := message(flow)
			change(r)
			return r
		}
	}
	only := func(name string) func() *http.Request {
		return with(func(r *http.Request) { r.Header.Del("X-Vqs-Signature"); r.Header.Set(name, "x") })
	}
	for _, mode := range []string{"remote", "local"} {
		x := planeOn(t, new(memory.Store), func(c *control.Config) { c.Guard = &control.Guard{Mode: mode} })
		passed := 0
		h := x.plane.Watch(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed++; w.WriteHeader(204) }))
		for what, c := range map[string]struct {
			r   func() *http.Request
			hit bool
		}{
			"flow":           {func() *http.Request { return message(flow) }, true},
			"step":           {func() *http.Request { return message(step) }, true},
			"by delivery id": {only("X-Vqs-Delivery-Id"), true},
			"by provider":    {only("X-Workflow-Queue-Provider"), true},
			"by message id":  {only("X-Workflow-Message-Id"), true},
			"charset":        {with(func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }), true},
			"another path":   {func() *http.Request { return message("/.well-known/workflow/v1/other") }, false},
			"a path below":   {func() *http.Request { return message(flow + "/x") }, false},
			"GET":            {with(func(r *http.Request) { r.Method = "GET" }), false},
			"another type":   {with(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), false},
			"no such header": {with(func(r *http.Request) { r.Header.Del("X-Vqs-Signature") }), false},
		} {
			before := passed
			w := httptest.NewRecorder()
			h.ServeHTTP(w, c.r())
			hit := passed == before
			if want := c.hit && mode == "remote"; hit != want {
				t.Errorf("%s, %s: a hit is %v, want %v", mode, what, hit, want)
			}
			if hit && (w.Code != 409 || !strings.Contains(w.Body.String(), `"code":"remote_execution_enabled"`)) {
				t.Errorf("%s, %s: got %d %s", mode, what, w.Code, w.Body)
			}
		}
	}
}

// HTTP-98, HTTP-99, HTTP-101 to HTTP-103, HTTP-105: what diagnostics.ownership says, on each store and after
// a restart.
func TestOwnership(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		remote := func(strict bool) func(*control.Config) {
			return func(c *control.Config) {
				c.Guard = &control.Guard{Mode: "remote", Strict: strict, TargetWorld: "workflow-studio/world-remote"}
			}
		}
		x := serve(t, s, remote(false))
		ownership := func(x *site) map[string]any {
			return x.do("GET", "/v1/diagnostics/ownership", adminSecret, nil).is(200).object()
		}
		o := ownership(x)
		for name, want := range map[string]any{
			"remoteModeEnabled": true, "strictMode": false, "targetWorld": "workflow-studio/world-remote", "expectedTargetWorld": "workflow-studio/world-remote",
			"status": "pass", "lifetimeUnexpectedHits": 0.0, "unexpectedHitsLast15m": 0.0, "lastUnexpectedHitAt": nil,
		} {
			if got, there := o[name]; got != want || !there {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
		h := x.plane.Watch(http.NotFoundHandler())
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), message("/.well-known/workflow/v1/flow"))
		}
		x.until(func() bool { o = ownership(x); return o["lifetimeUnexpectedHits"] == 3.0 }, "three hits: %v", o)
		if o["status"] != "warn" || o["unexpectedHitsLast15m"] != 3.0 || o["lastUnexpectedHitAt"] == nil {
			t.Errorf("got %v", o)
		}
		if err := x.plane.Close(); err != nil {
			t.Fatal(err)
		}
		x = serve(t, s, remote(true))
		if o := ownership(x); o["status"] != "fail" || o["lifetimeUnexpectedHits"] != 3.0 || o["strictMode"] != true {
			t.Errorf("strict, after a restart: got %v", o)
		}
		x = serve(t, s)
		if o := ownership(x); o["remoteModeEnabled"] != false || o["targetWorld"] != nil || o["status"] != "warn" {
			t.Errorf("without a guard: got %v", o)
		}
	})
}

// HTTP-103: 15 minutes slide by the second, and what there ever was only grows.
func TestHitsSlide(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store), func(c *control.Config) { c.Guard = &control.Guard{Mode: "remote"} })
		go x.plane.Run(t.Context())
		h := x.plane.Watch(http.NotFoundHandler())
		hit := func() { h.ServeHTTP(httptest.NewRecorder(), message("/.well-known/workflow/v1/step")) }
		says := func(when, status string, lately, ever float64) {
			t.Helper()
			o := x.do("GET", "/v1/diagnostics/ownership", adminSecret, nil).is(200).object()
			if o["status"] != status || o["unexpectedHitsLast15m"] != lately || o["lifetimeUnexpectedHits"] != ever {
				t.Errorf("%s: got %v, want %s, %v and %v", when, o, status, lately, ever)
			}
		}
		time.Sleep(30 * time.Second)
		hit()
		time.Sleep(10 * time.Minute)
		hit()
		hit()
		time.Sleep(time.Second)
		says("at once", "warn", 3, 3)
		time.Sleep(5*time.Minute - 2*time.Second)
		says("after 14:59", "warn", 3, 3)
		time.Sleep(2 * time.Second)
		says("after 15:01", "warn", 2, 3)
		time.Sleep(10 * time.Minute)
		says("after 25:01", "pass", 0, 3)
		time.Sleep(24 * time.Hour)
		says("after a day", "pass", 0, 3)
		for k := range dump(t, x.store) {
			if strings.HasPrefix(k, "ctl:hit:") {
				t.Errorf("%s is still there", k)
			}
		}
	})
}
