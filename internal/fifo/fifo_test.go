package fifo

import "testing"

// What was put first is taken first, however often the queue becomes empty, and its memory does not grow with what was taken.
func TestQueue(t *testing.T) {
	var q Queue[int]
	put, taken := 0, 0
	for round := range 200 {
		for range round % 7 {
			q.Put(put)
			put++
		}
		for q.Len() > round%3 {
			if *q.First() != taken {
				t.Fatalf("first: got %d, want %d", *q.First(), taken)
			}
			if got := q.Take(); got != taken {
				t.Fatalf("take: got %d, want %d", got, taken)
			}
			taken++
		}
	}
	if q.Len() != put-taken || taken == 0 {
		t.Errorf("%d are left, want %d", q.Len(), put-taken)
	}
	for range 1000 {
		q.Put(0)
	}
	for q.Len() > 0 {
		q.Take()
	}
	if cap(q.items) > 64 {
		t.Errorf("an empty queue keeps room for %d", cap(q.items))
	}
}
