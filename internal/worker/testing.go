package worker

// InMemory returns how many runs are in memory.
func (e *Worker) InMemory() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// IsOpen reports whether the worker accepts new work.
func (e *Worker) IsOpen() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incarnation != nil && e.incarnation.isOpen()
}

// HurryUp has the lease renewed early, as when goroutines wait long for a processor.
func (e *Worker) HurryUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.incarnation.hurryUp()
}
