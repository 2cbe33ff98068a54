package idemhttp_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// FEN-47: a handler passes the error of a Do inside it to Fail. What it answers is not stored: a repetition asks
// the inner key again.
func TestFail(t *testing.T) {
	for _, c := range []struct {
		err        error
		status     int
		code       string
		retry      string
		retryAfter string
	}{
		{&idempotency.ConflictError{Diff: []idempotency.Change{{Op: "add", Path: "/a"}}, Truncated: true}, 409, "idempotency_conflict", "new-key", ""},
		{&idempotency.InProgressError{RetryAfter: 1500 * time.Millisecond}, 409, "idempotency_in_progress", "same-key", "2"},
		{&idempotency.InProgressError{RetryAfter: time.Hour}, 409, "idempotency_in_progress", "same-key", "30"},
		{&idempotency.InProgressError{RetryAfter: -1}, 409, "idempotency_in_progress", "same-key", "1"},
		{&idempotency.FenceLostError{}, 409, "idempotency_in_progress", "same-key", "1"},
		{&idempotency.IndeterminateError{}, 409, "idempotency_indeterminate", "same-key", ""},
		{&idempotency.IndeterminateError{Err: &idempotency.ConflictError{}}, 409, "idempotency_indeterminate", "same-key", ""},
		{&idempotency.StaleError{}, 409, "idempotency_stale", "never", ""},
		{&idempotency.ResultUnavailableError{}, 409, "idempotency_result_unavailable", "never", ""},
		{&idempotency.FailedError{Message: "declined"}, 422, "idempotency_failed", "never", ""},
		{fmt.Errorf("refund: %w", &idempotency.FailedError{}), 422, "idempotency_failed", "never", ""},
		{errors.Join(errors.New("log"), &idempotency.StaleError{}), 409, "idempotency_stale", "never", ""},
		{idempotency.ErrInvalid, 400, "invalid_request", "never", ""},
		{idempotency.ErrClosed, 503, "idempotency_unavailable", "same-key", "1"},
		{errors.New("disk is full"), 503, "idempotency_unavailable", "same-key", "1"},
		{activity.NoEffect(errors.New("busy")), 503, "idempotency_unavailable", "same-key", "1"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			n := 0
			h := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"of the thing"`)
				n++
				idemhttp.Fail(w, r, c.err)
			}
			s, bare := guarded(t, idemhttp.Config{}, h), serve(t, http.HandlerFunc(h))
			for i, r := range []reply{s.do(call{}), s.do(call{}), bare.do(call{})} {
				s.is(r, c.status, c.code)
				if r.problem.Retry != c.retry || r.header.Get("Retry-After") != c.retryAfter || r.replayed || r.header.Get("ETag") != "" {
					t.Errorf("%d: %v %s", i, r.header, r.body)
				}
				if strings.Contains(r.body, "disk") {
					t.Errorf("the answer tells of the store: %s", r.body)
				}
				if c.code == "idempotency_conflict" && (len(r.problem.Diff) != 1 || !r.problem.Truncated) {
					t.Errorf("diff %v, truncated %v", r.problem.Diff, r.problem.Truncated)
				}
			}
			if n != 3 {
				t.Errorf("%d calls, want 3", n)
			}
		})
	}
}

// FEN-26: Fail answers a conflict as the policies of the guard's ledger say.
func TestFailPolicy(t *testing.T) {
	l := open(t, idempotency.Config{Policies: idempotency.Policies{OnConflict: idempotency.ConflictPolicy{Status: 422, IncludeDiff: new(bool)}}})
	s := guarded(t, idemhttp.Config{Ledger: l}, func(w http.ResponseWriter, r *http.Request) {
		idemhttp.Fail(w, r, &idempotency.ConflictError{Diff: []idempotency.Change{{Op: "add", Path: "/a"}}})
	})
	r := s.do(call{})
	if s.is(r, 422, "idempotency_conflict"); r.problem.Diff != nil {
		t.Errorf("diff %v", r.problem.Diff)
	}
}

// FEN-46: an effect inside a guarded handler. While its outcome is unknown, each repetition says so; once it is
// known, the outer key is sealed.
func TestInnerEffect(t *testing.T) {
	l, runs := open(t, idempotency.Config{}), 0
	refund := &idempotency.Effect[int, string]{Name: "refund", Run: func(context.Context, int) (string, error) {
		runs++
		return "", errors.New("the line broke")
	}}
	inner := idempotency.Key{Tenant: "acme", SourceType: "refund", SourceID: "r1", Action: "refund"}
	s := guarded(t, idemhttp.Config{Ledger: l}, func(w http.ResponseWriter, r *http.Request) {
		receipt, err := refund.Do(r.Context(), l, inner, 100)
		if err != nil {
			idemhttp.Fail(w, r, err)
			return
		}
		io.WriteString(w, receipt.Result)
	})
	for range 3 {
		s.is(s.do(call{}), 409, "idempotency_indeterminate")
	}
	if err := l.Resolve(t.Context(), inner, 0, activity.CompletedWithResult("re_7"), idempotency.Actor{Name: "ann", Reason: "asked the bank"}); err != nil {
		t.Fatal(err)
	}
	s.answered(s.do(call{}), 200, "re_7", false)
	s.answered(s.do(call{}), 200, "re_7", true)
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

// A guard in a guard with the same ledger and endpoint is a mistake that no answer hides, and that uses up no key.
func TestGuardInGuard(t *testing.T) {
	h := new(counter)
	g := guard(t, idemhttp.Config{})
	s := serve(t, g(g(h)))
	for range 2 {
		r := s.do(call{})
		if s.is(r, 409, "idempotency_in_progress"); r.replayed {
			t.Error("the answer is stored")
		}
	}
	h.want(t, 0)
}

// passOn answers as h does. Of a 200 without a body it calls neither WriteHeader nor Write.
func passOn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		h.ServeHTTP(got, r)
		maps.Copy(w.Header(), got.Header())
		if got.Code != 200 {
			w.WriteHeader(got.Code)
		}
		io.Copy(w, got.Body)
	})
}

// What a guard has released, one around it with another endpoint does not store either, whether its handler is the inner guard
// or passes its answer on, and whether it needs a key there. The client does not see how the guards tell each other.
func TestReleasedInAGuard(t *testing.T) {
	exempt := guard(t, idemhttp.Config{Exempt: []string{"POST /admin/jobs"}})
	for name, c := range map[string]struct {
		first  http.HandlerFunc
		status int
	}{
		"fail":      {func(w http.ResponseWriter, r *http.Request) { idemhttp.Fail(w, r, &idempotency.InProgressError{}) }, 409},
		"no effect": {func(w http.ResponseWriter, r *http.Request) { idemhttp.NoEffect(r.Context()) }, 200},
		"no effect at the end": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(409)
			idemhttp.NoEffect(r.Context())
		}, 409},
	} {
		for way, inner := range map[string]func(g func(http.Handler) http.Handler, h http.Handler) http.Handler{
			"mounted":           func(g func(http.Handler) http.Handler, h http.Handler) http.Handler { return g(h) },
			"passed on":         func(g func(http.Handler) http.Handler, h http.Handler) http.Handler { return passOn(g(h)) },
			"exempt":            func(_ func(http.Handler) http.Handler, h http.Handler) http.Handler { return exempt(h) },
			"exempt, passed on": func(_ func(http.Handler) http.Handler, h http.Handler) http.Handler { return passOn(exempt(h)) },
			"guard in exempt":   func(g func(http.Handler) http.Handler, h http.Handler) http.Handler { return exempt(passOn(g(h))) },
			"passed on by who says the same": func(g func(http.Handler) http.Handler, h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					passOn(g(h)).ServeHTTP(w, r)
					if w.Header().Get("Weft-Released") != "" { // only of the first answer
						idemhttp.NoEffect(r.Context())
					}
				})
			},
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				calls := 0
				admin := http.NewServeMux()
				admin.HandleFunc("POST /admin/jobs", func(w http.ResponseWriter, r *http.Request) {
					if calls++; calls == 1 {
						c.first(w, r)
						return
					}
					io.WriteString(w, "done")
				})
				g := guard(t, idemhttp.Config{})
				mux := http.NewServeMux()
				mux.Handle("/admin/", inner(g, admin))
				s := serve(t, g(mux))
				r := s.do(call{path: "/admin/jobs"})
				if r.status != c.status || r.replayed || r.header.Get("Weft-Released") != "" {
					t.Errorf("%d %s %v, want %d", r.status, r.body, r.header, c.status)
				}
				s.answered(s.do(call{path: "/admin/jobs"}), 200, "done", false)
				s.answered(s.do(call{path: "/admin/jobs"}), 200, "done", true)
			})
		}
	}
}

// A handler may call another guarded handler for a part of its work, and answer for itself. What that one has released
// says nothing of the whole, also if the answers are alike, or if the whole has all header fields of the part and another status.
func TestReleasedPartOfAGuardedHandler(t *testing.T) {
	for name, part := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"no effect": func(w http.ResponseWriter, r *http.Request) {
			idemhttp.NoEffect(r.Context())
			io.WriteString(w, "whole")
		},
		"nothing": func(w http.ResponseWriter, r *http.Request) { idemhttp.NoEffect(r.Context()) },
		"fail":    func(w http.ResponseWriter, r *http.Request) { idemhttp.Fail(w, r, &idempotency.InProgressError{}) },
	} {
		for _, request := range []string{"POST /part", "POST /exempt", "GET /part"} {
			for _, status := range []int{200, 204, 207, 409} {
				t.Run(fmt.Sprint(name, " ", request, " ", status), func(t *testing.T) {
					g := guard(t, idemhttp.Config{Exempt: []string{"POST /exempt"}})
					parts, calls := 0, 0
					inner := g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { parts++; part(w, r) }))
					mux := http.NewServeMux()
					mux.HandleFunc("POST /batch", func(w http.ResponseWriter, r *http.Request) {
						calls++
						method, path, _ := strings.Cut(request, " ")
						q := httptest.NewRequestWithContext(r.Context(), method, path, nil)
						q.Header = r.Header.Clone()
						got := httptest.NewRecorder()
						inner.ServeHTTP(got, q)
						if status == 207 { // no part answers so
							maps.Copy(w.Header(), got.Header())
							w.Header().Set("Content-Type", "text/plain")
						}
						w.WriteHeader(status)
						io.WriteString(w, "whole")
					})
					s := serve(t, g(mux))
					body := "whole"
					if status == 204 {
						body = ""
					}
					s.answered(s.do(call{path: "/batch"}), status, body, false)
					s.answered(s.do(call{path: "/batch"}), status, body, true)
					if calls != 1 || parts != 1 {
						t.Errorf("%d calls and %d of the part, want one of each", calls, parts)
					}
				})
			}
		}
	}
}

// Of several parts a handler passes on the answer of one, with its header and status. The body may be another one, such as a
// compressed one.
func TestHandlerPassesOnAPart(t *testing.T) {
	g := guard(t, idemhttp.Config{})
	calls := 0
	inner := g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		idemhttp.NoEffect(r.Context())
		status := http.StatusUnprocessableEntity
		if r.URL.Path == "/first" {
			status = http.StatusConflict // which is stored, if it is the handler's own
		}
		w.WriteHeader(status)
		io.WriteString(w, "of the part")
	}))
	s := serve(t, g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls > 1 {
			io.WriteString(w, "done")
			return
		}
		var first *httptest.ResponseRecorder
		for _, path := range []string{"/first", "/second"} {
			q := httptest.NewRequestWithContext(r.Context(), "POST", path, nil)
			q.Header = r.Header.Clone()
			got := httptest.NewRecorder()
			inner.ServeHTTP(got, q)
			first = cmp.Or(first, got)
		}
		maps.Copy(w.Header(), first.Header())
		w.WriteHeader(first.Code)
		io.WriteString(w, "other")
	})))
	r := s.do(call{path: "/batch"})
	if s.answered(r, 409, "other", false); len(r.header.Values("Weft-Released")) > 0 {
		t.Error("the client sees the mark")
	}
	s.answered(s.do(call{path: "/batch"}), 200, "done", false)
	s.answered(s.do(call{path: "/batch"}), 200, "done", true)
}

// A request that needs no key in a guard inside another one: its answer, and middleware between the two, are as without the inner guard.
func TestExemptInAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := guard(t, idemhttp.Config{Exempt: []string{"POST /"}})
		mux := http.NewServeMux()
		mux.HandleFunc("POST /done", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/1")
			w.WriteHeader(201)
			io.Copy(w, r.Body)
		})
		mux.HandleFunc("POST /empty", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Location", "/1") })
		mux.HandleFunc("POST /late", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		mux.HandleFunc("GET /done", func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush() })
		s := direct{t, guard(t, idemhttp.Config{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			want := "POST " + r.URL.Path
			if r.URL.Path == "/part" {
				got := httptest.NewRecorder()
				w, r, want = got, httptest.NewRequestWithContext(r.Context(), "GET", "/done", nil), "GET /done"
			}
			inner(mux).ServeHTTP(w, r)
			if r.Pattern != want {
				t.Errorf("a middleware sees the pattern %q, want %q", r.Pattern, want)
			}
		}))}
		for path, want := range map[string]reply{
			"/done":  {status: 201, body: "1"},
			"/empty": {status: 200},
			"/late":  {status: 503},
			"/part":  {status: 200},
		} {
			r := s.do(call{path: path, body: "1"})
			if r.status != want.status || want.status != 503 && r.body != want.body || (path == "/done" || path == "/empty") && r.header.Get("Location") != "/1" {
				t.Errorf("%s: %d %q %v", path, r.status, r.body, r.header)
			}
			r = s.do(call{path: path, body: "1"})
			if want.status == 503 {
				if r.status != 409 || r.problem.Code != "idempotency_indeterminate" {
					t.Errorf("%s again: %d %q", path, r.status, r.body)
				}
			} else if r.status != want.status || r.body != want.body || !r.replayed {
				t.Errorf("%s again: %d %q, replayed: %v", path, r.status, r.body, r.replayed)
			}
		}
	})
}

// Panics of handlers and errors of the store are logged, with what the client does not see.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	var full atomic.Bool
	l := open(t, idempotency.Config{Storage: storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
		if full.Load() && c.Method == "Commit" {
			return storagetest.ErrorBefore
		}
		return storagetest.None
	})})
	g, err := idemhttp.New(idemhttp.Config{Ledger: l, Tenant: shopOf, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s := direct{t, g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("nil map")
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/done":
			full.Store(true)
			return
		}
		idemhttp.Fail(w, r, errors.New("disk is full"))
	}))}
	for _, c := range []struct{ path, want string }{{"/panic", "nil map"}, {"/abort", ""}, {"/fail", "disk is full"}, {"/done", storagetest.ErrInjected.Error()}} {
		log.Reset()
		s.do(call{path: c.path})
		if got := log.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: the log is %q, want %q", c.path, got, c.want)
		}
	}
	full.Store(false) // otherwise the ledger tries on
}
