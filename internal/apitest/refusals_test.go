package apitest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// sample is a request for an operation that is about nothing that exists.
func sample(o *operation) request {
	path := strings.NewReplacer("{runId}", "none", "{name}", "approved", "{op}", "1", "{signalId}", "evt_1", "{id}", "none", "{bulkId}", "none",
		"{provider}", "acme", "{area}", "events", "{action}", "get").Replace(o.path)
	r := request{method: o.method, path: path, secret: admin}
	if o.body != nil {
		r.body = "{}"
	}
	if o.key == "required" {
		r.key = "k"
	}
	return r
}

// documented are the operations that document a status.
func documented(t testing.TB, status int) (ops []*operation) {
	t.Helper()
	for _, o := range loadDocument(t).operations {
		if _, ok := o.responses[status]; ok {
			ops = append(ops, o)
		}
	}
	if len(ops) == 0 {
		t.Fatalf("no operation documents %d", status)
	}
	return ops
}

// HTTP-1, HTTP-2, HTTP-3, HTTP-11: every operation that needs a key refuses a request without one, with an
// unknown one, and with one that lacks the scope or is not of the home namespace.
func TestEveryOperationAsksForItsKey(t *testing.T) {
	s := serve(t, new(memory.Store), func(c *control.Config) {
		for _, scope := range scopes {
			c.Keys = append(c.Keys, control.Key{ID: strings.ReplaceAll(scope, ":", "-"), Secret: secretFor(scope), Scopes: []string{scope}})
		}
	})
	for _, o := range loadDocument(t).operations {
		if o.public || o.id == "rpc" {
			continue
		}
		r := sample(o)
		r.secret = ""
		s.refusal(s.send(r), http.StatusUnauthorized, "unauthorized")
		r.path += "?token=" + admin + "&access_token=" + admin // HTTP-1
		s.refusal(s.send(r), http.StatusUnauthorized, "unauthorized")
		r = sample(o)
		for _, scope := range scopes {
			r.secret = secretFor(scope)
			a := s.send(r)
			if may := slices.Contains(o.scopes, scope); may == (a.status == http.StatusForbidden) {
				t.Errorf("%s with %s was answered %d %s", o.id, scope, a.status, a.body)
			}
		}
		r.secret = stranger
		if a := s.send(r); o.home != (a.status == http.StatusForbidden) {
			t.Errorf("%s with a key of another namespace was answered %d %s", o.id, a.status, a.body)
		}
	}
	s.must(request{method: "POST", path: "/v1/rpc", body: "{}"}, http.StatusUnauthorized)
	for _, o := range loadDocument(t).operations {
		if o.public || o.id == "rpc" {
			continue
		}
		r := sample(o)
		r.secret = "an-unknown-secret-of-at-least-24-bytes"
		if a := s.send(r); a.status != http.StatusUnauthorized && a.status != http.StatusTooManyRequests { // ten in a second
			t.Errorf("%s with an unknown key was answered %d %s", o.id, a.status, a.body)
		}
	}
}

// scopes are all but admin.
var scopes = []string{"audit:read", "deploy:read", "deploy:write", "ops:read", "runs:operate", "runs:read", "runs:write", "signals:write", "trigger:write", "world:proxy"}

func secretFor(scope string) string { return "secret-of-at-least-24-bytes-" + scope }

// HTTP-91: a request that came by http is refused, whatever it asks for.
func TestEveryOperationAsksForHTTPS(t *testing.T) {
	s := serve(t, new(memory.Store), func(c *control.Config) { c.HTTPS = control.HTTPSIfForwarded })
	for _, o := range documented(t, http.StatusBadRequest) {
		r := sample(o)
		r.header = map[string]string{"X-Forwarded-Proto": "http, https"}
		a := s.send(r)
		s.refusal(a, http.StatusBadRequest, "https_required")
		if a.text("message") != "HTTPS is required" {
			t.Errorf("%s: the message is %s", o.id, a.body)
		}
	}
}

// HTTP-42: unknown parameters of the query are refused.
func TestNoOperationTakesUnknownParameters(t *testing.T) {
	s := serve(t, new(memory.Store))
	for _, o := range documented(t, http.StatusBadRequest) {
		if o.id == "webhooks.receive" {
			continue // its query is the provider's
		}
		r := sample(o)
		r.path += "?unknown=1"
		s.refusal(s.send(r), http.StatusBadRequest, "invalid_request")
		if o.body == nil || o.id == "world.call" {
			continue
		}
		r = sample(o)
		r.body = `{"unknown":1}`
		s.refusal(s.send(r), http.StatusBadRequest, "invalid_request")
	}
}

// Of every operation with a body: another media type is 415, a larger one 413.
func TestEveryBodyIsChecked(t *testing.T) {
	s := serve(t, new(memory.Store), withWorld(t), func(c *control.Config) { c.MaxBody = 2 << 10 })
	for _, o := range documented(t, http.StatusUnsupportedMediaType) {
		r := sample(o)
		r.header = map[string]string{"Content-Type": "text/plain"}
		s.must(r, http.StatusUnsupportedMediaType)
		r.header = map[string]string{"Content-Encoding": "gzip"}
		s.must(r, http.StatusUnsupportedMediaType)
	}
	for _, o := range documented(t, http.StatusRequestEntityTooLarge) {
		if o.id == "webhooks.receive" {
			continue // TestWebhooks
		}
		r := sample(o)
		r.body = `{"a":"` + strings.Repeat("a", 3<<10) + `"}`
		s.must(r, http.StatusRequestEntityTooLarge)
	}
}

// A body that does not come within 30 s is 408, and the connection ends: who sends slowly holds nothing.
func TestEveryBodyComesInTime(t *testing.T) {
	t.Parallel()
	s := serve(t, new(memory.Store), withWorld(t))
	var all sync.WaitGroup
	for _, o := range documented(t, http.StatusRequestTimeout) {
		all.Go(func() {
			if got := s.slow(o, ""); !strings.Contains(got, " 408 ") {
				t.Errorf("%s was answered %q", o.id, got)
			}
		})
	}
	all.Wait()
}

// slow sends all of a request but its last byte, with further header lines, and returns the first line of the
// answer. The server must end the connection within 5 s of it.
func (s *server) slow(o *operation, header string) string {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err.Error()
	}
	r := sample(o)
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: weft\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\n%sContent-Length: 3\r\n\r\n{}", r.method, r.path, admin, header)
	answer := bufio.NewReader(conn)
	line, err := answer.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err.Error()
	}
	if _, err := io.Copy(io.Discard, answer); errors.Is(err, os.ErrDeadlineExceeded) {
		return "the connection stays open after " + line
	}
	return line
}

// A request that is refused before its body has come ends the connection, too.
func TestNoRefusalWaitsForTheBody(t *testing.T) {
	t.Parallel()
	s := serve(t, new(memory.Store))
	for id, want := range map[string]string{"runs.create": " 415 ", "deployments.create": " 415 ", "world.call": " 501 ", "runs.get": " 404 "} {
		if got := s.slow(loadDocument(t).byID(id), "Content-Encoding: gzip\r\n"); !strings.Contains(got, want) {
			t.Errorf("%s was answered %q, want%s", id, got, want)
		}
	}
}

// HTTP-87: the key's rate bounds every operation that needs a key.
func TestEveryOperationIsCounted(t *testing.T) {
	s := serve(t, new(memory.Store), func(c *control.Config) { c.RateLimit = 1 })
	for _, o := range documented(t, http.StatusTooManyRequests) {
		r := sample(o)
		eventually(t, o.id+" is refused", func() bool { return s.send(r).status == http.StatusTooManyRequests }) // a window may end
	}
}

// A record that is damaged is 500, of every operation that reads the key.
func TestEveryOperationNoticesDamage(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		sum := sha256.Sum256([]byte(admin))
		s.get("/v1/runs", http.StatusOK) // from now on, the token is none of the unknown ones, whose number is bounded
		b := storage.Batch{Ops: []storage.Op{storage.Put(keys.ControlKey(hex.EncodeToString(sum[:])), []byte("damaged"))}}
		if err := store.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for _, o := range documented(t, http.StatusInternalServerError) {
			if o.public { // it looks at no token: see TestReadyOnABrokenStore
				continue
			}
			s.refusal(s.send(sample(o)), http.StatusInternalServerError, "damaged")
		}
	})
}

// A broken store panics when the record is read that health.ready asks for.
type broken struct{ *memory.Store }

func (b broken) Get(ctx context.Context, key []byte) ([]byte, error) {
	if string(key) == string(keys.ControlHits()) {
		panic("the store is broken")
	}
	return b.Store.Get(ctx, key)
}

// A store that panics is a fault of the service.
func TestReadyOnABrokenStore(t *testing.T) {
	s := serve(t, broken{new(memory.Store)})
	s.refusal(s.send(request{method: "GET", path: "/v1/ready"}), http.StatusInternalServerError, "internal")
}

// After Close, everything but the health of the process is 503.
func TestEveryOperationEnds(t *testing.T) {
	s := serve(t, new(memory.Store))
	s.get("/v1/ready", http.StatusOK)
	if err := s.plane.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range documented(t, http.StatusServiceUnavailable) {
		a := s.send(sample(o))
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("%s was answered %d %s", o.id, a.status, a.body)
		}
	}
	s.get("/v1/health", http.StatusOK)
}

// What is no path of the document is 404, and another method is 405 with the methods that are.
func TestPathsOfTheDocument(t *testing.T) {
	s := serve(t, new(memory.Store))
	for _, path := range []string{"/v1/", "/v1/run", "/v1/runs/", "/v1/runs//result", "/v1/runs/%2e%2e/result", "/v1/runs/a%00/result", "/v2/runs"} {
		s.refusal(s.send(request{method: "GET", path: path, secret: admin}), http.StatusNotFound, "not_found")
	}
	a := s.send(request{method: "PATCH", path: "/v1/runs", secret: admin})
	s.refusal(a, http.StatusMethodNotAllowed, "method_not_allowed")
	if got := a.header.Get("Allow"); got != "GET, POST" {
		t.Errorf("Allow is %q", got)
	}
}
