package engine_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// SIG-44, SIG-45: a retry is answered until the acceptance is forgotten, and then is
// a new signal. How long that takes is said by the signal, or else by the engine.
func TestAcceptanceIsForgotten(t *testing.T) {
	for _, c := range []struct {
		engine, signal, want time.Duration
	}{
		{0, 0, 24 * time.Hour},
		{time.Hour, 0, time.Hour},
		{time.Hour, 5 * time.Hour, 5 * time.Hour},
		{time.Hour, time.Minute, time.Minute},
	} {
		virtual(t, func(t *testing.T) {
			wf := receiving(2)
			p := boot(t, new(memory.Store), wf, func(f *engine.Config) { f.SignalIDRetention = c.engine })
			approved := &signal.Signal[string]{Name: "approved", ExpiresAfter: c.signal}
			h := start(t, wf, p, "o", "")
			first := send(t, approved, p, "o", "v", "evt_1")
			time.Sleep(c.want - time.Second)
			if a := send(t, approved, p, "o", "v", "evt_1"); a != first {
				t.Errorf("%v: a second early: %+v, want the first answer", c, a)
			}
			time.Sleep(3 * time.Second)
			if a := send(t, approved, p, "o", "w", "evt_1"); !a.AcceptedAt.After(first.AcceptedAt) {
				t.Errorf("%v: after its time: %+v, want a new acceptance", c, a)
			}
			if got := result(t, h); got != "vw" {
				t.Errorf("%v: received %q, want both", c, got)
			}
		})
	}
}

// FMT-16, FMT-25: while a signal waits its acceptance is not forgotten, however old:
// also not when the workflow has ended without it.
func TestAcceptanceOfAWaitingSignalIsNotForgotten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := receiving(1)
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = 10 * time.Minute })
		h := start(t, wf, p, "o", "")
		left := &signal.Signal[string]{Name: "left"}
		first := send(t, left, p, "o", "v", "evt_1")
		time.Sleep(100 * time.Hour)
		send(t, approved, p, "o", "w", "")
		if got := result(t, h); got != "w" {
			t.Errorf("received %q", got)
		}
		time.Sleep(100 * time.Hour)
		if a := send(t, left, p, "o", "v", "evt_1"); a != first {
			t.Errorf("got %+v, want the first answer %+v", a, first)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Hour)
		if left := append(entries(t, s, "sig"), entries(t, s, "inbox:")...); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
		for _, k := range entries(t, s, "exp:") {
			if kind, _, _ := keys.Expiring([]byte(k)); kind == "sig" {
				t.Errorf("left behind: %q", k)
			}
		}
	})
}

// OP-35: what expires is removed although records of workflows that have expired before it are damaged, or keys are. Each is
// reported once, and no poll fails.
func TestDamageKeepsNothingFromExpiring(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := receiving(1)
		log := new(lines)
		p := boot(t, s, wf, log.logger(), func(c *engine.Config) { c.PollInterval, c.LeaseTTL = 10*time.Minute, 30*time.Minute })
		start(t, wf, p, "o", "")
		for i, id := range []string{"bad", "worse"} {
			put(t, s, keys.Workflow(id), []byte("no record"))
			at := time.Now().Add(time.Duration(i) * time.Second)
			put(t, s, [][]byte{keys.FormerLife(at, id, "01JGZ3Q8X0000000000000000A"), keys.ExpiringTombstone(at, id, "01JGZ3Q8X0000000000000000A")}[i], nil)
		}
		put(t, s, keys.Dismissal("bad", "01JGZ3Q8X0000000000000000A"), nil)
		newer, err := record.Seal(keys.Workflow("newer"), 200, &struct{}{}, nil) // of a newer release, which asks its children
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, keys.Workflow("newer"), newer)
		put(t, s, keys.Dismissal("newer", "01JGZ3Q8X0000000000000000B"), nil)
		for _, k := range []string{"exp:0000000000000001:odd", "exp:0000000000000001:odder", "exp:0000000000000001:oddest", "exp:0000000000000001:sig:o", "exp:0947odd:sig:o:approved:evt_1"} {
			put(t, s, []byte(k), nil)
		}
		send(t, approved, p, "o", "v", "evt_1")
		if n := len(entries(t, s, "sigres:")); n != 1 {
			t.Fatalf("%d acceptances", n)
		}
		time.Sleep(25 * time.Hour)
		if left := entries(t, s, "sigres:"); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
		if left := entries(t, s, "exp:"); len(left) != 9 {
			t.Errorf("left: %q, want those of what cannot be read", left)
		}
		if said, failed := log.count("cannot be read; it is"), log.count("poll failed"); said != 7 || failed != 0 {
			t.Errorf("%d are reported, and %d polls have failed, want 7 and none", said, failed)
		}
		if said := log.count("of a terminated workflow"); said != 1 || log.count("is damaged; its children are not asked to stop") != 1 {
			t.Errorf("what keeps children from being asked to stop is reported %d times, want once", said)
		}
		p.kill()
	})
}

// An entry of a workflow that does not exist, which a wake-up of it may have left behind, is removed.
func TestEntryOfNoWorkflowIsRemoved(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		put(t, s, keys.TodoNow(0, time.Now(), "gone", "01JGZ3Q8X0000000000000000A"), nil)
		log := new(lines)
		p := boot(t, s, receiving(1), rareLeases, log.logger())
		time.Sleep(time.Minute)
		if left, failed := entries(t, s, "todo:"), log.count("claim failed"); len(left) != 0 || failed != 0 {
			t.Errorf("left: %q; %d claims have failed", left, failed)
		}
		p.kill()
	})
}

// OP-35: a retry that meets the removal of its acceptance gets the first answer, or
// is accepted anew; nothing in between.
func TestForgettingRacesWithARetry(t *testing.T) {
	torture.Slow(t)
	t.Run("the retry is quicker", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			h := &hooked{Storage: new(memory.Store)}
			wf := receiving(2)
			var p *process
			var first atomic.Pointer[signal.Accepted]
			var met atomic.Int32
			h.beforeCommit = func(b storage.Batch) {
				if touches(b, "sigres:o:approved:evt_1") && !touches(b, "sigseq:") {
					met.Add(1)
					if a := send(t, approved, p, "o", "v", "evt_1"); a != *first.Load() {
						t.Errorf("while it is being forgotten: %+v, want the first answer", a)
					}
				}
			}
			p = boot(t, h, wf, rareLeases)
			start(t, wf, p, "o", "")
			answer := send(t, approved, p, "o", "v", "evt_1")
			first.Store(&answer)
			time.Sleep(25 * time.Hour)
			if n := met.Load(); n != 1 {
				t.Errorf("forgotten %d times, want once", n)
			}
			if a := send(t, approved, p, "o", "v", "evt_1"); a == answer {
				t.Errorf("afterwards: %+v, want a new acceptance", a)
			}
		})
	})
	t.Run("the removal is quicker", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			h := &hooked{Storage: new(memory.Store)}
			wf := receiving(2)
			var armed atomic.Bool
			h.afterCommit = func(b storage.Batch) error {
				if touches(b, "sigseq:") && armed.CompareAndSwap(true, false) {
					time.Sleep(25 * time.Hour) // refused; before it looks, the acceptance is gone
				}
				return nil
			}
			p := boot(t, h, wf, rareLeases)
			o := start(t, wf, p, "o", "")
			first := send(t, approved, p, "o", "v", "evt_1")
			time.Sleep(time.Minute)
			armed.Store(true)
			if a := send(t, approved, p, "o", "v", "evt_1"); !a.AcceptedAt.After(first.AcceptedAt) {
				t.Errorf("got %+v, want a new acceptance", a)
			}
			if got := result(t, o); got != "vv" {
				t.Errorf("received %q, want both", got)
			}
		})
	})
}

// Acceptances are forgotten in batches that are bounded, and a damaged one does
// not keep the others.
func TestForgettingIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 2500 // more than one look removes
		h := &hooked{Storage: new(memory.Store)}
		wf := flow("w", func(run *engine.Run) (string, error) {
			all, err := approved.Drain(run)
			if err != nil {
				return "", err
			}
			_, err = approved.Receive(run)
			return fmt.Sprint(len(all)), err
		})
		client := made(t, h)
		defer client.Close()
		start(t, wf, client, "o", "")
		for i := range n {
			send(t, approved, client, "o", "v", fmt.Sprint(i))
		}
		put(t, h, keys.Accepted("o", "approved", "7"), []byte("no record"))
		largest := 0
		h.beforeCommit = func(b storage.Batch) {
			if touches(b, "sigres:") {
				largest = max(largest, len(b.Ops))
			}
		}
		boot(t, h, wf, rareLeases)
		time.Sleep(25 * time.Hour)
		if left := entries(t, h, "sigres:"); len(left) != 1 {
			t.Errorf("%d acceptances are left, want the damaged one", len(left))
		}
		if largest == 0 || largest > 200 {
			t.Errorf("the largest batch has %d operations, want up to 200", largest)
		}
	})
}
