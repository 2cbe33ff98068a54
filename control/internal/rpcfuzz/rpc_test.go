// Package rpcfuzz_test has a fuzz test of the whole plane. It is not among the tests of package control, because for a fuzz test
// the go command compiles anew all that the tests of its package import, and those import every store.
package rpcfuzz_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// An answer is one answer of JSON-RPC.
type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// Whatever comes to the endpoint of JSON-RPC, what goes out is JSON-RPC.
func FuzzRPC(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"health.get"}`, `[{"jsonrpc":"2.0","id":"x","method":"keys.list","params":{"limit":1}}]`, `{"jsonrpc":"2.0","method":"x"}`} {
		f.Add([]byte(s))
	}
	const secret = "admin-secret-admin-secret"
	logger := slog.New(slog.DiscardHandler)
	eng, err := engine.New(engine.Config{Storage: new(memory.Store), Logger: logger})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { eng.Close() })
	plane, err := control.New(control.Config{
		Engine: eng, Logger: logger, RateLimit: 1_000_000,
		Keys: []control.Key{{ID: "root", Secret: secret, Scopes: []string{"admin"}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { plane.Close() })
	f.Fuzz(func(t *testing.T, body []byte) {
		q := httptest.NewRequest("POST", "/v1/rpc", bytes.NewReader(body))
		q.Header.Set("Authorization", "Bearer "+secret)
		q.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		plane.ServeHTTP(w, q)
		got := w.Body.Bytes()
		if w.Code == http.StatusNoContent && len(got) == 0 {
			return
		}
		if w.Code != 200 {
			t.Fatalf("%q: got %d %s", body, w.Code, got)
		}
		var all []answer
		if !bytes.HasPrefix(got, []byte("[")) {
			got = append(append([]byte("["), got...), ']')
		}
		if err := json.Unmarshal(got, &all); err != nil || len(all) == 0 || len(all) > 100 {
			t.Fatalf("%q: got %s, %v", body, got, err)
		}
		for _, a := range all {
			if a.Version != "2.0" || a.ID == nil || (a.Error == nil) == (a.Result == nil) {
				t.Fatalf("%q: got %s", body, got)
			}
			if !bytes.Contains(body, a.ID) && string(a.ID) != "null" {
				t.Fatalf("%q: got the id %s", body, a.ID)
			}
		}
	})
}
