package engine

import (
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// StorageOf is the store that an engine was made with.
func StorageOf(e *Engine) storage.Storage { return e.config.Storage }

// Runs is how many runs e has in memory.
func Runs(e *Engine) int { return e.worker.InMemory() }

// InMemory is the execution of the run id, or nil if e has it not in memory.
func InMemory(e *Engine, id string) *run.Execution { return e.worker.Executing(id) }

// SignalsInMemory is how many signals a run that rests, or is busy, has in memory.
func SignalsInMemory(e *Engine, id string) int {
	if x := e.worker.Executing(id); x != nil {
		return x.SignalsInMemory()
	}
	return 0
}

// Receives says that the run id rests here in a receive, and is handed what is sent to it.
func Receives(e *Engine, id string) bool {
	x := e.worker.Executing(id)
	return x != nil && x.Receives()
}
