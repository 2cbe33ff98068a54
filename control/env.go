package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// An env is what the calls of a plane have in common.
type env struct {
	engine  *engine.Engine
	store   storage.Storage // the engine's
	ledger  *idempotency.Ledger
	log     *slog.Logger
	auditor *auditor

	home space         // the namespace of the host
	keep time.Duration // how long the answer to an idempotency key is kept

	// valid reports whether the secret that a principal came with is still accepted.
	valid func(ctx context.Context, who *principal) bool

	holds   holds
	polls   waiters
	closing chan struct{} // closed when the plane closes
}

func (e *env) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}
