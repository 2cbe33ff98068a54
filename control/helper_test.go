package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	http.DefaultClient.CloseIdleConnections()
	os.Exit(leaks.Check(code))
}

// Secrets of the keys of every site.
const (
	adminSecret  = "admin-secret-admin-secret"
	readerSecret = "reader-secret-reader-secret" // runs:read, deploy:read
	otherSecret  = "other-secret-of-another-project"
)

func homeKeys() []control.Key {
	return []control.Key{
		{ID: "root", Secret: adminSecret, Scopes: []string{"admin"}},
		{ID: "reader", Secret: readerSecret, Scopes: []string{"runs:read", "deploy:read"}},
		{ID: "other", Secret: otherSecret, Scopes: []string{"admin"}, Project: "acme", Environment: "prod"},
	}
}

// A site is a plane that is served, and its engine.
type site struct {
	t      testing.TB
	store  storage.Storage
	engine *engine.Engine
	plane  *control.Plane
	url    string // "": requests are given to the plane without a network
	client *http.Client
	log    *logged
}

// configOf returns the configuration of a site's plane on a store, and its engine, which is not run.
func configOf(t testing.TB, s storage.Storage) (control.Config, *logged) {
	t.Helper()
	log := &logged{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	eng, err := engine.New(engine.Config{Storage: s, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return control.Config{Engine: eng, Keys: homeKeys(), RateLimit: 1_000_000, Logger: logger}, log
}

// planeOn returns a plane on a store without a network, for virtual time.
func planeOn(t testing.TB, s storage.Storage, change ...func(*control.Config)) *site {
	t.Helper()
	c, log := configOf(t, s)
	for _, f := range change {
		f(&c)
	}
	p, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &site{t: t, store: s, engine: c.Engine, plane: p, log: log}
}

// serve returns a plane on a store that is served by TCP.
func serve(t testing.TB, s storage.Storage, change ...func(*control.Config)) *site {
	t.Helper()
	x := planeOn(t, s, change...)
	srv := httptest.NewServer(answers.Handler(x.plane))
	x.url, x.client = srv.URL, srv.Client()
	t.Cleanup(srv.Close)
	return x
}

// A reply is the answer to a request.
type reply struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// do makes a request. key is a secret or "". header has names and values by turns.
func (x *site) do(method, path, key string, body any, header ...string) *reply {
	x.t.Helper()
	var r io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		r, kind = strings.NewReader(b), "application/json"
	default:
		data, err := json.Marshal(b)
		if err != nil {
			x.t.Fatal(err)
		}
		r, kind = bytes.NewReader(data), "application/json"
	}
	q, err := http.NewRequest(method, x.url+path, r)
	if err != nil {
		x.t.Fatal(err)
	}
	if kind != "" {
		q.Header.Set("Content-Type", kind)
	}
	if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		if http.CanonicalHeaderKey(header[i]) == "Content-Type" {
			q.Header.Del(header[i])
		}
		if header[i+1] != "" {
			q.Header.Add(header[i], header[i+1])
		}
	}
	return x.send(q)
}

// send makes a request, by the network if there is one.
func (x *site) send(q *http.Request) *reply {
	x.t.Helper()
	what := q.Method + " " + q.URL.RequestURI()
	if x.url == "" {
		q.RemoteAddr = "192.0.2.1:1234"
		if q.Body == nil {
			q.Body = http.NoBody
		}
		w := httptest.NewRecorder()
		answers.Handler(x.plane).ServeHTTP(w, q)
		return &reply{x.t, what, w.Code, w.Result().Header, w.Body.Bytes()}
	}
	a, err := x.client.Do(q)
	if err != nil {
		x.t.Fatalf("%s: %v", what, err)
	}
	defer a.Body.Close()
	data, err := io.ReadAll(a.Body)
	if err != nil {
		x.t.Fatalf("%s: %v", what, err)
	}
	return &reply{x.t, what, a.StatusCode, a.Header, data}
}

// is checks the status.
func (r *reply) is(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: got %d %s, want %d", r.what, r.status, r.body, status)
	}
	return r
}

// fails checks that the answer is a problem.
func (r *reply) fails(status int, code string) *reply {
	r.t.Helper()
	r.is(status)
	p := r.object()
	if p["code"] != code || p["status"] != float64(status) || p["type"] != "about:blank" || p["detail"] != p["message"] || p["message"] == "" {
		r.t.Fatalf("%s: got %s, want a problem with the code %s", r.what, r.body, code)
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		r.t.Fatalf("%s: got the type %q, want a problem", r.what, got)
	}
	return r
}

// says checks the message of a problem.
func (r *reply) says(message string) *reply {
	r.t.Helper()
	if got := r.object()["message"]; got != message {
		r.t.Fatalf("%s: got the message %q, want %q", r.what, got, message)
	}
	return r
}

// object returns the body as an object.
func (r *reply) object() map[string]any {
	r.t.Helper()
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		r.t.Fatalf("%s: %s: %v", r.what, r.body, err)
	}
	return v
}

// data returns the items of a page.
func (r *reply) data() (items []map[string]any) {
	r.t.Helper()
	r.is(http.StatusOK)
	var page struct{ Data []map[string]any }
	if err := json.Unmarshal(r.body, &page); err != nil {
		r.t.Fatalf("%s: %s: %v", r.what, r.body, err)
	}
	return page.Data
}

// audit returns the audit rows of the caller's namespace with these filters, newest first, as soon as there are
// at least n.
func (x *site) audit(key, query string, n int) []map[string]any {
	x.t.Helper()
	var rows []map[string]any
	x.until(func() bool {
		rows = x.do("GET", "/v1/audit?"+query, key, nil).data()
		return len(rows) >= n
	}, "%d audit rows with %s", n, query)
	return rows
}

// until waits until something is so.
func (x *site) until(so func() bool, what string, args ...any) {
	x.t.Helper()
	for range 2000 {
		if so() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	x.t.Fatalf("not within 10 s: "+what, args...)
}

// has reports whether the store has a key or a value with this text.
func has(t testing.TB, s storage.Storage, text string) bool {
	t.Helper()
	for e, err := range storage.All(context.Background(), s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(e.Key, []byte(text)) || bytes.Contains(e.Value, []byte(text)) {
			return true
		}
	}
	return false
}

// dump returns all that the store has.
func dump(t testing.TB, s storage.Storage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range storage.All(context.Background(), s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[string(e.Key)] = string(e.Value)
	}
	return all
}

// virtual runs f in virtual time.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func keysOf(rows []map[string]any, name string) (values []any) {
	for _, row := range rows {
		values = append(values, row[name])
	}
	return values
}
