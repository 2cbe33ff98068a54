//go:build !weftlocks

package lock

import "sync"

// A Mutex is a sync.Mutex with a place in the order. The zero Mutex is a Leaf.
type Mutex struct{ sync.Mutex }

// SetRank sets the place of m. It must be called before m is used.
func (m *Mutex) SetRank(Rank) {}

// NoneHeld panics if the calling goroutine holds a lock under which it must not do what.
func NoneHeld(what string) {}
