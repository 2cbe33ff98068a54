package world_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
	"github.com/weft-go/weft/world"
)

func TestMain(m *testing.M) { leaks.Main(pgtest.Tests{M: m}) }

func open(t testing.TB, s storage.Storage, o *world.Options) *world.World {
	t.Helper()
	w, err := world.Open(s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// call makes a call of a runtime in JSON.
func call(t testing.TB, w *world.World, path, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/world/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	rw := httptest.NewRecorder()
	w.Handler().ServeHTTP(rw, r)
	var out map[string]any
	if err := json.Unmarshal(rw.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s: %d %s: %v", path, rw.Code, rw.Body, err)
	}
	return rw.Code, out
}

func begun(t testing.TB, w *world.World, run string) {
	t.Helper()
	status, a := call(t, w, "events/create", fmt.Sprintf(`{"runId":%q,"data":{"eventType":"run_created","specVersion":3,"eventData":{"workflowName":"order","deploymentId":"blue","input":1}}}`, run))
	if status != 200 {
		t.Fatal(a)
	}
}

func ended(t testing.TB, w *world.World, run string) {
	t.Helper()
	if status, a := call(t, w, "events/create", fmt.Sprintf(`{"runId":%q,"data":{"eventType":"run_cancelled","specVersion":3}}`, run)); status != 200 {
		t.Fatal(a)
	}
}

// refused checks an error that refuses a call.
func refused(t testing.TB, err error, status int, code string) {
	t.Helper()
	e, ok := errors.AsType[*world.Error](err)
	if !ok || e.Status != status || e.Code != code || e.Message == "" || e.Error() != "world: "+e.Message {
		t.Errorf("got %v, want %d %s", err, status, code)
	}
}

// A store without conditions is refused, and so are settings that make no sense.
func TestOpenRefuses(t *testing.T) {
	_, err := world.Open(unconditional{new(memory.Store)}, nil)
	if _, ok := errors.AsType[*storage.CapabilityError](err); !ok {
		t.Errorf("without conditional batches: %v", err)
	}
	for _, o := range []world.Options{{Retention: -1}, {MaxEvents: -1}, {MaxHooks: -1}, {Window: -1}, {Visibility: -1}} {
		if w, err := world.Open(new(memory.Store), &o); err == nil {
			w.Close()
			t.Errorf("%+v is accepted", o)
		}
	}
}

type unconditional struct{ storage.Storage }

func (u unconditional) Capabilities() storage.Capabilities {
	c := u.Storage.Capabilities()
	c.ConditionalBatch = false
	return c
}

// A transaction on another store, and none, are refused: the message would be in a store that nobody looks at, or outside. A store and
// its wrapper are one.
func TestTransactionsOfOtherStores(t *testing.T) {
	s, other := new(memory.Store), new(memory.Store)
	never := func(storagetest.Call) storagetest.Fault { return storagetest.None }
	w, wrapped := open(t, s, nil), open(t, storagetest.NewFaulty(s, never), nil)
	m := world.Message{Deployment: "blue", QueueName: "q", Body: []byte{0xa0}}
	for name, in := range map[string]*world.World{"another": w.In(stage.New(other)), "none": w.In(nil)} {
		_, published := in.Publish(t.Context(), m)
		_, resumed := in.Resume(t.Context(), "wrun_1", nil)
		if !errors.Is(published, world.ErrOtherStore) || !errors.Is(resumed, world.ErrOtherStore) {
			t.Errorf("in a transaction on %s store: %v, %v", name, published, resumed)
		}
		in.Close()
	}
	for i, in := range []*world.World{w.In(stage.New(s)), wrapped.In(stage.New(s)), w.In(stage.New(storagetest.NewFaulty(s, never)))} {
		if _, err := in.Publish(t.Context(), m); err != nil {
			t.Errorf("in a transaction on its store: %d: %v", i, err)
		}
	}
	if _, err := w.Publish(t.Context(), m); err != nil {
		t.Errorf("outside, afterwards: %v", err)
	}
}

// A message is published in a transaction of the host, or to the active deployment, and what is no message is refused.
func TestPublish(t *testing.T) {
	active := ""
	s := new(memory.Store)
	w := open(t, s, &world.Options{Deployment: func(context.Context) (string, error) {
		if active == "" {
			return "", weft.ErrNoActiveDeployment
		}
		return active, nil
	}})
	body, err := cbor.Marshal(map[string]int{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	m := world.Message{QueueName: "q", Body: body, Headers: map[string]string{"a": "b"}}
	_, err = w.Publish(t.Context(), m)
	refused(t, err, 409, "no_active_deployment")
	active = "blue"
	_, err = w.Publish(t.Context(), world.Message{QueueName: "q", Body: []byte{0xa1}})
	refused(t, err, 400, "invalid")
	_, err = w.Publish(t.Context(), world.Message{Body: body})
	refused(t, err, 400, "invalid")
	_, err = open(t, new(memory.Store), nil).Publish(t.Context(), m)
	refused(t, err, 409, "no_active_deployment")

	// What a client may send, in depth and in number, may be published in Go.
	for _, large := range [][]byte{
		append(bytes.Repeat([]byte{0x81}, 200), 0x00),
		append([]byte{0x9a, 0, 3, 0, 0}, make([]byte, 3<<16)...),
	} {
		if _, err := w.Publish(t.Context(), world.Message{Deployment: "other", QueueName: "q", Body: large}); err != nil {
			t.Errorf("a message of %d bytes: %v", len(large), err)
		}
	}

	tx := stage.New(s)
	p, err := w.In(tx).Publish(t.Context(), m)
	if err != nil || !strings.HasPrefix(p.MessageID, "msg_") {
		t.Fatalf("%+v, %v", p, err)
	}
	w.In(tx).Close() // of a transaction: nothing
	if _, a := call(t, w, "queue/receive", `{"max":1}`); len(a["messages"].([]any)) != 0 {
		t.Errorf("before the commit: %v", a)
	}
	b, err := tx.Batch()
	if err == nil {
		err = s.Commit(t.Context(), b)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, a := call(t, w, "queue/receive", `{"max":1}`)
	if got := a["messages"].([]any); len(got) != 1 || got[0].(map[string]any)["messageId"] != p.MessageID || fmt.Sprint(got[0].(map[string]any)["headers"], got[0].(map[string]any)["message"]) != "map[a:b] map[n:1]" {
		t.Errorf("after the commit: %v", a)
	}
}

// Resume has a runtime look at a run, unless it has ended.
func TestResume(t *testing.T) {
	w := open(t, new(memory.Store), nil)
	_, err := w.Resume(t.Context(), "wrun_1", nil)
	refused(t, err, 404, "not_found")
	begun(t, w, "wrun_1")
	p, err := w.Resume(t.Context(), "wrun_1", map[string]string{"x-workflow-resume-reason": "because"})
	if err != nil {
		t.Fatal(err)
	}
	_, a := call(t, w, "queue/receive", `{"max":9,"deploymentId":"blue"}`)
	got := a["messages"].([]any)
	if len(got) != 1 {
		t.Fatal(a)
	}
	m := got[0].(map[string]any)
	if s := fmt.Sprint(m["messageId"], m["queueName"], m["message"], m["headers"]); s != p.MessageID+"__wkf_workflow_ordermap[runId:wrun_1] map[x-workflow-resume-reason:because]" {
		t.Errorf("got %s", s)
	}
	ended(t, w, "wrun_1")
	_, err = w.Resume(t.Context(), "wrun_1", nil)
	refused(t, err, 409, "run_terminal")
}

// An error of the store has no status, and its text is not answered.
func TestErrorsOfTheStore(t *testing.T) {
	w := open(t, storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault { return storagetest.CrashBefore }), nil)
	_, err := w.Resume(t.Context(), "wrun_1", nil)
	if _, ok := errors.AsType[*world.Error](err); ok || err == nil {
		t.Errorf("got %v", err)
	}
	status, a := call(t, w, "runs/get", `{"id":"wrun_1"}`)
	if status != 500 || a["code"] != "internal" || strings.Contains(fmt.Sprint(a), "storage") {
		t.Errorf("got %d %v", status, a)
	}
}

// Run removes what has expired each minute, until its context ends, and tells of queues that nobody empties.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store)
		var said bytes.Buffer
		w := open(t, s, &world.Options{Retention: time.Hour, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		begun(t, w, "wrun_1")
		begun(t, w, "wrun_2")
		ended(t, w, "wrun_1")
		if _, err := w.Publish(t.Context(), world.Message{Deployment: "blue", QueueName: "q", Body: []byte{0xf6}, Key: "k"}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("Run returned %v", err)
			}
		})
		count := func(prefix string) (n int) {
			for _, err := range storage.All(t.Context(), s, storage.Prefix([]byte(prefix))) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			return n
		}
		time.Sleep(50 * time.Minute)
		if runs, keys := count("wix:all:"), count("wkey:"); runs != 2 || keys != 0 {
			t.Errorf("before the retention: %d runs, %d keys", runs, keys)
		}
		time.Sleep(15 * time.Minute)
		if runs := count("wix:all:"); runs != 1 {
			t.Errorf("after the retention: %d runs", runs)
		}
		stop()
		running.Wait()
		if !strings.Contains(said.String(), `msg="nobody takes the messages of a queue" deployment=blue`) {
			t.Errorf("the log has %s", said.String())
		}
	})
}

// A record that is damaged is reported once. That the store does not answer is reported each minute.
func TestRunReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store)
		var away atomic.Bool
		faulty := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if away.Load() && c.Method == "Get" {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		var said bytes.Buffer
		w := open(t, faulty, &world.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		for _, key := range []string{"k", "l"} {
			if _, err := w.Publish(t.Context(), world.Message{Deployment: "blue", QueueName: "q", Body: []byte{0xf6}, Key: key, Delay: 24 * time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(12 * time.Hour)
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(keys.QueueKey("blue", "k"), []byte("damaged"))}}); err != nil {
			t.Fatal(err)
		}
		for _, back := range []bool{false, true} {
			away.Store(!back)
			said.Reset()
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
			if err := w.Run(ctx); err != nil {
				t.Errorf("Run returned %v", err)
			}
			stop()
			failed, damaged := strings.Count(said.String(), "the queues of the world could not be looked at"), strings.Count(said.String(), "a record of the world cannot be read")
			if back && (failed != 0 || damaged != 1) || !back && (failed < 5 || damaged != 0) {
				t.Errorf("the store answers: %v: %d times what failed, %d times what is damaged in %s", back, failed, damaged, said.String())
			}
		}
	})
}

// WLD-72, WLD-75: whatever a world does, it does through its store, which has at most 20 connections.
func TestConnectionsToPostgreSQL(t *testing.T) {
	url := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := open(t, s, nil)
	watcher, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close(context.WithoutCancel(t.Context()))
	begun(t, w, "wrun_0")
	var clients sync.WaitGroup
	const many = 100
	for i := range many {
		clients.Go(func() {
			run := fmt.Sprint("wrun_", i+1)
			begun(t, w, run)
			call(t, w, "queue/publish", fmt.Sprintf(`{"queueName":"q","message":1,"opts":{"deploymentId":"d%d"}}`, i%10))
			call(t, w, "queue/receive", fmt.Sprintf(`{"deploymentId":"d%d","max":1,"waitSeconds":0.2}`, i%10))
			call(t, w, "streams/write", fmt.Sprintf(`{"runId":%q,"name":"words","chunks":["a"]}`, run))
			call(t, w, "streams/close", fmt.Sprintf(`{"runId":%q,"name":"words"}`, run))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/world/streams/read", strings.NewReader(fmt.Sprintf(`{"runId":%q,"name":"words"}`, run)))
			r.Header.Set("Content-Type", "application/json")
			w.Handler().ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	most, looks := 0, 0
	for over := false; !over; looks++ {
		select {
		case <-done:
			over = true
		default:
		}
		var n int
		if err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if most > 20 || most < 5 || looks < 3 {
		t.Errorf("%d clients had %d connections at most, in %d looks; want at most 20", many, most, looks)
	}
}
