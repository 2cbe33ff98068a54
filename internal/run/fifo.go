package run

// A fifo is a queue that reuses its memory.
type fifo[T any] struct {
	items []T
	head  int // index of the first item; those before it were taken
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// first returns a pointer to the first item. The queue must not be empty.
func (q *fifo[T]) first() *T { return &q.items[q.head] }

func (q *fifo[T]) put(v T) { q.items = append(q.items, v) }

// take removes the first item and returns it. The queue must not be empty.
func (q *fifo[T]) take() T {
	const keep = 64 // maximum capacity that is kept when the queue becomes empty
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > keep {
			q.items = nil
		}
	}
	return v
}
