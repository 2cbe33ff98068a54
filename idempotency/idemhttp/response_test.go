package idemhttp_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/idempotency/idemhttp"
)

// The handler's ResponseWriter keeps the answer until it is durable, and says so to whoever wants to send at once.
func TestBuffer(t *testing.T) {
	s := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Flusher); ok {
			t.Error("it is an http.Flusher")
		}
		if _, ok := w.(http.Hijacker); ok {
			t.Error("it is an http.Hijacker")
		}
		rc := http.NewResponseController(w)
		if err := rc.Flush(); !errors.Is(err, http.ErrNotSupported) || !strings.Contains(err.Error(), "durable") {
			t.Errorf("Flush: %v", err)
		}
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if err := rc.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		w.Header().Set("X-Early", "yes")
		w.Header().Set("Content-Length", "99")
		w.WriteHeader(103)
		w.WriteHeader(201)
		w.WriteHeader(500)
		w.Header().Set("X-Late", "yes")
		io.WriteString(w, "on")
		w.Write([]byte("e"))
	})
	for _, replayed := range []bool{false, true} {
		r := s.do(call{})
		s.answered(r, 201, "one", replayed)
		if r.header.Get("Content-Length") != "3" || r.header.Get("X-Late") != "" || (r.header.Get("X-Early") == "yes") == replayed {
			t.Errorf("header %v", r.header)
		}
	}
	large := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 10_000))
	})
	for _, replayed := range []bool{false, true} {
		r := large.do(call{})
		large.answered(r, 200, strings.Repeat("x", 10_000), replayed)
		if r.header.Get("Content-Length") != "10000" {
			t.Errorf("header %v", r.header)
		}
	}
	empty := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
			t.Errorf("a body with 204: %v", err)
		}
		if _, err := w.Write([]byte("x")); err != http.ErrBodyNotAllowed {
			t.Errorf("a body with 204: %v", err)
		}
	})
	empty.answered(empty.do(call{}), 204, "", false)
}

// Header fields that were set before the guard are the handler's to change, and leave with each answer.
func TestHeadersFromBefore(t *testing.T) {
	g := guard(t, idemhttp.Config{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("broken")
		}
		w.Header().Add("Vary", "Accept")
		w.Header().Del("X-Frame-Options")
	}))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin")
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		g.ServeHTTP(w, r)
	}))
	for _, c := range []struct {
		call call
		vary []string
	}{
		{call{}, []string{"Origin", "Accept"}}, {call{}, []string{"Origin"}}, {call{key: "-"}, []string{"Origin"}}, {call{path: "/panic"}, []string{"Origin"}},
	} {
		r := s.do(c.call)
		if !cmp.Equal(r.header["Vary"], c.vary) || r.header.Get("Access-Control-Allow-Origin") != "*" || (r.header.Get("X-Frame-Options") == "") != (len(c.vary) == 2) {
			t.Errorf("%d: %v", r.status, r.header)
		}
	}
}

// FEN-48: a field that was set before the guard, and that the handler has deleted, is in no answer; one that it has not
// deleted is in each.
func TestDeletedHeadersFromBefore(t *testing.T) {
	g := guard(t, idemhttp.Config{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("Content-Language")
	}))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Language", "en")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		g.ServeHTTP(w, r)
	}))
	for _, replayed := range []bool{false, true} {
		r := s.do(call{})
		if s.answered(r, 200, "", replayed); r.header["Content-Language"] != nil || r.header.Get("Content-Security-Policy") == "" {
			t.Errorf("replayed %v: %v", replayed, r.header)
		}
	}
}
