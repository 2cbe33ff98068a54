package worker

// Observe registers an observer of the values of a workflow, and of answers to its updates. The channel
// receives after one was stored, or the workflow has ended, if this engine did it. What others do is not notified.
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

// Stored notifies those who wait for a value of a run, or for the answer to an update.
func (l *Incarnation) Stored(id string) {
	l.Worker.mu.Lock()
	defer l.Worker.mu.Unlock()
	l.Worker.notifyObservers(id)
}
