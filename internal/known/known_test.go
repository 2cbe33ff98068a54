package known

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/storage"
)

// truth is what a store with these entries says of c.
func truth(entries map[string]string, c storage.Condition) bool {
	v, ok := entries[string(c.Key)]
	switch c.Kind {
	case storage.IsAbsent:
		return !ok
	case storage.IsPresent:
		return ok
	}
	return ok && v == string(c.Value)
}

// What is known is true, whatever was applied, learned and forgotten before.
func TestWhatIsKnownIsTrue(t *testing.T) {
	judged := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		var k Keys
		entries := map[string]string{}
		key := rapid.Custom(func(t *rapid.T) []byte {
			n := rapid.IntRange(0, 20).Draw(t, "key")
			if n == 20 {
				return bytes.Repeat([]byte("k"), maxKey+1)
			}
			return fmt.Append(nil, n)
		})
		value := rapid.Custom(func(t *rapid.T) []byte {
			n := rapid.IntRange(0, 3).Draw(t, "value")
			if n == 3 {
				return bytes.Repeat([]byte("v"), maxValue+1)
			}
			return bytes.Repeat([]byte("v"), n)
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := storage.Condition{Kind: storage.ConditionKind(rapid.IntRange(int(storage.IsEqual), int(storage.IsPresent)).Draw(t, "kind")), Key: key.Draw(t, "of"), Value: value.Draw(t, "is")}
			holds, known := k.Judge(c)
			if known && holds != truth(entries, c) {
				t.Fatalf("%v of %q is judged %v", c.Kind, c.Key, holds)
			}
			judged[known]++
			if truth(entries, c) {
				k.Learn(c)
			}
			var b storage.Batch
			for range rapid.IntRange(0, 2).Draw(t, "operations") {
				switch at := key.Draw(t, "changes"); rapid.IntRange(0, 9).Draw(t, "how") {
				case 0:
					b.Ops = append(b.Ops, storage.Op{Kind: storage.DeleteRangeOp, Range: storage.Range{}})
					clear(entries)
				case 1, 2:
					b.Ops = append(b.Ops, storage.Delete(at))
					delete(entries, string(at))
				default:
					v := value.Draw(t, "to")
					b.Ops = append(b.Ops, storage.Put(at, v))
					entries[string(at)] = string(v)
				}
			}
			k.Note(&b)
			for i := range b.Ops { // the caller may use its memory again
				clear(b.Ops[i].Value)
			}
		}
	})
	if least := 20; judged[true] < least || judged[false] < least { // go test -short draws few cases
		t.Errorf("judged in memory and not: %v", judged)
	}
}

// The memory is bounded, keys that are asked for stay, and it allocates nothing once it is full.
func TestKeysAreBounded(t *testing.T) {
	var k Keys
	wanted := storage.Equal([]byte("wanted"), []byte("v"))
	k.Learn(wanted)
	key := make([]byte, 0, 20)
	step := func() {
		key = fmt.Appendf(key[:0], "%019d", rand.Uint64()>>1)
		k.Note(&storage.Batch{Ops: []storage.Op{storage.Put(key, nil)}})
		if holds, known := k.Judge(wanted); !holds || !known {
			t.Fatal("a key that is asked for all the time was forgotten")
		}
	}
	for range 3 * maxKeys {
		step()
	}
	if len(k.slots) != maxKeys || len(k.at) > maxKeys {
		t.Errorf("%d slots, %d hashes, want at most %d", len(k.slots), len(k.at), maxKeys)
	}
	for i := range k.slots {
		at := bytes.Clone(k.slots[i].key)
		k.Learn(storage.Equal(at, make([]byte, 64*maxValue)))
		if _, known := k.Judge(storage.Equal(at, nil)); known {
			t.Fatal("the value is known, although it is too long to be kept")
		}
		if n := cap(k.slots[i].value); n > 2*maxValue {
			t.Fatalf("%d bytes are kept for a value", n)
		}
	}
	k.Learn(wanted)
	if n := testing.AllocsPerRun(1000, step); n > 3 { // those of the test
		t.Errorf("%v allocations", n)
	}
}
