package operation

import (
	"log/slog"
	"time"

	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// An Env is what the calls of a plane have in common: the engine, its store, and what watches over calls.
type Env struct {
	Engine  *engine.Engine
	Store   storage.Storage // the engine's
	Ledger  *idempotency.Ledger
	Log     *slog.Logger
	Auditor *audit.Auditor

	Home Namespace     // the namespace of the host
	Keep time.Duration // how long the answer to an idempotency key is kept

	Holds   Holds
	Polls   Waiters
	Closing chan struct{} // closed when the plane closes
}

// IsClosing reports whether the plane closes.
func (e *Env) IsClosing() bool {
	select {
	case <-e.Closing:
		return true
	default:
		return false
	}
}
