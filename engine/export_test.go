package engine

import "github.com/weft-go/weft/storage"

// StorageOf is the store that an engine was made with.
func StorageOf(e *Engine) storage.Storage { return e.config.Storage }

// Runs is how many runs e has in memory.
func Runs(e *Engine) int {
	e.worker.mu.Lock()
	defer e.worker.mu.Unlock()
	return len(e.worker.runs)
}

// SignalsInMemory is how many signals a run that rests, or is busy, has in memory.
func SignalsInMemory(e *Engine, id string) (n int) {
	x := e.worker.driven(id)
	if x == nil {
		return 0
	}
	x.mailbox.mu.Lock()
	defer x.mailbox.mu.Unlock()
	for _, p := range x.mailbox.posts {
		if a, ok := p.(arrived); ok {
			n += len(a.signals)
		}
	}
	for _, l := range x.inbox.lines {
		n += len(l.waiting)
	}
	return n
}

// Receives says that the run id rests here in a receive, and is handed what is sent to it.
func Receives(e *Engine, id string) bool {
	x := e.worker.driven(id)
	if x == nil {
		return false
	}
	x.mailbox.mu.Lock()
	defer x.mailbox.mu.Unlock()
	return len(x.mailbox.receiving) > 0
}
