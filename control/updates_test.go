package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

var (
	errTooLate = errors.New("too late")
	move       = &engine.Update[json.RawMessage, json.RawMessage]{Name: "move", Errors: []error{errTooLate}}
	arrived    = &signal.Signal[json.RawMessage]{Name: "arrived"}
	moves      = &engine.Value[json.RawMessage]{Name: "moves"}
)

// withMoves gives a site a workflow that answers the update move until the signal go comes: with what it was asked for
// and how often it was. It publishes the number as the value moves.
func withMoves(done *atomic.Int64) func(*Config, *engine.Config) {
	return func(_ *Config, c *engine.Config) {
		c.Workflows = append(c.Workflows, &engine.Workflow[json.RawMessage, json.RawMessage]{Name: "moving", Func: func(run *engine.Run, _ json.RawMessage) (json.RawMessage, error) {
			if err := move.Handle(run, func(to json.RawMessage) error {
				if string(to) == `"late"` {
					return fmt.Errorf("run %s: %w", run.ID(), errTooLate)
				}
				return nil
			}, func(run *engine.Run, to json.RawMessage) (json.RawMessage, error) {
				n := done.Add(1)
				switch string(to) {
				case `"panic"`:
					panic("a secret place")
				case `"slow"`:
					return arrived.Receive(run)
				}
				if err := moves.Set(run, json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))); err != nil {
					return nil, err
				}
				return json.RawMessage(fmt.Sprintf(`{"to":%s,"n":%d}`, to, n)), nil
			}); err != nil {
				return nil, err
			}
			return proceed.Receive(run)
		}})
	}
}

func (s *site) update(key, runID string, body any) reply {
	s.t.Helper()
	return s.call(key, "POST", at(runID, "updates", "move"), body)
}

// An update is answered once: the same updateId gets the same answer by each transport, in process, at the same
// time and after the end, in each namespace for itself.
func TestCallUpdate(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		var done atomic.Int64
		s := open(t, store, withMoves(&done))
		for i, key := range []string{home, acme} {
			s.start(key, "moving", "m", nil)
			var all sync.WaitGroup
			answers := make([]reply, 8)
			for i := range answers {
				all.Go(func() {
					answers[i], _ = s.try(key, "POST", at("m", "updates", "move"), `{"input":{"a":1,"b":2},"updateId":"click 1"}`)
				})
			}
			all.Wait()
			first := answers[0].is(t, 200, "")
			for _, a := range answers {
				if !bytes.Equal(a.raw, first.raw) {
					t.Errorf("answered %d %s, and %s", a.status, a.raw, first.raw)
				}
			}
			if want := fmt.Sprintf(`{"result":{"to":{"a":1,"b":2},"n":%d},"runId":"m","updateId":"click 1","updateName":"move"}`, i+1); string(first.raw) != want {
				t.Errorf("answered %s, want %s", first.raw, want)
			}
			rpc := s.rpc(key, "1", "updates.call", `{"runId":"m","name":"move","input":{"b":2, "a":1},"updateId":"click 1","wait":5}`)
			if rpc.result(t) != string(first.raw) {
				t.Errorf("by JSON-RPC: %s, first %s", rpc.raw, first.raw)
			}
			batch := s.call(key, "POST", "/v1/rpc", `[{"jsonrpc":"2.0","id":1,"method":"updates.call","params":{"runId":"m","name":"move","input":{"b":2,"a":1},"updateId":"click 1"}}]`).is(t, 200, "")
			if !bytes.Contains(batch.raw, first.raw) {
				t.Errorf("in a batch: %s, first %s", batch.raw, first.raw)
			}
			mismatch := s.update(key, "m", `{"input":"secret","updateId":"click 1"}`).is(t, 409, "update_mismatch")
			if d := mismatch.details(); d["runId"] != "m" || d["updateName"] != "move" || d["updateId"] != "click 1" || len(d) != 3 || mismatch.text("retry") != "never" || bytes.Contains(mismatch.raw, []byte("secret")) {
				t.Errorf("another input: %s", mismatch.raw)
			}
			refused := s.update(key, "m", `{"input":"late","updateId":"click 2"}`).is(t, 409, "update_rejected")
			if d, ok := refused.details()["error"].(map[string]any); !ok || d["message"] != "run m: too late" || d["code"] != "too late" || d["stack"] != nil {
				t.Errorf("refused: %s", refused.raw)
			}
			s.call(key, "POST", at("m", "signals", "go"), `{"payload":"end"}`).is(t, 200, "")
			s.awaitStatus(key, "m", checkpoint.StatusCompleted)
			if again := s.update(key, "m", `{"input":{"a":1,"b":2},"updateId":"click 1"}`).is(t, 200, ""); !bytes.Equal(again.raw, first.raw) {
				t.Errorf("after the end: %s, first %s", again.raw, first.raw)
			}
			s.update(key, "m", `{"input":"late","updateId":"click 2"}`).is(t, 409, "update_rejected")
			if ended := s.update(key, "m", `{"input":1,"updateId":"click 3"}`).is(t, 409, "run_terminal"); ended.details()["status"] != "completed" {
				t.Errorf("after the end: %s", ended.raw)
			}
		}
		var n map[string]any
		in, err := move.Call(t.Context(), s.engine, "@acme/prod/m", json.RawMessage(`{"b":2,"a":1}`), &engine.UpdateOptions{ID: "click 1"})
		if err := errors.Join(err, json.Unmarshal(in, &n)); err != nil || n["n"] != 2.0 {
			t.Errorf("in process: %s, %v", in, err)
		}
		if done.Load() != 2 {
			t.Errorf("%d updates were executed, want 2", done.Load())
		}
	})
}

// Without an answer within the time, the answer is 202 with the updateId, and the same request gets it later.
func TestAnUpdateThatTakesLong(t *testing.T) {
	var done atomic.Int64
	s := open(t, nil, withMoves(&done))
	s.start(acme, "moving", "m", nil)
	began := time.Now()
	pending := s.call(acme, "POST", at("m", "updates", "move")+"?wait=1", `{"input":"slow"}`).is(t, 202, "")
	id := pending.text("updateId")
	if id == "" || pending.text("runId") != "m" || pending.text("updateName") != "move" || time.Since(began) < time.Second {
		t.Errorf("after %v: %s", time.Since(began), pending.raw)
	}
	prefer := s.call(acme, "POST", at("m", "updates", "move"), map[string]any{"input": "slow", "updateId": id}, "Prefer", "wait=1").is(t, 202, "")
	if !bytes.Equal(prefer.raw, pending.raw) {
		t.Errorf("the same update is %s, first %s", prefer.raw, pending.raw)
	}
	s.call(acme, "POST", at("m", "signals", "arrived"), `{"payload":"there"}`).is(t, 200, "")
	if got := s.update(acme, "m", map[string]any{"input": "slow", "updateId": id}).is(t, 200, ""); got.text("result") != "there" || done.Load() != 1 {
		t.Errorf("%d executed; answered %s", done.Load(), got.raw)
	}
	rows := s.call(acme, "GET", "/v1/audit?action=updates.call", nil).is(t, 200, "").data()
	if len(rows) != 3 || fmt.Sprint(rows[0]["resource"]) != "/v1/runs/m/updates/move" || fmt.Sprint(rows[0]["result"]) != "success" {
		t.Errorf("audited %v", rows)
	}
}

// HTTP-74: the audit row of an update is in the store when the update is answered.
func TestAnUpdateIsAudited(t *testing.T) {
	var done atomic.Int64
	s := open(t, nil, withMoves(&done))
	s.start(acme, "moving", "m", nil)
	for n := 1; n <= 3; n++ {
		s.update(acme, "m", `{"input":1,"updateId":"a"}`).is(t, 200, "")
		if got := recordsOf(t, s.store, "ctl:audit:"); got != n+1 {
			t.Errorf("after %d updates there are %d rows, want %d", n, got, n+1)
		}
	}
}

// UPD-1: an update with a start starts the run if it is not there, and has it do the update: each once, however often it is
// called, where runs start then. It needs both scopes.
func TestAnUpdateThatStarts(t *testing.T) {
	const caller = "a-key-that-calls-updates-0"
	EachStore(t, func(t *testing.T, store storage.Storage) {
		var done atomic.Int64
		s := open(t, store, withMoves(&done), func(c *Config, e *engine.Config) {
			e.Deployment = "v1"
			c.Keys = append(c.Keys[:len(c.Keys):len(c.Keys)], Key{ID: "caller", Secret: caller, Scopes: []string{"signals:write"}})
		})
		const body = `{"input":1,"updateId":"a","start":{"workflowName":"moving","input":{"n":1}}}`
		if r := s.update(caller, "m", body).is(t, 403, "missing_scope"); fmt.Sprint(r.body["required"]) != "[trigger:write]" {
			t.Errorf("got %s", r.raw)
		}
		for _, start := range []string{`{}`, `null`, `{"workflowName":"moving","queue":"q"}`} {
			s.update(home, "m", `{"start":`+start+`}`).is(t, 400, "invalid_request")
		}
		s.update(home, "m", `{"start":{"workflowName":"none"}}`).is(t, 400, "unknown_workflow")
		s.call(home, "GET", at("m"), nil).is(t, 404, "not_found")

		s.deploy("v1", "").is(t, 201, "")
		s.activate("v1", "").is(t, 200, "")
		first := s.update(home, "m", body).is(t, 200, "")
		if want := `{"result":{"to":1,"n":1},"runId":"m","updateId":"a","updateName":"move"}`; string(first.raw) != want {
			t.Errorf("answered %s, want %s", first.raw, want)
		}
		if r := s.call(home, "GET", at("m"), nil).is(t, 200, ""); r.text("deploymentId") != "v1" { // HTTP-33
			t.Errorf("started was %s", r.raw)
		}
		rpc := s.rpc(home, "1", "updates.call", `{"runId":"m","name":"move","input":1,"updateId":"a","start":{"workflowName":"moving","input":{"n":1}}}`)
		if rpc.result(t) != string(first.raw) {
			t.Errorf("by JSON-RPC: %s, first %s", rpc.raw, first.raw)
		}
		s.update(home, "m", `{"input":2,"updateId":"b","start":{"workflowName":"moving","input":{"n":2}}}`).is(t, 409, "run_exists")
		s.update(home, "m", `{"input":2,"updateId":"b","start":{"workflowName":"echo","input":{"n":1}}}`).is(t, 409, "run_exists")
		s.update(home, "m", `{"input":2,"updateId":"a","start":{"workflowName":"moving","input":{"n":1}}}`).is(t, 409, "update_mismatch")
		if again := s.update(home, "m", `{"input":2,"updateId":"b","start":{"workflowName":"moving","input":{"n":1}}}`).is(t, 200, ""); fmt.Sprint(again.body["result"]) != "map[n:2 to:2]" {
			t.Errorf("another update: %s", again.raw)
		}
		s.update(home, "late", `{"input":"late","updateId":"a","start":{"workflowName":"moving"}}`).is(t, 409, "update_rejected")
		if s.call(home, "GET", at("late"), nil).is(t, 200, "").text("status") != "running" || done.Load() != 2 {
			t.Errorf("after a refusal, %d updates were executed, want 2", done.Load())
		}
		s.plane.env.Auditor.Flush(t.Context())
		var rows []string
		for _, row := range s.call(home, "GET", "/v1/audit?action=updates.call&runId=late", nil).is(t, 200, "").data() {
			rows = append(rows, fmt.Sprint(row["result"]))
		}
		if fmt.Sprint(rows) != "[failure success]" { // the run was started, and has refused the update
			t.Errorf("audited are %v", rows)
		}
	})
}

// UPD-1: the start of a run, its update and the audit row are one commit.
func TestAnUpdateThatStartsIsOneCommit(t *testing.T) {
	var s *site
	var n int
	inOneMinute(func() {
		var commits counter
		s = idle(t, &counting{Storage: new(memory.Store), count: &commits})
		s.call(acme, "GET", at("w"), nil).is(t, 404, "not_found") // it takes permits
		s.plane.env.Auditor.Flush(t.Context())
		before := commits.load()
		s.call(acme, "POST", at("w", "updates", "move")+"?wait=1", `{"start":{"workflowName":"wait"}}`).is(t, 202, "")
		n = commits.load() - before
	})
	if n != 1 {
		t.Errorf("it was %d commits, want 1", n)
	}
	if runs, updates, rows := recordsOf(t, s.store, "ix:"), recordsOf(t, s.store, "upd"), recordsOf(t, s.store, "ctl:audit:"); runs != 1 || updates != 1 || rows != 2 {
		t.Errorf("there are %d runs, %d updates and %d audit rows, want 1, 1 and 2", runs, updates, rows)
	}
}

// What is no update is refused, and nothing is written.
func TestBadUpdates(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	for _, body := range []string{`{"updateId":""}`, `{"updateId":null}`, `{"updateId":7}`, `{"updateID":"x"}`, `{"updateId":"` + strings.Repeat("x", 129) + `"}`, `{"wait":1}`, `{"name":"x"}`, `[]`, `{"input":1,"input":2}`} {
		s.update(acme, "w", body).is(t, 400, "invalid_request")
	}
	for _, query := range []string{"?wait=0", "?wait=61", "?wait=-1", "?wait=x", "?wait=1&wait=2", "?updateId=x"} {
		s.call(acme, "POST", at("w", "updates", "move")+query, `{}`).is(t, 400, "invalid_request")
	}
	s.call(acme, "POST", at("w", "updates", strings.Repeat("n", 101)), `{}`).is(t, 400, "invalid_request")
	for _, k := range []string{home, acmeTest, other} {
		r := s.update(k, "w", `{}`).is(t, 404, "not_found")
		r.says(t, `Run "w" not found`) // as for a run that there is not
		s.update(k, "none", `{}`).is(t, 404, "not_found").says(t, `Run "none" not found`)
		s.update(k, "@acme/prod/w", `{}`).is(t, 404, "not_found")
	}
	if n := recordsOf(t, s.store, "upd") + recordsOf(t, s.store, "upr"); n != 0 {
		t.Errorf("%d records of updates were written", n)
	}
	long := s.call(acme, "POST", at("w", "updates", "move")+"?wait=1", `{"updateId":"`+strings.Repeat("é", 64)+`"}`).is(t, 202, "")
	if long.text("updateId") != strings.Repeat("é", 64) || recordsOf(t, s.store, "upd") != 1 {
		t.Errorf("an updateId of 128 bytes: %s", long.raw)
	}
}

// The stack of a panic is for keys with ops:read, and no answer has the namespace.
func TestWhatAnUpdateShows(t *testing.T) {
	const writer = "acme-key-that-may-signal-0"
	var done atomic.Int64
	s := open(t, nil, withMoves(&done), func(c *Config, _ *engine.Config) {
		c.Keys = append(c.Keys[:len(c.Keys):len(c.Keys)], Key{ID: "writer", Project: "acme", Environment: "prod", Secret: writer, Scopes: []string{"signals:write"}})
	})
	s.start(acme, "moving", "m", nil)
	for key, shown := range map[string]bool{acme: true, writer: false} {
		r := s.update(key, "m", `{"input":"panic","updateId":"p"}`).is(t, 409, "update_failed")
		e, _ := r.details()["error"].(map[string]any)
		if stack, has := e["stack"]; has != shown || shown && !strings.Contains(fmt.Sprint(stack), "updates_test.go") || e["message"] == "" {
			t.Errorf("answered %s", r.raw)
		}
		if bytes.Contains(r.raw, []byte("@acme")) {
			t.Errorf("shows the namespace: %s", r.raw)
		}
	}
	s.call(writer, "GET", at("m", "values"), nil).is(t, 403, "missing_scope")
	s.call(writer, "GET", at("m", "values", "moves"), nil).is(t, 403, "missing_scope")
}

// A key whose calls wait, as many as may, is told to come back, and nothing is admitted.
func TestTooManyUpdatesWait(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	for range operation.MaxWaiting {
		if !s.plane.env.Polls.Enter("acme/prod/shop", operation.MaxWaiting, 0) {
			t.Fatal("cannot wait")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, "POST", s.url+at("w", "updates", "move"), strings.NewReader(`{"updateId":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+acme)
	q.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatalf("it waits: %v", err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("answered %d %v", r.StatusCode, r.Header)
	}
	if n := recordsOf(t, s.store, "upd:"); n != 0 {
		t.Errorf("%d updates are admitted", n)
	}
}

// A run with as many updates as may wait refuses more, and says so.
func TestARunIsBusy(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	waiting := storage.Batch{} // engine.TestTooManyUpdates has updates that were called
	for i := range 1000 {
		waiting.Ops = append(waiting.Ops, storage.Put(keys.Update("@acme/prod/w", fmt.Sprint(i)), nil))
	}
	if err := s.store.Commit(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	if r := s.update(acme, "w", `{"updateId":"a"}`).is(t, 503, "busy"); r.header.Get("Retry-After") == "" {
		t.Errorf("answered %s", r.raw)
	}
}

// A call that waits ends soon after its key is revoked, with 401.
func TestARevokedKeyCallsNoUpdate(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	made := s.call(home, "POST", "/v1/keys", `{"keyId":"short","project":"acme","environment":"prod","scopes":["signals:write"]}`).is(t, 201, "")
	answered := make(chan reply, 1)
	go func() {
		r, _ := s.try(made.text("secret"), "POST", at("w", "updates", "move")+"?wait=60", `{"updateId":"a"}`)
		answered <- r
	}()
	s.await("the update waits", func() bool { return recordsOf(t, s.store, "upd:") == 1 })
	s.call(home, "DELETE", "/v1/keys/short?project=acme&environment=prod", nil).is(t, http.StatusNoContent, "")
	select {
	case r := <-answered:
		r.is(t, 401, "unauthorized")
	case <-time.After(30 * time.Second):
		t.Fatal("it waits on")
	}
}

// Nothing of a batch is carried out once its key is revoked or the plane closes.
func TestABatchEndsWithItsKey(t *testing.T) {
	for name, c := range map[string]struct {
		event func(*site)
		code  string
	}{
		"revoked": {func(s *site) {
			s.call(home, "DELETE", "/v1/keys/short?project=acme&environment=prod", nil).is(s.t, http.StatusNoContent, "")
		}, `"code":"unauthorized"`},
		"closed": {func(s *site) { go s.plane.Close(); <-s.plane.env.Closing }, `"code":"closing"`},
	} {
		t.Run(name, func(t *testing.T) {
			store := &before{Storage: new(memory.Store)}
			s := idle(t, store)
			s.start(acme, "wait", "w", nil)
			made := s.call(home, "POST", "/v1/keys", `{"keyId":"short","project":"acme","environment":"prod","scopes":["signals:write"]}`).is(t, 201, "")
			store.once("upd:", func() { c.event(s) })
			one := `{"jsonrpc":"2.0","id":1,"method":"updates.call","params":{"runId":"w","name":"move"}}`
			r := s.call(made.text("secret"), "POST", "/v1/rpc", "["+strings.Repeat(one+",", 4)+one+"]")
			store.done(t)
			if n := recordsOf(t, store, "upd:"); n > 1 || strings.Count(string(r.raw), c.code) < 4 {
				t.Errorf("%d updates are admitted, want at most the first: %s", n, r.raw)
			}
		})
	}
}

// Values are read and listed, without touching the run; a reader waits for another version of one, and no longer
// than until the end.
func TestValues(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		var done atomic.Int64
		s := open(t, store, withMoves(&done))
		for _, key := range []string{home, acme} {
			s.start(key, "moving", "m", nil)
			value := at("m", "values", "moves")
			none := s.call(key, "GET", value, nil).is(t, 404, "no_value")
			if d := none.details(); d["runId"] != "m" || d["name"] != "moves" || d["status"] == "" {
				t.Errorf("no value: %s", none.raw)
			}
			if got := s.call(key, "GET", at("m", "values"), nil).is(t, 200, ""); len(got.data()) != 0 || got.body["hasMore"] != false {
				t.Errorf("no values: %s", got.raw)
			}
			waits := make(chan reply, 1)
			go func() { r, _ := s.try(key, "GET", value+"?wait=30", nil); waits <- r }()
			s.update(key, "m", `{"input":1}`).is(t, 200, "")
			first := (<-waits).is(t, 200, "")
			want := fmt.Sprintf(`"value":{"n":%d}`, done.Load())
			if first.text("name") != "moves" || first.text("version") == "" || !strings.Contains(string(first.raw), want) {
				t.Errorf("answered %s, want %s", first.raw, want)
			}
			after := value + "?after=" + first.text("version")
			if same := s.call(key, "GET", after, nil).is(t, 200, ""); same.text("version") != first.text("version") {
				t.Errorf("answered %s, first %s", same.raw, first.raw)
			}
			go func() { r, _ := s.try(key, "GET", after+"&wait=30", nil); waits <- r }()
			s.update(key, "m", `{"input":1}`).is(t, 200, "")
			second := (<-waits).is(t, 200, "")
			if want := fmt.Sprintf(`"value":{"n":%d}`, done.Load()); second.text("version") == first.text("version") || !strings.Contains(string(second.raw), want) {
				t.Errorf("answered %s, want %s", second.raw, want)
			}
			rpc := s.rpc(key, "1", "values.get", `{"runId":"m","name":"moves"}`)
			if rpc.result(t) != string(s.call(key, "GET", value, nil).raw) {
				t.Errorf("by JSON-RPC: %s", rpc.raw)
			}
			if got := s.call(key, "GET", at("m", "values"), nil).is(t, 200, "").data(); len(got) != 1 || got[0]["name"] != "moves" {
				t.Errorf("listed %v", got)
			}
			go func() {
				r, _ := s.try(key, "GET", value+"?wait=30&after="+second.text("version"), nil)
				waits <- r
			}()
			s.call(key, "POST", at("m", "signals", "go"), `{"payload":"end"}`).is(t, 200, "")
			if last := (<-waits).is(t, 200, ""); last.text("status") != "completed" || last.text("version") != second.text("version") {
				t.Errorf("at the end: %s", last.raw)
			}
			if r := s.call(key, "GET", at("m", "values", "none")+"?wait=30", nil).is(t, 404, "no_value"); r.details()["status"] != "completed" {
				t.Errorf("at the end: %s", r.raw)
			}
		}
	})
}

// What is no value is refused, and a value of another namespace is one of no run.
func TestBadValues(t *testing.T) {
	var done atomic.Int64
	s := open(t, nil, withMoves(&done))
	s.start(acme, "moving", "m", nil)
	s.update(acme, "m", `{"input":1}`).is(t, 200, "")
	for _, k := range []string{home, acmeTest, other} {
		for _, path := range []string{at("m", "values"), at("m", "values", "moves"), at("m", "values", "moves") + "?wait=60", at("@acme/prod/m", "values", "moves")} {
			s.call(k, "GET", path, nil).is(t, 404, "not_found")
		}
	}
	for _, path := range []string{at("m", "values") + "?limit=0", at("m", "values") + "?cursor=x", at("m", "values") + "?sortOrder=asc", at("m", "values", "moves") + "?wait=61", at("m", "values", strings.Repeat("n", 101))} {
		s.call(acme, "GET", path, nil).is(t, 400, "invalid_request")
	}
}

// A page of values has at most as many as the client asks for, and ends before it is too large. All pages have all.
func TestPagesOfValues(t *testing.T) {
	s := open(t, nil, func(_ *Config, c *engine.Config) {
		c.Workflows = append(c.Workflows, &engine.Workflow[int, int]{Name: "large", Func: func(run *engine.Run, n int) (int, error) {
			for i := range n {
				if err := (&engine.Value[string]{Name: fmt.Sprintf("v%02d", i)}).Set(run, strings.Repeat("x", 250<<10)); err != nil {
					return 0, err
				}
			}
			return n, nil
		}})
	})
	s.start(acme, "large", "l", 40)
	s.awaitStatus(acme, "l", checkpoint.StatusCompleted)
	for limit, most := range map[int]int{3: 3, 100: 16} {
		var names []string
		for cursor := ""; ; {
			r := s.call(acme, "GET", fmt.Sprintf("%s?limit=%d%s", at("l", "values"), limit, cursor), nil).is(t, 200, "")
			if n := len(r.data()); n > most || n == 0 {
				t.Fatalf("a page of %d values, limit %d", n, limit)
			}
			for _, v := range r.data() {
				names = append(names, fmt.Sprint(v["name"]))
			}
			if r.body["hasMore"] != true {
				break
			}
			cursor = "&cursor=" + r.text("cursor")
		}
		if len(names) != 40 || names[0] != "v00" || names[39] != "v39" {
			t.Errorf("limit %d: %d values: %v", limit, len(names), names)
		}
	}
}
