// Package claims knows which batches name the same keys, so that those are not committed at the same time.
package claims

import "hash/maphash"

// A Mention is a key that a batch names. It is hashed: a hash collision only makes one batch
// wait for another.
type Mention struct {
	hash   uint64
	writes bool
}

var seed = maphash.MakeSeed()

// Compares is the mention of a key that a batch only compares.
func Compares(key []byte) Mention { return Mention{hash: maphash.Bytes(seed, key)} }

// Writes is the mention of a key that a batch writes.
func Writes(key []byte) Mention { return Mention{hash: maphash.Bytes(seed, key), writes: true} }

// A Set counts, for each key named by batches, how many of them write it and how many only
// compare it.
type Set map[uint64]count

type count struct{ writers, readers int32 }

// Clash reports whether a batch must not be applied concurrently with those in s.
func (s Set) Clash(names []Mention) bool {
	if len(s) == 0 {
		return false
	}
	for _, m := range names {
		if x := s[m.hash]; x.writers > 0 || m.writes && x.readers > 0 {
			return true
		}
	}
	return false
}

// Add adds a batch.
func (s Set) Add(names []Mention) {
	for _, m := range names {
		s.change(m, 1)
	}
}

// Drop removes a batch that was added.
func (s Set) Drop(names []Mention) {
	for _, m := range names {
		s.change(m, -1)
	}
}

func (s Set) change(m Mention, by int32) {
	x := s[m.hash]
	if m.writes {
		x.writers += by
	} else {
		x.readers += by
	}
	if x == (count{}) {
		delete(s, m.hash)
	} else {
		s[m.hash] = x
	}
}
