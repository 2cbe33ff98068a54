package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

// A Plane serves an engine over HTTP. It is an http.Handler for paths below /v1/.
type Plane struct {
	config Config
	engine *engine.Engine
	store  storage.Storage // the engine's
	ledger *idempotency.Ledger
	log    *slog.Logger

	router    *router
	strangers strangers
	rates     *rates
	auditor   *auditor
	hits      *hitCounter
	probe     prober
	holds     holds
	polls     waiters
	streams   waiters
	webhooks  waiters
	bodies    waiters // of webhooks
	names     names
	world     http.Handler // of Config.World; nil: there is none

	lastPointer atomic.Pointer[[]byte] // the record of the active deployment as it was last read

	closing chan struct{} // closed by Close

	mu     lock.Mutex // guards the fields below
	closed bool
	calls  sync.WaitGroup // Add only while closed is false
}

// New checks the configuration and the store, writes Config.Keys, and returns a plane. The error joins
// a *ConfigError for each mistake in c; or it is a *GuardError, a *storage.CapabilityError, or the
// store's. Nothing is written before all of that is checked.
//
// Close it when no request comes any more.
func New(c Config) (*Plane, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.Guard.check(); err != nil {
		return nil, err
	}
	s := c.Engine.Store()
	for _, needed := range []string{"conditionalBatch", "atomicBatch", "readAfterWrite"} {
		if err := storage.Require(s, "package control", needed); err != nil {
			return nil, err
		}
	}
	p := &Plane{
		config: c, engine: c.Engine, store: s, log: c.Logger, closing: make(chan struct{}),
		router:  newRouter(operations()),
		auditor: newAuditor(s, c.Home, c.Logger),
		hits:    &hitCounter{store: s, log: c.Logger},
		probe:   prober{asking: make(chan struct{}, 1)},
	}
	if c.World != nil {
		p.world = c.World.Handler()
	}
	p.rates = &rates{plane: p, limit: c.RateLimit}
	p.holds.valid = p.stillValid
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.Engine.In(stage.New(s)).Describe(ctx, "@"); errors.Is(err, engine.ErrNotApplicable) {
		return nil, &ConfigError{"Engine", "has OwnershipSingleOwner: all writes must go through the engine, and a plane adds its own to them"}
	}
	for _, k := range c.Keys {
		if err := p.seedKey(ctx, k); err != nil {
			return nil, err
		}
	}
	ledger, err := idempotency.New(idempotency.Config{Storage: s, Logger: c.Logger, MaxResult: p.mostSealed()})
	if err != nil {
		return nil, fmt.Errorf("control: the ledger of idempotency keys: %w", err)
	}
	p.ledger = ledger
	return p, nil
}

// operations is the table of all operations.
func operations() []*operation {
	return slices.Concat(diagnosticOperations(), rpcOperations(), keyOperations(), auditOperations(),
		runOperations(), bulkOperations(), signalOperations(), updateOperations(), valueOperations(), hookOperations(), deploymentOperations(), webhookOperations(), worldOperations())
}

// enter counts a call under way. It returns false if the plane is closed.
func (p *Plane) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

func (p *Plane) leave() { p.calls.Done() }

func (p *Plane) isClosing() bool {
	select {
	case <-p.closing:
		return true
	default:
		return false
	}
}

// forgetEvery is how often Run forgets what is old.
const forgetEvery = 10 * time.Minute

// Run forgets what is old, until ctx is done or the plane is closed: audit rows after 90 days, hits
// after half an hour. One process of a store has to call it; several may. It returns nil.
func (p *Plane) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		if err := p.forget(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("what is old is not forgotten: the store does not answer", "error", err)
		}
		if !backoff.Wait(ctx, forgetEvery) {
			return nil
		}
	}
}

func (p *Plane) forget(ctx context.Context) error {
	return errors.Join(p.forgetAudit(ctx), p.hits.forget(ctx, time.Now()), p.sweepArtifacts(ctx))
}

// Close ends long polls, streams, uploads and downloads of artifacts, waits for the calls under way, and writes what is left of the
// audit. Requests that come later are answered with 503. It may be called more than once. The engine
// and its store stay open. A client that sends its body slowly may keep it for half a minute: close the
// server's connections to be done sooner.
func (p *Plane) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if first {
		close(p.closing)
	}
	p.holds.close()
	p.calls.Wait()
	p.holds.wait()
	p.hits.close()
	p.auditor.close()
	return p.ledger.Close()
}
