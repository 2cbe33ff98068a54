package engine

import (
	"context"
	"math"
	"time"

	"github.com/weft-go/weft/internal/admin"
	"github.com/weft-go/weft/internal/bulk"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/intake"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/limits"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/retention"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/schedule"
	"github.com/weft-go/weft/internal/upkeep"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// An Engine starts, executes, signals and inspects workflows on one store. Its
// methods are safe for concurrent use.
type Engine struct {
	worker *worker.Worker
	intake *intake.Intake
	admin  *admin.Admin
	reader *inspect.Reader
	config Config

	schedules *schedule.Schedules
	bulks     *bulk.Bulks
}

// assemble returns the engine for e.
func assemble(e run.Env, c Config, gate *limits.Gate) *Engine {
	w := worker.New(run.NewHost(e, gate))
	in := &intake.Intake{Worker: w}
	w.Peers = in
	r := &inspect.Reader{Worker: w}
	if e.Archive != nil {
		w.ArchiveLife = r.ArchiveLife
	}
	a := &admin.Admin{Worker: w, Reader: r}
	s := &schedule.Schedules{Intake: in, Admin: a}
	b := bulk.New(in, a, r)
	if !e.Staged { // it is never run
		w.Upkeep = upkeep.Duties()
		w.Duties = []worker.Duty{retention.Duty(a), s.Duty(), b.Duty()}
	}
	return &Engine{worker: w, intake: in, admin: a, reader: r, schedules: s, bulks: b, config: c}
}

// readClocks reads both clocks at once.
func readClocks() journal.Reading {
	now := time.Now()
	return journal.Reading{Wall: now.Round(0), Mono: now}
}

// New checks the configuration and the store and returns an engine. The engine
// executes nothing until Run is called: what it starts waits for Run, or for another engine. The error joins a *ConfigError for each
// mistake in c; or it is a *CheckpointOwnershipCapabilityError, an
// *OwnershipModeError, or the store's. New claims no run. If the store is new, it
// writes two small records about it.
func New(c Config) (*Engine, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := checkStore(c.Storage, c.Ownership); err != nil {
		return nil, err
	}
	e := run.Env{
		Settings:   c.settings(),
		Store:      c.Storage,
		Workflows:  map[string]*run.Definition{},
		Activities: c.Activities,
		Codecs:     payload.Codecs{Own: c.Codec, ByName: map[string]Codec{JSON.Name(): JSON, c.Codec.Name(): c.Codec}},
		Log:        c.Logger,
		Now:        time.Now,
		Read:       readClocks,
		NewID:      func() string { return ids.ULID(time.Now()) },
		Base:       context.Background(),
		MaxPayload: MaxPayload,
		MaxBytes:   run.MostBytes,
		MaxOps:     math.MaxInt,
		Opening:    opening(c.Storage),
		Closing:    make(chan struct{}),
	}
	if most := c.Storage.Capabilities().MaxBatch; most.Bytes > 0 {
		e.MaxPayload = min(e.MaxPayload, most.Bytes/4)
		e.MaxBytes = min(e.MaxBytes, most.Bytes/2)
	}
	if most := c.Storage.Capabilities().MaxBatch; most.Ops > 0 {
		e.MaxOps = most.Ops
	}
	if c.Ownership == OwnershipSingleOwner {
		e.Store = newSerial(c.Storage)
	}
	hub := new(follow.Hub)
	e.Store = told(waiting.Store{Storage: follow.On(e.Store, hub), Closing: e.Closing}, e.Events.Committed)
	for _, codec := range c.Codecs {
		e.Codecs.ByName[codec.Name()] = codec
	}
	for _, w := range c.Workflows {
		d := w.define()
		e.Workflows[d.Name] = d
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	format, err := meta.SettleMode(ctx, e.Store, c.Ownership)
	if err != nil {
		return nil, err
	}
	e.ByGeneration = format >= meta.LogsByGeneration
	eng := assemble(e, c, limits.NewGate(c.MaxActivities, c.LeaseTTL, c.Logger))
	eng.reader.Hub, eng.reader.Streams = hub, &chunks.Tails{Hub: hub, Store: e.Store}
	return eng, nil
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
	if mode != OwnershipCASRequired {
		return nil
	}
	switch shared, exclusive := s.Capabilities().Shared, opening(s) != ""; {
	case !shared && !exclusive:
		return &ConfigError{Field: "Storage", Problem: "is neither Shared nor a storage.Exclusive: dead engines cannot be detected"}
	case shared && exclusive:
		return &ConfigError{Field: "Storage", Problem: "is Shared and has an Opening: engines of other processes would be taken for dead"}
	}
	return nil
}

// opening identifies this opening of an exclusive store. It is empty for any other store.
func opening(s storage.Storage) string {
	if x, ok := storage.As[storage.Exclusive](s); ok {
		return x.Opening()
	}
	return ""
}

// Run recovers what earlier engines left unfinished, then executes workflows until
// ctx is done. It then takes no new work, lets running activities finish for at most
// Config.StopTimeout, makes their outcomes durable, and returns nil. What is not
// finished continues in the next engine, and so does all of it if the engine loses its lease
// meanwhile. User code that ignores the end of its
// context for another StopTimeout is abandoned.
//
// Run returns ErrClosed after Close was called, and the store's error if the store
// cannot be used at all. If files of the store were deleted, renamed or replaced, it
// returns an error that wraps storage.ErrMoved, within a PollInterval. If the store has
// failed, the error wraps storage.ErrFailed, and if a newer release has upgraded the store,
// storage.ErrFutureFormat. In these cases Run does not wait for activities to finish.
//
// Only one Run may be in progress at a time.
func (e *Engine) Run(ctx context.Context) error { return e.worker.Run(ctx) }

// Poke has the engine look now for what others have written for it, such as what was staged in a
// Tx that was committed just now. It returns at once, and does nothing while Run is not in progress.
func (e *Engine) Poke() { e.bulks.Tell() }

// Store returns the Config.Storage of the engine.
func (e *Engine) Store() storage.Storage { return e.config.Storage }

// Close stops the engine at once. It cancels the contexts of activities, releases
// all runs as they are, and returns when no goroutine of the engine runs any more,
// except for user code that ignores the end of its context for StopTimeout. It may
// be called at any time, and more than once, but not in the handler of Config.Logger, for which it would wait. The
// store stays open.
func (e *Engine) Close() error { return e.worker.Close() }
