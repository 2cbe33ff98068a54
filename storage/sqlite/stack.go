package sqlite

// growStack makes the stack of the calling goroutine large enough for SQLite's functions.
// They need some 20 KiB. The runtime starts a goroutine with a few KiB, doubles its stack
// whenever it is full, and each time copies and adjusts every frame. To grow the stack once,
// before it is deep, is cheaper: goroutines that commit are often new.
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
