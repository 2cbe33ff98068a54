package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A start is stored and its caller is told nothing. While the store cannot be read, no time has passed in which
// the engine could have found out, so it goes on to look, however long the store is away.
func TestAStartInDoubtOutlastsAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", nil })
		var began, away atomic.Bool
		p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			switch {
			case c.Method == "Commit" && touches(c.Batch, "wf:o") && began.CompareAndSwap(false, true):
				away.Store(true)
				return storagetest.ErrorAfter
			case away.Load():
				return storagetest.ErrorBefore
			}
			return storagetest.None
		}), wf)
		time.Sleep(time.Second)
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := wf.Start(impatient, p, "o", ""); err == nil {
			t.Fatal("the outcome of the start is known")
		}
		time.Sleep(15 * time.Minute)
		away.Store(false)
		limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		if got, err := wf.Handle(p, "o").Result(limit); err != nil || got != "done" {
			t.Errorf("result %q, %v", got, err)
		}
	})
}

// An engine ends while its store cannot be written, with a run that its activity has kept from being put down. On a store with
// one opener nobody else would find out that it has ended: the process knows it.
func TestRunAgainAfterAnEndThatWasNotStored(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var calls atomic.Int32
		wf := flow("w", func(run *engine.Run) (string, error) {
			return engine.Step(run, "step", func(ctx context.Context) (string, error) {
				if calls.Add(1) > 1 {
					return "again", nil
				}
				<-ctx.Done()
				return "", ctx.Err()
			})
		})
		var away atomic.Bool
		p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && away.Load() {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		}), wf, func(c *engine.Config) { c.StopTimeout = time.Second })
		h := start(t, wf, p, "o", "")
		for calls.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		away.Store(true)
		p.end()
		if err := <-p.done; err != nil {
			t.Fatalf("Run: %v", err)
		}
		away.Store(false)
		p.run()
		limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		if got, err := h.Result(limit); err != nil || got != "again" {
			t.Errorf("result %q, %v; the step was called %d times", got, err, calls.Load())
		}
	})
}

// The damaged record of one engine does not keep those of others that have ended.
func TestEnginesBehindADamagedOneAreForgotten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		bad := keys.Engine("0")
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(bad, []byte("damaged"))}}); err != nil {
			t.Fatal(err)
		}
		wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		for range 3 {
			boot(t, s, wf).stop(t)
		}
		p := boot(t, s, wf, rarestLeases)
		time.Sleep(30 * time.Hour)
		if got := entries(t, s, "eng:"); len(got) != 2 || got[0] != string(bad) {
			t.Errorf("the records of engines are %q, want the damaged one and that of the one that runs", got)
		}
		p.stop(t)
	})
}
