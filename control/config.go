package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-go/weft/control/internal/keyring"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/world"
)

// Config configures a Plane. Engine is required. Zero values select the defaults.
type Config struct {
	// Engine is the engine whose store the plane shares. It may run workflows or be a client. The
	// plane does not close it.
	Engine *engine.Engine

	// Keys are written to the store by New.
	Keys []Key

	// Home is the namespace of the host: its runs have no namespace in the engine. The default is
	// project "default", environment "default".
	Home Namespace

	// RequireDeployment refuses a run that names no deployment while none is active. Otherwise
	// such a run is bound to no deployment.
	RequireDeployment bool

	// RateLimit is how many requests a key may make in a minute. The default is 120.
	RateLimit int

	// HTTPS says which requests must have come by https. The default is HTTPSOff.
	HTTPS HTTPS

	// Proxies are those whose forwarded headers count. The default is none.
	Proxies Proxies

	// IdempotencyTTL is how long the answer to an Idempotency-Key is kept. The default is 24 h.
	IdempotencyTTL time.Duration

	// MaxBody is the largest body in bytes. The default is 1 MiB, the most 16 MiB.
	MaxBody int64

	// Artifacts keeps the artifacts of deployments. Without it they are refused.
	Artifacts Artifacts

	// Webhooks are the handlers of POST /v1/webhooks/{provider}, by provider.
	Webhooks map[string]http.Handler

	// World answers the calls of TypeScript runtimes below /v1/world/ and /v1/queue/. New refuses one on another store than the
	// engine's. The host closes it after the plane. Without it these calls are refused. A runtime makes many calls: see RateLimit.
	World *world.World

	// Guard, if not nil, is checked by New. See GuardFromEnv.
	Guard *Guard

	// Observe, if not nil, is called after each operation, in its goroutine. If it panics, that is logged.
	Observe func(ctx context.Context, r Report)

	// Logger gets messages for operators. The default is slog.Default().
	Logger *slog.Logger
}

// A ConfigError describes a problem of one field of a Config. New joins all of them.
type ConfigError struct{ Field, Problem string }

func (e *ConfigError) Error() string {
	return fmt.Sprintf("control: config: %s %s", e.Field, e.Problem)
}

// Defaults and limits of a Config.
const (
	DefaultRateLimit      = 120
	DefaultIdempotencyTTL = 24 * time.Hour
	DefaultMaxBody        = 1 << 20

	mostBody       = 16 << 20
	leastTTL       = 10 * time.Minute
	leastSecret    = 24
	mostProxies    = 100
	defaultProject = "default"
)

func (c Config) withDefaults() Config {
	c.RateLimit = cmp.Or(c.RateLimit, DefaultRateLimit)
	c.IdempotencyTTL = cmp.Or(c.IdempotencyTTL, DefaultIdempotencyTTL)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	if c.Home == (Namespace{}) {
		c.Home = Namespace{defaultProject, defaultProject}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Keys = slices.Clone(c.Keys)
	for i := range c.Keys {
		if k := &c.Keys[i]; k.Project == "" && k.Environment == "" {
			k.Project, k.Environment = c.Home.Project, c.Home.Environment
		}
	}
	return c
}

// check returns all problems of c, joined.
func (c Config) check() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{field, fmt.Sprintf(format, args...)})
	}
	if c.Engine == nil {
		wrong("Engine", "is nil")
	}
	for _, issue := range operation.Namespace(c.Home).Check() {
		wrong("Home", "%s %s", issue.Path[1:], issue.Problem)
	}
	if c.RateLimit < 0 {
		wrong("RateLimit", "is negative: %d", c.RateLimit)
	}
	if c.HTTPS > HTTPSStrict {
		wrong("HTTPS", "is unknown: %d", c.HTTPS)
	}
	if c.Proxies.Hops < 0 || c.Proxies.Hops > mostProxies {
		wrong("Proxies.Hops", "must be 0 to %d: %d", mostProxies, c.Proxies.Hops)
	}
	if c.Proxies.Hops > 0 && len(c.Proxies.Trusted) == 0 {
		wrong("Proxies.Trusted", "is empty, so Hops has no effect: say which proxies they are")
	}
	for i, p := range c.Proxies.Trusted {
		if !p.IsValid() {
			wrong(fmt.Sprintf("Proxies.Trusted[%d]", i), "is not valid")
		}
	}
	if c.IdempotencyTTL < leastTTL {
		wrong("IdempotencyTTL", "is %v, at least %v: clients repeat requests for minutes", c.IdempotencyTTL, leastTTL)
	}
	if c.MaxBody < 0 || c.MaxBody > mostBody {
		wrong("MaxBody", "must be at most %d bytes: %d", mostBody, c.MaxBody)
	}
	for name, h := range c.Webhooks {
		if h == nil || name == "" {
			wrong("Webhooks", "has %q without a handler or a name", name)
		}
	}
	ids, secrets := map[string]int{}, map[string]int{}
	for i, k := range c.Keys {
		field := fmt.Sprintf("Keys[%d]", i)
		if err := k.check(); err != "" {
			wrong(field, "%s", err) // without the secret
			continue
		}
		name := k.Project + "/" + k.Environment + "/" + k.ID
		if first, ok := ids[name]; ok {
			wrong(field, "has the ID of Keys[%d]: %q", first, k.ID)
		}
		if first, ok := secrets[k.Secret]; ok {
			wrong(field, "has the Secret of Keys[%d]", first)
		}
		ids[name], secrets[k.Secret] = i, i
	}
	return errors.Join(errs...)
}

// check returns a problem of k, or "".
func (k Key) check() string {
	if !keyring.IsID(k.ID) {
		return fmt.Sprintf("needs an ID of 1 to 100 of A-Z a-z 0-9 _ . -: %q", k.ID)
	}
	for _, issues := range [][]operation.Issue{operation.Namespace{Project: k.Project, Environment: k.Environment}.Check(), keyring.CheckScopes(k.Scopes)} {
		for _, i := range issues {
			return fmt.Sprintf("(%q): %s %s", k.ID, i.Path[1:], i.Problem)
		}
	}
	if len(k.Secret) < leastSecret || !visible(k.Secret, keyring.MaxToken) {
		return fmt.Sprintf("(%q): its Secret must be %d to %d bytes of visible ASCII", k.ID, leastSecret, keyring.MaxToken)
	}
	return ""
}

// A Namespace is what a key belongs to, and with it runs, idempotency keys, rates and audit rows.
type Namespace struct {
	Project     string // 1 to 40 of A-Z a-z 0-9 _ -
	Environment string // 1 to 20 of the same
}

// A Key is what a client proves its identity with. Project and Environment are those of
// Config.Home if both are empty.
//
// If a key of Config.Keys is in the store with another secret, New replaces the secret. The former one
// is accepted for one more hour, so that the services and clients that still have it can be changed
// one after the other. A key that is not in Config.Keys any more stays valid. To end a key at once, revoke
// it (DELETE /v1/keys/{id}, or weft keys revoke). A secret that was revoked or replaced stays out, also if
// Config.Keys has it again.
type Key struct {
	ID          string // 1 to 100 of A-Z a-z 0-9 _ - . ; unique within its namespace
	Project     string
	Environment string
	Secret      string // at least 24 bytes of visible ASCII; only its SHA-256 is stored
	Scopes      []string
	ExpiresAt   time.Time // zero: never
}

// HTTPS says which requests must have come by https.
type HTTPS uint8

const (
	HTTPSOff         HTTPS = iota // no check
	HTTPSIfForwarded              // a request whose X-Forwarded-Proto does not begin with https is refused; one without it passes
	HTTPSStrict                   // by TLS, or https by the word of a trusted proxy; not asked of health and ready
)

// Proxies says whose forwarded headers count.
type Proxies struct {
	Trusted []netip.Prefix
	Hops    int // of proxies in front of the plane: the client is that many from the right. The default is 1.
}

// A Report is what Config.Observe is told of one operation.
type Report struct {
	Operation string // such as runs.create
	Lane      string // public or world_proxy
	RPC       bool   // came by JSON-RPC
	Status    int    // of HTTP
	Code      string // of the error; empty: success
	KeyID     string // empty: none
	Deduped   bool   // an answer that was given before
	Took      time.Duration
}
