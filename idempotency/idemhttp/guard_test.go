package idemhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience is a safety net for what happens at once.
const patience = time.Minute

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, c idempotency.Config) *idempotency.Ledger {
	t.Helper()
	if c.Storage == nil {
		c.Storage = new(memory.Store)
	}
	c.Logger = quiet
	l, err := idempotency.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// shopOf takes the tenant from a header. A real one takes it from what authentication found out.
func shopOf(r *http.Request) (string, error) {
	if shop := r.Header.Get("Shop"); shop != "" {
		return shop, nil
	}
	return "", errors.New("secret reason")
}

func guard(t testing.TB, c idemhttp.Config) func(http.Handler) http.Handler {
	t.Helper()
	if c.Ledger == nil {
		c.Ledger = open(t, idempotency.Config{})
	}
	if c.Tenant == nil {
		c.Tenant = shopOf
	}
	c.Logger = quiet
	g, err := idemhttp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A site is a server with a guarded handler.
type site struct {
	t *testing.T
	*httptest.Server
}

func serve(t *testing.T, h http.Handler) site {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return site{t, s}
}

// guarded serves a handler behind a guard.
func guarded(t *testing.T, c idemhttp.Config, h http.HandlerFunc) site {
	t.Helper()
	return serve(t, guard(t, c)(h))
}

// A call is a request. Zero fields are those of a valid one.
type call struct {
	method, path, body string
	key                string   // "-" is none
	keys               []string // instead of key
	kind               string   // the media type; "-" is none
	shop               string   // "-" is none
	header             [2]string
	chunked            bool // the length of the body is not said
}

func (c call) request(url string) *http.Request {
	or := func(s, fallback string) string {
		if s == "" {
			return fallback
		}
		return s
	}
	r, err := http.NewRequest(or(c.method, "POST"), url+or(c.path, "/refunds"), strings.NewReader(c.body))
	if err != nil {
		panic(err)
	}
	if c.chunked {
		r.ContentLength = -1
	}
	set := func(name, value string) {
		if value != "-" && name != "" {
			r.Header.Set(name, value)
		}
	}
	set("Idempotency-Key", or(c.key, "k1"))
	if c.keys != nil {
		r.Header["Idempotency-Key"] = c.keys
	}
	set("Content-Type", or(c.kind, "application/json"))
	set("Shop", or(c.shop, "acme"))
	set(c.header[0], c.header[1])
	return r
}

// A reply is what came back.
type reply struct {
	status   int
	body     string
	replayed bool
	header   http.Header
	problem  problem // of a problem+json
}

type problem struct {
	Type, Title, Detail, Code, Message, Retry string
	Status                                    int
	Diff                                      []map[string]any
	Truncated                                 bool `json:"diff_truncated"`
}

func (s site) do(c call) reply {
	s.t.Helper()
	answer, err := s.Client().Do(c.request(s.URL))
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return read(s.t, answer.StatusCode, answer.Header, body)
}

func read(t *testing.T, status int, h http.Header, body []byte) reply {
	t.Helper()
	r := reply{status: status, body: string(body), header: h, replayed: h.Get("Idempotent-Replayed") == "true"}
	if h.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(body, &r.problem); err != nil {
			t.Fatalf("problem %q: %v", body, err)
		}
		p := r.problem
		if p.Status != status || p.Type != "about:blank" || p.Title != http.StatusText(status) || p.Detail == "" || p.Message != p.Detail {
			t.Errorf("status %d, and the problem is %+v", status, p)
		}
	}
	return r
}

// is checks a reply's status and its problem's code.
func (s site) is(r reply, status int, code string) {
	s.t.Helper()
	if r.status != status || r.problem.Code != code {
		s.t.Errorf("%d %q %q, want %d %q", r.status, r.problem.Code, r.body, status, code)
	}
}

// answered checks a reply of the handler.
func (s site) answered(r reply, status int, body string, replayed bool) {
	s.t.Helper()
	if r.status != status || r.body != body || r.replayed != replayed {
		s.t.Errorf("%d %q, replayed: %v; want %d %q, %v", r.status, r.body, r.replayed, status, body, replayed)
	}
}

// A counter is a handler that says how often it was called.
type counter struct{ calls atomic.Int64 }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "call %d", c.calls.Add(1))
}

func (c *counter) want(t *testing.T, n int64) {
	t.Helper()
	if got := c.calls.Load(); got != n {
		t.Errorf("the handler was called %d times, want %d", got, n)
	}
}

// FEN-46, FEN-63, HTTP-40: what is a key, over the wire. TestReadKey has more cases.
func TestKeys(t *testing.T) {
	h := new(counter)
	s := serve(t, guard(t, idemhttp.Config{})(h))
	for _, c := range []struct {
		keys []string
		code string // "" is valid
	}{
		{[]string{}, "idempotency_required"},
		{[]string{""}, "idempotency_required"},
		{[]string{"  "}, "idempotency_required"},
		{[]string{`""`}, "idempotency_required"},
		{[]string{"a", "a"}, "idempotency_key_invalid"},
		{[]string{"a", ""}, "idempotency_key_invalid"},
		{[]string{"a, b"}, "idempotency_key_invalid"},
		{[]string{"é"}, "idempotency_key_invalid"},
		{[]string{strings.Repeat("k", 256)}, "idempotency_key_invalid"},
		{[]string{strings.Repeat("k", 255)}, ""},
		{[]string{"8e03978e-40d5-43dd-bc93-6894a57f9324"}, ""},
		{[]string{`a:%b`}, ""},
	} {
		if r := s.do(call{keys: c.keys}); r.problem.Code != c.code || r.problem.Code != "" && (r.status != 400 || r.problem.Retry != "never") {
			t.Errorf("%q: %d %s, want %q", c.keys, r.status, r.body, c.code)
		}
	}
	h.want(t, 3)
	if got, want := s.do(call{key: "-"}).problem.Message, "Idempotency-Key header is required"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	s.answered(s.do(call{key: `"a:%b"`}), 200, "call 3", true) // with quotation marks it is the same key
	s.answered(s.do(call{key: `A:%b`}), 200, "call 4", false)  // and exact
}

// FEN-22: other headers that a file requires.
func TestRequiredHeaders(t *testing.T) {
	h := new(counter)
	l := open(t, idempotency.Config{Policies: idempotency.Policies{RequireHeaders: []string{"idempotency-key", "X-Request-Id"}}})
	s := serve(t, guard(t, idemhttp.Config{Ledger: l})(h))
	r := s.do(call{})
	s.is(r, 400, "invalid_request")
	if want := "X-Request-Id header is required"; r.problem.Message != want {
		t.Errorf("message %q, want %q", r.problem.Message, want)
	}
	h.want(t, 0)
	s.answered(s.do(call{header: [2]string{"X-Request-Id", "r1"}}), 200, "call 1", false)
}

// FEN-46, FEN-48, HTTP-41, HTTP-57, HTTP-58: one call of the handler for each key. A repetition gets the same status, body and
// header fields that describe it, marked as a replay, and still does so after a restart.
func TestReplay(t *testing.T) {
	store, calls := new(memory.Store), 0
	h := func(w http.ResponseWriter, r *http.Request) {
		calls++
		var status int
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		for _, name := range []string{"Content-Type", "Content-Language", "ETag", "Last-Modified", "Link", "Location", "Set-Cookie", "X-Trace"} {
			w.Header().Set(name, "the "+name)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, "call %d", calls)
	}
	for round := range 3 {
		l := open(t, idempotency.Config{Storage: storagetest.NewFaulty(store, nil)}) // another opening
		s := guarded(t, idemhttp.Config{Ledger: l}, h)
		for i, status := range []int{200, 201, 202, 204, 303, 400, 404, 409, 422} {
			r := s.do(call{path: fmt.Sprintf("/%d", status)})
			want := fmt.Sprintf("call %d", i+1)
			if status == 204 {
				want = ""
			}
			s.answered(r, status, want, round > 0)
			for _, name := range []string{"Content-Type", "Content-Language", "ETag", "Last-Modified", "Link", "Location"} {
				if r.header.Get(name) != "the "+name {
					t.Errorf("round %d: %d has %s %q", round, status, name, r.header.Get(name))
				}
			}
			for _, name := range []string{"Set-Cookie", "X-Trace"} {
				if has := r.header.Get(name) != ""; has != (round == 0) {
					t.Errorf("round %d: %d has %s %q", round, status, name, r.header.Get(name))
				}
			}
		}
		s.Close()
		l.Close()
	}
	if calls != 9 {
		t.Errorf("%d calls, want 9", calls)
	}
}

// FEN-48: a header field that JSON cannot have comes back as it was.
func TestReplayOfHeadersThatAreNotUTF8(t *testing.T) {
	want := map[string][]string{
		"Content-Disposition": {"attachment; filename=\"r\xe9sum\xe9.pdf\""},
		"Link":                {"</a>; title=ok", "</b>; title=\"\xff\""},
		"Location":            {"/résumé"},
	}
	s := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) { maps.Copy(w.Header(), want) })
	for _, replayed := range []bool{false, true} {
		r := s.do(call{})
		s.answered(r, 200, "", replayed)
		for name, values := range want {
			if !slices.Equal(r.header[name], values) {
				t.Errorf("replayed %v: %s is %q, want %q", replayed, name, r.header[name], values)
			}
		}
	}
}

// A direct calls a handler without a network, for tests in virtual time.
type direct struct {
	t *testing.T
	h http.Handler
}

func (d direct) do(c call) reply {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, c.request("http://shop"))
	return read(d.t, w.Code, w.Header(), w.Body.Bytes())
}

// FEN-29, HTTP-49: 64 equal requests at once are one call of the handler. Each client asks until it is answered, and all
// answers are equal.
func TestTogether(t *testing.T) {
	for _, prefer := range []string{"", "wait=30"} {
		t.Run(prefer, func(t *testing.T) {
			const clients = 64
			var arrived atomic.Int64
			h, all := new(counter), make(chan struct{})
			c := idemhttp.Config{Tenant: func(r *http.Request) (string, error) {
				if arrived.Add(1) == clients {
					close(all)
				}
				return shopOf(r)
			}}
			s := guarded(t, c, func(w http.ResponseWriter, r *http.Request) {
				<-all
				w.WriteHeader(201)
				h.ServeHTTP(w, r)
			})
			s.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = clients
			var replays atomic.Int64
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for {
						r := s.do(call{header: [2]string{"Prefer", prefer}})
						if r.problem.Code == "idempotency_in_progress" {
							if r.status != 409 || r.problem.Retry != "same-key" || r.header.Get("Retry-After") == "" {
								t.Errorf("%d %v %s", r.status, r.header, r.body)
							}
							continue
						}
						if r.status != 201 || r.body != "call 1" {
							t.Errorf("%d %s", r.status, r.body)
						}
						if r.replayed {
							replays.Add(1)
						}
						return
					}
				})
			}
			wg.Wait()
			h.want(t, 1)
			if n := replays.Load(); n != clients-1 {
				t.Errorf("%d replays, want %d", n, clients-1)
			}
		})
	}
}

// Prefer: wait=N has a repetition wait for the first request, at most 30 s. Others are answered at once, with the
// time for which the first has gone on.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		prefer     string
		takes      time.Duration // of the first request
		waits      time.Duration
		replayed   bool
		retryAfter string
	}{
		{"", 20 * time.Second, 0, false, "5"},
		{"wait=0", 20 * time.Second, 0, false, "5"},
		{"wait=-1", 20 * time.Second, 0, false, "5"},
		{"wait=soon", 20 * time.Second, 0, false, "5"},
		{"respond-async", 20 * time.Second, 0, false, "5"},
		{"wait=30", 20 * time.Second, 15 * time.Second, true, ""},
		{"respond-async, wait=30", 20 * time.Second, 15 * time.Second, true, ""},
		{"wait=10", 20 * time.Second, 10 * time.Second, false, "15"},
		{"wait=100", time.Minute, 30 * time.Second, false, "30"},
	} {
		t.Run(c.prefer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := direct{t, guard(t, idemhttp.Config{Timeout: time.Hour})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(c.takes)
					w.WriteHeader(201)
				}))}
				var wg sync.WaitGroup
				wg.Go(func() { s.do(call{}) })
				time.Sleep(5 * time.Second)
				began := time.Now()
				r := s.do(call{header: [2]string{"Prefer", c.prefer}})
				if d := time.Since(began); d != c.waits || r.replayed != c.replayed || r.header.Get("Retry-After") != c.retryAfter {
					t.Errorf("after %v: %d %v %s", d, r.status, r.header, r.body)
				}
				if !c.replayed && r.problem.Code != "idempotency_in_progress" {
					t.Errorf("%d %s", r.status, r.body)
				}
				wg.Wait()
			})
		})
	}
}

// FEN-47: a client that leaves does not end what it began: the handler goes on, and a repetition gets its
// answer.
func TestClientLeaves(t *testing.T) {
	began, left, end := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	g := guard(t, idemhttp.Config{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-left
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended: %v", err)
		}
		w.WriteHeader(201)
	}))
	var once sync.Once
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { once.Do(func() { close(left) }) })
		g.ServeHTTP(w, r)
		select {
		case end <- struct{}{}:
		default:
		}
	}))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-began
		leave()
	}()
	if answer, err := s.Client().Do(call{}.request(s.URL).WithContext(ctx)); err == nil {
		answer.Body.Close()
		t.Fatal("the client did not leave")
	}
	<-end
	s.answered(s.do(call{}), 201, "", true)
}
