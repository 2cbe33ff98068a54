package idemhttp_test

import (
	"compress/gzip"
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

// A gzipWriter compresses what it is given.
type gzipWriter struct {
	http.ResponseWriter
	body *gzip.Writer
}

func (w gzipWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w gzipWriter) Write(p []byte) (int, error) { return w.body.Write(p) }

// FEN-48: each answer is readable behind middleware that compresses it if the client takes that, and says so before the guard.
func TestCompressedAround(t *testing.T) {
	g := guard(t, idemhttp.Config{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("broken")
		}
		io.WriteString(w, "one")
	}))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			body := gzip.NewWriter(w)
			defer body.Close()
			w = gzipWriter{w, body}
		}
		g.ServeHTTP(w, r)
	}))
	zipped, plain := [2]string{}, [2]string{"Accept-Encoding", "identity"} // the client asks for gzip itself, and decodes it
	for key, encodings := range map[string][][2]string{"a": {zipped, zipped, plain}, "b": {plain, plain, zipped}} {
		for i, e := range encodings {
			r := s.do(call{key: key, header: e})
			if s.answered(r, 200, "one", i > 0); r.header.Get("Content-Encoding") != "" {
				t.Errorf("%s %d: %v", key, i, r.header)
			}
		}
	}
	for _, e := range [][2]string{zipped, plain} {
		s.is(s.do(call{key: "-", header: e}), 400, "idempotency_required")
		s.is(s.do(call{path: "/panic", key: "p" + e[1], header: e}), 500, "idempotency_indeterminate")
	}
	// What the handler has encoded itself is that, whoever asks again.
	h := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "x-own")
		io.WriteString(w, "owned")
	})
	for _, replayed := range []bool{false, true} {
		r := h.do(call{})
		if h.answered(r, 200, "owned", replayed); r.header.Get("Content-Encoding") != "x-own" {
			t.Errorf("replayed %v: %v", replayed, r.header)
		}
	}
}
