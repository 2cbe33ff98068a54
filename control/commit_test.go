package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A fickle store answers commits of audit rows, which all changes of a plane have, as it is told.
type fickle struct {
	storage.Storage
	answer  atomic.Pointer[func(b storage.Batch, commit func() error) error]
	commits atomic.Int64             // that succeeded
	keys    atomic.Pointer[[]string] // of the last such batch
}

func (f *fickle) Unwrap() storage.Storage { return f.Storage }

func (f *fickle) Commit(ctx context.Context, b storage.Batch) error {
	commit := func() error { return f.Storage.Commit(ctx, b) }
	var names []string
	audited := false
	for _, o := range b.Ops {
		names = append(names, string(o.Key))
		audited = audited || strings.HasPrefix(string(o.Key), "ctl:audit:") && len(b.If) > 0
	}
	if !audited {
		return commit()
	}
	f.keys.Store(&names)
	err := error(nil)
	if answer := f.answer.Load(); answer != nil {
		err = (*answer)(b, commit)
	} else {
		err = commit()
	}
	if err == nil {
		f.commits.Add(1)
	}
	return err
}

func (f *fickle) answers(answer func(b storage.Batch, commit func() error) error) {
	f.answer.Store(&answer)
}

// fickleSite returns a plane on a fickle store.
func fickleSite(t *testing.T) (*fickle, func(method, path, body string, header ...string) *httptest.ResponseRecorder) {
	t.Helper()
	s := &fickle{Storage: new(memory.Store)}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	eng, err := engine.New(engine.Config{Storage: s, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	const secret = "a-secret-of-twenty-four-bytes"
	p, err := New(Config{Engine: eng, Keys: []Key{{ID: "root", Secret: secret, Scopes: []string{"admin"}}}, RateLimit: 1e6, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return s, func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		answers.Handler(p).ServeHTTP(w, r)
		return w
	}
}

const start = `{"workflowName":"w","input":{"a":1}}`

// HTTP-58, HTTP-74, §3: a change is one batch: what it changes, the sealed answer and the audit row.
func TestAChangeIsOneBatch(t *testing.T) {
	virtualTime(t, func(t *testing.T) {
		s, do := fickleSite(t)
		w := do("POST", "/v1/runs", start, "Idempotency-Key", "k")
		if w.Code != 201 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if s.keys.Load() == nil {
			t.Fatal("no commit had an audit row")
		}
		var families []string
		for _, k := range *s.keys.Load() {
			family, _, _ := strings.Cut(k, ":")
			if family == "ctl" {
				family = k[:strings.LastIndexByte(k, ':')]
			}
			families = append(families, family)
		}
		all := strings.Join(families, " ")
		for _, want := range []string{"idem", "wf", "ctl:audit:default%2Fdefault"} {
			if !strings.Contains(all, want) {
				t.Errorf("the batch has no %s: %s", want, all)
			}
		}
		if n := s.commits.Load(); n != 1 {
			t.Errorf("a create was %d commits, want 1", n)
		}
		again := do("POST", "/v1/runs", start, "Idempotency-Key", "k")
		if again.Code != 201 || again.Body.String() != w.Body.String() || again.Header().Get("Idempotent-Replayed") != "true" || again.Header().Get("Location") != w.Header().Get("Location") {
			t.Errorf("again: got %d %v %s, want %s", again.Code, again.Header(), again.Body, w.Body)
		}
		if n := s.commits.Load(); n != 1 {
			t.Errorf("a repetition was %d commits, want 0", n-1)
		}
		// It is answered by a store that takes nothing, too.
		s.answers(func(storage.Batch, func() error) error { return errors.New("no space left") })
		again = do("POST", "/v1/runs", start, "Idempotency-Key", "k")
		if again.Code != 201 || again.Body.String() != w.Body.String() || again.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("of a full store: got %d %v %s, want %s", again.Code, again.Header(), again.Body, w.Body)
		}
	})
}

// §3: after a conflict all is decided anew, for 10 s; then the answer is 503 busy, and nothing was written.
func TestConflictsAreDecidedAnew(t *testing.T) {
	virtualTime(t, func(t *testing.T) {
		s, do := fickleSite(t)
		left := atomic.Int64{}
		left.Store(5)
		s.answers(func(_ storage.Batch, commit func() error) error {
			if left.Add(-1) >= 0 {
				return storage.ErrConflict
			}
			return commit()
		})
		if w := do("POST", "/v1/runs", start, "Idempotency-Key", "k"); w.Code != 201 {
			t.Errorf("after five conflicts: got %d %s", w.Code, w.Body)
		}
		left.Store(1 << 40)
		began := time.Now()
		w := do("POST", "/v1/runs", start, "Idempotency-Key", "k2")
		if took := time.Since(began); w.Code != 503 || !strings.Contains(w.Body.String(), `"busy"`) || w.Header().Get("Retry-After") == "" || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("conflicts all the time: got %d %s after %v", w.Code, w.Body, took)
		}
		left.Store(0)
		if w := do("POST", "/v1/runs", start, "Idempotency-Key", "k2"); w.Code != 201 || w.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("after the refusal: got %d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// §3, §9: after an unknown outcome the same batch is committed again, and the audit row is the proof that it
// had landed. If it stays unknown for 10 s, the client is told, and the same request gets the one answer.
func TestUnknownOutcomesAreSettled(t *testing.T) {
	lost := errors.New("the answer is lost")
	for _, landed := range []bool{true, false} {
		virtualTime(t, func(t *testing.T) {
			s, do := fickleSite(t)
			calls := atomic.Int64{}
			fails := int64(3)
			var batches []string
			s.answers(func(b storage.Batch, commit func() error) error {
				batches = append(batches, strings.Join(*s.keys.Load(), " "))
				if calls.Add(1) > fails {
					return commit()
				}
				if landed {
					commit()
				}
				return lost
			})
			w := do("POST", "/v1/runs", start, "Idempotency-Key", "k")
			if w.Code != 201 || w.Header().Get("Idempotent-Replayed") != "" {
				t.Fatalf("landed %v: got %d %v %s, want the first answer", landed, w.Code, w.Header(), w.Body)
			}
			for _, b := range batches {
				if b != batches[0] {
					t.Errorf("landed %v: another batch was committed: %s, then %s", landed, batches[0], b)
				}
			}
			runs := 0
			for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte("wf:"))) {
				if err != nil {
					t.Fatal(err)
				}
				if strings.Count(string(e.Key), ":") == 1 {
					runs++
				}
			}
			if runs != 1 {
				t.Errorf("landed %v: got %d runs, want 1", landed, runs)
			}

			fails = 1 << 40
			w = do("POST", "/v1/runs", start, "Idempotency-Key", "k2")
			if w.Code != 503 || !strings.Contains(w.Body.String(), `"outcome_unknown"`) || !strings.Contains(w.Body.String(), `"same-key"`) {
				t.Fatalf("landed %v: got %d %s", landed, w.Code, w.Body)
			}
			fails = 0
			w = do("POST", "/v1/runs", start, "Idempotency-Key", "k2")
			if w.Code != 201 || (w.Header().Get("Idempotent-Replayed") == "true") != landed {
				t.Errorf("landed %v: the same request: got %d %v %s", landed, w.Code, w.Header(), w.Body)
			}
		})
	}
}

// §9: a client that goes away does not stop a change that has begun.
func TestAClientThatLeavesStopsNothing(t *testing.T) {
	virtualTime(t, func(t *testing.T) {
		s := &fickle{Storage: new(memory.Store)}
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		eng, err := engine.New(engine.Config{Storage: s, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		defer eng.Close()
		const secret = "a-secret-of-twenty-four-bytes"
		p, err := New(Config{Engine: eng, Keys: []Key{{ID: "root", Secret: secret, Scopes: []string{"admin"}}}, RateLimit: 1e6, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ctx, leave := context.WithCancel(t.Context())
		calls := 0
		s.answers(func(_ storage.Batch, commit func() error) error {
			if calls++; calls == 1 {
				leave()
				return storage.ErrConflict
			}
			return commit()
		})
		r := httptest.NewRequest("POST", "/v1/runs", strings.NewReader(start)).WithContext(ctx)
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		answers.Handler(p).ServeHTTP(w, r)
		if w.Code != http.StatusCreated || calls != 2 {
			t.Errorf("got %d %s after %d commits", w.Code, w.Body, calls)
		}
	})
}

// A store that does not answer is 503 before anything was written, and says so.
func TestAStoreThatIsDown(t *testing.T) {
	virtualTime(t, func(t *testing.T) {
		s, do := fickleSite(t)
		do("GET", "/v1/keys", "")
		down := &downStore{Storage: s.Storage}
		s.Storage = down
		down.down.Store(true)
		for _, path := range []string{"/v1/keys", "/v1/audit"} {
			w := do("GET", path, "")
			if w.Code != 503 || !strings.Contains(w.Body.String(), `"store_unavailable"`) || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"same-key"`) {
				t.Errorf("%s: got %d %v %s", path, w.Code, w.Header(), w.Body)
			}
		}
		if w := do("GET", "/v1/health", ""); w.Code != 200 {
			t.Errorf("health: got %d", w.Code)
		}
		if w := do("GET", "/v1/ready", ""); w.Code != 503 || !strings.Contains(w.Body.String(), `"ready":false,"store":false`) && !strings.Contains(w.Body.String(), `"store":false`) {
			t.Errorf("ready: got %d %s", w.Code, w.Body)
		}
		gets := down.calls.Load()
		for range 50 {
			do("GET", "/v1/ready", "")
		}
		if n := down.calls.Load() - gets; n != 0 {
			t.Errorf("50 questions within a second were %d calls to the store, want 0", n)
		}
		down.down.Store(false)
		time.Sleep(time.Second)
		if w := do("GET", "/v1/ready", ""); w.Code != 200 {
			t.Errorf("ready again: got %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// A downStore fails every call while it is down.
type downStore struct {
	storage.Storage
	down  atomic.Bool
	calls atomic.Int64
}

var errDown = errors.New("the store is down")

func (d *downStore) Unwrap() storage.Storage { return d.Storage }

func (d *downStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	d.calls.Add(1)
	if d.down.Load() {
		return nil, errDown
	}
	return d.Storage.Get(ctx, key)
}

func (d *downStore) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	d.calls.Add(1)
	if d.down.Load() {
		return nil, errDown
	}
	return d.Storage.Scan(ctx, r)
}

func (d *downStore) Commit(ctx context.Context, b storage.Batch) error {
	if d.down.Load() {
		return errDown
	}
	return d.Storage.Commit(ctx, b)
}

func virtualTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
