package memory

import (
	"slices"
	"sort"

	"github.com/weft-go/weft/storage"
)

// A tree is an ordered map of two levels: the values are in a map, the keys in sorted
// leaves of bounded size. It is fast enough for a million keys.
type tree struct {
	values map[string][]byte
	leaves [][]string // none is empty
}

const leafSize = 512

func (t *tree) get(key string) ([]byte, bool) {
	v, ok := t.values[key]
	return v, ok
}

func (t *tree) put(key string, value []byte) {
	if t.values == nil {
		t.values = map[string][]byte{}
	}
	if _, ok := t.values[key]; !ok {
		t.insert(key)
	}
	t.values[key] = value
}

func (t *tree) insert(key string) {
	if len(t.leaves) == 0 {
		t.leaves = [][]string{{key}}
		return
	}
	i := t.leaf(key)
	at, _ := slices.BinarySearch(t.leaves[i], key)
	t.leaves[i] = slices.Insert(t.leaves[i], at, key)
	if l := t.leaves[i]; len(l) > leafSize {
		half := len(l) / 2
		t.leaves[i] = slices.Clone(l[:half])
		t.leaves = slices.Insert(t.leaves, i+1, slices.Clone(l[half:]))
	}
}

func (t *tree) delete(key string) {
	if _, ok := t.values[key]; !ok {
		return
	}
	delete(t.values, key)
	i := t.leaf(key)
	at, _ := slices.BinarySearch(t.leaves[i], key)
	t.leaves[i] = slices.Delete(t.leaves[i], at, at+1)
	if len(t.leaves[i]) == 0 {
		t.leaves = slices.Delete(t.leaves, i, i+1)
	}
}

// leaf returns the index of the leaf that contains key, or would contain it.
func (t *tree) leaf(key string) int {
	i := sort.Search(len(t.leaves), func(i int) bool { return t.leaves[i][0] > key })
	return max(i-1, 0)
}

// walk calls visit for the entries of r, in its direction, until visit returns false.
func (t *tree) walk(r storage.Range, visit func(key string, value []byte) bool) {
	if len(t.leaves) == 0 {
		return
	}
	if r.Reverse {
		t.walkBack(r, visit)
		return
	}
	i := t.leaf(string(r.Start))
	at, _ := slices.BinarySearch(t.leaves[i], string(r.Start))
	for ; i < len(t.leaves); i, at = i+1, 0 {
		for _, key := range t.leaves[i][at:] {
			if r.End != nil && key >= string(r.End) || !visit(key, t.values[key]) {
				return
			}
		}
	}
}

func (t *tree) walkBack(r storage.Range, visit func(key string, value []byte) bool) {
	i := len(t.leaves) - 1
	at := len(t.leaves[i])
	if r.End != nil {
		i = t.leaf(string(r.End))
		at, _ = slices.BinarySearch(t.leaves[i], string(r.End))
	}
	for {
		for at--; at >= 0; at-- {
			key := t.leaves[i][at]
			if key < string(r.Start) || !visit(key, t.values[key]) {
				return
			}
		}
		if i--; i < 0 {
			return
		}
		at = len(t.leaves[i])
	}
}
