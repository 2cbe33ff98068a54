package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

// A run is told at once that a signal may arrive late, and then at intervals that double. While the clock stands
// still, it is told once: being told may make its engine poll at once.
func TestIntervalsOfLateSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arrival{since: time.Now()}
		var told []time.Duration
		for range 100 {
			for a.due() {
				a.told = time.Now()
				if told = append(told, a.told.Sub(a.since)); len(told) > 20 {
					t.Fatalf("told after %v", told)
				}
			}
			time.Sleep(time.Millisecond)
		}
		want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 64}
		if len(told) != len(want) {
			t.Fatalf("told after %v, want %v ms", told, want)
		}
		for i, ms := range want {
			if told[i] != ms*time.Millisecond {
				t.Fatalf("told after %v, want %v ms", told, want)
			}
		}
	})
}
