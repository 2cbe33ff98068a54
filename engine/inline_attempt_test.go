package engine_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// AC4, F12: an attempt that runs in the driver's goroutine holds nothing up. What
// is posted meanwhile is answered at once by another driver, which goes on with
// what the attempt came to, also if that ends its goroutine.
func TestAttemptInTheDriversGoroutine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var runs tally
		act := &activity.Activity[int, int]{Name: "act", Retry: activity.Retry{MaxAttempts: 2, Backoff: time.Second}, Run: func(ctx context.Context, i int) (int, error) {
			runs.add(sprint(i))
			time.Sleep(time.Duration(i%3) * 10 * time.Second)
			if i%4 == 3 && activity.InfoFrom(ctx).Attempt == 1 {
				runtime.Goexit()
			}
			return i, nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			sum := 0
			for i := range 12 {
				n, err := act.Do(run, i)
				if err != nil {
					return "", err
				}
				sum += n
			}
			return sprint(sum), nil
		})
		p := boot(t, new(memory.Store), wf)
		h := start(t, wf, p, "o", "")
		for range 30 {
			time.Sleep(7 * time.Second)
			asked := time.Now()
			describe(t, p, "o")
			if waited := time.Since(asked); waited != 0 {
				t.Errorf("a question was answered after %v", waited)
			}
		}
		if got := result(t, h); got != "66" {
			t.Errorf("result %s, want 66", got)
		}
		for i := range 12 {
			want := 1
			if i%4 == 3 {
				want = 2
			}
			if n := runs.of(sprint(i)); n != want {
				t.Errorf("activity %d ran %d times, want %d", i, n, want)
			}
		}
		p.stop(t)
	})
}

// AC4: as before, with posts at any instant: many runs whose activities take next
// to no time, under questions from all sides.
func TestDriversAreRelievedAtAnyInstant(t *testing.T) {
	const workflows, steps = 40, 25
	var runs tally
	act := &activity.Activity[int, int]{Name: "act", Run: func(_ context.Context, i int) (int, error) {
		runs.add(sprint(i))
		runtime.Gosched()
		return i, nil
	}}
	wf := flow("w", func(run *engine.Run) (string, error) {
		sum := 0
		for i := range steps {
			n, err := act.Do(run, i)
			if err != nil {
				return "", err
			}
			sum += n
		}
		return sprint(sum), nil
	})
	p := boot(t, new(memory.Store), wf)
	var wg sync.WaitGroup
	for i := range workflows {
		h := start(t, wf, p, sprint("o-", i), "")
		wg.Go(func() {
			for range 100 {
				describe(t, p, h.ID())
			}
		})
		wg.Go(func() {
			if got := result(t, h); got != "300" {
				t.Errorf("result %s, want 300", got)
			}
		})
	}
	wg.Wait()
	p.stop(t)
	for i := range steps {
		if n := runs.of(sprint(i)); n != workflows {
			t.Errorf("activity %d ran %d times, want %d", i, n, workflows)
		}
	}
}
