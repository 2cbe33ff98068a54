package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/stream"
)

// A server is a plane, with an engine that runs, on a real TCP port of this machine. Every answer is
// compared with the document.
type server struct {
	t     testing.TB
	url   string
	store storage.Storage
	eng   *engine.Engine
	plane *control.Plane
}

// Secrets of the keys that each server has.
const (
	admin    = "admin-secret-of-at-least-24-bytes"    // all scopes, of the home namespace
	stranger = "stranger-secret-of-at-least-24-bytes" // all scopes, of another namespace
	nobody   = "nobody-secret-of-at-least-24-bytes"   // has a scope that no operation here asks for
)

// serve starts a server on a store. The changes are applied to its configuration.
func serve(t testing.TB, store storage.Storage, changes ...func(*control.Config)) *server {
	t.Helper()
	occurred.mu.Lock()
	occurred.began[topLevel(t.Name())] = true
	occurred.mu.Unlock()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	eng, err := engine.New(engine.Config{Storage: store, Workflows: workflows, Logger: log, PollInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	c := control.Config{
		Engine: eng, Logger: log, RateLimit: 1_000_000,
		Keys: []control.Key{
			{ID: "admin", Secret: admin, Scopes: []string{"admin"}},
			{ID: "stranger", Secret: stranger, Scopes: []string{"admin"}, Project: "acme", Environment: "prod"},
		},
	}
	for _, change := range changes {
		change(&c)
	}
	plane, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(&recorder{t: t, document: loadDocument(t), next: plane})
	t.Cleanup(func() {
		web.Close()
		if err := plane.Close(); err != nil {
			t.Errorf("the plane: %v", err)
		}
		stop()
		if err := <-ran; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, storage.ErrClosed) { // by the test
			t.Errorf("the engine: %v", err)
		}
		eng.Close()
	})
	return &server{t: t, url: web.URL, store: store, eng: eng, plane: plane}
}

// stores opens a new store of each kind.
var stores = map[string]func(t *testing.T) (storage.Storage, error){
	"memory": func(*testing.T) (storage.Storage, error) { return new(memory.Store), nil },
	"sqlite": func(t *testing.T) (storage.Storage, error) {
		return sqlite.Open(filepath.Join(t.TempDir(), "weft.db"), nil)
	},
	"bolt": func(t *testing.T) (storage.Storage, error) {
		return bolt.Open(filepath.Join(t.TempDir(), "weft.bolt"), nil)
	},
	"postgres": func(t *testing.T) (storage.Storage, error) {
		return postgres.Open(context.Background(), pgtest.URL(t), nil)
	},
}

// onStores runs a test on a new store of each kind.
func onStores(t *testing.T, test func(t *testing.T, store storage.Storage)) {
	for name := range stores {
		onStore(t, name, test)
	}
}

// onTwoStores runs a test of a client that knows nothing of Weft on the two stores that are the quickest. What it
// sends and gets is on all stores what onStores has compared.
func onTwoStores(t *testing.T, test func(t *testing.T, store storage.Storage)) {
	onStore(t, "memory", test)
	onStore(t, "sqlite", test)
}

func onStore(t *testing.T, name string, test func(t *testing.T, store storage.Storage)) {
	t.Run(name, func(t *testing.T) {
		store, err := stores[name](t)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		test(t, store)
	})
}

// The workflows of the tests.
var (
	approved = &signal.Signal[json.RawMessage]{Name: "approved"}
	errCard  = errors.New("the card is refused")

	// checkout returns what the signal approved brings.
	checkout = &engine.Workflow[json.RawMessage, json.RawMessage]{Name: "checkout", Func: func(run *engine.Run, _ json.RawMessage) (json.RawMessage, error) {
		return approved.Receive(run)
	}}
	// collect returns what signals approved bring, up to the one that brings "last".
	collect = &engine.Workflow[json.RawMessage, []json.RawMessage]{Name: "collect", Func: func(run *engine.Run, _ json.RawMessage) (all []json.RawMessage, _ error) {
		for {
			payload, err := approved.Receive(run)
			if err != nil {
				return nil, err
			}
			if all = append(all, payload); string(payload) == `"last"` {
				return all, nil
			}
		}
	}}
	// echo returns its input.
	echo = &engine.Workflow[json.RawMessage, json.RawMessage]{Name: "echo", Func: func(_ *engine.Run, in json.RawMessage) (json.RawMessage, error) {
		return in, nil
	}}
	// spoken writes its input to the stream words, a part after the other.
	spoken = &engine.Workflow[[]json.RawMessage, int]{Name: "spoken", Func: func(run *engine.Run, parts []json.RawMessage) (int, error) {
		return engine.Step(run, "speak", func(ctx context.Context) (int, error) {
			w := words.Writer(ctx)
			for _, p := range parts {
				if err := w.Write(p); err != nil {
					return 0, err
				}
			}
			return len(parts), nil
		})
	}}
	words = &stream.Stream[json.RawMessage]{Name: "words"}
	// refused fails.
	refused = &engine.Workflow[json.RawMessage, string]{Name: "refused", Errors: []error{errCard}, Func: func(*engine.Run, json.RawMessage) (string, error) {
		return "", errCard
	}}
	// doubtful calls an activity whose outcome nobody knows.
	doubtful = &engine.Workflow[json.RawMessage, string]{Name: "doubtful", Func: func(run *engine.Run, _ json.RawMessage) (string, error) {
		return charge.Do(run, "order")
	}}
	charge = &activity.Activity[string, string]{
		Name:           "charge",
		IdempotencyKey: func(in string) string { return in },
		Run: func(context.Context, string) (string, error) {
			return "", errors.New("the connection was cut")
		},
		Verify: func(context.Context, string) (activity.Verification[string], error) {
			return activity.Indeterminate[string]("the provider does not answer"), nil
		},
		VerifyRetry:     activity.Retry{MaxAttempts: 1},
		Settle:          time.Millisecond,
		OnIndeterminate: activity.AwaitOperator,
	}
	// invoice returns what resumes its hook.
	invoice = &engine.Workflow[string, json.RawMessage]{Name: "invoice", Func: func(run *engine.Run, token string) (json.RawMessage, error) {
		hook := &signal.Hook[json.RawMessage]{Name: "paid"}
		h, err := hook.Open(run, &signal.HookOptions{Token: token})
		if err != nil {
			return nil, err
		}
		return h.Receive(run)
	}}
	move   = &engine.Update[json.RawMessage, json.RawMessage]{Name: "move", Errors: []error{errCard}}
	moved  = &engine.Value[json.RawMessage]{Name: "moved"}
	places = &engine.Value[string]{Name: "places"}
	// moving is moved by updates until it is approved.
	moving = &engine.Workflow[json.RawMessage, json.RawMessage]{Name: "moving", Func: func(run *engine.Run, _ json.RawMessage) (json.RawMessage, error) {
		if err := places.Set(run, "all"); err != nil {
			return nil, err
		}
		if err := move.Handle(run, func(to json.RawMessage) error {
			if string(to) == "null" {
				return errCard
			}
			return nil
		}, func(run *engine.Run, to json.RawMessage) (json.RawMessage, error) {
			if string(to) == `"far"` {
				return nil, errCard
			}
			return to, moved.Set(run, to)
		}); err != nil {
			return nil, err
		}
		return approved.Receive(run)
	}}

	workflows = []engine.Definition{checkout, invoice, moving, collect, echo, spoken, refused, doubtful}
)

// A request is one of HTTP.
type request struct {
	method, path string
	secret       string // "": none
	key          string // Idempotency-Key; "": none
	body         any    // JSON, if not nil; a string is sent as it is
	header       map[string]string
}

// A reply is an answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (s *server) send(r request) reply {
	s.t.Helper()
	a, err := s.try(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *server) try(r request) (reply, error) {
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return reply{}, err
		}
		body = bytes.NewReader(data)
	}
	q, err := http.NewRequest(r.method, s.url+r.path, body)
	if err != nil {
		return reply{}, err
	}
	if r.secret != "" {
		q.Header.Set("Authorization", "Bearer "+r.secret)
	}
	if r.key != "" {
		q.Header.Set("Idempotency-Key", r.key)
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		q.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, data}, err
}

// get sends a GET with the key of the admin.
func (s *server) get(path string, status int) reply {
	s.t.Helper()
	return s.must(request{method: "GET", path: path, secret: admin}, status)
}

// post sends a POST with the key of the admin, and an idempotency key if that is not empty.
func (s *server) post(path, key string, body any, status int) reply {
	s.t.Helper()
	return s.must(request{method: "POST", path: path, secret: admin, key: key, body: body}, status)
}

// must sends a request, whose answer must have a status.
func (s *server) must(r request, status int) reply {
	s.t.Helper()
	a := s.send(r)
	if a.status != status {
		s.t.Fatalf("%s %s was answered %d, want %d: %s", r.method, r.path, a.status, status, a.body)
	}
	return a
}

// code is the code of a problem.
func (a reply) code() string { return a.text("code") }

// text is a member of the body that is a string, or "".
func (a reply) text(name string) string {
	var members map[string]json.RawMessage
	var text string
	if json.Unmarshal(a.body, &members) != nil || json.Unmarshal(members[name], &text) != nil {
		return ""
	}
	return text
}

// refusal checks the code of a problem.
func (s *server) refusal(a reply, status int, code string) {
	s.t.Helper()
	if a.status != status || a.code() != code {
		s.t.Errorf("answered %d %s, want %d %s", a.status, a.body, status, code)
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
