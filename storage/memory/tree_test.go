package memory

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/storage"
)

// sorted is a simple model of a tree.
type sorted map[string]string

func (m sorted) within(r storage.Range) []string {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k >= string(r.Start) && (r.End == nil || k < string(r.End)) {
			keys = append(keys, k)
		}
	}
	if r.Reverse {
		slices.Reverse(keys)
	}
	return keys
}

func TestTreeIsASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr tree
		m := sorted{}
		key := rapid.StringOfN(rapid.SampledFrom([]rune("\x00abc\u00ff")), 0, 4, -1)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), rapid.String().Draw(t, "value")
				tr.put(k, []byte(v))
				m[k] = v
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				tr.delete(k)
				delete(m, k)
			},
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				v, ok := tr.get(k)
				if want, there := m[k]; ok != there || string(v) != want {
					t.Fatalf("get(%q): got %q, %v, want %q, %v", k, v, ok, want, there)
				}
			},
			"walk": func(t *rapid.T) {
				r := storage.Range{Reverse: rapid.Bool().Draw(t, "reverse")}
				if rapid.Bool().Draw(t, "has a start") {
					r.Start = []byte(key.Draw(t, "start"))
				}
				if rapid.Bool().Draw(t, "has an end") {
					r.End = []byte(key.Draw(t, "end"))
				}
				want := m.within(r)
				stop := rapid.IntRange(1, 1+len(want)).Draw(t, "stop")
				if stop < len(want) {
					want = want[:stop]
				}
				var got []string
				tr.walk(r, func(k string, v []byte) bool {
					if string(v) != m[k] {
						t.Fatalf("walk: got %q under %q, want %q", v, k, m[k])
					}
					got = append(got, k)
					return len(got) < stop
				})
				if !slices.Equal(got, want) {
					t.Fatalf("walk(%+v): got %q, want %q", r, got, want)
				}
			},
		})
	})
}

// Leaves are split, emptied and removed.
func TestTreeOfManyLeaves(t *testing.T) {
	for name, order := range map[string]func(i, n int) int{
		"forwards":  func(i, n int) int { return i },
		"backwards": func(i, n int) int { return n - 1 - i },
		"scattered": func(i, n int) int { return i * 7919 % n },
	} {
		t.Run(name, func(t *testing.T) {
			const n = 6 * leafSize
			var tr tree
			m := sorted{}
			key := func(i int) string { return fmt.Sprintf("%06d", order(i, n)) }
			for i := range n {
				tr.put(key(i), []byte("v"))
				m[key(i)] = "v"
			}
			check(t, &tr, m)
			for i := range n {
				if i%3 > 0 {
					tr.delete(key(i))
					delete(m, key(i))
				}
			}
			check(t, &tr, m)
			for i := range n {
				tr.delete(key(i))
			}
			if len(tr.leaves) != 0 || len(tr.values) != 0 {
				t.Errorf("all deleted: got %d leaves and %d values, want none", len(tr.leaves), len(tr.values))
			}
		})
	}
}

// check compares the contents of a tree in both directions, and checks its leaves.
func check(t *testing.T, tr *tree, m sorted) {
	t.Helper()
	for _, r := range []storage.Range{{}, {Reverse: true}, {Start: []byte("000700"), End: []byte("001900")}} {
		var got []string
		tr.walk(r, func(k string, _ []byte) bool {
			got = append(got, k)
			return true
		})
		if want := m.within(r); !slices.Equal(got, want) {
			t.Fatalf("walk(%+v): got %d keys, want %d", r, len(got), len(want))
		}
	}
	for i, l := range tr.leaves {
		if len(l) == 0 || len(l) > leafSize {
			t.Errorf("leaf %d: got %d keys, want 1 to %d", i, len(l), leafSize)
		}
	}
}
