package idemhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// storeCalls counts the calls of a store.
func storeCalls(n *atomic.Int64) storage.Storage {
	return storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault {
		n.Add(1)
		return storagetest.None
	})
}

// FEN-15, FEN-48: no answer leaves before it is durable.
func TestAnswerAfterSeal(t *testing.T) {
	var mu sync.Mutex
	var events []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, s)
	}
	l := open(t, idempotency.Config{Storage: noting{new(memory.Store), note}})
	g := guard(t, idemhttp.Config{Ledger: l})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		io.WriteString(w, "done")
		note("handled")
	}))
	for _, c := range []call{{key: "warm"}, {}} {
		events = nil
		g.ServeHTTP(noted{httptest.NewRecorder(), note}, c.request("http://shop"))
	}
	if diff := cmp.Diff([]string{"committed", "handled", "committed", "header", "body"}, events); diff != "" {
		t.Error(diff)
	}
}

// A flaky codec fails to encode so many times.
type flaky struct {
	idempotency.Codec
	fails int
}

func (c *flaky) Name() string { return "flaky" }

func (c *flaky) Encode(ctx context.Context, v any) ([]byte, error) {
	if c.fails > 0 {
		c.fails--
		return nil, errors.New("the keys of the codec cannot be read")
	}
	return c.Codec.Encode(ctx, v)
}

// FEN-63: a codec that fails is no fault of the request, which may come again with its key.
func TestCodecThatFails(t *testing.T) {
	c := &flaky{weft.JSON, 1}
	s := serve(t, guard(t, idemhttp.Config{Ledger: open(t, idempotency.Config{Codec: c})})(new(counter)))
	r := s.do(call{})
	if s.is(r, 503, "idempotency_unavailable"); r.problem.Retry != "same-key" {
		t.Errorf("retry %q", r.problem.Retry)
	}
	s.answered(s.do(call{}), 200, "call 1", false)
}

// A noting store notes its commits.
type noting struct {
	*memory.Store
	note func(string)
}

func (s noting) Commit(ctx context.Context, b storage.Batch) error {
	err := s.Store.Commit(ctx, b)
	s.note("committed")
	return err
}

// A noted ResponseWriter notes what leaves.
type noted struct {
	http.ResponseWriter
	note func(string)
}

func (w noted) WriteHeader(status int) {
	w.note("header")
	w.ResponseWriter.WriteHeader(status)
}

func (w noted) Write(b []byte) (int, error) {
	w.note("body")
	return w.ResponseWriter.Write(b)
}

// FEN-63: if the store does not answer, nothing is handled, and the client may ask again. If the answer of a
// handler cannot be stored, the client does not get it before it is.
func TestStoreFails(t *testing.T) {
	isCommit := func(c storagetest.Call) bool { return c.Method == "Commit" }
	t.Run("before the handler", func(t *testing.T) {
		for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.CrashBefore} {
			for _, method := range []string{"Get", "Commit"} {
				synctest.Test(t, func(t *testing.T) {
					var broken atomic.Bool
					store := storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
						if broken.Load() && c.Method == method {
							return fault
						}
						return storagetest.None
					})
					h := new(counter)
					s := direct{t, guard(t, idemhttp.Config{Ledger: open(t, idempotency.Config{Storage: store})})(h)}
					broken.Store(true)
					r := s.do(call{})
					h.want(t, 0)
					if r.status != 503 || r.problem.Code != "idempotency_unavailable" || r.problem.Retry != "same-key" || r.header.Get("Retry-After") != "1" {
						t.Errorf("%s: %d %v %s", method, r.status, r.header, r.body)
					}
					if strings.Contains(r.body, "injected") {
						t.Errorf("the answer tells of the store: %s", r.body)
					}
					if broken.Store(false); fault == storagetest.ErrorBefore {
						if r := s.do(call{}); r.status != 200 || r.body != "call 1" || r.replayed {
							t.Errorf("%s: then %d %s", method, r.status, r.body)
						}
					}
				})
			}
		}
	})
	t.Run("after the handler", func(t *testing.T) {
		for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				store := storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
					if broken.Load() && isCommit(c) {
						return fault
					}
					return storagetest.None
				})
				h := new(counter)
				s := direct{t, guard(t, idemhttp.Config{Ledger: open(t, idempotency.Config{Storage: store})})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					broken.Store(true)
					h.ServeHTTP(w, r)
				}))}
				if r := s.do(call{}); fault == storagetest.ErrorBefore && (r.status != 409 || r.problem.Code != "idempotency_in_progress" || r.header.Get("Retry-After") == "") {
					t.Errorf("%d %s", r.status, r.body)
				}
				broken.Store(false)
				time.Sleep(time.Minute)
				if r := s.do(call{}); r.status != 200 || r.body != "call 1" || !r.replayed {
					t.Errorf("%d %s", r.status, r.body)
				}
				h.want(t, 1)
			})
		}
	})
	t.Run("closed", func(t *testing.T) {
		l, h := open(t, idempotency.Config{}), new(counter)
		s := serve(t, guard(t, idemhttp.Config{Ledger: l})(h))
		l.Close()
		s.is(s.do(call{}), 503, "idempotency_unavailable")
		h.want(t, 0)
	})
}

// FEN-18: an answer is kept for 48 h, or as long as the policies or the guard say, and no longer.
func TestRetention(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy int // api_hours
		guard  time.Duration
		want   time.Duration
	}{
		{"default", 0, 0, 48 * time.Hour},
		{"policy", 24, 0, 24 * time.Hour},
		{"guard", 24, 72 * time.Hour, 72 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, idempotency.Config{Policies: idempotency.Policies{TTL: idempotency.TTLPolicy{APIHours: c.policy}}})
				s := direct{t, guard(t, idemhttp.Config{Ledger: l, Retention: c.guard})(new(counter))}
				s.do(call{})
				for info, err := range l.List(t.Context(), idempotency.Filter{}) {
					if got := info.Expires.Sub(info.SealedAt); err != nil || got != c.want {
						t.Errorf("kept for %v, want %v; %v", got, c.want, err)
					}
				}
				time.Sleep(c.want - time.Minute)
				if r := s.do(call{}); !r.replayed {
					t.Errorf("%d %s", r.status, r.body)
				}
				time.Sleep(10 * time.Minute)
				if r := s.do(call{}); r.replayed || r.body != "call 2" {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		})
	}
}
