package engine

import "time"

// SetNow gives e another wall clock. It must be called before e is used.
func SetNow(e *Engine, now func() time.Time) { e.now = now }
