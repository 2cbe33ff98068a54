package reads

import (
	"context"
	"sync"
	"time"
)

// patience is how long a read may take before another one begins beside it: the connection of one read may hang.
const patience = 100 * time.Millisecond

// A Shared reads for many callers at once. Those who ask for the same key while it is being read share the next read, which begins
// when that one has ended. So a caller gets what a read returned that began after the caller had asked, as if it had read alone.
// There are never two of a key at a time, unless one takes longer than 100 ms: then the next one begins, and so on. The zero
// Shared is ready for use.
type Shared[K comparable, V any] struct {
	mu   sync.Mutex
	busy map[K]*read[V] // the read that was begun last, of each key that is being read
}

// A read is made by one of the callers that share it, with the context of that caller.
type read[V any] struct {
	callers int           // that wait for it
	began   time.Time     // when it got its turn
	turn    chan struct{} // has a token when the read may begin; whoever takes it reads
	done    chan struct{} // closed when value and err are set
	value   V
	err     error
	over    bool     // done is closed
	next    *read[V] // for those who ask while this read is under way, or nil
	older   *read[V] // that took too long when this read began: whoever waits for it may have the value of this one
}

func newRead[V any]() *read[V] {
	return &read[V]{turn: make(chan struct{}, 1), done: make(chan struct{})}
}

// Get returns what get returns for key. Callers that share a read get the same value, so they must not change it. They get the same
// error, too, except one that get returns after the context has ended with which it was called.
func (s *Shared[K, V]) Get(ctx context.Context, key K, get func(context.Context) (V, error)) (v V, err error) {
	if ctx.Err() != nil {
		return v, context.Cause(ctx)
	}
	r := s.join(key)
	select {
	case <-r.turn: // at once
		return s.make(ctx, key, r, get)
	default:
	}
	long := time.NewTimer(patience)
	defer long.Stop()
	for {
		select {
		case <-r.done:
			return r.value, r.err
		case <-r.turn:
			return s.make(ctx, key, r, get)
		case <-long.C:
			r = s.hurry(key, r)
			long.Reset(patience)
		case <-ctx.Done():
			s.leave(key, r)
			return v, context.Cause(ctx)
		}
	}
}

// make makes r, whose turn the caller has taken.
func (s *Shared[K, V]) make(ctx context.Context, key K, r *read[V], get func(context.Context) (V, error)) (V, error) {
	made := false
	defer func() {
		if !made { // also if get panics
			r.turn <- struct{}{}
			s.leave(key, r)
		}
	}()
	value, err := get(ctx)
	if err != nil && ctx.Err() != nil {
		return value, err // the error of this caller alone: another one reads in its place
	}
	made = true
	s.end(key, r, value, err)
	return value, err
}

// join returns the next read of key. It may begin at once if none is under way.
func (s *Shared[K, V]) join(key K) *read[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	under := s.busy[key]
	if under == nil {
		r := newRead[V]()
		r.callers++
		s.begin(key, r)
		return r
	}
	if under.next == nil {
		under.next = newRead[V]()
	}
	under.next.callers++
	return under.next
}

// begin lets one of its callers make r. Nobody joins it any more.
func (s *Shared[K, V]) begin(key K, r *read[V]) {
	if s.busy == nil {
		s.busy = map[K]*read[V]{}
	}
	s.busy[key] = r
	r.began = time.Now()
	r.turn <- struct{}{}
}

// hurry lets another read begin if the one that began last takes too long. It returns the read for a caller that has waited for r.
func (s *Shared[K, V]) hurry(key K, r *read[V]) *read[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.busy[key]
	switch {
	case r.over:
		return r
	case last == nil: // who made it has left, and r takes long
		last = r
	case time.Since(last.began) < patience:
		return r
	}
	next := last.next
	if next == nil {
		next = newRead[V]()
		r.callers--
		next.callers++
		r = next
	}
	last.next, next.older = nil, last
	s.begin(key, next)
	return r
}

// end hands out what r has returned, and lets the read begin that follows r, unless that has begun.
func (s *Shared[K, V]) end(key K, r *read[V], value V, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[key] == r {
		s.follow(key, r)
	}
	for o := r; o != nil && (o == r || err == nil); o = o.older {
		if !o.over {
			o.over, o.value, o.err = true, value, err
			close(o.done)
		}
	}
	r.older = nil
}

func (s *Shared[K, V]) follow(key K, r *read[V]) {
	if r.next != nil {
		s.begin(key, r.next)
	} else {
		delete(s.busy, key)
	}
}

// leave takes a caller away from r. If it was the last one, nobody makes r.
func (s *Shared[K, V]) leave(key K, r *read[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.callers--; r.callers > 0 {
		return
	}
	switch under := s.busy[key]; {
	case under == r:
		s.follow(key, r)
	case under != nil && under.next == r:
		under.next = nil
	}
}
