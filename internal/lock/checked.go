//go:build weftlocks

package lock

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// A Mutex is a sync.Mutex with a place in the order. The zero Mutex is a Leaf.
type Mutex struct {
	mu   sync.Mutex
	rank Rank
}

// SetRank sets the place of m. It must be called before m is used.
func (m *Mutex) SetRank(r Rank) { m.rank = r }

// Lock locks m. It panics if the calling goroutine holds a lock that forbids it.
func (m *Mutex) Lock() {
	g := goroutine()
	held := holds(g)
	for _, h := range held {
		if !allowed(h.rank, m.rank) {
			panic(fmt.Sprintf("lock: a goroutine that holds a lock of rank %s takes one of rank %s", h.rank, m.rank))
		}
		met.Store([2]Rank{h.rank, m.rank}, true)
	}
	m.mu.Lock()
	keep(g, append(held, m))
}

// Unlock unlocks m, which the calling goroutine has locked.
func (m *Mutex) Unlock() {
	g := goroutine()
	held := holds(g)
	for i, h := range held {
		if h == m {
			keep(g, append(held[:i:i], held[i+1:]...))
			m.mu.Unlock()
			return
		}
	}
	panic("lock: a goroutine unlocks what it has not locked")
}

func allowed(held, taken Rank) bool {
	return held == Stripe || held == Outer && taken == Inner
}

// NoneHeld panics if the calling goroutine holds a lock under which it must not do what.
func NoneHeld(what string) {
	for _, h := range holds(goroutine()) {
		if h.rank != Stripe {
			panic(fmt.Sprintf("lock: %s under a lock of rank %s", what, h.rank))
		}
	}
}

// Met reports whether a goroutine that held a lock of one rank has taken one of another.
func Met(held, taken Rank) bool {
	_, ok := met.Load([2]Rank{held, taken})
	return ok
}

var (
	met sync.Map // bool, by the ranks of what was held and of what was taken
	all sync.Map // []*Mutex, by goroutine
)

func holds(g uint64) []*Mutex {
	held, _ := all.Load(g)
	locks, _ := held.([]*Mutex)
	return locks
}

func keep(g uint64, held []*Mutex) {
	if len(held) == 0 {
		all.Delete(g)
		return
	}
	all.Store(g, held)
}

// goroutine is the number of the calling goroutine, which its stack begins with.
func goroutine() uint64 {
	var b [32]byte
	s := bytes.TrimPrefix(b[:runtime.Stack(b[:], false)], []byte("goroutine "))
	n, err := strconv.ParseUint(string(s[:bytes.IndexByte(s, ' ')]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
