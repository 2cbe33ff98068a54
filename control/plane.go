package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
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
	env    *env

	router      *router
	keys        *keyring
	runs        *runs
	deployments *deployments
	hits        *hitCounter
	probe       prober
	webhooks    waiters
	bodies      waiters      // of webhooks
	world       http.Handler // of Config.World; nil: there is none

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
	home := space(c.Home)
	p := &Plane{
		config: c,
		keys:   newKeyring(s, c.Logger, home, c.RateLimit),
		hits:   &hitCounter{store: s, log: c.Logger},
		probe:  prober{asking: make(chan struct{}, 1)},
	}
	p.env = &env{
		engine: c.Engine, store: s, log: c.Logger, auditor: newAuditor(s, home.tenant(), c.Logger),
		home: home, keep: c.IdempotencyTTL, valid: p.keys.stillValid, closing: make(chan struct{}),
	}
	p.env.holds.valid = p.keys.stillValid
	p.deployments = &deployments{artifacts: c.Artifacts, mostArtifact: MaxArtifact, required: c.RequireDeployment}
	p.runs = &runs{deployments: p.deployments, world: c.World}
	p.router = newRouter(p.operations())
	if c.World != nil {
		p.world = c.World.Handler()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.Engine.In(stage.New(s)).Describe(ctx, "@"); errors.Is(err, engine.ErrNotApplicable) {
		return nil, &ConfigError{"Engine", "has OwnershipSingleOwner: all writes must go through the engine, and a plane adds its own to them"}
	}
	for _, k := range c.Keys {
		if err := p.keys.seed(ctx, k); err != nil {
			return nil, err
		}
	}
	ledger, err := idempotency.New(idempotency.Config{Storage: s, Logger: c.Logger, MaxResult: p.env.mostSealed()})
	if err != nil {
		return nil, fmt.Errorf("control: the ledger of idempotency keys: %w", err)
	}
	p.env.ledger = ledger
	return p, nil
}

// operations is the table of all operations.
func (p *Plane) operations() []*operation {
	return slices.Concat(p.diagnosticOperations(), rpcOperations(), keyOperations(), auditOperations(),
		p.runs.operations(), p.deployments.operations(), p.webhookOperations(), p.worldOperations())
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

// forgetEvery is how often Run forgets what is old.
const forgetEvery = 10 * time.Minute

// Run forgets what is old, until ctx is done or the plane is closed: audit rows after 90 days, hits
// after half an hour. One process of a store has to call it; several may. It returns nil.
func (p *Plane) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.env.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		if err := p.forget(ctx); err != nil && ctx.Err() == nil {
			p.env.log.Warn("what is old is not forgotten: the store does not answer", "error", err)
		}
		if !backoff.Wait(ctx, forgetEvery) {
			return nil
		}
	}
}

func (p *Plane) forget(ctx context.Context) error {
	return errors.Join(forgetAudit(ctx, p.env.store), p.hits.forget(ctx, time.Now()), p.deployments.sweep(ctx, p.env.store))
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
		close(p.env.closing)
	}
	p.env.holds.close()
	p.calls.Wait()
	p.env.holds.wait()
	p.hits.close()
	p.env.auditor.close()
	return p.env.ledger.Close()
}
