package engine

import "github.com/weft-go/weft/storage"

// StorageOf is the store that an engine was made with.
func StorageOf(e *Engine) storage.Storage { return e.config.Storage }

// Runs is how many runs e has in memory.
func Runs(e *Engine) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}
