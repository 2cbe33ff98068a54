package idemhttp_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
)

// FEN-28, FEN-46, FEN-63: no write without a key reaches its handler, whatever its method is called. Reads need no
// key.
func TestMethods(t *testing.T) {
	h := new(counter)
	s := serve(t, guard(t, idemhttp.Config{})(h))
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "CONNECT", "PURGE", "post", "get", "QUERY"} {
		if method == "CONNECT" {
			continue // the client makes a tunnel of it
		}
		s.is(s.do(call{method: method, key: "-"}), 400, "idempotency_required")
	}
	h.want(t, 0)
	for i, method := range []string{"GET", "OPTIONS", "TRACE", "HEAD"} {
		if r := s.do(call{method: method, key: "-"}); r.status != 200 {
			t.Errorf("%s without a key: %d", method, r.status)
		}
		h.want(t, int64(i+1))
	}
}

// FEN-10, HTTP-54: a key is a tenant's own. Who does not say whose request it is gets 401, and no reason. The
// store is not called.
func TestTenants(t *testing.T) {
	var stored atomic.Int64
	l, h := open(t, idempotency.Config{Storage: storeCalls(&stored)}), new(counter)
	s := serve(t, guard(t, idemhttp.Config{Ledger: l})(h))
	before := stored.Load()
	r := s.do(call{shop: "-"})
	s.is(r, 401, "unauthorized")
	if strings.Contains(r.body, "secret") {
		t.Errorf("the answer tells the reason: %s", r.body)
	}
	anyone := serve(t, guard(t, idemhttp.Config{Ledger: l, Tenant: func(*http.Request) (string, error) { return "", nil }})(h))
	anyone.is(anyone.do(call{}), 401, "unauthorized")
	if n := stored.Load() - before; n != 0 {
		t.Errorf("%d calls of the store", n)
	}
	h.want(t, 0)
	s.answered(s.do(call{shop: "acme", body: "1"}), 200, "call 1", false)
	s.answered(s.do(call{shop: "globex", body: "2"}), 200, "call 2", false)
	s.answered(s.do(call{shop: "acme", body: "1"}), 200, "call 1", true)
	s.answered(s.do(call{shop: "globex", body: "2"}), 200, "call 2", true)
}

// A tenant that no key may have is a mistake of the host, and runs nothing.
func TestBadTenant(t *testing.T) {
	h := new(counter)
	for _, tenant := range []string{strings.Repeat("t", 101), "a\x00b", "\xff"} {
		s := serve(t, guard(t, idemhttp.Config{Tenant: func(*http.Request) (string, error) { return tenant, nil }})(h))
		s.is(s.do(call{}), 500, "internal")
	}
	h.want(t, 0)
}

// HTTP-53: one key at two endpoints is two requests. What an endpoint is, Config.Endpoint says, or else the patterns, wherever
// they are. The names of plain set-ups are in the keys of stored answers.
func TestEndpoints(t *testing.T) {
	endpoint := func(r *http.Request) string { return r.Header.Get("Endpoint") }
	long := "POST /" + strings.Repeat("long/", 50)
	const refund = "POST /refunds/{id}"
	for _, c := range []struct {
		name     string
		inside   string // pattern of a mux inside
		nested   string // pattern of another mux, around that one
		outside  string // pattern of a mux outside
		strip    string // prefix of the path that is stripped before the guard
		endpoint string
		path     string
		want     string
	}{
		{"mux inside", refund, "", "", "", "", "/refunds/1", refund},
		{"mux in a mux", refund, "/", "", "", "", "/refunds/1", refund},
		{"mux outside", "", "", refund, "", "", "/refunds/1", refund},
		{"mux outside that only passes on", refund, "", "/", "", "", "/refunds/1", refund},
		{"mux outside for everything", "", "", "/", "", "", "/refunds/1", "/"},
		{"mux inside for everything", "/", "", "", "", "", "/refunds/1", "/"},
		{"nothing", "", "", "", "", "", "/refunds/a%2fb", "POST /refunds/a%2fb"},
		{"mux inside, mux outside", refund, "", "/refunds/", "", "", "/refunds/1", "/refunds/ > " + refund},
		{"mux inside, host outside", refund, "", "shop/", "", "", "/refunds/1", "shop/ > " + refund},
		{"mux inside, prefix stripped", refund, "", "/v1/", "/v1", "", "/v1/refunds/1", "/v1/ > " + refund},
		{"mux in a mux, prefix stripped", refund, "/", "/v1/", "/v1", "", "/v1/refunds/1", "/v1/ > " + refund},
		{"mux in a mux, by host", refund, "shop/", "", "", "", "/refunds/1", "shop/ > " + refund},
		{"named", "", "", "", "", "other", "/refunds/1", "other"},
		{"named, mux inside", refund, "", "", "", "other", "/refunds/1", "other"},
		{"named, mux outside", "", "", refund, "", "other", "/refunds/1", "other"},
		{"long", "", "", "", "", long, "/", long[:135] + "~" + hexOf(sha256.Sum256([]byte(long)))},
	} {
		t.Run(c.name, func(t *testing.T) {
			var attempt idempotency.Attempt
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				attempt = idempotency.AttemptFrom(r.Context())
				io.WriteString(w, r.PathValue("id"))
			})
			if c.inside != "" {
				mux := http.NewServeMux()
				mux.Handle(c.inside, h)
				h = mux
			}
			if c.nested != "" {
				mux := http.NewServeMux()
				mux.Handle(c.nested, h)
				h = mux
			}
			h = guard(t, idemhttp.Config{Endpoint: endpoint})(h)
			pattern := c.outside
			if c.strip != "" {
				h = http.StripPrefix(c.strip, h)
			} else if c.inside != "" {
				pattern = c.inside
			}
			if c.outside != "" {
				mux := http.NewServeMux()
				mux.Handle(c.outside, h)
				h = mux
			}
			s := direct{t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				if r.Pattern != pattern {
					t.Errorf("a middleware sees the pattern %q, want %q", r.Pattern, pattern)
				}
			})}
			r := s.do(call{path: c.path, header: [2]string{"Endpoint", c.endpoint}})
			got := attempt.Key.SourceType
			if got != c.want {
				t.Errorf("%d: endpoint %q, want %q", r.status, got, c.want)
			}
			want := idempotency.Key{Tenant: "acme", SourceType: got, SourceID: "k1", Action: idemhttp.Action}
			if attempt.Key != want || attempt.Hash != want.Hash() {
				t.Errorf("attempt %+v, want key %+v", attempt, want)
			}
			if (c.inside == refund || c.outside == refund) && r.body != "1" {
				t.Errorf("the path's wildcard is %q", r.body)
			}
		})
	}
	mux, h := http.NewServeMux(), new(counter)
	mux.Handle("POST /refunds", h)
	mux.Handle("POST /payments", h)
	s := serve(t, guard(t, idemhttp.Config{})(mux))
	s.answered(s.do(call{path: "/refunds"}), 200, "call 1", false)
	s.answered(s.do(call{path: "/payments"}), 200, "call 2", false)
	s.answered(s.do(call{path: "/refunds"}), 200, "call 1", true)
}

// HTTP-53: parts of one service that have equal patterns and paths, but are mounted at different places, are two endpoints.
func TestEndpointsOfMounts(t *testing.T) {
	h := new(counter)
	mux := http.NewServeMux()
	mux.Handle("POST /jobs", h)
	g := guard(t, idemhttp.Config{})(mux)
	root := http.NewServeMux()
	root.Handle("/billing/", http.StripPrefix("/billing", g))
	root.Handle("/shipping/", http.StripPrefix("/shipping", g))
	s := serve(t, root)
	for _, replayed := range []bool{false, true} {
		s.answered(s.do(call{path: "/billing/jobs"}), 200, "call 1", replayed)
		s.answered(s.do(call{path: "/shipping/jobs"}), 200, "call 2", replayed)
	}
}

// A guard that is reached by two patterns has two names for one endpoint, unless Endpoint names it.
func TestEndpointByTwoHosts(t *testing.T) {
	for name, endpoint := range map[string]func(*http.Request) string{"two": nil, "one": func(*http.Request) string { return "jobs" }} {
		h := new(counter)
		mux := http.NewServeMux()
		mux.Handle("POST /jobs", h)
		g := guard(t, idemhttp.Config{Endpoint: endpoint})(mux)
		root := http.NewServeMux()
		root.Handle("one.example/", g)
		root.Handle("two.example/", g)
		for _, host := range []string{"one.example", "two.example"} {
			q := httptest.NewRequest("POST", "http://"+host+"/jobs", strings.NewReader("{}"))
			q.Header.Set("Shop", "s")
			q.Header.Set("Idempotency-Key", `"k"`)
			q.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if root.ServeHTTP(w, q); w.Code != 200 {
				t.Errorf("%s: %d %s", host, w.Code, w.Body)
			}
		}
		h.want(t, map[string]int64{"two": 2, "one": 1}[name])
	}
}

func hexOf(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:]) }

// What a ServeMux answers itself reaches no handler, and is not recorded: a redirect does not use up the key.
func TestMuxAnswers(t *testing.T) {
	var stored atomic.Int64
	l := open(t, idempotency.Config{Storage: storeCalls(&stored)})
	mux, h := http.NewServeMux(), new(counter)
	mux.Handle("POST /refunds/", h)
	s := serve(t, guard(t, idemhttp.Config{Ledger: l})(mux))
	before := stored.Load()
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"POST", "/other", 404}, {"PUT", "/refunds/", 405}, {"POST", "/refunds", 307}, {"POST", "/a/..//refunds/", 307},
	} {
		if r := s.do(call{method: c.method, path: c.path}); r.status != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, r.status, c.status)
		}
	}
	if n := stored.Load() - before; n != 0 {
		t.Errorf("%d calls of the store", n)
	}
	h.want(t, 0)
	s.answered(s.do(call{path: "/refunds/"}), 200, "call 1", false)
}

// FEN-28, FEN-63: what is exempt passes without a key, and nothing else does, however its path is spelled.
func TestExempt(t *testing.T) {
	h := new(counter)
	s := serve(t, guard(t, idemhttp.Config{Exempt: []string{"POST /hooks/acme", "POST /in/{provider}/{rest...}", "POST /for/{provider}"}})(h))
	for _, path := range []string{"/hooks/acme", "/in/stripe/", "/in/stripe/a/b", "/for/a%20b"} {
		if r := s.do(call{path: path, key: "-"}); r.status != 200 || r.replayed {
			t.Errorf("POST %s: %d %s", path, r.status, r.body)
		}
	}
	h.want(t, 4)
	for _, c := range []call{
		{path: "/for/acme%2frefunds"}, // /for/acme/refunds of a router that goes by URL.Path
		{path: "/for/acme%2Frefunds"},
		{method: "PUT", path: "/hooks/acme"},
		{path: "/hooks/acme/"},
		{path: "/hooks"},
		{path: "//hooks/acme"},
		{path: "/refunds/../hooks/acme"},
		{path: "/refunds/%2e%2e/hooks/acme"},
		{path: "/hooks%2Facme"},
		{path: "/in/stripe"},
		{path: "/in/stripe/../../refunds"},
		{path: "/in/stripe/%2e%2e/%2e%2e/refunds"},
		{path: "/in/stripe/..%2f..%2frefunds"},
		{path: "/in/stripe/x%2f%2e%2e%2f%2e%2e%2frefunds"},
	} {
		c.key = "-"
		s.is(s.do(c), 400, "idempotency_required")
	}
	h.want(t, 4)
}
