package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A hooked store has each call pass a function first. It is shared unless opening is set: it hides that
// memory.Store is exclusive.
type hooked struct {
	inner  storage.Storage
	shared bool

	mu            sync.Mutex
	get           func(ctx context.Context, key []byte) error                          // nil: none
	commit        func(ctx context.Context, b storage.Batch, apply func() error) error // nil: apply
	gets, commits int
}

// sharedStore returns a store in memory that several holders share: they need leases.
func sharedStore() *hooked { return &hooked{inner: new(memory.Store), shared: true} }

// alsoShared returns another view of the same store, such as another process has.
func (h *hooked) another() *hooked { return &hooked{inner: h.inner, shared: h.shared} }

func (h *hooked) Get(ctx context.Context, key []byte) ([]byte, error) {
	h.mu.Lock()
	h.gets++
	get := h.get
	h.mu.Unlock()
	if get != nil {
		if err := get(ctx, key); err != nil {
			return nil, err
		}
	}
	return h.inner.Get(ctx, key)
}

func (h *hooked) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	return h.inner.Scan(ctx, r)
}

func (h *hooked) Commit(ctx context.Context, b storage.Batch) error {
	h.mu.Lock()
	h.commits++
	commit := h.commit
	h.mu.Unlock()
	if commit != nil {
		return commit(ctx, b, func() error { return h.inner.Commit(ctx, b) })
	}
	return h.inner.Commit(ctx, b)
}

func (h *hooked) Capabilities() storage.Capabilities {
	c := h.inner.Capabilities()
	c.Shared = c.Shared || h.shared
	return c
}

func (h *hooked) Close() error { return nil }

func (h *hooked) counts() (gets, commits int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gets, h.commits
}

func (h *hooked) onCommit(f func(ctx context.Context, b storage.Batch, apply func() error) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commit = f
}

func (h *hooked) onGet(f func(ctx context.Context, key []byte) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.get = f
}

// exclusive makes a hooked store one that only one process opens at a time.
type exclusive struct {
	*hooked
	opening string
}

func (e exclusive) Opening() string { return e.opening }

func (e exclusive) Capabilities() storage.Capabilities {
	c := e.hooked.Capabilities()
	c.Shared = false
	return c
}

func exclusiveStore() exclusive { return exclusive{&hooked{inner: new(memory.Store)}, "first"} }

var errDown = errors.New("the store is down")

// What batches are about.
func touches(b storage.Batch, prefix string) bool {
	for _, o := range b.Ops {
		if bytes.HasPrefix(o.Key, []byte(prefix)) {
			return true
		}
	}
	return false
}

// claims says whether b claims a key: only claims need their holder's lease.
func claims(b storage.Batch) bool {
	for _, c := range b.If {
		if c.Kind == storage.IsPresent && bytes.HasPrefix(c.Key, []byte("idemown:")) {
			return true
		}
	}
	return false
}

// ends says whether b ends a claim.
func ends(b storage.Batch) bool { return touches(b, "idem:") && !claims(b) }

func renews(b storage.Batch) bool { return touches(b, "idemown:") }

// A journal is what a Ledger has logged.
type journal struct {
	mu      sync.Mutex
	records []slog.Record
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
	return nil
}

// A logLine is a record of a journal.
type logLine struct {
	level slog.Level
	text  string
	attrs map[string]string
}

func (j *journal) all() (all []logLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.records {
		l := logLine{r.Level, r.Message, map[string]string{}}
		r.Attrs(func(a slog.Attr) bool { l.attrs[a.Key] = a.Value.String(); return true })
		all = append(all, l)
	}
	return all
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = nil
}

func (j *journal) of(text string) (found []logLine) {
	for _, l := range j.all() {
		if l.text == text {
			found = append(found, l)
		}
	}
	return found
}

func logTo(j *journal) func(*idempotency.Config) {
	return func(c *idempotency.Config) { c.Logger = slog.New(j) }
}

func lease(d time.Duration) func(*idempotency.Config) {
	return func(c *idempotency.Config) { c.Lease = d }
}

var by = idempotency.Actor{Name: "ann", Reason: "asked the bank"}

// state returns the state of a key; "" if nothing is known of it.
func state(t testing.TB, l *idempotency.Ledger, k idempotency.Key) idempotency.State {
	t.Helper()
	if i := info(t, l, k); i != nil {
		return i.State
	}
	return ""
}

func info(t testing.TB, l *idempotency.Ledger, k idempotency.Key) *idempotency.Info {
	t.Helper()
	if k.Action == "" {
		k.Action = "refund"
	}
	for i, err := range l.List(context.Background(), idempotency.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if i.Hash == k.Hash() {
			return &i
		}
	}
	return nil
}

// await fails unless a channel is closed or sends within a minute.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("no %s after a minute", what)
	}
	return v
}

// An answer is what a call of Do returned.
type answer struct {
	idempotency.Receipt[string]
	err error
}

// start calls Do in a goroutine.
func start(ctx context.Context, l *idempotency.Ledger, e *idempotency.Effect[refund, string], k idempotency.Key, in refund) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		r, err := e.Do(ctx, l, k, in)
		c <- answer{r, err}
	}()
	return c
}

var one = refund{"p1", 100}
