// Package told remembers what was reported, so that it is reported once.
package told

import "sync"

// A Set is what was reported. Its methods are safe for concurrent use. The zero Set is empty.
type Set struct {
	mu   sync.Mutex
	told map[string]bool
}

// First reports whether it is called with what for the first time. When most things were reported, it forgets them all: some
// are reported again.
func (s *Set) First(what string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[what] {
		return false
	}
	if s.told == nil || len(s.told) >= most {
		s.told = map[string]bool{}
	}
	s.told[what] = true
	return true
}

// PowerOfTen reports whether n is 10, 100, 1000 and so on: what happens again and again is reported then.
func PowerOfTen(n int) bool {
	if n < 10 {
		return false
	}
	for n%10 == 0 {
		n /= 10
	}
	return n == 1
}
