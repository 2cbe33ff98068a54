package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/limits"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// An Engine starts, executes, signals and inspects workflows on one store. Its
// methods are safe for concurrent use.
type Engine struct {
	env

	mu          lock.Mutex // guards what follows
	closed      bool
	incarnation *incarnation          // of the Run in progress; nil: none
	runs        map[string]*execution // that this engine executes, by id
	capacity    capacity              // for runs

	// lingering counts, by generation, executions of runs that have ended whose
	// attempts have not all returned.
	lingering map[string]int

	changed map[string]bool // runs for which a changed input was reported, by generation
	waiters map[string]map[chan *ending]bool

	// reconciled has the activities with an idempotency key that runs have called, by
	// the name and the type of their definition: see expected.
	reconciled sync.Map

	gate   *limits.Gate  // for attempts
	limits limits.Limits // of activities and scopes, for attempts
	sends  sends         // in progress
}

// An env is the part of an engine that never changes. A Tx and a replay have an engine
// of their own with a copy of it.
type env struct {
	config    Config
	store     storage.Storage
	workflows map[string]*definition
	codecs    codecs
	pinned    bool // at least one workflow is Pinned
	log       *slog.Logger
	now       func() time.Time          // reads the wall clock; with read, the only access to it
	read      func() checkpoint.Reading // reads the wall clock and the monotonic clock
	newID     func() string             // returns a ULID; the only place that makes one
	base      context.Context           // of calls to the store for which no caller waits

	maxPayload int // bytes of one payload
	maxBytes   int // of a checkpoint's events, not counting the last
	maxOps     int // operations and conditions of a batch

	rehearsing bool          // only workflow functions are run
	closing    chan struct{} // closed by Close
}

// apart returns an engine with the env of e that executes no runs.
func (e *Engine) apart() *Engine {
	a := &Engine{env: e.env}
	a.mu.SetRank(lock.Outer)
	return a
}

// readClocks reads both clocks at once.
func readClocks() checkpoint.Reading {
	now := time.Now()
	return checkpoint.Reading{Wall: now.Round(0), Mono: now}
}

// New checks the configuration and the store and returns an engine. The engine
// executes nothing until Run is called. The error joins a *ConfigError for each
// mistake in c; or it is a *CheckpointOwnershipCapabilityError, an
// *OwnershipModeError, or the store's. New claims no run. It writes one record,
// the store's stamp, if the store is new.
func New(c Config) (*Engine, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := checkStore(c.Storage, c.Ownership); err != nil {
		return nil, err
	}
	e := &Engine{
		env: env{
			config:     c,
			store:      c.Storage,
			workflows:  map[string]*definition{},
			codecs:     codecs{own: c.Codec, byName: map[string]Codec{JSON.Name(): JSON, c.Codec.Name(): c.Codec}},
			log:        c.Logger,
			now:        time.Now,
			read:       readClocks,
			newID:      func() string { return makeID(time.Now()) },
			base:       context.Background(),
			maxPayload: MaxPayload,
			maxBytes:   mostBytes,
			maxOps:     math.MaxInt,
			closing:    make(chan struct{}),
		},
		runs:      map[string]*execution{},
		lingering: map[string]int{},
		waiters:   map[string]map[chan *ending]bool{},
		gate:      limits.NewGate(c.MaxActivities, c.LeaseTTL, c.Logger),
	}
	e.mu.SetRank(lock.Outer)
	if most := c.Storage.Capabilities().MaxBatch; most.Bytes > 0 {
		e.maxPayload = min(e.maxPayload, most.Bytes/4)
		e.maxBytes = min(e.maxBytes, most.Bytes/2)
	}
	if most := c.Storage.Capabilities().MaxBatch; most.Ops > 0 {
		e.maxOps = most.Ops
	}
	if c.Ownership == OwnershipSingleOwner {
		e.store = newSerial(c.Storage)
	}
	e.store = attentive{e.store, e}
	for _, codec := range c.Codecs {
		e.codecs.byName[codec.Name()] = codec
	}
	for _, w := range c.Workflows {
		d := w.define()
		e.workflows[d.name] = d
		e.pinned = e.pinned || d.pinned
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := settleMode(ctx, e.store, c.Ownership); err != nil {
		return nil, err
	}
	return e, nil
}

// makeID returns a new ULID with the time now. A time outside the range of a ULID, such
// as one before 1970 from a clock that was not set, is replaced by the nearest in range.
func makeID(now time.Time) string {
	ms := uint64(max(now.UnixMilli(), 0))
	return ulid.MustNew(min(ms, ulid.MaxTime()), ulid.DefaultEntropy()).String()
}

// checkStore refuses a store that lacks a capability that the mode needs.
func checkStore(s storage.Storage, mode Ownership) error {
	needed := []string{"conditionalBatch", "atomicBatch", "readAfterWrite", "scanConsistency"}
	if mode == OwnershipSingleOwner {
		needed = needed[1:2]
	}
	for _, capability := range needed {
		if err := storage.Require(s, "checkpoint ownership", capability); err != nil {
			return &CheckpointOwnershipCapabilityError{Capability: capability, Mode: mode, Adapter: storage.Adapter(s)}
		}
	}
	if opening(s) == "" && !s.Capabilities().Shared && mode == OwnershipCASRequired {
		return &ConfigError{Field: "Storage", Problem: "is neither Shared nor a storage.Exclusive: dead engines cannot be detected"}
	}
	return nil
}

// opening identifies this opening of an exclusive store. It is empty for any other
// store.
func opening(s storage.Storage) string {
	if x, ok := storage.As[storage.Exclusive](s); ok {
		return x.Opening()
	}
	return ""
}

// Run recovers what earlier engines left unfinished, then executes workflows until
// ctx is done. It then takes no new work, lets running activities finish for at most
// Config.StopTimeout, makes their outcomes durable, and returns nil. What is not
// finished continues in the next engine. User code that ignores the end of its
// context for another StopTimeout is abandoned.
//
// Run returns ErrClosed after Close was called, and the store's error if the store
// cannot be used at all. If files of the store were deleted, renamed or replaced, it
// returns an error that wraps storage.ErrMoved, within a PollInterval. If a newer release
// has upgraded the store, the error wraps storage.ErrFutureFormat. In both cases Run does
// not wait for activities to finish.
//
// Only one Run may be in progress at a time.
func (e *Engine) Run(ctx context.Context) error {
	for {
		err := e.live(ctx)
		if err != activity.ErrLeaseLost || ctx.Err() != nil {
			return err
		}
	}
}

// live runs one incarnation of the engine. If that loses its lease, Run starts another.
func (e *Engine) live(ctx context.Context) error {
	l, err := e.beginIncarnation()
	if err != nil {
		return err
	}
	defer e.endIncarnation(l)
	newer := (*outgrownError)(nil)
	if err := e.outgrown(ctx); errors.As(err, &newer) {
		return err // the store was upgraded since New or the previous incarnation
	}
	err = l.register(ctx)
	if err == nil {
		err = l.readFloor(ctx)
	}
	if err != nil {
		if l.ctx.Err() != nil || ctx.Err() != nil {
			return e.refused() // stopped before it had started
		}
		return err
	}
	e.log.Info("weft: engine started", "incarnation", l.name, "store", storage.Adapter(e.store), "workflows", len(e.workflows), "deployment", e.config.Deployment)
	l.setOpen(true)
	l.keepLease()
	lost := l.work(ctx)
	l.stop()
	if lost != nil {
		return lost
	}
	if context.Cause(l.ctx) == activity.ErrLeaseLost {
		return activity.ErrLeaseLost
	}
	return e.refused()
}

// types returns the names of the workflows that e has, sorted.
func (e *Engine) types() []string { return slices.Sorted(maps.Keys(e.workflows)) }

// refused returns ErrClosed after Close.
func (e *Engine) refused() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

var errRunning = errors.New("engine: Run is already in progress")

func (e *Engine) beginIncarnation() (*incarnation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.incarnation != nil:
		return nil, errRunning
	}
	e.incarnation = newIncarnation(e)
	e.gate.Open(e.incarnation.hurryUp)
	return e.incarnation, nil
}

func (e *Engine) endIncarnation(l *incarnation) {
	l.cancel(nil)
	e.gate.Shut()
	e.mu.Lock()
	e.incarnation = nil
	e.mu.Unlock()
	close(l.over)
}

// Close stops the engine at once. It cancels the contexts of activities, releases
// all runs as they are, and returns when no goroutine of the engine runs any more,
// except for user code that ignores the end of its context for StopTimeout. It may
// be called at any time, and more than once. The store stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	l := e.incarnation
	e.mu.Unlock()
	e.gate.Shut()
	if l != nil {
		l.cancel(activity.ErrStopped)
		<-l.over
	}
	return nil
}

// An ending is how a workflow ended.
type ending struct {
	workflow string
	*checkpoint.Output
}

// await registers a waiter for the end of a workflow. local reports whether this engine
// executes it and its type matches, so that the waiter will certainly be notified.
func (e *Engine) await(workflow, id string) (ended chan *ending, local bool, release func()) {
	ended = make(chan *ending, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiters[id] == nil {
		e.waiters[id] = map[chan *ending]bool{}
	}
	e.waiters[id][ended] = true
	x := e.runs[id]
	return ended, x != nil && !x.told && (workflow == "" || workflow == x.def.name), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.waiters[id], ended); len(e.waiters[id]) == 0 {
			delete(e.waiters, id)
		}
	}
}

// tell notifies all waiters for x: of its output, or with nil that this engine does not
// execute it any more. Waiters that register later are not notified.
func (e *Engine) tell(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.told = true
	e.tellAll(x.id, x.ended())
}

// lookAgain makes all waiters for the end of id check the store.
func (e *Engine) lookAgain(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tellAll(id, nil)
}

// tellAll notifies all waiters for the end of id. The caller holds e.mu.
func (e *Engine) tellAll(id string, end *ending) {
	for ended := range e.waiters[id] {
		select {
		case ended <- end:
		default:
		}
	}
}

// tells reports whether this engine executes id and will still notify its waiters.
func (e *Engine) tells(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[id]
	return x != nil && !x.told
}

// driven returns the execution of id if this engine executes it, or has done so and
// still waits for its attempts to return. Otherwise it returns nil.
func (e *Engine) driven(id string) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// allDriven returns all executions of this engine, including those that only wait for
// their attempts to return.
func (e *Engine) allDriven() []*execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.runs))
}

// drives returns the execution of wf if it belongs to wf's owner, and nil otherwise.
func (e *Engine) drives(wf *checkpoint.Workflow) *execution {
	if x := e.driven(wf.ID); x != nil && x.incarnation.name == wf.Owner {
		return x
	}
	return nil
}
