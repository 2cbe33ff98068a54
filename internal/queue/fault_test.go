package queue_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// A process is an incarnation of a process on a store that fails or crashes at one call.
type process struct {
	t     *testing.T
	inner storage.Storage
	call  int // the one that has the fault
	fault storagetest.Fault

	calls   int
	crashes int
	ctx     context.Context // of the calls of this incarnation: ends with it
	q       *queue.Queue
}

func (p *process) start() {
	store := storagetest.NewFaulty(p.inner, func(storagetest.Call) storagetest.Fault {
		if p.calls++; p.calls == p.call {
			return p.fault
		}
		return storagetest.None
	})
	p.q = open(p.t, store)
	ctx, end := context.WithCancel(p.t.Context())
	p.ctx = ctx
	go func(q *queue.Queue) {
		defer end()
		select {
		case <-store.Crashed():
			end()
			q.Close()
		case <-ctx.Done():
		}
	}(p.q)
}

// do repeats a call until it succeeds. After a crash it is made by the next incarnation.
func (p *process) do(f func(q *queue.Queue) error) {
	p.t.Helper()
	for range 20 {
		err := f(p.q)
		if err == nil {
			return
		}
		if errors.Is(err, storagetest.ErrCrashed) || p.ctx.Err() != nil {
			p.crashes++
			p.start()
		}
	}
	p.t.Fatalf("call %d, fault %d: it fails again and again", p.call, p.fault)
}

// WLD-31, WLD-36: whatever becomes of a call to the store, a message is published once, is delivered, and is gone when it is
// acknowledged. Only a crash delivers it more often or later.
func TestEachCallToTheStoreMayFail(t *testing.T) {
	path := func(t *testing.T) string { return filepath.Join(t.TempDir(), "store") }
	for name, open := range map[string]func(t *testing.T) (storage.Storage, error){
		"memory": func(*testing.T) (storage.Storage, error) { return new(memory.Store), nil },
		"sqlite": func(t *testing.T) (storage.Storage, error) { return sqlite.Open(path(t), nil) },
		"bolt":   func(t *testing.T) (storage.Storage, error) { return bolt.Open(path(t), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			stride := 1
			if name != "memory" {
				stride = torture.Rounds(1, 5, 11)
			}
			faults := 0
			for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle, storagetest.CrashBefore, storagetest.CrashAfter} {
				for call := 1 + faults%stride; ; call += stride {
					reached := false
					virtual(t, func(t *testing.T) {
						s, err := open(t)
						if err != nil {
							t.Fatal(err)
						}
						defer s.Close()
						reached = playWith(t, s, call, fault)
					})
					if !reached || t.Failed() {
						break
					}
					faults++
				}
			}
			if t.Logf("%d faults", faults); faults < 50/stride {
				t.Errorf("%d faults were met, want %d or more", faults, 50/stride)
			}
		})
	}
}

// playWith plays a message's life with a fault in a call. It reports whether there was such a call.
func playWith(t *testing.T, inner storage.Storage, call int, fault storagetest.Fault) (reached bool) {
	p := &process{t: t, inner: inner, call: call, fault: fault}
	p.start()
	var id string
	p.do(func(q *queue.Queue) (err error) {
		id, err = q.Publish(p.ctx, queue.Message{Queue: "blue", Name: "flow", Key: "k"})
		return err
	})
	began := time.Now()
	deliveries := 0
	for count(t, p.inner, "wmsg:") > 0 {
		var got []queue.Delivery
		p.do(func(q *queue.Queue) (err error) {
			got, err = q.Receive(p.ctx, "blue", 1, 2*queue.DefaultVisibility)
			return err
		})
		if len(got) != 1 || got[0].ID != id {
			t.Fatalf("call %d, fault %d: got %+v, want %s", call, fault, got, id)
		}
		d := got[0]
		settle := func(as queue.Outcome, after time.Duration) {
			p.do(func(q *queue.Queue) error {
				err := q.Settle(p.ctx, "blue", queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: as, After: after})[0]
				if errors.Is(err, queue.ErrLost) && p.crashes > 0 {
					return nil // by the incarnation before
				}
				return err
			})
		}
		if deliveries++; deliveries == 1 {
			settle(queue.Extend, time.Minute)
			settle(queue.Retry, time.Second)
		} else {
			settle(queue.Acknowledge, 0)
		}
	}
	if deliveries != 2 && p.crashes == 0 || deliveries < 2 || deliveries > 3 {
		t.Errorf("call %d, fault %d: %d deliveries after %d crashes, want 2", call, fault, deliveries, p.crashes)
	}
	if took := time.Since(began); p.crashes == 0 && took >= queue.DefaultVisibility {
		t.Errorf("call %d, fault %d: it took %v: a message was left to its time", call, fault, took)
	}
	for family, want := range map[string]int{"wmsg:": 0, "wdue:": 0, "wheld:": 0, "wkey:": 1, "wexp:": 1} {
		if n := count(t, p.inner, family); n != want {
			t.Errorf("call %d, fault %d: %d records %s, want %d", call, fault, n, family, want)
		}
	}
	p.q.Close()
	return p.calls >= call
}
