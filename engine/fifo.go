package engine

// A fifo is a queue that keeps its memory, within bounds.
type fifo[T any] struct {
	items []T
	head  int // items before it were taken
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// first is what take would return. The queue is not empty.
func (q *fifo[T]) first() *T { return &q.items[q.head] }

func (q *fifo[T]) put(v T) { q.items = append(q.items, v) }

// take takes out the first item. The queue is not empty.
func (q *fifo[T]) take() T {
	const keep = 64
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
