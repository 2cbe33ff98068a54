package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// Some answers say that nothing has happened: their clients get them, and the next request with the key runs. So
// do those of a handler that says so.
func TestReleased(t *testing.T) {
	for _, c := range []struct {
		status   int
		noEffect bool
	}{
		{401, false}, {403, false}, {408, false}, {425, false}, {429, false},
		{200, true}, {400, true}, {409, true}, {500, true}, {503, true},
	} {
		t.Run(fmt.Sprint(c.status, c.noEffect), func(t *testing.T) {
			n := 0
			s := guarded(t, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 3 {
					io.WriteString(w, "done")
					return
				}
				if c.noEffect {
					idemhttp.NoEffect(r.Context())
				}
				w.Header().Set("X-Trace", "t1")
				w.WriteHeader(c.status)
				fmt.Fprintf(w, "call %d", n)
			})
			for i := range 2 {
				r := s.do(call{})
				s.answered(r, c.status, fmt.Sprintf("call %d", i+1), false)
				if r.header.Get("X-Trace") != "t1" {
					t.Error("a header field is missing")
				}
			}
			s.answered(s.do(call{}), 200, "done", false)
			s.answered(s.do(call{}), 200, "done", true)
		})
	}
}

// NoEffect outside a guarded handler does nothing.
func TestNoEffectOutside(t *testing.T) {
	idemhttp.NoEffect(context.Background())
	s := serve(t, guard(t, idemhttp.Config{Exempt: []string{"POST /"}})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		idemhttp.NoEffect(r.Context())
	})))
	s.answered(s.do(call{}), 200, "", false)
}

// FEN-63: after a panic, a 5xx and a timeout, the policy says what becomes of the key. Whatever it says, the client gets a 5xx.
func TestServerErrors(t *testing.T) {
	ends := []struct {
		name string
		end  func(w http.ResponseWriter, r *http.Request)
		// the first answer
		status int
		body   string    // of the handler; "" is a problem
		codes  [3]string // of the problem, by policy
	}{
		{"500", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); io.WriteString(w, "broken") }, 500, "broken", [3]string{}},
		{"503", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503); io.WriteString(w, "full") }, 503, "full", [3]string{}},
		{"599", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(599); io.WriteString(w, "odd") }, 599, "odd", [3]string{}},
		{"panic", func(w http.ResponseWriter, r *http.Request) { panic("broken") }, 500, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"panic after an answer", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "half"); panic("broken") }, 500, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"panic after NoEffect", func(w http.ResponseWriter, r *http.Request) { idemhttp.NoEffect(r.Context()); panic("broken") }, 500, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"abort", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, 500, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"no such status", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(42) }, 500, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"late and silent", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 503, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"late 400", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(400) }, 503, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"late 408", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(408) }, 503, "", [3]string{"idempotency_indeterminate", "internal", "idempotency_unavailable"}},
		{"late 502", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(502)
			io.WriteString(w, "late")
		}, 502, "late", [3]string{}},
	}
	for i, policy := range []idemhttp.ServerErrors{idemhttp.HoldServerErrors, idemhttp.SealServerErrors, idemhttp.ReleaseServerErrors} {
		for _, e := range ends {
			t.Run(policy.String()+"/"+e.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := new(counter)
					s := direct{t, guard(t, idemhttp.Config{ServerErrors: policy})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if h.calls.Add(1) == 1 {
							e.end(w, r)
							return
						}
						io.WriteString(w, "done")
					}))}
					first := s.do(call{})
					if first.status != e.status || first.problem.Code != e.codes[i] || e.body != "" && first.body != e.body || first.replayed {
						t.Errorf("%d %q, want %d %q %q", first.status, first.body, e.status, e.codes[i], e.body)
					}
					second := s.do(call{})
					switch policy {
					case idemhttp.HoldServerErrors:
						if second.status != 409 || second.problem.Code != "idempotency_indeterminate" || second.problem.Retry != "same-key" {
							t.Errorf("then %d %s", second.status, second.body)
						}
						h.want(t, 1)
					case idemhttp.SealServerErrors:
						if second.status != first.status || second.body != first.body || !second.replayed {
							t.Errorf("then %d %s", second.status, second.body)
						}
						h.want(t, 1)
					case idemhttp.ReleaseServerErrors:
						if second.status != 200 || second.body != "done" {
							t.Errorf("then %d %s", second.status, second.body)
						}
						h.want(t, 2)
					}
				})
			})
		}
	}
}

// A handler that succeeds late has succeeded, and one that says late that nothing has happened is believed.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := direct{t, guard(t, idemhttp.Config{Timeout: time.Hour})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			<-r.Context().Done()
			if d := time.Since(began); d != time.Hour || !errors.Is(context.Cause(r.Context()), activity.ErrTimeout) {
				t.Errorf("the context ended after %v: %v", d, context.Cause(r.Context()))
			}
			if n++; n == 1 {
				idemhttp.NoEffect(r.Context())
				w.WriteHeader(400)
				return
			}
			w.WriteHeader(201)
		}))}
		if r := s.do(call{}); r.status != 400 {
			t.Errorf("%d %s", r.status, r.body)
		}
		for _, replayed := range []bool{false, true} {
			if r := s.do(call{}); r.status != 201 || r.replayed != replayed {
				t.Errorf("%d %s", r.status, r.body)
			}
		}
	})
}

// FEN-46: with TakeOver a request of unknown outcome is handled again, with the same hash. With Hold it is not.
func TestOnAbandoned(t *testing.T) {
	for _, policy := range []idempotency.Abandoned{idempotency.VerifyOrHold, idempotency.Hold, idempotency.TakeOver} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, crash), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { abandon(t, policy, crash) })
			})
		}
	}
}

// abandon has a handler answer 500, or its process die, and sends the request again after a restart.
func abandon(t *testing.T, policy idempotency.Abandoned, crash bool) {
	store := new(memory.Store)
	first := storagetest.NewFaulty(store, nil)
	var hashes []string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hashes = append(hashes, idempotency.AttemptFrom(r.Context()).Hash)
		if len(hashes) > 1 {
			io.WriteString(w, "done")
			return
		}
		if crash {
			first.Crash()
		}
		w.WriteHeader(500)
	})
	c := idemhttp.Config{Ledger: open(t, idempotency.Config{Storage: first}), OnAbandoned: policy}
	want := map[bool]int{false: 500, true: 409}[crash]
	if r := (direct{t, guard(t, c)(h)}).do(call{}); r.status != want {
		t.Errorf("first %d %s, want %d", r.status, r.body, want)
	}
	c.Ledger.Close()
	c.Ledger = open(t, idempotency.Config{Storage: storagetest.NewFaulty(store, nil)})
	r := direct{t, guard(t, c)(h)}.do(call{})
	if policy == idempotency.TakeOver {
		if r.status != 200 || r.body != "done" || len(hashes) != 2 || hashes[0] != hashes[1] || hashes[0] == "" {
			t.Errorf("%d %s, hashes %q", r.status, r.body, hashes)
		}
	} else if r.status != 409 || r.problem.Code != "idempotency_indeterminate" || len(hashes) != 1 {
		t.Errorf("%d %s, hashes %q", r.status, r.body, hashes)
	}
}

// FEN-48, FEN-63: a handler whose key another process has taken over meanwhile does not answer: its client is told to
// ask again, and gets the answer of the other.
func TestFenceLost(t *testing.T) {
	for _, status := range []int{201, 429, 500} {
		synctest.Test(t, func(t *testing.T) {
			store, end := new(memory.Store), make(chan struct{})
			on := func(h http.HandlerFunc) direct {
				l := open(t, idempotency.Config{Storage: storagetest.NewFaulty(store, nil)}) // to the other, its holder is dead
				return direct{t, guard(t, idemhttp.Config{Ledger: l, OnAbandoned: idempotency.TakeOver})(h)}
			}
			paused := on(func(w http.ResponseWriter, r *http.Request) {
				<-end
				w.WriteHeader(status)
				io.WriteString(w, "late")
			})
			other := on(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "done") })
			over := make(chan reply, 1)
			go func() { over <- paused.do(call{}) }()
			synctest.Wait()
			if r := other.do(call{}); r.status != 200 || r.body != "done" || r.replayed {
				t.Errorf("the other: %d %s", r.status, r.body)
			}
			close(end)
			if r := <-over; r.status != 409 || r.problem.Code != "idempotency_in_progress" || r.problem.Retry != "same-key" || r.header.Get("Retry-After") != "1" {
				t.Errorf("%d: %d %v %s", status, r.status, r.header, r.body)
			}
			if r := paused.do(call{}); r.status != 200 || r.body != "done" || !r.replayed {
				t.Errorf("then %d %s", r.status, r.body)
			}
		})
	}
}

// An operator gives the answer of a request whose outcome was unknown, or says that it failed.
func TestResolve(t *testing.T) {
	key := idempotency.Key{Tenant: "acme", SourceType: "POST /refunds", SourceID: "k1", Action: idemhttp.Action}
	by := idempotency.Actor{Name: "ann", Reason: "asked the bank"}
	for _, c := range []struct {
		name   string
		answer activity.Answer
		status int
		code   string
		body   string
	}{
		{"completed", activity.CompletedWithResult(idemhttp.Response{Status: 201, Header: http.Header{"Location": {"/refunds/7"}, "Set-Cookie": {"no"}}, Body: []byte("7")}), 201, "", "7"},
		{"lost", activity.CompletedResultUnavailable[idemhttp.Response](), 409, "idempotency_result_unavailable", ""},
		{"no status", activity.CompletedWithResult(idemhttp.Response{}), 409, "idempotency_result_unavailable", ""},
		{"failed", activity.Failed("the account is closed"), 422, "idempotency_failed", ""},
		{"not completed", activity.NotCompleted[idemhttp.Response](), 200, "", "again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, n := open(t, idempotency.Config{}), 0
			s := guarded(t, idemhttp.Config{Ledger: l}, func(w http.ResponseWriter, r *http.Request) {
				if n++; n > 1 {
					io.WriteString(w, "again")
					return
				}
				w.WriteHeader(500)
			})
			s.is(s.do(call{}), 500, "")
			if err := l.Resolve(t.Context(), key, 0, c.answer, by); err != nil {
				t.Fatal(err)
			}
			r := s.do(call{})
			s.is(r, c.status, c.code)
			if c.code == "" && r.body != c.body || c.status == 201 && (r.header.Get("Location") != "/refunds/7" || r.header.Get("Set-Cookie") != "" || !r.replayed) {
				t.Errorf("%q %v", r.body, r.header)
			}
			if c.status == 422 && (!strings.Contains(r.problem.Message, "the account is closed") || r.problem.Retry != "never") {
				t.Errorf("%+v", r.problem)
			}
		})
	}
}

// An answer that is too large to be stored reaches the first client. Later ones are told that it is not
// available.
func TestLargeAnswer(t *testing.T) {
	l, h := open(t, idempotency.Config{MaxResult: 1000}), new(counter)
	s := guarded(t, idemhttp.Config{Ledger: l}, func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		w.WriteHeader(201)
		io.WriteString(w, strings.Repeat("x", 2000))
	})
	s.answered(s.do(call{}), 201, strings.Repeat("x", 2000), false)
	r := s.do(call{})
	s.is(r, 409, "idempotency_result_unavailable")
	if r.problem.Retry != "never" || r.replayed {
		t.Errorf("%+v", r.problem)
	}
	h.want(t, 1)
}
