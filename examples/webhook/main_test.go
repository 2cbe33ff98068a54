package main

import (
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
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// opened returns a webhook on a store in memory, and a function that delivers a body to it.
func opened(t *testing.T) (eng *engine.Engine, s *memory.Store, deliver func(body string) *httptest.ResponseRecorder) {
	s = new(memory.Store)
	eng, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{payment}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return eng, s, func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		(&webhook{eng}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		return w
	}
}

// SIG-10: an event whose ID is no string is refused like one whose ID is empty, and nothing
// is written.
func TestIDThatIsNoString(t *testing.T) {
	_, s, deliver := opened(t)
	count := func() (n int) {
		for _, err := range storage.All(t.Context(), s, storage.Range{}) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	before := count()
	for _, id := range []string{`""`, "5", "true", `["evt_1"]`, `{"id":"evt_1"}`} {
		if w := deliver(`{"ID":` + id + `,"Payment":"pay-1","Cents":100}`); w.Code != http.StatusBadRequest {
			t.Errorf("ID %s: %d %s, want %d", id, w.Code, w.Body, http.StatusBadRequest)
		}
		if after := count(); after != before {
			t.Errorf("ID %s: %d records were written", id, after-before)
		}
	}
}

// SIG-35, SIG-37, SIG-52: an event that is delivered again, over HTTP and not, has the same
// canonical result. Over HTTP, that is the body of an answer of success each time.
func TestDeliveredAgain(t *testing.T) {
	eng, _, deliver := opened(t)
	var first signal.Accepted
	for n := range 3 {
		w := deliver(`{"ID":"evt_1","Payment":"pay-1","Cents":100}`)
		var a signal.Accepted
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
			t.Fatalf("delivery %d: %d %s", n+1, w.Code, w.Body)
		}
		if n == 0 {
			first = a
		}
		if a != first || !a.Accepted || a.WorkflowID != "pay-1" || a.SignalID != "evt_1" || a.AcceptedAt.IsZero() {
			t.Errorf("delivery %d: %+v, first %+v", n+1, a, first)
		}
		time.Sleep(time.Millisecond)
	}
	id := "evt_1"
	event := Event{ID: "evt_1", Payment: "pay-1", Cents: 100}
	typed, err := happened.Send(t.Context(), eng, "pay-1", event, &signal.Options{ID: id})
	if err != nil || typed != first {
		t.Errorf("with types: %+v, %v, first %+v", typed, err, first)
	}
	untyped, err := eng.SendSignal(t.Context(), signal.Message{WorkflowID: "pay-1", Name: "happened", ID: &id, Payload: json.RawMessage(`{"ID":"evt_1", "Payment":"pay-1", "Cents":100, "Of":0}`)})
	if err != nil || untyped != first {
		t.Errorf("without: %+v, %v, first %+v", untyped, err, first)
	}
}

func TestEachEventCountsOnce(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "shop.db")); err != nil {
		t.Fatal(err)
	}
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
		if got := status(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
