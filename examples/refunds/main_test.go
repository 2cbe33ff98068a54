package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/torture"
)

// TestMain makes the test program its own child.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := child(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// FEN-12, FEN-16, FEN-28, FEN-46 to FEN-49: a refund, its repetition, a conflict, a crash between effect and
// seal, a row in the transaction of its seal, a workflow, and a request without a key.
func TestRefunds(t *testing.T) {
	torture.Slow(t)
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			for again := 0; ; again++ {
				stood := torture.Standstill(t)
				err := run(t.Context(), store)
				if err == nil {
					break
				}
				// The service waits for half a second for the provider, which is this process, and then as long again.
				if paused := stood(); paused < time.Second/2 || again == 3 {
					t.Fatal(err)
				} else {
					t.Logf("again, because the machine stood still for %v: %v", paused, err)
				}
			}
		})
	}
}

// opened returns a service without a process of its own.
func opened(t *testing.T) (*idempotency.Ledger, *engine.Engine, *provider, func(path, key, body string) *httptest.ResponseRecorder) {
	t.Helper()
	acme := newProvider()
	server := httptest.NewServer(acme)
	t.Cleanup(server.Close)
	store, db, err := open(t.Context(), plan{"sqlite", filepath.Join(t.TempDir(), "refunds.db"), server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.close(); store.Close() })
	quiet := slog.New(slog.DiscardHandler)
	l, err := idempotency.New(idempotency.Config{Storage: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{goods}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	handler, err := newService(l, eng, db, client{server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return l, eng, acme, func(path, key, body string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		handler.ServeHTTP(w, r)
		return w
	}
}

// What the provider declines is declined each time, and the provider is asked once.
func TestDeclined(t *testing.T) {
	_, _, acme, post := opened(t)
	for n := range 2 {
		w := post("/refunds", "key-1", `{"payment":"pay-1","cents":0}`)
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), errDeclined.Error()) || (w.Header().Get("Idempotent-Replayed") != "") != (n == 1) {
			t.Errorf("answer %d: %d %s %v", n+1, w.Code, w.Body, w.Header())
		}
	}
	if acme.refunds() != 0 {
		t.Errorf("%d refunds", acme.refunds())
	}
}

// FEN-45: the attempt after one of unknown outcome starts the same run again, not a second one.
func TestReturnStartsOnce(t *testing.T) {
	l, eng, _, _ := opened(t)
	e := takeBack(eng)
	begin, calls := e.Run, 0
	e.Run = func(ctx context.Context, r Return) (string, error) {
		id, err := begin(ctx, r)
		if calls++; calls == 1 {
			return "", errors.Join(err, errors.New("the answer is lost"))
		}
		return id, err
	}
	k := idempotency.Key{Tenant: "shop", SourceType: "return", SourceID: "1"}
	if _, err := e.Do(t.Context(), l, k, Return{"order-9"}); !errors.Is(err, idempotency.ErrIndeterminate) {
		t.Fatalf("the first attempt: %v", err)
	}
	second, err := e.Do(t.Context(), l, k, Return{"order-9"})
	if err != nil || calls != 2 {
		t.Fatalf("after %d calls: %v", calls, err)
	}
	var ids []string
	for info, err := range eng.List(t.Context(), engine.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	if len(ids) != 1 || ids[0] != second.EffectID || ids[0] != second.Result {
		t.Errorf("runs %v, the receipt is %+v", ids, second)
	}
}
