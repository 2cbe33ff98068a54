package postgres_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
)

// The server is killed under load, and recovers. No acknowledged step is lost, none is stored
// twice, unknown outcomes are resolved, and no conflict is reported without a competing
// writer. WEFT_RESTARTS sets the number of restarts; the default is 20, 6 with the race
// detector, and 50 with WEFT_TORTURE.
func TestRestarts(t *testing.T) {
	restarts := torture.Rounds(50, 20, 6)
	if n, err := strconv.Atoi(os.Getenv("WEFT_RESTARTS")); err == nil {
		restarts = n
	}
	server := pgtest.Start(t)
	s := open(t, server.URL("postgres"), nil)
	const workers = 8
	totals := make([]int, workers)
	var unknown, steps atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for n := 0; !stop.Load() && !t.Failed(); n++ {
				count(t, s, i, n, &unknown)
				totals[i] = n + 1
				steps.Add(1)
			}
		})
	}
	for range restarts {
		most := steps.Load() + workers
		eventually(t, func() bool { return steps.Load() >= most || t.Failed() })
		time.Sleep(time.Duration(50+rand.N(150)) * time.Millisecond)
		if err := server.Restart(); err != nil {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	all.Wait()
	counted(t, s, totals)
	t.Logf("%d restarts, %d steps, %d unknown or failed", restarts, steps.Load(), unknown.Load())
}
