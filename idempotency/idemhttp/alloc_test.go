//go:build !race

package idemhttp_test

import "testing"

// A guard allocates at most 60 times more for an effect than the ledger alone.
func TestAllocations(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		var allocations [2]float64
		for i, c := range costs {
			once, n := c.prepare(t), 0
			allocations[i] = testing.AllocsPerRun(200, func() {
				if fresh {
					n++
				}
				once(n)
			})
		}
		if more := allocations[1] - allocations[0]; more > 60 {
			t.Errorf("new: %v: %v allocations, and %v by the ledger alone", fresh, allocations[1], allocations[0])
		}
	}
}
