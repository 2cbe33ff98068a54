package queue

// Lines returns how many queues are remembered.
func (q *Queue) Lines() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines)
}
