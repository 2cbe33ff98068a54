// Package lock has the mutex of the engine's packages. In a build with the tag weftlocks it
// checks the order in which locks are taken, and panics where that is broken.
//
// The order: whoever holds an Outer lock may take an Inner one. Nobody who holds an Inner
// lock or a Leaf takes any other, and who holds an Outer one takes no Leaf. Stripes are
// taken in their order, before everything else, and are the only locks that may be held
// while the store works.
package lock

// A Rank is the place of a mutex in the order. The zero Rank is Leaf.
type Rank uint8

// The ranks.
const (
	Leaf Rank = iota
	Inner
	Outer
	Stripe
)

func (r Rank) String() string { return [...]string{"leaf", "inner", "outer", "stripe"}[r] }
