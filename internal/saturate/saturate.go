// Package saturate does saturating arithmetic with durations. Users pass the maximum
// time.Duration, 292 years, to mean "no limit". A sum that overflows is the maximum, not a
// negative duration, so that an infinite wait does not end at once.
//
// Adding a duration to a time.Time does not need this: it does not overflow.
package saturate

import (
	"math"
	"time"
)

// Add returns a + b.
func Add(a, b time.Duration) time.Duration {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

// Sub returns a - b.
func Sub(a, b time.Duration) time.Duration {
	switch diff := a - b; {
	case b < 0 && diff < a:
		return math.MaxInt64
	case b > 0 && diff > a:
		return math.MinInt64
	default:
		return diff
	}
}

// Times returns n * d. Neither may be negative.
func Times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > math.MaxInt64/int64(d) {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}
