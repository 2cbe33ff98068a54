package control_test

import (
	"net/http"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// HTTP-1 to HTTP-3, HTTP-7: where a token may be, and what follows if there is none, or an unknown one.
func TestTokens(t *testing.T) {
	x := serve(t, new(memory.Store))
	for _, c := range []struct {
		what, path string
		header     []string
		message    string // "": accepted
	}{
		{"a known one", "/v1/keys", []string{"Authorization", "Bearer " + adminSecret}, ""},
		{"in small letters", "/v1/keys", []string{"Authorization", "bearer " + adminSecret}, ""},
		{"none", "/v1/keys", nil, "Missing API key"},
		{"an empty one", "/v1/keys", []string{"Authorization", "Bearer "}, "Missing API key"},
		{"of another scheme", "/v1/keys", []string{"Authorization", "Basic " + adminSecret}, "Missing API key"},
		{"in the query", "/v1/keys?access_token=" + adminSecret, nil, "Missing API key"},
		{"in a cookie", "/v1/keys", []string{"Cookie", "token=" + adminSecret}, "Missing API key"},
		{"without a scheme", "/v1/keys", []string{"Authorization", adminSecret}, "Missing API key"},
		{"an unknown one", "/v1/keys", []string{"Authorization", "Bearer weft_sk_unknown"}, "Invalid API key"},
		{"one with more behind it", "/v1/keys", []string{"Authorization", "Bearer " + adminSecret + "x"}, "Invalid API key"},
		{"two headers", "/v1/keys", []string{"Authorization", "Bearer " + adminSecret, "Authorization", "Bearer " + adminSecret}, "Invalid API key"},
		{"the hash of a known one", "/v1/keys", []string{"Authorization", "Bearer 8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918"}, "Invalid API key"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := x.do("GET", c.path, "", nil, c.header...)
			if c.message == "" {
				r.is(http.StatusOK)
				return
			}
			r.fails(http.StatusUnauthorized, "unauthorized").says(c.message)
			if got := r.header.Get("WWW-Authenticate"); got != `Bearer realm="weft"` {
				t.Errorf("got WWW-Authenticate %q", got)
			}
		})
	}
}

// HTTP-5: no secret is stored or logged.
func TestSecretsAreNotStored(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		x := serve(t, s)
		made := x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "new", "scopes": []string{"runs:read"}}).is(http.StatusCreated).object()["secret"].(string)
		rotated := x.do("POST", "/v1/keys/new/rotate", adminSecret, nil).is(http.StatusOK).object()["secret"].(string)
		x.audit(adminSecret, "action=keys.rotate", 1)
		for _, secret := range []string{adminSecret, readerSecret, otherSecret, made, rotated} {
			if has(t, s, secret) || has(t, s, secret[8:]) {
				t.Errorf("the store has the secret %q", secret)
			}
		}
	})
}
