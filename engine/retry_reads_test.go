package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// LV4: runs that meet one outage of the store try again each at a time of its own,
// and not often: the store is not to be met by all of them when it comes back.
func TestRunsDoNotComeBackTogether(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		tried := map[time.Time]int{} // at which moment of the outage
		var outage time.Time
		s := storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if outage.IsZero() || now.Before(outage) || now.After(outage.Add(time.Minute)) {
				return storagetest.None
			}
			if now.After(outage) {
				tried[now]++
			}
			return storagetest.ErrorBefore
		})
		wf := flow("nap", func(run *engine.Run) (string, error) { return "woke", run.Sleep(time.Hour) })
		p := bootOn(t, s, wf)
		const many = 100
		var handles []*engine.Handle[string]
		for range many {
			handles = append(handles, start(t, wf, p, "", ""))
		}
		mu.Lock()
		outage = time.Now().Add(time.Hour) // all of them wake into it
		mu.Unlock()
		time.Sleep(time.Hour + 2*time.Minute)
		for _, h := range handles {
			if got := result(t, h); got != "woke" {
				t.Errorf("result %q", got)
			}
		}
		most, all := 0, 0
		for _, n := range tried {
			most, all = max(most, n), all+n
		}
		if most > many/4 || all < many || all > many*120 {
			t.Errorf("%d tries in a minute, %d of them at one moment; want %d to %d, and at most %d at one moment", all, most, many, many*120, many/4)
		}
		p.stop(t)
	})
}
