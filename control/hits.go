package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A hitRecord has the unexpected hits of a minute: ctl:hit:{minute}.
type hitRecord struct {
	Seconds []int64 `cbor:"1,keyasint"` // how many in each second of the minute

	raw     []byte
	unknown record.Unknown
}

// A hitsRecord has the unexpected hits there ever were: ctl:hits.
type hitsRecord struct {
	Total int64 `cbor:"1,keyasint"`
	Last  int64 `cbor:"2,keyasint"` // when the last one was

	raw     []byte
	unknown record.Unknown
}

// Watch returns a handler for paths below /.well-known/workflow/v1/. While Config.Guard is in mode
// remote, steps run elsewhere: a message of a queue that arrives here all the same is counted, and
// answered with 409 remote_execution_enabled. All other requests go to next.
func (p *Plane) Watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.config.Guard.remote() || !unexpected(r) {
			next.ServeHTTP(w, r)
			return
		}
		x := p.newExchange(w, r)
		if !p.enter() {
			x.refuse(operation.Closing())
			return
		}
		defer p.leave()
		p.hits.add(time.Now())
		bad := operation.NewProblem(http.StatusConflict, "remote_execution_enabled", "Workflows are executed remotely: this process takes no messages of the queue")
		bad.Recovery = "Send the message to the world that WORKFLOW_TARGET_WORLD names."
		x.refuse(bad)
	})
}

// unexpected reports whether r is a message of a queue.
func unexpected(r *http.Request) bool {
	if r.Method != http.MethodPost || r.URL.Path != "/.well-known/workflow/v1/flow" && r.URL.Path != "/.well-known/workflow/v1/step" {
		return false
	}
	if t, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(t), "application/json") {
		return false
	}
	return slices.ContainsFunc([]string{"X-Vqs-Signature", "X-Vqs-Delivery-Id", "X-Workflow-Queue-Provider", "X-Workflow-Message-Id"},
		func(name string) bool { return len(r.Header[name]) > 0 })
}

// recently is for how long a hit counts as recent.
const recently = 15 * time.Minute

// A hitCounter counts unexpected hits, and writes them up to audit.Delay later: many at once.
type hitCounter struct {
	store storage.Storage
	log   *slog.Logger
	work  sync.WaitGroup

	mu      lock.Mutex
	pending map[int64]int64 // hits by unix second
	writing bool
	closed  bool
}

func (h *hitCounter) add(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if h.pending == nil {
		h.pending = map[int64]int64{}
	}
	h.pending[at.Unix()]++
	if !h.writing {
		h.writing = true
		h.work.Go(h.write)
	}
}

// write writes hits until there are none.
func (h *hitCounter) write() {
	for {
		time.Sleep(audit.Delay)
		h.mu.Lock()
		hits := h.pending
		h.pending = nil
		if len(hits) == 0 {
			h.writing = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), audit.Patience)
		if err := h.count(ctx, hits); err != nil {
			h.log.Error("unexpected hits are not counted: the store did not take them", "seconds", len(hits), "error", err)
		}
		cancel()
	}
}

// count adds hits by second to what is stored. After an unknown outcome it looks whether they were
// added. They count twice only if another process has counted more since.
func (h *hitCounter) count(ctx context.Context, hits map[int64]int64) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ops, conditions, err := h.adding(ctx, hits)
		if err == nil {
			err = settle.Commit(ctx, h.store, storage.Batch{If: conditions, Ops: ops}, nil, settle.Stored(h.store, ops...))
		}
		if err == nil || errors.Is(err, storage.ErrClosed) || record.Damaged(err) {
			return err
		}
		if !backoff.Wait(ctx, pause) {
			return err
		}
	}
}

// adding returns the change that adds hits.
func (h *hitCounter) adding(ctx context.Context, hits map[int64]int64) ([]storage.Op, []storage.Condition, error) {
	c := &records.Change{}
	minutes := map[int64]*hitRecord{}
	total := &hitsRecord{}
	var err error
	if total.raw, total.unknown, err = records.Read(ctx, h.store, keys.ControlHits(), total); err != nil {
		return nil, nil, err
	}
	for second, n := range hits {
		total.Total += n
		total.Last = max(total.Last, second*1e6)
		m := minutes[second/60]
		if m == nil {
			m = &hitRecord{}
			if m.raw, m.unknown, err = records.Read(ctx, h.store, keys.ControlHit(time.Unix(second, 0)), m); err != nil {
				return nil, nil, err
			}
			if len(m.Seconds) != 60 {
				m.Seconds = make([]int64, 60)
			}
			minutes[second/60] = m
		}
		m.Seconds[second%60] += n
	}
	c.Put(keys.ControlHits(), total.raw, total, total.unknown)
	for minute, m := range minutes {
		c.Put(keys.ControlHit(time.Unix(minute*60, 0)), m.raw, m, m.unknown)
	}
	return c.Ops, c.If, c.Err
}

// read returns how many hits there ever were, how many lately, and when the last one was.
func (h *hitCounter) read(ctx context.Context, now time.Time) (total, lately int64, last time.Time, err error) {
	all := &hitsRecord{}
	if _, _, err = records.Read(ctx, h.store, keys.ControlHits(), all); err != nil {
		return 0, 0, time.Time{}, err
	}
	since := now.Add(-recently)
	for e, err := range storage.All(ctx, h.store, keys.ControlHitsFrom(since)) {
		if err != nil {
			return 0, 0, time.Time{}, err
		}
		m := &hitRecord{}
		if _, err := record.Open(e.Key, e.Value, records.Version, m); err != nil {
			return 0, 0, time.Time{}, err
		}
		began, err := keys.ControlHitMinute(e.Key)
		if err != nil {
			return 0, 0, time.Time{}, err
		}
		for second, n := range m.Seconds {
			if at := began.Add(time.Duration(second) * time.Second); at.After(since) {
				lately += n
			}
		}
	}
	return all.Total, lately, records.Time(all.Last), nil
}

// forget removes the minutes that are not recent any more.
func (h *hitCounter) forget(ctx context.Context, now time.Time) error {
	old := keys.ControlHitsUntil(now.Add(-2 * recently))
	return h.store.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.DeleteRange(old)}})
}

// close waits until what was counted is written.
func (h *hitCounter) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.work.Wait()
}
