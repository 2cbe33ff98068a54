package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// hooked is a workflow that opens a hook with the token of its input, and returns what the hook gets.
// With "disposed" it disposes of the hook first, and with "failed" it fails.
var hooked = &engine.Workflow[[]string, json.RawMessage]{Name: "hooked", Func: func(run *engine.Run, in []string) (json.RawMessage, error) {
	hook := &signal.Hook[json.RawMessage]{Name: "paid"}
	h, err := hook.Open(run, &signal.HookOptions{Token: in[0]})
	if err != nil {
		return nil, err
	}
	if in[1] == "disposed" {
		if err := h.Dispose(run); err != nil {
			return nil, err
		}
		return proceed.Receive(run)
	}
	if in[1] == "failed" {
		return nil, errRefused
	}
	return h.Receive(run)
}}

func withHooks(_ *Config, c *engine.Config) { c.Workflows = append(c.Workflows, hooked) }

// openHook starts a run in the namespace of a key, and waits until its hook is open, or disposed of.
func (s *site) openHook(key, runID, token, then string) {
	s.t.Helper()
	s.start(key, "hooked", runID, []string{token, then})
	want := string(checkpoint.KindOpened)
	if then == "disposed" {
		want = string(checkpoint.KindDisposed)
	}
	s.await("the hook of "+runID, func() bool {
		return strings.Contains(string(s.call(key, "GET", at(runID, "events"), nil).is(s.t, 200, "").raw), `"`+want+`"`)
	})
}

func (s *site) resumeHook(key, token, payload, id string) reply {
	s.t.Helper()
	body := map[string]any{"token": token, "payload": payload}
	if id != "" {
		body["resumeId"] = id
	}
	return s.call(key, "POST", "/v1/hooks/resume", body)
}

// A hook is resumed by its token, with or without its namespace, by REST and by JSON-RPC. The same
// resumeId gets the first answer, also after the end.
func TestResumeHook(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store, withHooks)
		for key, full := range map[string]string{home: "invoice/7", acme: "@acme/prod/invoice/7"} {
			s.openHook(key, "o", "invoice/7", "")
			first := s.resumeHook(key, "invoice/7", "r1", "evt_1").is(t, 200, "")
			if name := first.text("signalName"); first.body["accepted"] != true || first.text("workflowId") != "o" || !strings.HasPrefix(name, "hook/hook_") || first.text("signalId") != "evt_1" || bytes.Contains(first.raw, []byte("invoice")) {
				t.Errorf("answered %s", first.raw)
			}
			s.awaitStatus(key, "o", checkpoint.StatusCompleted)
			if got := s.call(key, "GET", at("o", "result"), nil).is(t, 200, ""); got.text("result") != "r1" {
				t.Errorf("the result is %s", got.raw)
			}
			if again := s.resumeHook(key, full, "r1", "evt_1").is(t, 200, ""); !bytes.Equal(again.raw, first.raw) {
				t.Errorf("again: %s, first %s", again.raw, first.raw)
			}
			rpc := s.rpc(key, "1", "hooks.resume", fmt.Sprintf(`{"token":%q,"payload":"r1","resumeId":"evt_1"}`, full))
			if rpc.result(t) != string(first.raw) {
				t.Errorf("by JSON-RPC: %s, first %s", rpc.raw, first.raw)
			}
			refused := s.resumeHook(key, full, "r2", "evt_1").is(t, 409, "SignalPayloadConflict")
			if d := refused.details(); d["workflowId"] != "o" || d["signalId"] != "evt_1" || bytes.Contains(refused.raw, []byte("invoice")) {
				t.Errorf("another payload: %s", refused.raw)
			}
			s.resumeHook(key, full, "r2", "evt_2").is(t, 404, "not_found")
			s.resumeHook(key, full, "r2", "").is(t, 404, "not_found")
		}
	})
}

// Nobody learns more of a token than that he cannot use it: one that no hook has, one whose hook is
// closed and one of another namespace are answered alike. No log and no audit row has a token.
func TestTokensAreSecrets(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	s := open(t, nil, withHooks, func(c *Config, e *engine.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
		e.Logger = c.Logger
	})
	s.openHook(acme, "live", "secret-live", "")
	s.openHook(acme, "gone", "secret-gone", "disposed")
	s.openHook(home, "host", "secret-host", "")
	var answers []string
	for _, c := range []struct{ key, token string }{
		{acme, "secret-none"}, {acme, "secret-gone"}, {acme, "@acme/prod/secret-gone"}, {acme, "secret-host"}, {acme, "@secret-host"},
		{acmeTest, "secret-live"}, {acmeTest, "@acme/prod/secret-live"}, {other, "@acme/prod/secret-live"}, {home, "@acme/prod/secret-live"}, {home, "secret-live"},
		{acme, "@acme/test/secret-live"}, {acme, "@acme/prod/"},
	} {
		r := s.resumeHook(c.key, c.token, "v", "x").is(t, 404, "not_found")
		delete(r.body, "correlationId")
		delete(r.body, "instance")
		text, err := json.Marshal(r.body)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(text))
		if answers[0] != string(text) || strings.Contains(string(r.raw), "secret") {
			t.Errorf("%s: answered %s, and others %s", c.token, text, answers[0])
		}
	}
	for _, bad := range []string{`{}`, `{"token":""}`, `{"token":7}`, `{"token":"` + strings.Repeat("secret", 100) + `"}`, `{"token":"t","resumeId":""}`, `{"token":"t","resumeId":null}`} {
		if r := s.call(acme, "POST", "/v1/hooks/resume", bad).is(t, 400, "invalid_request"); bytes.Contains(r.raw, []byte("secret")) {
			t.Errorf("answered %s", r.raw)
		}
	}
	s.call(acme, "POST", at("live", "signals", "hook/hook_x"), `{"payload":1}`).is(t, 400, "invalid_request")
	s.resumeHook(acme, "secret-live", "v", "").is(t, 200, "")
	s.awaitStatus(acme, "live", checkpoint.StatusCompleted)
	rows := s.call(acme, "GET", "/v1/audit?action=hooks.resume", nil).is(t, 200, "")
	if len(rows.data()) == 0 || bytes.Contains(rows.raw, []byte("secret")) {
		t.Errorf("audit: %s", rows.raw)
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), "secret") {
		t.Errorf("log: %s", &log)
	}
}

// A run whose hook's token another run has by now is not resumed or reset, and is not said to be so because of the store. The answer
// names the other run.
func TestResumeWithATakenToken(t *testing.T) {
	s := open(t, nil, withHooks)
	for _, key := range []string{home, acme} {
		s.start(key, "hooked", "o", []string{"invoice/7", "failed"})
		s.awaitStatus(key, "o", checkpoint.StatusFailed)
		s.openHook(key, "d", "invoice/7", "disposed")
		s.openHook(key, "holder", "invoice/7", "")
		for _, r := range []reply{
			s.call(key, "POST", "/v1/runs/resume", `{"runId":"o"}`),
			s.call(key, "POST", "/v1/runs/resume", `{"runId":"o"}`, "Idempotency-Key", "k"),
			s.call(key, "POST", at("d", "reset"), `{"before":"2"}`),
		} {
			r.is(t, 409, "not_applicable")
			if text := r.text("message"); r.details()["holder"] != "holder" || !strings.Contains(text, "token is taken") || !strings.Contains(text, `"holder"`) || bytes.Contains(r.raw, []byte("@")) || bytes.Contains(r.raw, []byte("invoice")) {
				t.Errorf("answered %s", r.raw)
			}
		}
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
