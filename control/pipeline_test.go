package control_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// OP-21: of all that is wrong with a request, the answer is about the first in the order of checks: path,
// https, token, scope, rate, media type, size, header, strict JSON, shape.
func TestOrderOfChecks(t *testing.T) {
	x := serve(t, new(memory.Store), func(c *control.Config) {
		c.HTTPS, c.RateLimit, c.MaxBody = control.HTTPSIfForwarded, 4, 100
	})
	large := `{"a":1,"a":` + strings.Repeat("1", 200) + `}`
	// Each request is wrong in all that the ones before were, except the first of it.
	plain := []string{"X-Forwarded-Proto", "http", "Content-Type", "text/plain", "Idempotency-Key", "a b"}
	secure := []string{"Content-Type", "text/plain", "Idempotency-Key", "a b"}
	for i, c := range []struct {
		path, key, body string
		header          []string
		status          int
		code            string
	}{
		{"/v1//runs", "", large, plain, 404, "not_found"},
		{"/v1/runs", "", large, plain, 400, "https_required"},
		{"/v1/runs", "", large, secure, 401, "unauthorized"},
		{"/v1/runs", readerSecret, large, secure, 403, "missing_scope"},
		{"/v1/runs", adminSecret, large, secure, 415, "unsupported_media_type"},
		{"/v1/runs", adminSecret, large, secure[2:], 413, "too_large"},
		{"/v1/runs", adminSecret, `{"a":1,"a":1}`, secure[2:], 400, "idempotency_key_invalid"},
		{"/v1/runs", adminSecret, `{"a":1,"a":1}`, []string{"Idempotency-Key", "k"}, 400, "invalid_request"},
		{"/v1/runs", adminSecret, large, secure, 429, "rate_limited"},
	} {
		r := x.do("POST", c.path, c.key, c.body, c.header...)
		if r.fails(c.status, c.code); t.Failed() {
			t.Fatalf("request %d", i)
		}
	}
}

// Paths that are unknown or not clean are not found, whoever asks.
func TestPaths(t *testing.T) {
	x := serve(t, new(memory.Store))
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/unknown", "/v2/keys", "/v1/keys/", "//v1/keys", "/v1//keys", "/v1/./keys", "/v1/../v1/keys",
		"/v1/%2e%2e/keys", "/v1/%2E/keys", "/v1/keys/..", "/v1/keys/%2e%2e", "/v1/keys/%2e%2e/rotate",
		"/v1%2Fkeys", "/v1/keys%2Fa%2Frotate", "/V1/keys", "/v1/Keys", "/v1/keys;x=1", "/v1/keys/a/b/c/d/e",
	} {
		for _, key := range []string{"", adminSecret} {
			q, err := http.NewRequest("GET", x.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.URL.Opaque = strings.TrimPrefix(x.url, "http:") + path // as it is
			if key != "" {
				q.Header.Set("Authorization", "Bearer "+key)
			}
			if r := x.send(q); r.status != http.StatusNotFound {
				t.Errorf("%s: got %d %s, want 404", path, r.status, r.body)
			}
		}
	}
}

// A path that is there, but not for the method, says for which.
func TestMethods(t *testing.T) {
	x := serve(t, new(memory.Store))
	for _, c := range []struct{ method, path, allow string }{
		{"PUT", "/v1/keys", "GET, POST"},
		{"HEAD", "/v1/keys", "GET, POST"},
		{"POST", "/v1/health", "GET"},
		{"GET", "/v1/keys/a/rotate", "POST"},
		{"GET", "/v1/rpc", "POST"},
		{"OPTIONS", "/v1/audit", "GET"},
	} {
		r := x.do(c.method, c.path, "", nil)
		if r.is(http.StatusMethodNotAllowed); r.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: got Allow %q, want %q", c.method, c.path, r.header.Get("Allow"), c.allow)
		}
		if c.method != "HEAD" {
			r.fails(http.StatusMethodNotAllowed, "method_not_allowed")
		}
	}
}

// Every answer has a correlation id: the client's, if it can be one.
func TestCorrelation(t *testing.T) {
	x := serve(t, new(memory.Store))
	const name = "X-Workflow-Correlation-Id"
	for given, kept := range map[string]bool{
		"a": true, "!~": true, strings.Repeat("c", 128): true,
		"": false, strings.Repeat("c", 129): false, "a b": false, "é": false,
	} {
		for _, path := range []string{"/v1/health", "/v1/keys", "/nowhere"} {
			r := x.do("GET", path, "", nil, name, given)
			got := r.header.Get(name)
			if kept && got != given || !kept && (got == given || len(got) != 36) {
				t.Errorf("%s with %q: got %q", path, given, got)
			}
			if path != "/v1/health" && r.object()["correlationId"] != got {
				t.Errorf("%s: got the header %q and the body %s", path, got, r.body)
			}
		}
	}
	if r := x.do("GET", "/v1/health", "", nil, name, "a", name, "a"); r.header.Get(name) == "a" {
		t.Error("two headers: one of them is kept")
	}
}

// Every answer has the header fields that keep it from being sniffed and cached, and none that browsers of
// other sites would need.
func TestHeadersOfAnswers(t *testing.T) {
	x := serve(t, new(memory.Store))
	for _, path := range []string{"/v1/health", "/v1/keys", "/nowhere"} {
		r := x.do("GET", path, adminSecret, nil, "Origin", "https://evil.example")
		if r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %v", path, r.header)
		}
		for name := range r.header {
			if strings.HasPrefix(name, "Access-Control") || name == "Set-Cookie" {
				t.Errorf("%s: got the header %s", path, name)
			}
		}
	}
}

// Bodies are JSON, as they are.
func TestMediaTypes(t *testing.T) {
	x := serve(t, new(memory.Store))
	body := `{"scopes":["runs:read"]}`
	for kind, status := range map[string]int{
		"application/json": 201, "Application/JSON": 201, "application/json; charset=utf-8": 201, "application/json;charset=UTF-8": 201,
		"application/json; charset=latin1": 415, "text/plain": 415, "application/jsonx": 415, "application/json, text/plain": 415, "": 415,
	} {
		r := x.do("POST", "/v1/keys", adminSecret, body, "Content-Type", kind)
		if r.status != status {
			t.Errorf("%q: got %d %s, want %d", kind, r.status, r.body, status)
		}
	}
	x.do("POST", "/v1/keys", adminSecret, body, "Content-Encoding", "gzip").fails(415, "unsupported_media_type")
	x.do("POST", "/v1/keys", adminSecret, body, "Content-Encoding", "identity").fails(415, "unsupported_media_type")
	x.do("POST", "/v1/keys/reader/rotate", adminSecret, nil).is(200) // no body is an empty one
}

// A body is as large as MaxBody, whether its length is known or not.
func TestSizeOfBodies(t *testing.T) {
	x := serve(t, new(memory.Store), func(c *control.Config) { c.MaxBody = 200 })
	fits := `{"scopes":["runs:read"]}`
	fits += strings.Repeat(" ", 200-len(fits))
	for _, chunked := range []bool{false, true} {
		for body, status := range map[string]int{fits: 201, fits + " ": 413} {
			q, err := http.NewRequest("POST", x.url+"/v1/keys", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if chunked {
				q.ContentLength = -1
			}
			q.Header.Set("Authorization", "Bearer "+adminSecret)
			q.Header.Set("Content-Type", "application/json")
			if r := x.send(q); r.status != status {
				t.Errorf("chunked %v, %d bytes: got %d %s, want %d", chunked, len(body), r.status, r.body, status)
			}
		}
	}
}

// A body that does not come is not waited for for ever, and one that is not read is not asked for: a key
// without the scope cannot have the plane read anything.
func TestBodiesThatAreNotRead(t *testing.T) {
	x := serve(t, new(memory.Store))
	for key, code := range map[string]string{readerSecret: "403", "nobody": "401"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", key)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+code) {
			t.Errorf("%s: got %q, %v, want %s before the body has come", key, line, err, code)
		}
	}
}

// A request that two servers might understand differently is one request, or refused.
func TestSmuggling(t *testing.T) {
	x := serve(t, new(memory.Store))
	for _, head := range []string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"Content-Length: 5\r\nContent-Length: 6\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Transfer-Encoding : chunked\r\n",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n0\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", adminSecret, head)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		r := bufio.NewReader(c)
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		io.Copy(io.Discard, a.Body)
		if a.StatusCode < 400 {
			t.Errorf("%q: got %d, want a refusal", head, a.StatusCode)
		}
		if strings.Contains(head, "Content-Length") {
			// RFC 9112, section 6.1, has the connection end; nothing behind it is a request of its own.
			if b, err := http.ReadResponse(r, nil); err == nil && b.StatusCode == 200 {
				t.Errorf("%q: what is behind it was served", head)
			}
		}
		c.Close()
	}
}

// HTTP-40: a key is required where the document says so, and is one key.
func TestIdempotencyKeyHeader(t *testing.T) {
	x := serve(t, new(memory.Store))
	body := `{"workflowName":"w"}`
	x.do("POST", "/v1/runs", adminSecret, body).fails(400, "idempotency_required").says("Idempotency-Key header is required")
	x.do("POST", "/v1/runs", adminSecret, body, "Idempotency-Key", "").fails(400, "idempotency_required")
	for _, bad := range []string{"a b", "a,b", `"a`, strings.Repeat("k", 256), "é"} {
		x.do("POST", "/v1/runs", adminSecret, body, "Idempotency-Key", bad).fails(400, "idempotency_key_invalid")
	}
	x.do("POST", "/v1/runs", adminSecret, body, "Idempotency-Key", "a", "Idempotency-Key", "a").fails(400, "idempotency_key_invalid")
	x.do("POST", "/v1/runs", adminSecret, body, "Idempotency-Key", strings.Repeat("k", 255)).is(201)
}

// HTTP-17, HTTP-18: health looks at no token and no store. ready asks the store. Neither is in the audit.
func TestHealth(t *testing.T) {
	x := serve(t, new(memory.Store))
	r := x.do("GET", "/v1/health", "nobody", nil, "Authorization", "Bearer another").is(200)
	at, err := time.Parse("2006-01-02T15:04:05.000Z", r.object()["timestamp"].(string))
	if err != nil || time.Since(at).Abs() > time.Minute || r.object()["healthy"] != true || len(r.object()) != 2 {
		t.Errorf("got %s, %v", r.body, err)
	}
	if got := x.do("GET", "/v1/ready", "", nil).is(200).object(); got["ready"] != true || got["store"] != true || got["engine"] != false {
		t.Errorf("ready: got %v", got)
	}
	if got := x.do("GET", "/v1/openapi.json", "", nil).is(200).object(); got["openapi"] != "3.1.0" {
		t.Errorf("the document: got %v", got["openapi"])
	}
	x.do("GET", "/v1/keys", adminSecret, nil).is(200)
	for _, row := range x.audit(adminSecret, "", 1) {
		if a := row["action"].(string); strings.HasPrefix(a, "health") || strings.HasPrefix(a, "openapi") {
			t.Errorf("the audit has %v", row)
		}
	}
}

// A plane is ready if its store answers, whatever that has in the record that is asked for.
func TestReadyWithADamagedRecord(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s)
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(keys.ControlHits(), []byte("garbage"))}}); err != nil {
		t.Fatal(err)
	}
	x.do("GET", "/v1/ready", "", nil).is(200)
}

// A panicking store panics when the record is read that health.ready asks for, while it is broken.
type panicking struct {
	*memory.Store
	broken atomic.Bool
}

func (p *panicking) Get(ctx context.Context, key []byte) ([]byte, error) {
	if p.broken.Load() && bytes.Equal(key, keys.ControlHits()) {
		panic("the store is broken")
	}
	return p.Store.Get(ctx, key)
}

// A store that panics once does not keep later requests from asking it.
func TestReadyAfterAPanic(t *testing.T) {
	s := &panicking{Store: new(memory.Store)}
	x := serve(t, s)
	s.broken.Store(true)
	x.do("GET", "/v1/ready", "", nil).is(500)
	s.broken.Store(false)
	x.client.Timeout = 30 * time.Second
	x.do("GET", "/v1/ready", "", nil).is(200)
}

// After Close, requests are refused; health is not.
func TestClosed(t *testing.T) {
	x := serve(t, new(memory.Store))
	if err := x.plane.Close(); err != nil {
		t.Fatal(err)
	}
	x.do("GET", "/v1/health", "", nil).is(200)
	if r := x.do("GET", "/v1/ready", "", nil).is(503); r.object()["ready"] != false || r.header.Get("Retry-After") == "" {
		t.Errorf("ready: got %v %s", r.header, r.body)
	}
	r := x.do("GET", "/v1/keys", adminSecret, nil).fails(503, "closing")
	if r.header.Get("Retry-After") == "" || r.object()["retry"] != "same-key" {
		t.Errorf("got %v %s", r.header, r.body)
	}
	if r := x.do("POST", "/v1/rpc", adminSecret, `{"jsonrpc":"2.0","id":1,"method":"keys.list"}`).is(503); r.object()["id"] != nil {
		t.Errorf("rpc: got %s", r.body)
	}
}

// HTTP-11, HTTP-12 to HTTP-16: which scope each operation needs.
func TestScopes(t *testing.T) {
	scopes := []string{"trigger:write", "runs:read", "runs:write", "runs:operate", "signals:write", "deploy:read", "deploy:write", "audit:read", "ops:read", "world:proxy", "admin"}
	secretOf := func(scope string) string { return "secret-of-a-key-with-only-" + scope }
	x := serve(t, new(memory.Store), func(c *control.Config) {
		for _, s := range scopes {
			c.Keys = append(c.Keys, control.Key{ID: strings.ReplaceAll(s, ":", "-"), Secret: secretOf(s), Scopes: []string{s}})
		}
	})
	for _, c := range []struct {
		method, path string
		any          []string // of which one is enough, besides admin
	}{
		{"POST", "/v1/runs", []string{"trigger:write"}},
		{"GET", "/v1/runs", []string{"runs:read"}},
		{"GET", "/v1/runs/r", []string{"runs:read"}},
		{"GET", "/v1/runs/r/result", []string{"runs:read"}},
		{"GET", "/v1/runs/r/events", []string{"runs:read"}},
		{"POST", "/v1/runs/r/cancel", []string{"runs:write"}},
		{"POST", "/v1/runs/resume", []string{"runs:write"}},
		{"POST", "/v1/runs/r/reset", []string{"runs:operate"}},
		{"POST", "/v1/runs/r/operations/1/resolve", []string{"runs:operate"}},
		{"POST", "/v1/bulks/b", []string{"runs:operate"}},
		{"POST", "/v1/bulks/b/stop", []string{"runs:operate"}},
		{"GET", "/v1/bulks/b", []string{"runs:read"}},
		{"GET", "/v1/bulks", []string{"runs:read"}},
		{"DELETE", "/v1/runs/r", []string{"runs:operate"}},
		{"POST", "/v1/runs/r/signals/s", []string{"signals:write", "runs:write"}},
		{"GET", "/v1/runs/r/signals", []string{"runs:read"}},
		{"DELETE", "/v1/runs/r/signals/s/i", []string{"runs:operate"}},
		{"POST", "/v1/deployments", []string{"deploy:write"}},
		{"GET", "/v1/deployments", []string{"deploy:read"}},
		{"GET", "/v1/deployments/active", []string{"deploy:read"}},
		{"GET", "/v1/deployments/d", []string{"deploy:read"}},
		{"GET", "/v1/deployments/d/artifact", []string{"deploy:read"}},
		{"POST", "/v1/deployments/d/activate", []string{"deploy:write"}},
		{"POST", "/v1/keys", nil},
		{"GET", "/v1/keys", nil},
		{"POST", "/v1/keys/k/rotate", nil},
		{"DELETE", "/v1/keys/k", nil},
		{"GET", "/v1/audit", []string{"audit:read"}},
		{"GET", "/v1/engines", []string{"ops:read"}},
		{"GET", "/v1/diagnostics/ownership", []string{"ops:read"}},
		{"GET", "/v1/world/deployment-id", []string{"world:proxy"}},
		{"POST", "/v1/queue/publish", []string{"world:proxy"}},
	} {
		for _, s := range scopes {
			r := x.do(c.method, c.path, secretOf(s), nil)
			enough := s == "admin" || strings.Contains(strings.Join(c.any, " "), s)
			if denied := r.status == 403; denied == enough {
				t.Errorf("%s %s with %s: got %d %s", c.method, c.path, s, r.status, r.body)
			}
			if r.status == 403 {
				r.fails(403, "missing_scope")
				if fmt.Sprint(r.object()["required"]) != fmt.Sprint(append([]string{}, c.any...)) && c.any != nil {
					t.Errorf("%s %s: required %v, want %v", c.method, c.path, r.object()["required"], c.any)
				}
			}
		}
	}
}

// What is the store's, and no namespace's, is for keys of the home namespace.
func TestHomeOnly(t *testing.T) {
	x := serve(t, new(memory.Store))
	for path, status := range map[string]int{
		"GET /v1/engines": 403, "GET /v1/diagnostics/ownership": 403, "GET /v1/deployments": 403, "GET /v1/deployments/d": 403,
		"POST /v1/deployments": 403, "POST /v1/deployments/d/activate": 403, "GET /v1/world/deployment-id": 403, "POST /v1/queue/publish": 403,
		"GET /v1/deployments/active": 409, "GET /v1/keys": 200, "GET /v1/audit": 200, "GET /v1/runs": 200,
	} {
		method, path, _ := strings.Cut(path, " ")
		x.do(method, path, otherSecret, nil).is(status)
	}
}
