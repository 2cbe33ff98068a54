package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A gate is a store that lets through only what the plane itself writes while it is shut: other commits wait until it opens or their
// own context ends. A broken one has them fail, with an unknown outcome.
type gate struct {
	storage.Storage
	shut   chan struct{} // nil: it is open
	broken bool
}

func (g *gate) Unwrap() storage.Storage { return g.Storage }

func (g *gate) Commit(ctx context.Context, b storage.Batch) error {
	for _, op := range b.Ops {
		if strings.HasPrefix(string(op.Key), "ctl:") {
			return g.Storage.Commit(ctx, b)
		}
	}
	if g.broken {
		return errors.New("the disk does not answer")
	}
	if g.shut != nil {
		select {
		case <-g.shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return g.Storage.Commit(ctx, b)
}

// apartChanges are the requests whose commits the engine makes, with the status of their success.
var apartChanges = []struct {
	operation, method, path, body string
	status                        int
}{
	{"signals.send", "POST", "/v1/runs/w/signals/go", `{"payload":1,"signalId":"evt"}`, 200},
	{"hooks.resume", "POST", "/v1/hooks/resume", `{"token":"t","payload":1,"resumeId":"evt"}`, 200},
	{"runs.purge", "DELETE", "/v1/runs/e", "", 204},
}

// gated calls f in virtual time with a gate, and a plane on it that has the runs of apartChanges. The engine executes nothing any more.
func gated(t *testing.T, f func(t *testing.T, g *gate, p *Plane, ask func(ctx context.Context, method, path, body string) *httptest.ResponseRecorder)) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Storage: new(memory.Store)}
		quiet := slog.New(slog.DiscardHandler)
		e, err := engine.New(engine.Config{Storage: g, Workflows: append(workflows(), hooked), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		p, err := New(Config{Engine: e, Keys: siteKeys[:1], Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ask := func(ctx context.Context, method, path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+home)
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			if path == "/v1/runs" {
				r.Header.Set("Idempotency-Key", fresh())
			}
			w := httptest.NewRecorder()
			answers.Handler(p).ServeHTTP(w, r)
			return w
		}
		for _, body := range []string{`{"workflowName":"wait","runId":"w"}`, `{"workflowName":"hooked","runId":"h","input":["t",""]}`, `{"workflowName":"echo","runId":"e"}`} {
			if w := ask(t.Context(), "POST", "/v1/runs", body); w.Code != 201 {
				t.Fatal(w.Body)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f(t, g, p, ask)
	})
}

// A client that leaves while its change is being committed does not stop it, and the audit has what became of it.
func TestAClientThatLeavesDuringACommit(t *testing.T) {
	for _, c := range apartChanges {
		t.Run(c.operation, func(t *testing.T) {
			gated(t, func(t *testing.T, g *gate, p *Plane, ask func(ctx context.Context, method, path, body string) *httptest.ResponseRecorder) {
				g.shut = make(chan struct{})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				answered := make(chan *httptest.ResponseRecorder, 1)
				go func() { answered <- ask(ctx, c.method, c.path, c.body) }()
				synctest.Wait()
				leave()
				time.Sleep(9 * time.Second)
				close(g.shut)
				if w := <-answered; w.Code != c.status {
					t.Errorf("got %d %s, want %d", w.Code, w.Body, c.status)
				}
				time.Sleep(time.Second)
				var page struct{ Data []struct{ Result string } }
				if err := json.Unmarshal(ask(t.Context(), "GET", "/v1/audit?action="+c.operation, "").Body.Bytes(), &page); err != nil || len(page.Data) != 1 || page.Data[0].Result != "success" {
					t.Errorf("the audit has %v, %v", page, err)
				}
			})
		})
	}
}

// A change whose outcome cannot be found out is answered so after 10 s, or so long after its client has left. Then the plane can close.
func TestAChangeOfUnknownOutcome(t *testing.T) {
	for _, c := range apartChanges {
		for _, leaves := range []bool{false, true} {
			gated(t, func(t *testing.T, g *gate, p *Plane, ask func(ctx context.Context, method, path, body string) *httptest.ResponseRecorder) {
				g.broken = true
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if leaves {
					time.AfterFunc(time.Second, leave)
				} else if c.operation == "runs.purge" {
					time.AfterFunc(time.Second, func() { p.Close() })
				}
				began := time.Now()
				w := ask(ctx, c.method, c.path, c.body)
				if w.Code != 503 || !strings.Contains(w.Body.String(), `"outcome_unknown"`) {
					t.Errorf("%s: got %d %s", c.operation, w.Code, w.Body)
				}
				if took := time.Since(began); took > 11*time.Second || took < time.Second {
					t.Errorf("%s: answered after %v", c.operation, took)
				}
			})
		}
	}
}
