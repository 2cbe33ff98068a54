package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// SG1, SG2, SG4, SG5: senders that give up and try again, through the engine that
// drives the run and beside it, while commits fail, the run parks and the engine is
// killed: each signal is received once, and those of a name in their order.
func TestSignalsInAStorm(t *testing.T) {
	for seed := range uint64(torture.Rounds(20, 20, 8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { virtual(t, func(t *testing.T) { signalStorm(t, seed) }) })
	}
}

// A slow store takes its time to commit.
type slow struct {
	storage.Storage
	pause func() time.Duration
}

func (s slow) Unwrap() storage.Storage { return s.Storage }

func (s slow) Commit(ctx context.Context, b storage.Batch) error {
	time.Sleep(s.pause())
	return s.Storage.Commit(ctx, b)
}

func signalStorm(t *testing.T, seed uint64) {
	const each = 40
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(seed, 0))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	wf := flow("w", func(run *engine.Run) (string, error) {
		y, n := 0, 0
		for y+n < 2*each {
			a, b := yes.Next(run), no.Next(run)
			first, err := engine.Select(run, a, b)
			if err != nil {
				return "", err
			}
			f, at, name := a, &y, "yes"
			if first == b {
				f, at, name = b, &n, "no"
			}
			got, err := f.Get(run)
			if err != nil {
				return "", err
			}
			if want := fmt.Sprint(name, *at); got != want {
				return fmt.Sprintf("received %s instead of %s", got, want), nil
			}
			*at++
		}
		return "in order", nil
	})
	inner := slow{new(memory.Store), func() time.Duration { return time.Duration(roll(2000)) * time.Microsecond }}
	boots := func() *process {
		var up atomic.Bool
		f := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			if up.Load() && c.Method == "Commit" && roll(8) == 0 {
				faults := []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle}
				return faults[roll(len(faults))]
			}
			return storagetest.None
		})
		defer up.Store(true)
		return bootOn(t, f, wf, parkAfter(time.Duration(1+roll(20))*time.Millisecond))
	}
	p := boots()
	start(t, wf, p, "w", "")
	client := made(t, inner)
	defer client.Close()
	var current atomic.Pointer[engine.Engine]
	current.Store(p.Engine)
	var senders sync.WaitGroup
	for _, s := range []*signal.Signal[string]{yes, no} {
		senders.Go(func() {
			for i := range each {
				time.Sleep(time.Duration(roll(30000)) * time.Microsecond)
				v := fmt.Sprint(s.Name, i)
				var first signal.Accepted
				for again := roll(4); again >= 0; {
					to := current.Load()
					if roll(6) == 0 {
						to = client
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+roll(10000))*time.Microsecond)
					a, err := s.Send(ctx, to, "w", v, &signal.Options{ID: v})
					cancel()
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					if again--; first == (signal.Accepted{}) {
						first = canonical(a)
					}
					if canonical(a) != first {
						t.Errorf("answered %+v and then %+v", first, a)
					}
				}
			}
		})
	}
	for range 5 {
		time.Sleep(time.Duration(roll(300)) * time.Millisecond)
		p.kill()
		p = boots()
		current.Store(p.Engine)
	}
	senders.Wait()
	if got := result(t, wf.Handle(p, "w")); got != "in order" {
		t.Error(got)
	}
	if left := signalsOf(t, client, "w"); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
