package engine

// growStack makes the stack of a new goroutine 32 KiB large, which is enough to execute a
// run. The runtime starts a goroutine with a few KiB, doubles its stack whenever it is full,
// and each time copies and adjusts every frame. To grow the stack once, while there is
// hardly anything on it, is cheaper. The garbage collector shrinks the stacks of runs that
// wait.
//
// Only the size of the frame counts: callers pass false, and nothing is executed.
//
//go:noinline
func growStack(use bool) (sum byte) {
	if use {
		var frame [20 << 10]byte
		for i := range frame {
			frame[i] = byte(i)
		}
		for i := range frame { // by index: else the frame would have a copy of the array
			sum += frame[i]
		}
	}
	return sum
}
