// Package saturate computes with durations that may be as long as a time.Duration can
// be, 292 years, which users give for "no limit". A sum that does not fit is the longest
// duration, and never a negative one: a wait that has no end is not over at once.
//
// A time.Time needs none of this: adding a duration to it does not overflow.
package saturate

import (
	"math"
	"time"
)

// Add is a + b.
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

// Sub is a - b.
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

// Times is n * d. Neither is negative.
func Times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > math.MaxInt64/int64(d) {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}
