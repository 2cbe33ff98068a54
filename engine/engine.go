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

// An Engine starts, drives, signals and inspects workflows on one store. Its
// methods may be called by many goroutines at once.
type Engine struct {
	env

	mu     lock.Mutex // guards what follows
	closed bool
	life   *life                 // of the Run under way; nil: none
	runs   map[string]*execution // that this engine drives, by id
	gate   gate                  // for attempts
	lobby  lobby                 // for runs

	// lingering counts, by generation, executions of runs that have ended whose
	// attempts have not all returned.
	lingering map[string]int

	changed map[string]bool // runs of which it was told that an input is another one, by generation
	waiters map[string]map[chan *ending]bool

	// reconciled are the activities with an idempotency key that runs have called, by
	// their name and the type of their definition: see expected.
	reconciled sync.Map

	limits limits.Limits // of activities and scopes, for attempts
	sends  sends         // under way
}

// An env is what does not change while an engine is there. A Tx and a replay have an
// engine of their own with a copy of it.
type env struct {
	config    Config
	store     storage.Storage
	workflows map[string]*definition
	codecs    codecs
	pinned    bool // one of the workflows is
	log       *slog.Logger
	now       func() time.Time // the wall clock: read here, and with the other by read, and nowhere else
	read      func() checkpoint.Reading
	newID     func() string   // a ULID: made here and nowhere else
	base      context.Context // of calls to the store for which no caller waits

	maxPayload int // bytes of one payload
	maxBytes   int // of a checkpoint's events, but for the last
	maxOps     int // of a batch, with its conditions

	rehearsing bool          // nothing is run but workflow functions
	closing    chan struct{} // closed by Close
}

// apart is an engine with the env of e, which drives nothing.
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

// New checks everything that can be checked and returns an engine that does
// nothing yet: Run drives. The error joins a *ConfigError for each mistake in
// c; or it is a *CheckpointOwnershipCapabilityError, an *OwnershipModeError, or
// the store's. Nothing is claimed, recovered or polled before New has accepted
// the store; it writes one record, the store's stamp, when the store is new.
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
		gate:      newGate(&c),
	}
	e.mu.SetRank(lock.Outer)
	if most := c.Storage.Capabilities().MaxBatch; most.Bytes > 0 {
		e.maxPayload = min(e.maxPayload, most.Bytes/4)
		e.maxBytes = min(e.maxBytes, most.Bytes/2)
	}
	if most := c.Storage.Capabilities().MaxBatch; most.Ops > 0 {
		e.maxOps = most.Ops
	}
	if c.Ownership == SingleOwner {
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

// makeID is a new ULID of a time. One that a ULID cannot tell, as of a clock that was not
// set and says that it is before 1970, is the nearest that it can.
func makeID(now time.Time) string {
	ms := uint64(max(now.UnixMilli(), 0))
	return ulid.MustNew(min(ms, ulid.MaxTime()), ulid.DefaultEntropy()).String()
}

// checkStore refuses a store that cannot keep the promises of the mode.
func checkStore(s storage.Storage, mode Ownership) error {
	needed := []string{"conditionalBatch", "atomicBatch", "readAfterWrite", "scanConsistency"}
	if mode == SingleOwner {
		needed = needed[1:2]
	}
	for _, capability := range needed {
		if err := storage.Require(s, "checkpoint ownership", capability); err != nil {
			return &CheckpointOwnershipCapabilityError{capability, mode, storage.Adapter(s)}
		}
	}
	if opening(s) == "" && !s.Capabilities().Shared && mode == CASRequired {
		return &ConfigError{"Storage", "is neither Shared nor a storage.Exclusive: nothing tells whether its engines are alive"}
	}
	return nil
}

// opening identifies this opening of a store that has one opener at a time; it
// is empty for any other store.
func opening(s storage.Storage) string {
	if x, ok := storage.As[storage.Exclusive](s); ok {
		return x.Opening()
	}
	return ""
}

// Run recovers what earlier engines left, then drives workflows until ctx is
// done. It then takes no new work, lets running activities finish for at most
// Config.StopTimeout, makes their outcomes durable, and returns nil. What is not
// finished goes on in the next engine. User code that does not heed its context
// for another StopTimeout is left behind.
//
// It returns ErrClosed once Close was called, and the store's error if the store
// cannot be used at all. One that wraps storage.ErrMoved says, within a PollInterval,
// that files of the store were deleted, renamed or replaced, and one that wraps
// storage.ErrFutureFormat that a newer release has made the store its own: everything was
// cut off.
// One Run is under way at a time.
func (e *Engine) Run(ctx context.Context) error {
	for {
		err := e.live(ctx)
		if err != activity.ErrLeaseLost || ctx.Err() != nil {
			return err
		}
	}
}

// live is one life of the engine. One that lost its lease is followed by another.
func (e *Engine) live(ctx context.Context) error {
	l, err := e.begin()
	if err != nil {
		return err
	}
	defer e.end(l)
	newer := (*outgrownError)(nil)
	if err := e.outgrown(ctx); errors.As(err, &newer) {
		return err // since New, or since the life before
	}
	err = l.register(ctx)
	if err == nil {
		err = l.heed(ctx)
	}
	if err != nil {
		if l.ctx.Err() != nil || ctx.Err() != nil {
			return e.refused() // told to stop before it had begun
		}
		return err
	}
	e.log.Info("weft: engine runs", "incarnation", l.incarnation, "store", storage.Adapter(e.store), "workflows", len(e.workflows), "deployment", e.config.Deployment)
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

// types are the names of the workflows that e runs, in order.
func (e *Engine) types() []string { return slices.Sorted(maps.Keys(e.workflows)) }

// refused is ErrClosed after Close.
func (e *Engine) refused() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

var errRunning = errors.New("engine: Run is under way already")

func (e *Engine) begin() (*life, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.life != nil:
		return nil, errRunning
	}
	e.life = newLife(e)
	return e.life, nil
}

func (e *Engine) end(l *life) {
	l.cancel(nil)
	e.mu.Lock()
	e.life = nil
	e.mu.Unlock()
	close(l.over)
}

// Close stops at once: activities' contexts are cancelled, workflows are put
// down where they are, and Close returns when nothing of the engine runs any
// more (but for user code that does not heed its context for StopTimeout). It
// may be called at any time, and again. The store stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	l := e.life
	e.mu.Unlock()
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

// await registers for the end of a workflow. local says that this engine drives
// it and it is of that type, so that its end will certainly be told here.
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

// tell tells everybody who waits for x: with its output, or with nil that this
// engine does not drive it any more. Who begins to wait later is not told.
func (e *Engine) tell(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.told = true
	e.tellAll(x.id, x.ended())
}

// lookAgain has everybody who waits for the end of id look whether it has come.
func (e *Engine) lookAgain(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tellAll(id, nil)
}

// tellAll tells everybody who waits for the end of id. The caller has e.mu.
func (e *Engine) tellAll(id string, end *ending) {
	for ended := range e.waiters[id] {
		select {
		case ended <- end:
		default:
		}
	}
}

// tells says that the end of id is still to be told.
func (e *Engine) tells(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[id]
	return x != nil && !x.told
}

// driven returns the execution of id if this engine drives it, or has done so
// and waits for its attempts to return.
func (e *Engine) driven(id string) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// allDriven are the executions of this engine, those too that wait for their attempts to
// return.
func (e *Engine) allDriven() []*execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.runs))
}

// drives returns the execution of wf if it is that of wf's owner.
func (e *Engine) drives(wf *checkpoint.Workflow) *execution {
	if x := e.driven(wf.ID); x != nil && x.life.incarnation == wf.Owner {
		return x
	}
	return nil
}
