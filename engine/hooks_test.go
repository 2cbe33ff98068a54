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
