// Package known remembers which keys the only writer of a store has written lately, and some of
// their values. With it, most conditions are judged without a look into the store.
package known

import (
	"bytes"
	"hash/maphash"

	"github.com/weft-go/weft/storage"
)

// The limits of a memory. A value that is longer is not kept, only that the key exists.
const (
	maxKeys  = 8192
	maxValue = 1 << 10
	maxKey   = 1 << 8 // a longer key is not remembered
)

// Keys is a memory of what is in a store. The zero value is empty. Its owner notes every batch
// that it applies, and calls Forget when anything else may have changed the store, or when a
// transaction did not end well. It must not be used concurrently.
type Keys struct {
	seed  maphash.Seed
	at    map[uint64]int32 // by the hash of the key; two keys of one hash displace each other
	slots []slot
	next  int // the slot to use next, when all have been used
}

type slot struct {
	hash  uint64
	key   []byte
	value []byte
	is    state
	used  bool // since the last look for a slot
}

type state uint8

const (
	absent state = iota
	exists       // with a value that is not known
	equal        // the value is known
)

// Judge reports whether c holds. If that is not known, known is false.
func (k *Keys) Judge(c storage.Condition) (holds, known bool) {
	s := k.find(c.Key)
	if s == nil {
		return false, false
	}
	s.used = true
	switch c.Kind {
	case storage.IsAbsent:
		return s.is == absent, true
	case storage.IsPresent:
		return s.is != absent, true
	case storage.IsEqual:
		return s.is == equal && bytes.Equal(s.value, c.Value), s.is != exists
	}
	return false, false
}

// Learn notes that c was found to hold. It does not keep that a key is absent: the batch
// usually puts it.
func (k *Keys) Learn(c storage.Condition) {
	if c.Kind == storage.IsAbsent {
		return
	}
	s, there := k.slot(c.Key)
	switch {
	case s == nil:
	case c.Kind == storage.IsEqual:
		s.hold(c.Value)
	case !there:
		s.is = exists
	}
}

// Note notes that b was applied.
func (k *Keys) Note(b *storage.Batch) {
	for _, o := range b.Ops {
		switch o.Kind {
		case storage.PutOp:
			k.put(o)
		case storage.DeleteOp:
			if s := k.find(o.Key); s != nil {
				s.is = absent
			}
		default: // a range of keys
			k.Forget()
		}
	}
}

// put notes that o was applied. A value is kept if a condition has asked for it before: for
// most keys none ever does.
func (k *Keys) put(o storage.Op) {
	s, there := k.slot(o.Key)
	switch {
	case s == nil:
	case there && s.is == equal:
		s.hold(o.Value)
	default:
		s.is = exists
	}
}

// hold notes the value of the key of s.
func (s *slot) hold(value []byte) {
	if s.is, s.value = exists, s.value[:0]; len(value) <= maxValue {
		s.is, s.value = equal, append(s.value, value...)
	}
}

// Forget forgets everything.
func (k *Keys) Forget() {
	clear(k.at)
	k.slots, k.next = k.slots[:0], 0
}

func (k *Keys) find(key []byte) *slot {
	if len(k.slots) == 0 {
		return nil
	}
	i, ok := k.at[maphash.Bytes(k.seed, key)]
	if !ok || !bytes.Equal(k.slots[i].key, key) {
		return nil
	}
	return &k.slots[i]
}

// slot returns the slot of a key, and whether it was there. If not, its state is to be set. It is nil
// if the key is too long.
func (k *Keys) slot(key []byte) (s *slot, there bool) {
	if len(key) > maxKey {
		return nil, false
	}
	if k.at == nil {
		k.seed, k.at = maphash.MakeSeed(), map[uint64]int32{}
	}
	hash := maphash.Bytes(k.seed, key)
	i, ok := k.at[hash]
	if !ok {
		i = k.free()
		k.at[hash] = i
	}
	s = &k.slots[i]
	if ok && bytes.Equal(s.key, key) {
		return s, true
	}
	s.hash, s.key = hash, append(s.key[:0], key...)
	return s, false
}

// free returns a slot for a key. If there is none, a key that was not asked for lately makes
// room.
func (k *Keys) free() int32 {
	if n := len(k.slots); n < maxKeys {
		if n < cap(k.slots) {
			k.slots = k.slots[:n+1] // with the memory of the slot that was there
		} else {
			k.slots = append(k.slots, slot{})
		}
		k.slots[n].used = false
		return int32(n)
	}
	for {
		i := k.next
		k.next = (k.next + 1) % maxKeys
		s := &k.slots[i]
		if !s.used {
			delete(k.at, s.hash)
			return int32(i)
		}
		s.used = false
	}
}
