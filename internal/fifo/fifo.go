// Package fifo has a queue that reuses its memory.
package fifo

// A Queue is first in, first out. Its memory is reused. The zero Queue is empty.
type Queue[T any] struct {
	items []T
	head  int // index of the first item; those before it were taken
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// First returns a pointer to the first item. The queue must not be empty.
func (q *Queue[T]) First() *T { return &q.items[q.head] }

// Put adds an item.
func (q *Queue[T]) Put(v T) { q.items = append(q.items, v) }

// Take removes the first item and returns it. The queue must not be empty.
func (q *Queue[T]) Take() T {
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
