package saturate_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/internal/saturate"
)

// A result is exact, or the nearest duration that exists.
func TestNearest(t *testing.T) {
	nearest := func(exact *big.Int) time.Duration {
		switch {
		case exact.IsInt64():
			return time.Duration(exact.Int64())
		case exact.Sign() > 0:
			return math.MaxInt64
		}
		return math.MinInt64
	}
	edges := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 / 2, -1, 0, 1, 2, 3, math.MaxInt64 / 3, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64}
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64())
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		x, y := big.NewInt(a), big.NewInt(b)
		if got, want := saturate.Add(time.Duration(a), time.Duration(b)), nearest(new(big.Int).Add(x, y)); got != want {
			t.Fatalf("%d + %d = %d, want %d", a, b, got, want)
		}
		if got, want := saturate.Sub(time.Duration(a), time.Duration(b)), nearest(new(big.Int).Sub(x, y)); got != want {
			t.Fatalf("%d - %d = %d, want %d", a, b, got, want)
		}
		if a < 0 || b < 0 {
			return
		}
		if got, want := saturate.Times(a, time.Duration(b)), nearest(new(big.Int).Mul(x, y)); got != want {
			t.Fatalf("%d * %d = %d, want %d", a, b, got, want)
		}
	})
}
