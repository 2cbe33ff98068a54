// Package stack makes room on the stack of a goroutine before it is needed.
package stack

// Grow makes the stack of the calling goroutine at least 32 KiB large, which is enough to
// execute a run and for most of SQLite's functions. The runtime starts a goroutine with a few
// KiB, doubles its stack whenever it is full, and each time copies and adjusts every frame. To
// grow the stack once, while there is little on it, is cheaper. The garbage collector shrinks
// the stacks of goroutines that wait.
func Grow() { frame(false) }

// frame has a large frame. Only its size counts: with false, nothing is executed.
//
//go:noinline
func frame(use bool) (sum byte) {
	if use {
		var b [20 << 10]byte
		for i := range b {
			b[i] = byte(i)
		}
		for i := range b { // by index: else the frame would have a copy of the array
			sum += b[i]
		}
	}
	return sum
}
