package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/control/internal/deployments"
	"github.com/weft-go/weft/control/internal/keyring"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/runs"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// A Plane serves an engine over HTTP. It is an http.Handler for paths below /v1/.
type Plane struct {
	config Config
	env    *operation.Env

	router      *router
	keys        *keyring.Keyring
	runs        *runs.Runs
	deployments *deployments.Deployments
	hits        *hitCounter
	probe       prober
	webhooks    operation.Waiters
	bodies      operation.Waiters // of webhooks
	world       http.Handler      // of Config.World; nil: there is none

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
	home := operation.Namespace(c.Home)
	p := &Plane{
		config: c,
		keys:   keyring.New(s, c.Logger, home, c.RateLimit),
		hits:   &hitCounter{store: s, log: c.Logger},
		probe:  prober{asking: make(chan struct{}, 1)},
	}
	p.env = &operation.Env{
		Engine: c.Engine, Store: s, Log: c.Logger, Auditor: audit.New(s, home.Tenant(), c.Logger),
		Home: home, Keep: c.IdempotencyTTL, Closing: make(chan struct{}),
	}
	p.env.Holds.Valid = p.keys.StillValid
	p.deployments = &deployments.Deployments{Artifacts: c.Artifacts, MostArtifact: MaxArtifact, Required: c.RequireDeployment}
	p.runs = &runs.Runs{Deployments: p.deployments, World: c.World}
	p.router = newRouter(p.operations())
	if c.World != nil {
		p.world = c.World.Handler()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.Engine.In(stage.New(s)).Describe(ctx, "@"); errors.Is(err, engine.ErrNotApplicable) {
		return nil, &ConfigError{"Engine", "has OwnershipSingleOwner: all writes must go through the engine, and a plane adds its own to them"}
	}
	if c.World != nil {
		if _, err := c.World.In(stage.New(s)).Resume(ctx, "@", nil); errors.Is(err, world.ErrOtherStore) {
			return nil, &ConfigError{"World", "is on another store than Engine: what a plane publishes would not be in its queues"}
		}
	}
	for _, k := range c.Keys {
		err := p.keys.Seed(ctx, keyring.Key(k))
		if errors.Is(err, keyring.ErrTaken) {
			err = &ConfigError{"Keys", fmt.Sprintf("has the key %q with the secret of another key", k.ID)}
		}
		if err != nil {
			return nil, err
		}
	}
	ledger, err := idempotency.New(idempotency.Config{Storage: s, Logger: c.Logger, MaxResult: p.env.MostSealed()})
	if err != nil {
		return nil, fmt.Errorf("control: the ledger of idempotency keys: %w", err)
	}
	p.env.Ledger = ledger
	return p, nil
}

// operations is the table of all operations.
func (p *Plane) operations() []*operation.Operation {
	return slices.Concat(p.diagnosticOperations(), rpcOperations(), keyring.Operations(), auditOperations(),
		p.runs.Operations(), p.deployments.Operations(), p.webhookOperations(), p.worldOperations())
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

// HasKey reports whether the store has a key that is neither revoked nor expired. Without one, every request that needs a key
// is refused.
func (p *Plane) HasKey(ctx context.Context) (bool, error) { return p.keys.HasKey(ctx) }

// forgetEvery is how often Run forgets what is old.
const forgetEvery = 10 * time.Minute

// Run forgets what is old, until ctx is done or the plane is closed: audit rows after 90 days, hits
// after half an hour. One process of a store has to call it; several may. It returns nil.
func (p *Plane) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.env.Closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		if err := p.forget(ctx); err != nil && ctx.Err() == nil {
			p.env.Log.Warn("what is old is not forgotten; trying again in ten minutes", "error", err)
		}
		if !backoff.Wait(ctx, forgetEvery) {
			return nil
		}
	}
}

func (p *Plane) forget(ctx context.Context) error {
	return errors.Join(
		about("old audit rows", audit.Forget(ctx, p.env.Store)),
		about("old hits", p.hits.forget(ctx, time.Now())),
		about("artifacts that no deployment has", p.deployments.Sweep(ctx, p.env.Store)),
	)
}

// about returns err with what it is about, or nil.
func about(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Close ends long polls, streams, uploads and downloads of artifacts, waits for the calls under way, and writes what is left of the
// audit. Requests that come later are answered with 503. It may be called more than once, and waits each time. The engine
// and its store stay open. A client that sends its body slowly may keep it for half a minute: close the
// server's connections to be done sooner. It must not be called by what handles a request, such as a webhook's handler or
// Config.Observe, for which it would wait.
func (p *Plane) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if first {
		close(p.env.Closing)
	}
	p.env.Holds.Close()
	p.calls.Wait()
	p.env.Holds.Wait()
	p.hits.close()
	p.env.Auditor.Close()
	return p.env.Ledger.Close()
}
