package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// opened returns an engine and a ledger on a store in memory, and a function that delivers a
// body to them.
func opened(t *testing.T) (eng *engine.Engine, l *idempotency.Ledger, s *memory.Store, deliver func(body string) *httptest.ResponseRecorder) {
	s = new(memory.Store)
	eng, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{payment}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	l, deliver = openedWith(t, s, eng)
	return eng, l, s, deliver
}

// openedWith is opened with a Sender in place of the engine.
func openedWith(t *testing.T, s *memory.Store, to signal.Sender) (*idempotency.Ledger, func(body string) *httptest.ResponseRecorder) {
	l, err := idempotency.New(idempotency.Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	hook, err := newHook(l, to, secret)
	if err != nil {
		t.Fatal(err)
	}
	return l, func(body string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		if r.Header, err = signed(secret, "msg_1", []byte(body)); err != nil {
			t.Fatal(err)
		}
		hook.ServeHTTP(w, r)
		return w
	}
}

// SIG-10: an event whose ID is no string is refused like one whose ID is empty, and one that names no payment. Nothing
// is written.
func TestIDThatIsNoString(t *testing.T) {
	_, _, s, deliver := opened(t)
	count := func() (n int) {
		for _, err := range storage.All(t.Context(), s, storage.Range{}) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	before := count()
	bodies := []string{`{"ID":"evt_1","Cents":100}`}
	for _, id := range []string{`""`, "5", "true", `["evt_1"]`, `{"id":"evt_1"}`} {
		bodies = append(bodies, `{"ID":`+id+`,"Payment":"pay-1","Cents":100}`)
	}
	for _, body := range bodies {
		if w := deliver(body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s, want %d", body, w.Code, w.Body, http.StatusBadRequest)
		}
		if after := count(); after != before {
			t.Errorf("%s: %d records were written", body, after-before)
		}
	}
}

// SIG-35, SIG-37, SIG-52: an event that is delivered again, over HTTP and not, has the same
// canonical result. Over HTTP, it is what the answers of success name each time.
func TestDeliveredAgain(t *testing.T) {
	eng, l, _, deliver := opened(t)
	var first signal.Accepted
	for n := range 3 {
		w := deliver(`{"ID":"evt_1","Payment":"pay-1","Cents":100}`)
		var answer struct {
			EffectID string `json:"effect_id"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
			t.Fatalf("delivery %d: %d %s", n+1, w.Code, w.Body)
		}
		sealed, err := accept(eng).Lookup(t.Context(), l, idempotency.Key{SourceType: "acme", SourceID: "evt_1"})
		if err != nil {
			t.Fatal(err)
		}
		a := sealed.Result
		if n == 0 {
			first = a
		}
		if a != first || !a.Accepted || a.WorkflowID != workflowID("pay-1") || a.SignalID != "evt_1" || a.AcceptedAt.IsZero() {
			t.Errorf("delivery %d: %+v, first %+v", n+1, a, first)
		}
		if answer.EffectID != first.SignalStorageKey {
			t.Errorf("delivery %d: %s does not name %s", n+1, w.Body, first.SignalStorageKey)
		}
		time.Sleep(time.Millisecond)
	}
	id := "evt_1"
	event := Event{ID: "evt_1", Payment: "pay-1", Cents: 100}
	typed, err := happened.Send(t.Context(), eng, workflowID("pay-1"), event, &signal.Options{ID: id})
	if typed.Repeated = false; err != nil || typed != first {
		t.Errorf("with types: %+v, %v, first %+v", typed, err, first)
	}
	untyped, err := eng.SendSignal(t.Context(), signal.Message{WorkflowID: workflowID("pay-1"), Name: "happened", ID: &id, Payload: json.RawMessage(`{"ID":"evt_1", "Payment":"pay-1", "Cents":100, "Of":0}`)})
	if untyped.Repeated = false; err != nil || untyped != first {
		t.Errorf("without: %+v, %v, first %+v", untyped, err, first)
	}
}

func TestEachEventCountsOnce(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "shop.db")); err != nil {
		t.Fatal(err)
	}
}

// An event that was not signed is refused.
func TestSignature(t *testing.T) {
	eng, l, _, _ := opened(t)
	hook, err := newHook(l, eng, secret)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"ID":"evt_1","Payment":"pay-1","Cents":100}`)))
	if _, err := payment.Handle(eng, workflowID("pay-1")).Describe(t.Context()); w.Code != http.StatusUnauthorized || !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("%d, and the workflow: %v; want 401 and none", w.Code, err)
	}
}

// A sender answers each signal with an error.
type sender struct{ err error }

func (s sender) SendSignal(context.Context, signal.Message) (signal.Accepted, error) {
	return signal.Accepted{}, s.err
}

// SIG-46, SIG-51: a provider retries only where that can help.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{engine.ErrInvalid, http.StatusBadRequest},
		{&signal.ConflictError{}, http.StatusConflict},
		{&signal.IndeterminateError{}, http.StatusConflict},
		{&engine.TerminalError{}, http.StatusConflict},
		{engine.ErrExists, http.StatusConflict},
		{engine.ErrClosed, http.StatusServiceUnavailable},
		{errors.New("disk full"), http.StatusServiceUnavailable},
	} {
		_, deliver := openedWith(t, new(memory.Store), sender{fmt.Errorf("wrapped: %w", c.err)})
		if w := deliver(`{"ID":"evt_1","Payment":"pay-1","Cents":100}`); w.Code != c.want {
			t.Errorf("%v: %d %s, want %d", c.err, w.Code, w.Body, c.want)
		}
	}
}
