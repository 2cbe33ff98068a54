package engine

import (
	"context"
	"time"
)

// SetNow gives e another wall clock. It must be called before e is used.
func SetNow(e *Engine, now func() time.Time) { e.now = now }

// IsOpen says that e drives what is started.
func IsOpen(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life != nil && e.life.isOpen()
}

// SetIDs has e take its ULIDs from newID. It must be called before e is used.
func SetIDs(e *Engine, newID func() string) { e.newID = newID }

// SetBase has what e does of its own accord do so under ctx. It must be called before e
// is used.
func SetBase(e *Engine, ctx context.Context) { e.base = ctx }

// A Gate is that of an engine, for tests.
type Gate struct{ g gate }

func NewGate(few, most int, tooLate time.Duration) *Gate {
	return &Gate{gate{most: most, few: few, bound: most, tooLate: tooLate}}
}

func (g *Gate) Take() bool                               { return g.g.take() }
func (g *Gate) Measured(late time.Duration, n time.Time) { g.g.measured(late, n) }
func (g *Gate) Busy() int                                { return g.g.busy }

// TurnIsLate has e renew its lease as when a goroutine has waited long for its turn.
func TurnIsLate(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life.hurryUp()
}
