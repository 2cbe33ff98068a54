package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A site is a plane with an engine, served over TCP.
type site struct {
	t      testing.TB
	store  storage.Storage
	engine *engine.Engine
	plane  *Plane
	url    string
}

// Secrets of the keys of a site. Each has all scopes in its namespace, unless its name says otherwise.
const (
	home     = "home-key-with-all-scopes-0"
	acme     = "acme-prod-key-all-scopes-0"
	acmeTest = "acme-test-key-all-scopes-0"
	other    = "other-project-all-scopes-0"
)

var siteKeys = []Key{
	{ID: "root", Secret: home, Scopes: []string{"admin"}},
	{ID: "shop", Project: "acme", Environment: "prod", Secret: acme, Scopes: []string{"admin"}},
	{ID: "shop", Project: "acme", Environment: "test", Secret: acmeTest, Scopes: []string{"admin"}},
	{ID: "shop", Project: "other", Environment: "prod", Secret: other, Scopes: []string{"admin"}},
}

var (
	proceed    = &signal.Signal[json.RawMessage]{Name: "go"}
	errRefused = errors.New("the card is refused")
)

// pay does not know what became of its attempt.
var pay = &activity.Activity[int, string]{
	Name: "pay", IdempotencyKey: func(n int) string { return fmt.Sprint("pay-", n) }, OnIndeterminate: activity.AwaitOperator,
	Retry: activity.Retry{MaxAttempts: 1},
	Run:   func(context.Context, int) (string, error) { return "", errors.New("connection reset") },
}

// workflows are those that the engine of a site has.
func workflows() []engine.Definition {
	echo := &engine.Workflow[json.RawMessage, json.RawMessage]{Name: "echo", Func: func(_ *engine.Run, in json.RawMessage) (json.RawMessage, error) {
		return in, nil
	}}
	wait := &engine.Workflow[json.RawMessage, json.RawMessage]{Name: "wait", Func: func(run *engine.Run, _ json.RawMessage) (json.RawMessage, error) {
		return proceed.Receive(run)
	}}
	fail := &engine.Workflow[json.RawMessage, int]{Name: "fail", Errors: []error{errRefused}, Func: func(run *engine.Run, _ json.RawMessage) (int, error) {
		return 0, fmt.Errorf("charge: %w", errRefused)
	}}
	parent := &engine.Workflow[string, json.RawMessage]{Name: "parent", Func: func(run *engine.Run, kid string) (json.RawMessage, error) {
		return wait.AsChild(engine.ChildOptions{ID: kid}).Do(run, nil)
	}}
	paying := &engine.Workflow[int, string]{Name: "paying", Func: func(run *engine.Run, n int) (string, error) { return pay.Do(run, n) }}
	return []engine.Definition{echo, wait, fail, parent, paying}
}

// open returns a site on a store whose engine executes runs.
func open(t testing.TB, s storage.Storage, change ...func(*Config, *engine.Config)) *site {
	t.Helper()
	st := idle(t, s, change...)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- st.engine.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, engine.ErrClosed) {
			t.Error(err)
		}
	})
	st.await("the engine to run", func() bool {
		all, err := st.engine.Engines(t.Context())
		return err == nil && len(all) > 0 && all[len(all)-1].Alive
	})
	return st
}

// inOneMinute calls f until no minute of the clock has begun meanwhile: with it, callers take new permits.
func inOneMinute(f func()) {
	for over := false; !over; {
		minute := time.Now().Truncate(time.Minute)
		f()
		over = time.Now().Truncate(time.Minute).Equal(minute)
	}
}

// idle returns a site whose engine executes nothing.
func idle(t testing.TB, s storage.Storage, change ...func(*Config, *engine.Config)) *site {
	t.Helper()
	if s == nil {
		s = new(memory.Store)
	}
	quiet := slog.New(slog.DiscardHandler)
	ec := engine.Config{Storage: s, Name: "site", Workflows: workflows(), Activities: []activity.Definition{pay}, Logger: quiet, PollInterval: 50 * time.Millisecond}
	c := Config{Keys: siteKeys, RateLimit: 1_000_000, Logger: quiet}
	for _, f := range change {
		f(&c, &ec)
	}
	e, err := engine.New(ec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	c.Engine = e
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(answers.Handler(p))
	t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	return &site{t, s, e, p, server.URL}
}

// A reply is what a client gets.
type reply struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any // nil: none, or no object
}

// code is the code of a problem.
func (r reply) code() string {
	s, _ := r.body["code"].(string)
	return s
}

func (r reply) text(name string) string {
	s, _ := r.body[name].(string)
	return s
}

func (r reply) details() map[string]any {
	d, _ := r.body["details"].(map[string]any)
	return d
}

// attention is the reason of the first attention, or "".
func (r reply) attention() string {
	list, _ := r.body["attention"].([]any)
	if len(list) == 0 {
		return ""
	}
	reason, _ := list[0].(map[string]any)["reason"].(string)
	return reason
}

func (r reply) data() []map[string]any {
	list, _ := r.body["data"].([]any)
	var all []map[string]any
	for _, v := range list {
		all = append(all, v.(map[string]any))
	}
	return all
}

// call makes a request. body is a string of JSON, or what is encoded as JSON; nil: none. more are
// header fields and their values.
func (s *site) call(key, method, path string, body any, more ...string) reply {
	s.t.Helper()
	r, err := s.try(key, method, path, body, more...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (s *site) try(key, method, path string, body any, more ...string) (reply, error) {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		raw, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, s.url+path, in)
	if err != nil {
		return reply{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, header: resp.Header, raw: raw}
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &r.body)
	}
	return r, err
}

// client does not follow redirects, and shares no connections with other tests.
var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// is checks status and code: "" is no problem.
func (r reply) is(t testing.TB, status int, code string) reply {
	t.Helper()
	if r.status != status || r.code() != code {
		t.Fatalf("got %d %s, want %d %q", r.status, r.raw, status, code)
	}
	return r
}

// says checks the message of a problem.
func (r reply) says(t testing.TB, message string) reply {
	t.Helper()
	if r.text("message") != message || r.text("detail") != message {
		t.Fatalf("got %s, want the message %q", r.raw, message)
	}
	return r
}

// start starts a run under a key of its own.
func (s *site) start(key, workflow, runID string, input any) reply {
	s.t.Helper()
	body := map[string]any{"workflowName": workflow, "input": input}
	if runID != "" {
		body["runId"] = runID
	}
	return s.call(key, "POST", "/v1/runs", body, "Idempotency-Key", fresh()).is(s.t, 201, "")
}

var (
	freshMu   sync.Mutex
	freshLast int
)

// fresh returns another idempotency key each time.
func fresh() string {
	freshMu.Lock()
	defer freshMu.Unlock()
	freshLast++
	return fmt.Sprint("key-", freshLast)
}

// at returns the path of a run, with segments behind it.
func at(runID string, segments ...string) string {
	path := "/v1/runs/" + url.PathEscape(runID)
	for _, s := range segments {
		path += "/" + url.PathEscape(s)
	}
	return path
}

// await waits until something is so.
func (s *site) await(what string, so func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited too long for %s", what)
		}
	}
}

// awaitStatus waits until a run has a status.
func (s *site) awaitStatus(key, runID string, status checkpoint.Status) {
	s.t.Helper()
	s.await(runID+" to be "+string(status), func() bool {
		return s.call(key, "GET", at(runID), nil).text("status") == string(status)
	})
}

// awaitAttention waits until a run needs an operator for a reason.
func (s *site) awaitAttention(key, runID string, reason engine.Reason) {
	s.t.Helper()
	s.await(runID+" to need an operator", func() bool {
		return s.call(key, "GET", at(runID), nil).attention() == string(reason)
	})
}

// recordsOf counts what a store has.
func recordsOf(t testing.TB, s storage.Storage, prefix string) (n int) {
	t.Helper()
	for _, err := range storage.All(context.Background(), s, storage.Prefix([]byte(prefix))) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	return n
}
