package torture

import (
	"sync"
	"testing"
	"time"
)

// Standstill returns a function that says for how long this process has stood still since then, as on a machine that
// is busy with something else. A test that has measured a time can tell by it whose time it was.
func Standstill(t testing.TB) (stood func() time.Duration) {
	const beat, least = 10 * time.Millisecond, 100 * time.Millisecond
	var mu sync.Mutex
	var sum time.Duration
	last := time.Now()
	stood = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if late := now.Sub(last) - beat; late > least {
			sum += late
		}
		last = now
		return sum
	}
	ended := make(chan struct{})
	var beats sync.WaitGroup
	t.Cleanup(func() {
		close(ended)
		beats.Wait()
	})
	beats.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(beat):
				stood()
			}
		}
	})
	return stood
}
