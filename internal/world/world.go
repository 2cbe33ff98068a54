package world

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
)

// The defaults of Options.
const (
	DefaultMaxEvents = 25_000
	DefaultMaxHooks  = 1000
)

const (
	maxWorkflow  = 512  // bytes of the name of a workflow or a step
	bytesOfAHook = 4096 // that the end of a run has at most for each of its open hooks
	opsOfAHook   = 6    // operations that the end of a run has for each of its open hooks, and conditions
	opsOfAnEnd   = 16
)

// MostDelay is the longest time for which a client may delay a message, or is told to wait: a year.
const MostDelay = 366 * 24 * time.Hour

// Options are settings of a World. nil means the defaults.
type Options struct {
	MaxEvents int // of a run, but for those that end it; zero means DefaultMaxEvents

	// MaxHooks is how many hooks of a run may be open. Zero means DefaultMaxHooks. The end of a run disposes
	// them in one batch, so a store with small batches has a lower limit.
	MaxHooks int

	// Retention is how long runs are kept after their end. Sweep removes them then, with their streams. Zero means for ever.
	Retention time.Duration

	// Damaged is called with the key of a record that Sweep cannot read, and why. It passes over its run. nil means
	// that nobody wants to know.
	Damaged func(key string, err error)

	Now func() time.Time // the wall clock; nil means time.Now
}

// A World is the runs in a store. Its methods are safe for concurrent use. It need not be closed.
type World struct {
	store  storage.Storage
	ids    *ids.Source
	now    func() time.Time
	limits limits

	lines *lines // nil: in a transaction
	heads *heads // likewise

	presumes bool // a request may be decided on what was not read, if the commit requires it

	retention time.Duration
	damaged   func(key string, err error)
	swept     *reads.Places
}

// Open returns the world in a store. A store without conditional batches is refused with a
// *storage.CapabilityError.
func Open(s storage.Storage, o *Options) (*World, error) {
	if err := storage.Require(s, "a world", "conditionalBatch"); err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	if o.MaxEvents < 0 || o.MaxHooks < 0 || o.Retention < 0 {
		return nil, fmt.Errorf("world: open: MaxEvents is %d, MaxHooks %d, Retention %v: none may be negative", o.MaxEvents, o.MaxHooks, o.Retention)
	}
	w := &World{store: s, swept: new(reads.Places), ids: new(ids.Source), now: o.Now, limits: limits{events: o.MaxEvents, hooks: o.MaxHooks}, retention: o.Retention, damaged: o.Damaged, lines: &lines{byRun: map[string]*line{}}, heads: new(heads), presumes: true}
	if w.damaged == nil {
		w.damaged = func(string, error) {}
	}
	if w.now == nil {
		w.now = time.Now
	}
	if w.limits.events == 0 {
		w.limits.events = DefaultMaxEvents
	}
	if w.limits.hooks == 0 {
		w.limits.hooks = DefaultMaxHooks
	}
	limit := s.Capabilities().MaxBatch
	if limit.Ops > 0 {
		w.limits.hooks = max(1, min(w.limits.hooks, (limit.Ops-opsOfAnEnd)/opsOfAHook))
	}
	if limit.Bytes > 0 {
		w.limits.hooks = max(1, min(w.limits.hooks, limit.Bytes/bytesOfAHook))
	}
	return w, nil
}

// In returns the world inside tx, a transaction of the host on the same store: what it creates is there if and only
// if the host commits.
func (w *World) In(tx storage.Tx) *World {
	in := *w
	in.store, in.lines, in.heads, in.presumes = tx, nil, nil, false
	return &in
}

// get returns a record's bytes, or nil if there is none.
func (w *World) get(ctx context.Context, key []byte) ([]byte, error) {
	raw, err := w.store.Get(ctx, key)
	if err != nil {
		return nil, absent(err)
	}
	return raw, nil
}

// headOf returns the head of a run, or nil.
func (w *World) headOf(ctx context.Context, run string) (*head, error) {
	return headOf(ctx, w.store, run)
}

func headOf(ctx context.Context, s storage.Storage, run string) (*head, error) {
	raw, err := s.Get(ctx, keys.World(run))
	if err != nil {
		return nil, absent(err)
	}
	return openHead(run, raw)
}

// eventAt returns event n of a run.
func (w *World) eventAt(ctx context.Context, h *head, n uint64) (*event, error) {
	raw, err := w.get(ctx, keys.WorldEvent(h.run, n))
	if err == nil && raw == nil {
		err = w.noEvent(ctx, h, n)
	}
	if err != nil {
		return nil, err
	}
	return openEvent(h, n, raw)
}

// noEvent returns the error of an event that is missing: that of the run if it was removed since h was read, else damage, because
// events are dense.
func (w *World) noEvent(ctx context.Context, h *head, n uint64) error {
	if _, err := w.mustHead(ctx, h.run); err != nil {
		return err
	}
	return fmt.Errorf("%w: run %q has no event %d, and its head says that it has %d", storage.ErrCorrupt, h.run, n, h.Seq)
}
