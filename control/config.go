package control

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/weft-go/weft/engine"
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

	// Guard, if not nil, is checked by New. See GuardFromEnv.
	Guard *Guard

	// Observe, if not nil, is called after each operation, in its goroutine.
	Observe func(ctx context.Context, r Report)

	// Logger gets messages for operators. The default is slog.Default().
	Logger *slog.Logger
}

// A Namespace is what a key belongs to, and with it runs, idempotency keys, rates and audit rows.
type Namespace struct {
	Project     string // 1 to 40 of A-Z a-z 0-9 _ -
	Environment string // 1 to 20 of the same
}

// A Key is what a client proves its identity with. Project and Environment are those of
// Config.Home if both are empty.
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
