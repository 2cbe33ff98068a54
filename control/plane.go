package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A Plane serves an engine over HTTP. It is an http.Handler for paths below /v1/.
type Plane struct {
	config  Config
	engine  *engine.Engine
	store   storage.Storage // the engine's
	ledger  *idempotency.Ledger
	closing chan struct{} // closed by Close: waits and streams end
}

// New checks the configuration and the store, writes Config.Keys, and returns a plane.
func New(c Config) (*Plane, error) {
	return nil, errors.ErrUnsupported
}

// ServeHTTP serves one request.
func (p *Plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// Run forgets what is old until ctx is done.
func (p *Plane) Run(ctx context.Context) error { return errors.ErrUnsupported }

// Close ends long polls and streams. Requests that come later are refused.
func (p *Plane) Close() error { return nil }

// Watch counts requests that a remote world does not expect, and passes on all others.
func (p *Plane) Watch(next http.Handler) http.Handler { return next }
