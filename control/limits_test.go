package control

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// Each size that the document limits may be what it says, and not a byte more. The sizes are numbers here, so
// that a change of a limit is a change of this test. HTTP-61, HTTP-62, SIG-3
func TestSizesAtTheirEdges(t *testing.T) {
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Webhooks = map[string]http.Handler{"acme": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	})
	s.start(home, "wait", "r", nil)
	// do makes a request without a network, whose connection may end before a client has read 413.
	do := func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+home)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		answers.Handler(s.plane).ServeHTTP(w, r)
		return w
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	padded := func(text string, n int) string { return text + strings.Repeat(" ", n-len(text)) }
	const mib = 1 << 20
	for _, c := range []struct {
		what string
		most int
		fits int    // the status of what just fits
		over int    // and of what is a byte larger
		says string // what is said of the latter
		send func(n int) *httptest.ResponseRecorder
	}{
		{"a body", mib, 201, 413, `"too_large"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/keys", padded(`{"scopes":["runs:read"]}`, n))
		}},
		{"a body of JSON-RPC", mib, 200, 413, `"too_large"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/rpc", padded(`{"jsonrpc":"2.0","id":1,"method":"health.get"}`, n))
		}},
		{"a webhook", mib, 200, 413, `"too_large"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/webhooks/acme", x(n))
		}},
		{"a manifest", 256 << 10, 201, 400, `has 262145 bytes, at most 262144 are allowed`, func(n int) *httptest.ResponseRecorder {
			const frame = `{"deploymentId":"d","x":""}`
			return do("POST", "/v1/deployments", `{"manifest": `+frame[:len(frame)-2]+x(n-len(frame))+`" } }`) // blanks do not count
		}},
		{"a payload of a resumption", 8 << 10, 409, 400, `"path":"/payload"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs/resume", `{"runId":"r","payload":"`+x(n-2)+`"}`)
		}},
		{"the reason of a resumption", 1 << 10, 200, 400, `"path":"/reason"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs/resume", `{"runId":"r","reason":"`+x(n)+`"}`)
		}},
		{"the reason of a reset", 1 << 10, 409, 400, `"path":"/reason"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs/r/reset", `{"before":"","reason":"`+x(n)+`"}`)
		}},
		{"the reason of a bulk", 1 << 10, 200, 400, `"path":"/reason"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/bulks/b", `{"do":"purge","filter":{"status":"failed"},"reason":"`+x(n)+`"}`)
		}},
		{"the reason of a purge", 1 << 10, 409, 400, `"path":"/reason"`, func(n int) *httptest.ResponseRecorder {
			return do("DELETE", "/v1/runs/r?reason="+x(n), "")
		}},
		{"the reason of an answer", 1 << 10, 409, 400, `"path":"/reason"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs/r/operations/1/resolve", `{"answer":"not-completed","reason":"`+x(n)+`"}`)
		}},
		{"the error of an answer", 1 << 10, 409, 400, `"path":"/error"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs/r/operations/1/resolve", `{"answer":"failed","reason":"r","error":"`+x(n)+`"}`)
		}},
		{"the reason of an activation", 1 << 10, 404, 400, `"path":"/reason"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/deployments/none/activate", `{"reason":"`+x(n)+`"}`)
		}},
		{"a signalId", 128, 200, 400, `"path":"/signalId"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs/r/signals/go", `{"signalId":"`+x(n)+`"}`)
		}},
		{"a runId", 128, 201, 400, `"path":"/runId"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs", `{"workflowName":"wait","runId":"`+x(n)+`"}`, "Idempotency-Key", fmt.Sprint("k", n))
		}},
		{"an idempotency key", 255, 201, 400, `"idempotency_key_invalid"`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/runs", `{"workflowName":"wait"}`, "Idempotency-Key", x(n))
		}},
		{"an id of JSON-RPC", 128, 200, 200, `-32600`, func(n int) *httptest.ResponseRecorder {
			return do("POST", "/v1/rpc", `{"jsonrpc":"2.0","id":"`+x(n-2)+`","method":"health.get"}`)
		}},
		{"a batch of JSON-RPC", 100, 200, 200, `-32600`, func(n int) *httptest.ResponseRecorder {
			one := `,{"jsonrpc":"2.0","id":1,"method":"health.get"}`
			return do("POST", "/v1/rpc", "["+strings.Repeat(one, n)[1:]+"]")
		}},
		{"the depth of JSON", 100, 200, 400, `"invalid_request"`, func(n int) *httptest.ResponseRecorder {
			// The body is one level, too.
			return do("POST", "/v1/runs/r/signals/go", `{"payload":`+strings.Repeat("[", n-1)+strings.Repeat("]", n-1)+`}`)
		}},
	} {
		if w := c.send(c.most); w.Code != c.fits || strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s of %d is answered %d %.300s, want %d", c.what, c.most, w.Code, w.Body, c.fits)
		}
		if w := c.send(c.most + 1); w.Code != c.over || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s of %d is answered %d %.300s, want %d with %s", c.what, c.most+1, w.Code, w.Body, c.over, c.says)
		}
	}
}

// Of all providers together, 64 webhooks have a handler at once. One provider has 48 of the places, so that the
// others have some.
func TestPlacesOfWebhooks(t *testing.T) {
	release := make(chan struct{})
	wait := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Webhooks = map[string]http.Handler{"acme": wait, "bank": wait, "post": wait}
	})
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end) // otherwise a failure would wait for the handlers
	post := func(provider string) int {
		w := httptest.NewRecorder()
		answers.Handler(s.plane).ServeHTTP(w, httptest.NewRequest("POST", "/v1/webhooks/"+provider, strings.NewReader("x")))
		return w.Code
	}
	done := make(chan int, 100)
	held := 0
	hold := func(provider string, n int) {
		for range n {
			go func() { done <- post(provider) }()
		}
		held += n
		s.await(fmt.Sprint(held, " webhooks"), func() bool { return s.plane.webhooks.Count() == held })
	}
	refused := func(provider string) {
		t.Helper()
		answer := make(chan int, 1)
		go func() { answer <- post(provider) }()
		s.await("an answer to "+provider, func() bool { return len(answer) == 1 || s.plane.webhooks.Count() > held })
		if len(answer) == 0 {
			t.Errorf("%s has a handler beside %d others", provider, held)
			held++
			go func() { done <- <-answer }()
		} else if code := <-answer; code != 503 {
			t.Errorf("%s is answered %d beside %d others, want 503", provider, code, held)
		}
	}
	hold("acme", 48)
	refused("acme")
	hold("bank", 16)
	for _, provider := range []string{"acme", "bank", "post"} {
		refused(provider)
	}
	end()
	for range held {
		if code := <-done; code != 200 {
			t.Errorf("a webhook that had a place is answered %d", code)
		}
	}
	if n := s.plane.webhooks.Count(); n != 0 {
		t.Errorf("%d places are not free", n)
	}
	if code := post("post"); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}

// A webhook whose body comes slowly keeps no handler from others. 64 bodies come from one network at once.
func TestSlowWebhooksHoldNoPlace(t *testing.T) {
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Webhooks = map[string]http.Handler{"acme": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	})
	post := func(from string, body io.Reader) int {
		r := httptest.NewRequest("POST", "/v1/webhooks/acme", body)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		answers.Handler(s.plane).ServeHTTP(w, r)
		return w.Code
	}
	const here, there = "192.0.2.1:1", "198.51.100.1:1"
	done := make(chan int, 64)
	var ends []*io.PipeWriter
	for range 64 {
		body, end := io.Pipe()
		t.Cleanup(func() { end.Close() })
		ends = append(ends, end)
		go func() { done <- post(here, body) }()
	}
	s.await("64 bodies", func() bool { return s.plane.bodies.Count() == 64 })
	if code := post(here, strings.NewReader("x")); code != 503 {
		t.Errorf("another body of the network is answered %d, want 503", code)
	}
	if code := post(there, strings.NewReader("x")); code != 200 {
		t.Errorf("a body of another network is answered %d, want 200", code)
	}
	for _, end := range ends {
		end.Close()
	}
	for range ends {
		if code := <-done; code != 200 && code != 503 { // 48 of them have a place at once
			t.Errorf("a body that came slowly is answered %d", code)
		}
	}
	if n := s.plane.bodies.Count() + s.plane.webhooks.Count(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// A webhook costs nobody a commit of its own: its row of the audit is written with others.
func TestWebhooksAreAuditedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		store := storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
			if len(c.Batch.Ops) > 0 {
				commits.Add(1)
			}
			return storagetest.None
		})
		e, err := engine.New(engine.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		p, err := New(Config{Engine: e, Logger: slog.New(slog.DiscardHandler), Webhooks: map[string]http.Handler{"acme": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		before := commits.Load()
		for range 20 {
			w := httptest.NewRecorder()
			if answers.Handler(p).ServeHTTP(w, httptest.NewRequest("POST", "/v1/webhooks/acme", strings.NewReader("x"))); w.Code != 200 {
				t.Errorf("answered %d", w.Code)
			}
		}
		time.Sleep(time.Second)
		if n := commits.Load() - before; n != 1 {
			t.Errorf("20 webhooks at once cost %d commits, want 1", n)
		}
		if n := recordsOf(t, store, "ctl:audit:"); n != 20 {
			t.Errorf("got %d audit rows, want 20", n)
		}
	})
}
