package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// LV4: goroutines that begin to wait together do not continue together, and none of them much
// before or after its time.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		back := make(chan time.Duration)
		const many = 1000
		for range many {
			go func() {
				if !Wait(context.Background(), time.Second) {
					t.Error("Wait = false, and nobody ended it")
				}
				back <- time.Since(begun)
			}()
		}
		distinct := map[time.Duration]bool{}
		var sum time.Duration
		for range many {
			d := <-back
			if d < time.Second/2 || d >= 3*time.Second/2 {
				t.Errorf("Wait(1s) took %v, want 500ms to 1.5s", d)
			}
			distinct[d] = true
			sum += d
		}
		if mean := sum / many; len(distinct) < many/2 || mean < 900*time.Millisecond || mean > 1100*time.Millisecond {
			t.Errorf("%d waits took %d different times, %v on average; want them apart, 1s on average", many, len(distinct), mean)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if begun := time.Now(); Wait(ctx, time.Hour) || time.Since(begun) != time.Second {
			t.Errorf("Wait of an hour came back after %v, want false after 1s", time.Since(begun))
		}
		if !Wait(context.Background(), 0) {
			t.Error("Wait of nothing = false")
		}
	})
}

func TestEvenWaitsAreAsLongAsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			begun := time.Now()
			Wait(Even(context.Background()), time.Second)
			if took := time.Since(begun); took != time.Second {
				t.Errorf("Wait(1s) took %v", took)
			}
		}
	})
}
