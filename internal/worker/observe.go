package worker

// Observe registers an observer of the values of a workflow. The channel receives after a value was
// stored, or the workflow has ended, if this engine did it. What others do is not notified.
func (e *Worker) Observe(id string) (changed <-chan struct{}, release func()) {
	c := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.observers[id] == nil {
		e.observers[id] = map[chan struct{}]bool{}
	}
	e.observers[id][c] = true
	return c, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.observers[id], c); len(e.observers[id]) == 0 {
			delete(e.observers, id)
		}
	}
}

// notifyObservers notifies the observers of id. The caller holds e.mu.
func (e *Worker) notifyObservers(id string) {
	for c := range e.observers[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// ValuesStored notifies those who wait for a value of a run.
func (l *Incarnation) ValuesStored(id string) {
	l.Worker.mu.Lock()
	defer l.Worker.mu.Unlock()
	l.Worker.notifyObservers(id)
}
