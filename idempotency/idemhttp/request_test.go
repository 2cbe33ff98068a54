package idemhttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
)

// HTTP-46, HTTP-48, FEN-46: what is the same request is decided by its canonical form.
func TestSameRequest(t *testing.T) {
	for _, c := range []struct{ name, first, second string }{
		{"equal", `{"a":1,"b":2}`, `{"a":1,"b":2}`},
		{"order of members", `{"a":1,"b":{"x":1,"y":2}}`, `{"b":{"y":2,"x":1},"a":1}`},
		{"white space", `{"a":[1,2]}`, " {\n\"a\": [1,\t2] }\n"},
		{"spelling of numbers", `[1,1e0,-0]`, `[1.0,1,0]`},
		{"spelling of strings", `"é"`, `"\u00e9"`},
		{"empty", ``, ``},
		{"large", `"` + strings.Repeat("x", 100_000) + `"`, ` "` + strings.Repeat("x", 100_000) + `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, guard(t, idemhttp.Config{})(new(counter)))
			s.answered(s.do(call{body: c.first}), 200, "call 1", false)
			s.answered(s.do(call{body: c.second, kind: "application/json; charset=utf-8"}), 200, "call 1", true)
			s.answered(s.do(call{body: c.second, header: [2]string{"X-Request-Id", "r2"}}), 200, "call 1", true)
		})
	}
}

// FEN-16, FEN-47, FEN-49, HTTP-47, FEN-63: another request with the key is a conflict. The answer says where the requests
// differ, and not what the values are. The first request is kept.
func TestConflict(t *testing.T) {
	first := call{path: "/refunds?dry=no", body: `{"cents":100,"to":"ann"}`}
	for _, c := range []struct {
		name   string
		second call
		path   string // of the difference
		op     string
	}{
		{"value", call{path: first.path, body: `{"cents":101,"to":"ann"}`}, "/body/cents", "replace"},
		{"precision", call{path: first.path, body: `{"cents":100.00000000000000000001,"to":"ann"}`}, "/body/cents", "replace"},
		{"null is not absent", call{path: first.path, body: `{"cents":100,"to":"ann","note":null}`}, "/body/note", "add"},
		{"absent", call{path: first.path, body: `{"cents":100}`}, "/body/to", "remove"},
		{"query", call{path: "/refunds?dry=yes", body: first.body}, "/query", "replace"},
		{"path", call{path: "/refunds/?dry=no", body: first.body}, "/path", "replace"},
		{"method", call{method: "PUT", path: first.path, body: first.body}, "/method", "replace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := new(counter)
			endpoint := func(*http.Request) string { return "refunds" }
			s := serve(t, guard(t, idemhttp.Config{Endpoint: endpoint})(h))
			s.answered(s.do(first), 200, "call 1", false)
			r := s.do(c.second)
			s.is(r, 409, "idempotency_conflict")
			if want := []map[string]any{{"op": c.op, "path": c.path}}; !cmp.Equal(r.problem.Diff, want) || r.problem.Retry != "new-key" || r.replayed {
				t.Errorf("diff %v, retry %q; want %v", r.problem.Diff, r.problem.Retry, want)
			}
			h.want(t, 1)
			s.answered(s.do(first), 200, "call 1", true)
		})
	}
}

// FEN-49, FEN-63: bodies that are no JSON are compared byte by byte.
func TestOtherMediaTypes(t *testing.T) {
	const doc = `{"a":1}`
	for _, c := range []struct {
		name          string
		first, second call
		same          bool
	}{
		{"text", call{kind: "text/plain", body: doc}, call{kind: "text/plain", body: doc}, true},
		{"other text", call{kind: "text/plain", body: doc}, call{kind: "text/plain", body: doc + " "}, false},
		{"no media type", call{kind: "-", body: doc}, call{kind: "-", body: doc + " "}, false},
		{"bad media type", call{kind: ";;", body: doc}, call{kind: ";;", body: doc + " "}, false},
		{"JSON and text", call{body: doc}, call{kind: "text/plain", body: doc}, false},
		{"JSON and none", call{body: doc}, call{}, false},
		{"JSON of a profile", call{kind: "application/merge-patch+json", body: doc}, call{body: " " + doc}, true},
		{"large JSON", call{body: `"` + strings.Repeat("x", 100_000) + `"`}, call{body: `"` + strings.Repeat("x", 99_999) + `y"`}, false},
		{"compressed", call{body: "\x1f\x8bone", header: [2]string{"Content-Encoding", "gzip"}}, call{body: "\x1f\x8btwo", header: [2]string{"Content-Encoding", "gzip"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, guard(t, idemhttp.Config{})(new(counter)))
			s.answered(s.do(c.first), 200, "call 1", false)
			if c.same {
				s.answered(s.do(c.second), 200, "call 1", true)
			} else {
				s.is(s.do(c.second), 409, "idempotency_conflict")
			}
		})
	}
}

// FEN-26: the status and the diff of conflicts are by policy. Values are told only if the guard says so.
func TestConflictPolicy(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy idempotency.ConflictPolicy
		values bool
		status int
		diff   []map[string]any
	}{
		{"default", idempotency.ConflictPolicy{}, false, 409, []map[string]any{{"op": "replace", "path": "/body/a"}}},
		{"422", idempotency.ConflictPolicy{Status: 422}, false, 422, []map[string]any{{"op": "replace", "path": "/body/a"}}},
		{"no diff", idempotency.ConflictPolicy{IncludeDiff: new(bool)}, true, 409, nil},
		{"values", idempotency.ConflictPolicy{}, true, 409, []map[string]any{{"op": "replace", "path": "/body/a", "old": 1.0, "value": 2.0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := open(t, idempotency.Config{Policies: idempotency.Policies{OnConflict: c.policy}})
			s := serve(t, guard(t, idemhttp.Config{Ledger: l, DiffValues: c.values})(new(counter)))
			s.do(call{body: `{"a":1}`})
			r := s.do(call{body: `{"a":2}`})
			s.is(r, c.status, "idempotency_conflict")
			if diff := cmp.Diff(c.diff, r.problem.Diff); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A difference of more than 100 paths is cut.
func TestLargeDiff(t *testing.T) {
	s := serve(t, guard(t, idemhttp.Config{})(new(counter)))
	list := func(n int) string {
		m := map[string]int{}
		for i := range 200 {
			m[fmt.Sprint(i)] = n
		}
		b, _ := json.Marshal(m)
		return string(b)
	}
	s.do(call{body: list(1)})
	if r := s.do(call{body: list(2)}); len(r.problem.Diff) != 100 || !r.problem.Truncated {
		t.Errorf("%d differences, truncated: %v", len(r.problem.Diff), r.problem.Truncated)
	}
}

// HTTP-42, FEN-63: a body that cannot be read, is too large or is no JSON, and a query without meaning, are
// refused before the store is called. Who asks, the size and the headers are checked before.
func TestBody(t *testing.T) {
	var stored atomic.Int64
	policies := idempotency.Policies{RequireHeaders: []string{"Idempotency-Key", "X-Request-Id"}}
	l, h := open(t, idempotency.Config{Storage: storeCalls(&stored), Policies: policies}), new(counter)
	s := serve(t, guard(t, idemhttp.Config{Ledger: l, MaxBody: 100})(h))
	before := stored.Load()
	for _, c := range []struct {
		name   string
		call   call
		status int
		code   string
	}{
		{"too large", call{body: `"` + strings.Repeat("x", 99) + `"`}, 413, "too_large"},
		{"too large, of another type", call{body: strings.Repeat("x", 101), kind: "text/plain"}, 413, "too_large"},
		{"too large, of unknown length", call{body: strings.Repeat("x", 101), chunked: true}, 413, "too_large"},
		{"too large, without a key", call{body: strings.Repeat("x", 101), key: "-"}, 413, "too_large"},
		{"too large, of nobody", call{body: strings.Repeat("x", 101), shop: "-"}, 401, "unauthorized"},
		{"no JSON, without a key", call{body: `{`, key: "-"}, 400, "idempotency_required"},
		{"no JSON, with a bad key", call{body: `{`, key: "a b"}, 400, "idempotency_key_invalid"},
		{"no JSON, without a header", call{body: `{`, header: [2]string{"X-Request-Id", "-"}}, 400, "invalid_request"},
		{"no JSON", call{body: `{`}, 400, "invalid_json"},
		{"two documents", call{body: `{}{}`}, 400, "invalid_json"},
		{"two members of a name", call{body: `{"a":1,"a":1}`}, 400, "invalid_json"},
		{"lone surrogate", call{body: `"\ud800"`}, 400, "invalid_json"},
		{"bad UTF-8", call{body: "\"\xff\""}, 400, "invalid_json"},
		{"exponent", call{body: `1e10000`}, 400, "invalid_json"},
		{"white space alone", call{body: ` `}, 400, "invalid_json"},
		{"bad UTF-8 in the query", call{path: "/refunds?a=\xff"}, 400, "invalid_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.call.header[0] == "" {
				c.call.header = [2]string{"X-Request-Id", "r1"}
			}
			r := s.do(c.call)
			s.is(r, c.status, c.code)
			if r.problem.Retry != "never" {
				t.Errorf("retry %q", r.problem.Retry)
			}
		})
	}
	if n := stored.Load() - before; n != 0 {
		t.Errorf("%d calls of the store", n)
	}
	h.want(t, 0)
	s.answered(s.do(call{body: `"` + strings.Repeat("x", 98) + `"`, header: [2]string{"X-Request-Id", "r1"}}), 200, "call 1", false)
}

// FEN-63: JSON of too many levels is refused, also if it has too many only as a part of what is stored.
func TestDeepBody(t *testing.T) {
	var stored atomic.Int64
	l, h := open(t, idempotency.Config{Storage: storeCalls(&stored)}), new(counter)
	s := serve(t, guard(t, idemhttp.Config{Ledger: l})(h))
	deep := func(levels int) call { return call{body: strings.Repeat("[", levels) + strings.Repeat("]", levels)} }
	before := stored.Load()
	for _, levels := range []int{10_000, 10_001} {
		if r := s.do(deep(levels)); r.status != 400 || r.problem.Code != "invalid_json" || r.problem.Retry != "never" {
			t.Errorf("%d levels: %d %q", levels, r.status, r.body)
		}
	}
	if n := stored.Load() - before; n != 0 {
		t.Errorf("%d calls of the store", n)
	}
	for _, replayed := range []bool{false, true} {
		s.answered(s.do(deep(9_999)), 200, "call 1", replayed)
	}
}

// The default limit of a body is 1 MiB.
func TestDefaultMaxBody(t *testing.T) {
	s := serve(t, guard(t, idemhttp.Config{})(new(counter)))
	s.is(s.do(call{kind: "text/plain", body: strings.Repeat("x", 1<<20+1)}), 413, "too_large")
	s.answered(s.do(call{kind: "text/plain", body: strings.Repeat("x", 1<<20)}), 200, "call 1", false)
}

// FEN-63: a body that ends too early is not handled, and its key is not used up.
func TestBrokenBody(t *testing.T) {
	var stored atomic.Int64
	l, h := open(t, idempotency.Config{Storage: storeCalls(&stored)}), new(counter)
	over := make(chan struct{}, 1)
	g := guard(t, idemhttp.Config{Ledger: l})(h)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.ServeHTTP(w, r)
		over <- struct{}{}
	}))
	before := stored.Load()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /refunds HTTP/1.1\r\nHost: shop\r\nShop: acme\r\nIdempotency-Key: k1\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"a\":1}")
	c.(*net.TCPConn).CloseWrite()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("the guard does not notice")
	}
	h.want(t, 0)
	if n := stored.Load() - before; n != 0 {
		t.Errorf("%d calls of the store", n)
	}
	s.answered(s.do(call{body: `{"a":1}`}), 200, "call 1", false)
}

// FEN-63: behind something that has read the body, requests cannot be told apart, so none is handled.
func TestBodyReadBefore(t *testing.T) {
	h := new(counter)
	g := guard(t, idemhttp.Config{})(h)
	for _, c := range []struct {
		name string
		read func(r *http.Request)
		call call
	}{
		{"form", func(r *http.Request) { r.ParseForm() }, call{kind: "application/x-www-form-urlencoded", body: "cents=1"}},
		{"form of unknown length", func(r *http.Request) { r.ParseForm() }, call{kind: "application/x-www-form-urlencoded", body: "cents=1", chunked: true}},
		{"all", func(r *http.Request) { io.ReadAll(r.Body) }, call{kind: "text/plain", body: "cents=1"}},
		{"all, of unknown length", func(r *http.Request) { io.ReadAll(r.Body) }, call{body: `{"cents":1}`, chunked: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.read(r)
				g.ServeHTTP(w, r)
			}))
			s.is(s.do(c.call), 500, "internal")
		})
	}
	h.want(t, 0)
}

// A request without a body may have no length, as one of HTTP/2.
func TestEmptyBodyOfUnknownLength(t *testing.T) {
	r := call{kind: "-"}.request("http://shop")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), -1
	w := httptest.NewRecorder()
	if guard(t, idemhttp.Config{})(new(counter)).ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The handler gets the body as it was sent, also if its length was not said.
func TestHandlerReadsBody(t *testing.T) {
	s := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %q %v", r.ContentLength, body, err)
	})
	s.answered(s.do(call{body: `{"b" : 1.0, "a":2}`}), 200, `18 "{\"b\" : 1.0, \"a\":2}" <nil>`, false)
	s.answered(s.do(call{key: "k2"}), 200, `0 "" <nil>`, false)
	s.answered(s.do(call{key: "k3", body: `{}`, chunked: true}), 200, `2 "{}" <nil>`, false)
}
