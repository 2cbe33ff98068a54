package engine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// Activities that compute, and only one processor: a few are under way at a time, all
// come to their end, and no lease is lost. It counts; how fast the machine is does not
// matter.
func TestActivitiesThatCompute(t *testing.T) {
	torture.Slow(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 30
	for name, open := range map[string]func() (storage.Storage, error){
		"memory": func() (storage.Storage, error) { return sharing{new(memory.Store)}, nil },
		"sqlite": func() (storage.Storage, error) {
			return sqlite.Open(filepath.Join(t.TempDir(), "s"), &sqlite.Options{Shared: true})
		},
		"bolt": func() (storage.Storage, error) { return bolt.Open(filepath.Join(t.TempDir(), "b"), nil) },
		"postgres": func() (storage.Storage, error) {
			return postgres.Open(ctx, pgtest.URL(t), &postgres.Options{Schema: "computing"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var under, most, deposed atomic.Int32
			compute := &activity.Activity[int, int]{Name: "compute", Run: func(_ context.Context, i int) (int, error) {
				now := under.Add(1)
				defer under.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				block := make([]byte, 1<<20)
				for range 30 { // some tens of milliseconds
					sum := sha256.Sum256(block)
					block[0] = sum[0]
				}
				return i, nil
			}}
			wf := &engine.Workflow[int, int]{Name: "computes", Func: func(run *engine.Run, i int) (int, error) { return compute.Do(run, i) }}
			e := made(t, s, wf, func(c *engine.Config) {
				c.MaxActivities = 1000
				c.Events.Deposed = func(engine.DeposedEvent) { deposed.Add(1) }
			})
			for i := range n {
				start(t, wf, e, fmt.Sprint(i), i)
			}
			ctx, stop := context.WithCancel(ctx)
			over := make(chan error, 1)
			go func() { over <- e.Run(ctx) }()
			for i := range n {
				if got := result(t, wf.Handle(e, fmt.Sprint(i))); got != i {
					t.Errorf("%d: got %d", i, got)
				}
			}
			stop()
			if err := <-over; err != nil {
				t.Error(err)
			}
			e.Close()
			if most.Load() > n*4/5 || deposed.Load() > 0 {
				t.Errorf("%d of %d were under way at a time, and %d leases were lost; want a few and none", most.Load(), n, deposed.Load())
			}
			t.Logf("%d at a time", most.Load())
		})
	}
}

// A renewal that takes long is followed by the next at once, and not when a third of the
// TTL has passed since it ended.
func TestSlowRenewalsKeepTheLease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: sharing{fresh(t)}}
		var renewals, deposed atomic.Int32
		h.beforeCommit = func(b storage.Batch) {
			if b.Urgent {
				renewals.Add(1)
				time.Sleep(6 * time.Second)
			}
		}
		wf := flow("w", func(run *engine.Run) (string, error) { return "slept", run.Sleep(10 * time.Minute) })
		p := boot(t, h, wf, func(c *engine.Config) { c.Events.Deposed = func(engine.DeposedEvent) { deposed.Add(1) } })
		if got := result(t, start(t, wf, p, "w", "")); got != "slept" || deposed.Load() > 0 || renewals.Load() < 50 {
			t.Errorf("got %q; %d leases were lost, %d renewals", got, deposed.Load(), renewals.Load())
		}
	})
}

// While turns are late, a lease is renewed several times in a third of its TTL: each
// renewal may take long.
func TestRenewsSoonWhileTurnsAreLate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var renewals atomic.Int32
		h := &hooked{Storage: sharing{fresh(t)}, beforeCommit: func(b storage.Batch) {
			if b.Urgent {
				renewals.Add(1)
			}
		}}
		p := boot(t, h, flow("w", func(*engine.Run) (string, error) { return "", nil }))
		time.Sleep(time.Minute)
		calm := renewals.Load()
		for range 600 {
			engine.TurnIsLate(p.Engine)
			time.Sleep(100 * time.Millisecond)
		}
		if late := renewals.Load() - calm; calm > 12 || late < 3*calm {
			t.Errorf("%d renewals in a calm minute, and %d in one with late turns; want 12 and many more", calm, late)
		}
	})
}

// After a lease was lost, half as many attempts are under way at first, and all that may
// be when renewals have been in time for a while.
func TestLessBeginsAfterALostLease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		room := 16 * runtime.GOMAXPROCS(0)
		gone := &hooked{Storage: sharing{fresh(t)}}
		var away atomic.Bool
		var under atomic.Int32
		wait := &activity.Activity[int, int]{Name: "wait", Run: func(ctx context.Context, i int) (int, error) {
			under.Add(1)
			defer under.Add(-1)
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
			}
			return i, ctx.Err()
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "wait", 0, make([]int, room), func(run *engine.Run, i int) (int, error) { return wait.Do(run, i) })
			return fmt.Sprint(len(out)), err
		})
		gone.beforeCommit = func(b storage.Batch) {
			if away.Load() && b.Urgent {
				time.Sleep(20 * time.Second)
			}
		}
		p := boot(t, gone, wf, func(c *engine.Config) { c.MaxActivities = room })
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		if n := int(under.Load()); n != room {
			t.Fatalf("%d are under way, want %d", n, room)
		}
		away.Store(true)
		for under.Load() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		away.Store(false)
		least := 0
		for range 100 {
			if time.Sleep(100 * time.Millisecond); least == 0 {
				least = int(under.Load())
			}
		}
		if least != room/2 {
			t.Errorf("%d began after a lease was lost, want %d", least, room/2)
		}
		time.Sleep(3 * time.Minute)
		if n := int(under.Load()); n != room {
			t.Errorf("after a while %d are under way, want %d", n, room)
		}
	})
}
