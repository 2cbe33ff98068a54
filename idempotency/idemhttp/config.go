// Package idemhttp answers repeated HTTP requests from an [idempotency.Ledger].
//
// A guard made by [New] wraps a handler. It lets GET, HEAD, OPTIONS and TRACE pass. Any other request needs
// an Idempotency-Key header. The first request with a key reaches the handler. Its answer leaves after it is
// durable, and later requests with the key get the same status and body, with Idempotent-Replayed: true. A key
// that comes with another request is a conflict. A request whose outcome is unknown is not repeated.
//
// # Order
//
// Put the guard behind what decides who may call, such as authentication, scopes and rate limits: what it
// has stored, it answers again without asking the handler. It checks the tenant, the size, the headers and
// the JSON of a request before it reads the ledger.
//
// # Handlers
//
// A guarded handler writes into a buffer. Its ResponseWriter is no http.Flusher and no http.Hijacker, and
// Flush of an http.ResponseController returns an error that wraps http.ErrNotSupported. Trailers and 1xx
// answers are left out. The request's context does not end when its client leaves: it ends after
// Config.Timeout, and when the process loses its lease. A handler that ignores this keeps the key, and its
// client waiting, until it returns. [idempotency.AttemptFrom] of the context has the key's hash for external
// systems.
//
// What a handler answers is stored if its status is 2xx, 3xx or 4xx. It is not stored but released, and the next
// request with the key runs, if the status is 401, 403, 408, 425 or 429, if the handler called [NoEffect], or if it
// passed on, with its header and status, what a guard inside it has refused or released. After a panic, a timeout
// and a 5xx, the effect may have happened: see Config.ServerErrors. An error of an [idempotency.Effect] inside the
// handler goes to [Fail].
package idemhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-go/weft/idempotency"
)

// Action is the Action of a guard's keys. Tenant is what Config.Tenant returned, SourceType the endpoint, and
// SourceID the client's key.
const Action = "http"

// DefaultMaxBody is the default of Config.MaxBody: 1 MiB.
const DefaultMaxBody = 1 << 20

// Retention of an API without a RetryHorizon.
const (
	leastRetention = 24 * time.Hour
	mostRetention  = 72 * time.Hour
)

// Config configures a guard. Ledger and Tenant are required. Zero values select the defaults.
type Config struct {
	// Ledger has the answers. The guard does not close it: do so after http.Server.Shutdown. Its Policies say
	// which headers are required, with which status conflicts are answered, and whether with a diff.
	Ledger *idempotency.Ledger

	// Tenant returns whose request it is: 1 to 100 bytes of UTF-8 without NUL, from what authentication found
	// out. Two tenants may use the same key, and none gets another's answer. If it returns an error or "",
	// the client gets 401 without the error's text.
	Tenant func(r *http.Request) (string, error)

	// Endpoint names what a request asks for. One key names two requests at two endpoints. So a name must not
	// change while clients repeat requests: under a new name, a repetition takes effect again. If Endpoint is
	// nil or returns "", the name is r.Pattern, as a http.ServeMux around the guard has set it, and behind it
	// the pattern of the guarded ServeMux. Without both, it is the method and the escaped path. Set Endpoint
	// before you change patterns or move a guard, if two guards of one Ledger have equal patterns, and if
	// a guard is reached by two patterns, such as two hosts: it has two names otherwise. A name has at most
	// 200 bytes of UTF-8 without NUL; of a longer one, a hash is used.
	Endpoint func(r *http.Request) string

	// Exempt are patterns, as of http.ServeMux, of requests that pass without a key, such as webhooks that
	// the provider repeats with an id of its own. A request whose path is not clean, which http.ServeMux
	// redirects, or has an escaped slash does not match. Inside another guard,
	// the handler of such a request writes into a buffer, too.
	Exempt []string

	// OnAbandoned says what follows for a request whose outcome is unknown. The default is Hold: the client
	// gets 409 until somebody calls Ledger.Resolve, with a Response as the result. Set TakeOver if all that
	// handlers do is harmless when repeated: they pass the key's hash on, or do everything in one
	// transaction. VerifyOrHold is Hold, because there is no verifier.
	OnAbandoned idempotency.Abandoned

	// ServerErrors says what becomes of a key after a panic, a timeout or a 5xx. The default is HoldServerErrors.
	ServerErrors ServerErrors

	// DiffValues has the answer to a conflict tell the values that differ. Otherwise it tells where the
	// requests differ. Values of the first request may be secret to who sends the second one.
	DiffValues bool

	// Timeout limits one call of the handler. The default is idempotency.DefaultTimeout, 30 s.
	Timeout time.Duration

	// Retention is how long an answer is kept, from when it was stored. The default is that of the Ledger's
	// Policies, 48 h. Without a RetryHorizon it must be 24 h to 72 h. It must be longer than the Ledger's Lease.
	Retention time.Duration

	// RetryHorizon is for how long clients may repeat a request, if that is known. Retention must be at
	// least twice that.
	RetryHorizon time.Duration

	// MaxBody is the largest body of a request in bytes. A larger one is answered with 413. The default is
	// DefaultMaxBody. Bodies are read into memory.
	MaxBody int64

	// Logger gets panics of handlers, and errors of the store, which clients do not see. The default is
	// slog.Default().
	Logger *slog.Logger
}

// ServerErrors says what becomes of a key if its handler panics, does not answer in time, or answers 5xx. In
// each case the client of this request gets the 5xx.
type ServerErrors uint8

const (
	HoldServerErrors    ServerErrors = iota // the outcome is unknown: Config.OnAbandoned says what follows
	SealServerErrors                        // it is stored as any other answer
	ReleaseServerErrors                     // nothing has happened: the next request runs; only if handlers undo what they did
)

func (s ServerErrors) String() string {
	switch s {
	case HoldServerErrors:
		return "hold"
	case SealServerErrors:
		return "seal"
	case ReleaseServerErrors:
		return "release"
	}
	return "invalid"
}

// New returns a guard for handlers. The error joins *idempotency.ConfigErrors.
func New(c Config) (func(http.Handler) http.Handler, error) {
	exempt, err := newExemptions(c.Exempt)
	err = errors.Join(c.check(), err)
	if c.Ledger == nil {
		return nil, err
	}
	policies := c.Ledger.Policies()
	if c.Retention == 0 {
		c.Retention = policies.API()
	}
	if c.OnAbandoned == idempotency.VerifyOrHold {
		c.OnAbandoned = idempotency.Hold
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	g := &guard{
		Config:   c,
		exempt:   exempt,
		required: otherHeaders(policies.RequireHeaders),
		conflict: policies.OnConflict,
		effect: &idempotency.Effect[request, Response]{
			Name:         Action,
			Run:          runHandler,
			OnAbandoned:  c.OnAbandoned,
			Timeout:      c.Timeout,
			Wait:         -1,
			Retention:    c.Retention,
			RetryHorizon: c.RetryHorizon,
			DiffValues:   c.DiffValues,
		},
	}
	if lease := c.Ledger.Lease(); c.Retention > 0 && c.Retention <= lease {
		err = errors.Join(err, problemOfField("Retention", "is %v, and must be longer than the Ledger's Lease of %v", c.Retention, lease))
	}
	if err := errors.Join(err, g.effect.Check()); err != nil {
		return nil, err
	}
	return g.wrap, nil
}

func problemOfField(field, format string, args ...any) error {
	return &idempotency.ConfigError{Field: "idemhttp.Config." + field, Problem: fmt.Sprintf(format, args...)}
}

// check returns the problems of fields that no Effect checks.
func (c Config) check() error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, problemOfField(field, format, args...)) }
	if c.Ledger == nil {
		bad("Ledger", "is nil")
	}
	if c.Tenant == nil {
		bad("Tenant", "is nil")
	}
	if c.ServerErrors > ReleaseServerErrors {
		bad("ServerErrors", "has an unknown value")
	}
	if c.RetryHorizon == 0 && c.Retention != 0 && (c.Retention < leastRetention || c.Retention > mostRetention) {
		bad("Retention", "is %v, and must be %v to %v without a RetryHorizon", c.Retention, leastRetention, mostRetention)
	}
	if c.MaxBody < 0 {
		bad("MaxBody", "is negative")
	}
	return errors.Join(errs...)
}
