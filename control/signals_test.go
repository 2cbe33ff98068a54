package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// rpc calls a method by JSON-RPC with an id, and returns the envelope.
func (s *site) rpc(key, id, method, params string) reply {
	s.t.Helper()
	return s.call(key, "POST", "/v1/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)).is(s.t, 200, "")
}

// result is the result of an envelope, as it came.
func (r reply) result(t *testing.T) string {
	t.Helper()
	var e struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(r.raw, &e); err != nil || e.Result == nil {
		t.Fatalf("no result: %s, %v", r.raw, err)
	}
	return string(e.Result)
}

// SIG-1, SIG-2, SIG-6: without a signalId each request is a new signal, by REST and by JSON-RPC.
func TestASignalNeedsNoID(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	ids := map[string]bool{}
	for _, body := range []string{"", "{}", `{"payload":1}`, `{"payload":1}`} {
		var r reply
		if body == "" {
			r = s.call(acme, "POST", at("w", "signals", "go"), nil).is(t, 200, "")
		} else {
			r = s.call(acme, "POST", at("w", "signals", "go"), body).is(t, 200, "")
		}
		ids[r.text("signalId")] = true
		if r.body["accepted"] != true || r.text("workflowId") != "w" || r.text("signalName") != "go" || r.text("signalStorageKey") != "sig:w:go:"+r.text("signalId") {
			t.Errorf("got %s", r.raw)
		}
	}
	for range 2 {
		var a struct{ SignalID string }
		if err := json.Unmarshal([]byte(s.rpc(acme, "1", "signals.send", `{"runId":"w","name":"go","payload":1}`).result(t)), &a); err != nil {
			t.Fatal(err)
		}
		ids[a.SignalID] = true
	}
	if len(ids) != 6 || ids[""] {
		t.Errorf("ids are %v, want 6", ids)
	}
}

// SIG-1, SIG-2: a signalId that is none is refused by each transport, and nothing is written.
func TestBadSignalIDs(t *testing.T) {
	s := idle(t, nil)
	s.start(home, "wait", "w", nil)
	for _, id := range []string{`""`, `null`, `7`, `["a"]`, `"` + strings.Repeat("x", 129) + `"`} {
		s.call(home, "POST", at("w", "signals", "go"), `{"signalId":`+id+`}`).is(t, 400, "invalid_request")
		if r := s.rpc(home, "1", "signals.send", `{"runId":"w","name":"go","signalId":`+id+`}`); !strings.Contains(string(r.raw), `"code":-32602`) {
			t.Errorf("%s: %s", id, r.raw)
		}
	}
	s.call(home, "POST", at("w", "signals", "go"), `{"signalID":"x"}`).is(t, 400, "invalid_request")
	s.call(home, "POST", at("w", "signals", strings.Repeat("n", 101)), `{}`).is(t, 400, "invalid_request")
	if n := recordsOf(t, s.store, "sig"); n != 0 {
		t.Errorf("%d records of signals were written", n)
	}
}

// SIG-3, SIG-35, SIG-36, SIG-52: a signal that is sent again has the first answer, also by another
// transport, and after the run has ended. JSON-RPC has it in an envelope with the id of the request.
func TestARepeatedSignal(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store)
		s.start(acme, "wait", "w", nil)
		send := func() reply {
			return s.call(acme, "POST", at("w", "signals", "go"), `{"payload":{"a":1,"b":2},"signalId":"evt_1"}`).is(t, 200, "")
		}
		first := send()
		s.awaitStatus(acme, "w", checkpoint.StatusCompleted)
		if again := send(); !bytes.Equal(first.raw, again.raw) {
			t.Errorf("got %s, first %s", again.raw, first.raw)
		}
		for _, id := range []string{`"a"`, `17`} {
			r := s.rpc(acme, id, "signals.send", `{"runId":"w","name":"go","payload":{"b":2,"a":1},"signalId":"evt_1"}`)
			if r.result(t) != string(first.raw) || !strings.Contains(string(r.raw), `"id":`+id) {
				t.Errorf("got %s, first %s", r.raw, first.raw)
			}
		}
		// The engine's own answer is the same signal.
		a, err := proceed.Send(t.Context(), s.engine, "@acme/prod/w", json.RawMessage(`{"a":1,"b":2}`), &signal.Options{ID: "evt_1"})
		if err != nil || a.AcceptedAt.UTC().Format("2006-01-02T15:04:05.999999Z") != first.text("acceptedAt") {
			t.Errorf("got %+v, %v; first %s", a, err, first.raw)
		}
		if n := recordsOf(t, store, "sigres:"); n != 1 {
			t.Errorf("%d signals were accepted, want 1", n)
		}
	})
}

// SIG-50: a signal with the id of another payload conflicts. The answer shows no payload.
func TestASignalOfAnotherPayload(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	s.call(acme, "POST", at("w", "signals", "go"), `{"payload":"secret one","signalId":"s"}`).is(t, 200, "")
	r := s.call(acme, "POST", at("w", "signals", "go"), `{"payload":"secret two","signalId":"s"}`).is(t, 409, "SignalPayloadConflict")
	if d := r.details(); d["workflowId"] != "w" || d["signalName"] != "go" || d["signalId"] != "s" || bytes.Contains(r.raw, []byte("secret")) {
		t.Errorf("got %s", r.raw)
	}
}

// SIG-46, SIG-47, SIG-49, SIG-50, SIG-51: a signal whose acceptance is indeterminate is answered with
// 409, by JSON-RPC with -32021. An operator sees it and clears it; then it can be sent.
func TestAnIndeterminateSignal(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	body := `{"payload":"secret","signalId":"s"}`
	s.call(acme, "POST", at("w", "signals", "go"), body).is(t, 200, "")
	lost := keys.Accepted("@acme/prod/w", "go", "s")
	if err := s.store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete(lost), storage.DeleteRange(keys.InboxFrom("@acme/prod/w", 0))}}); err != nil {
		t.Fatal(err)
	}
	r := s.call(acme, "POST", at("w", "signals", "go"), body).is(t, 409, "SignalAcceptanceIndeterminate")
	d := r.details()
	if d["workflowId"] != "w" || d["signalName"] != "go" || d["signalId"] != "s" || len(d) != 3 {
		t.Errorf("details %v", d)
	}
	if r.text("retry") != "never" || bytes.Contains(r.raw, []byte("secret")) || bytes.Contains(r.raw, []byte("@acme")) {
		t.Errorf("got %s", r.raw)
	}
	if id := r.text("correlationId"); id == "" || id == r.header.Get(correlationHeader) {
		t.Errorf("correlationId %q is not the engine's", id)
	}
	rpc := s.rpc(acme, `"x"`, "signals.send", `{"runId":"w","name":"go","payload":"secret","signalId":"s"}`)
	if raw := string(rpc.raw); !strings.Contains(raw, `"code":-32021`) || !strings.Contains(raw, `"SignalAcceptanceIndeterminate"`) || !strings.Contains(raw, `"id":"x"`) || strings.Contains(raw, "secret") {
		t.Errorf("got %s", raw)
	}
	list := s.call(acme, "GET", at("w", "signals"), nil).is(t, 200, "").data()
	if len(list) != 1 || list[0]["indeterminate"] != true || list[0]["signalId"] != "s" {
		t.Errorf("listed %v", list)
	}
	s.call(acme, "DELETE", at("w", "signals", "go", "s")+"?reason=looked", nil).is(t, 204, "")
	s.call(acme, "DELETE", at("w", "signals", "go", "s"), nil).is(t, 409, "not_applicable")
	s.call(acme, "POST", at("w", "signals", "go"), body).is(t, 200, "")
}

// The name and the id of a signal are UTF-8, also with what has a meaning in a path: each signal that is sent can be named
// in the path that clears it.
func TestOddSignalIDs(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	for _, id := range []string{"a\x00b", "\x00", "50%", "%00", "a/b", "a:b", "ä ö", "...", "?q#f"} {
		s.call(acme, "POST", at("w", "signals", "go"), map[string]any{"signalId": id}).is(t, 200, "")
		s.call(acme, "POST", at("w", "signals", id), map[string]any{"signalId": id}).is(t, 200, "")
		if list := s.call(acme, "GET", at("w", "signals"), nil).is(t, 200, "").data(); len(list) != 2 || list[0]["signalId"] != id {
			t.Errorf("%q is listed as %v", id, list)
		}
		s.call(acme, "DELETE", at("w", "signals", "go", id), nil).is(t, 204, "")
		s.call(acme, "DELETE", at("w", "signals", id, id), nil).is(t, 204, "")
	}
	for parameter, path := range map[string]string{
		"runId": "/v1/runs/a%ffb/signals/go/s", "name": "/v1/runs/w/signals/%c3%28/s", "signalId": "/v1/runs/w/signals/go/%ed%a0%80",
	} {
		r := s.call(acme, "DELETE", path, nil).is(t, 400, "invalid_request")
		if want := `{"path":"/` + parameter + `","problem":"is not valid UTF-8"}`; !strings.Contains(string(r.raw), want) {
			t.Errorf("%s: got %s, want %s", path, r.raw, want)
		}
	}
	s.call("", "DELETE", "/v1/runs/a%ffb/signals/go/s", nil).is(t, 401, "unauthorized")
}

// A signal to a run that has ended, or that is not there.
func TestASignalToNobody(t *testing.T) {
	s := open(t, nil)
	s.start(acme, "echo", "e", nil)
	s.awaitStatus(acme, "e", checkpoint.StatusCompleted)
	if d := s.call(acme, "POST", at("e", "signals", "go"), `{}`).is(t, 409, "run_terminal").details(); d["status"] != "completed" {
		t.Errorf("details %v", d)
	}
	s.call(acme, "POST", at("x", "signals", "go"), `{}`).is(t, 404, "not_found")
	s.call(other, "POST", at("e", "signals", "go"), `{}`).is(t, 404, "not_found")
}

// A purging store has a run purged once it was read.
type purging struct {
	storage.Storage
	key   string
	purge func()
}

func (p *purging) Unwrap() storage.Storage { return p.Storage }

func (p *purging) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := p.Storage.Get(ctx, key)
	if purge := p.purge; purge != nil && string(key) == p.key && err == nil {
		p.purge = nil
		purge()
	}
	return value, err
}

// A run that was there and is purged meanwhile is started as any other: on the active deployment, which must
// be there.
func TestASignalThatStartsAnew(t *testing.T) {
	store := &purging{Storage: new(memory.Store), key: string(keys.Workflow("w"))}
	s := idle(t, store, func(c *Config, _ *engine.Config) { c.RequireDeployment = true })
	if _, err := s.engine.StartWorkflow(t.Context(), &engine.StartRequest{Workflow: "wait", ID: "w"}); err != nil {
		t.Fatal(err)
	}
	if err := s.engine.Terminate(t.Context(), "w", engine.Actor{Name: "ann", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	store.purge = func() {
		if err := s.engine.Purge(t.Context(), "w", engine.Actor{Name: "ann", Reason: "test"}); err != nil {
			t.Error(err)
		}
	}
	s.call(home, "POST", at("w", "signals", "go"), `{"start":{"workflowName":"wait"}}`).is(t, 409, "no_active_deployment")
}

// A signal with a start starts the run if it is not there, in one commit. It needs both scopes.
func TestASignalThatStarts(t *testing.T) {
	const sender = "a-key-that-sends-signals-0"
	s := open(t, nil, func(c *Config, _ *engine.Config) {
		c.Keys = append(c.Keys[:len(c.Keys):len(c.Keys)], Key{ID: "sender", Secret: sender, Scopes: []string{"signals:write"}})
	})
	body := `{"payload":[1],"signalId":"s","start":{"workflowName":"wait","input":{"n":1}}}`
	if r := s.call(sender, "POST", at("w", "signals", "go"), body).is(t, 403, "missing_scope"); fmt.Sprint(r.body["required"]) != "[trigger:write]" {
		t.Errorf("got %s", r.raw)
	}
	first := s.call(home, "POST", at("w", "signals", "go"), body).is(t, 200, "")
	if r := s.call(home, "GET", at("w", "result")+"?wait=20", nil).is(t, 200, ""); fmt.Sprint(r.body["result"]) != "[1]" {
		t.Errorf("got %s", r.raw)
	}
	if again := s.call(home, "POST", at("w", "signals", "go"), body).is(t, 200, ""); !bytes.Equal(first.raw, again.raw) {
		t.Errorf("got %s, first %s", again.raw, first.raw)
	}
	s.call(home, "POST", at("w", "signals", "go"), `{"start":{"workflowName":"echo"}}`).is(t, 409, "run_exists")
	s.call(home, "POST", at("v", "signals", "go"), `{"start":{}}`).is(t, 400, "invalid_request")
	s.call(home, "POST", at("v", "signals", "go"), `{"start":null}`).is(t, 400, "invalid_request")
	s.call(sender, "POST", at("v", "signals", "go"), `{}`).is(t, 404, "not_found")
}

// Signals that wait are listed in pages, in both orders: those of the inbox, then those whose acceptance is indeterminate.
func TestListSignals(t *testing.T) {
	s := idle(t, nil)
	s.start(acme, "wait", "w", nil)
	send := func(id string) {
		s.call(acme, "POST", at("w", "signals", "go"), map[string]any{"signalId": id}).is(t, 200, "")
	}
	lose := storage.Batch{Ops: []storage.Op{storage.DeleteRange(keys.InboxFrom("@acme/prod/w", 0))}}
	for _, id := range []string{"z", "x", "a:b", "y"} {
		send(id)
		lose.Ops = append(lose.Ops, storage.Delete(keys.Accepted("@acme/prod/w", "go", id)))
	}
	if err := s.store.Commit(t.Context(), lose); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"s5", "s4", "s3", "s2", "s1"} {
		send(id)
	}
	want := []string{"s5", "s4", "s3", "s2", "s1", "a:b", "x", "y", "z"}
	for _, order := range []string{"asc", "desc"} {
		for limit := range 10 {
			var got []string
			for cursor, more := "", true; more; {
				r := s.call(acme, "GET", at("w", "signals")+fmt.Sprintf("?limit=%d&sortOrder=%s&cursor=%s", limit+1, order, url.QueryEscape(cursor)), nil).is(t, 200, "")
				for _, d := range r.data() {
					got = append(got, fmt.Sprint(d["signalId"]))
				}
				cursor, more = r.text("tail"), r.body["hasMore"] == true
			}
			if order == "desc" {
				slices.Reverse(got)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %d a page: got %v, want %v", order, limit+1, got, want)
			}
		}
	}
	s.start(acme, "wait", "v", nil)
	cursor := s.call(acme, "GET", at("w", "signals")+"?limit=1", nil).text("cursor")
	s.call(acme, "GET", at("v", "signals")+"?cursor="+cursor, nil).is(t, 400, "invalid_request")
}

// An inboxCounter counts the entries of inboxes that are read.
type inboxCounter struct {
	storage.Storage
	read atomic.Int64
}

func (s *inboxCounter) Unwrap() storage.Storage { return s.Storage }

func (s *inboxCounter) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.Storage.Scan(ctx, r)
	if bytes.HasPrefix(r.Start, []byte("inbox:")) {
		s.read.Add(int64(len(page)))
	}
	return page, err
}

// A page of the signals of an inbox costs as much as it has, in both orders, however many wait.
func TestAPageOfManySignals(t *testing.T) {
	store := &inboxCounter{Storage: new(memory.Store)}
	s := idle(t, store)
	s.start(acme, "wait", "w", nil)
	for range 100 {
		s.call(acme, "POST", at("w", "signals", "go"), `{}`).is(t, 200, "")
	}
	for _, order := range []string{"asc", "desc"} {
		cursor := ""
		for range 3 {
			before := store.read.Load()
			r := s.call(acme, "GET", at("w", "signals")+"?limit=2&sortOrder="+order+"&cursor="+url.QueryEscape(cursor), nil).is(t, 200, "")
			if n := store.read.Load() - before; len(r.data()) != 2 || n != 3 {
				t.Errorf("%s: a page of %d signals has read %d, want 2 and one more", order, len(r.data()), n)
			}
			cursor = r.text("tail")
		}
	}
}
