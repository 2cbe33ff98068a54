package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A metered store counts what is read from it.
type metered struct {
	storage.Storage
	rows, scans, gets atomic.Int64
}

func (m *metered) Unwrap() storage.Storage { return m.Storage }

func (m *metered) Get(ctx context.Context, key []byte) ([]byte, error) {
	m.gets.Add(1)
	return m.Storage.Get(ctx, key)
}

func (m *metered) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := m.Storage.Scan(ctx, r)
	m.scans.Add(1)
	m.rows.Add(int64(len(page)))
	return page, err
}

// during is what is read in a time: rows, and calls.
func (m *metered) during(d time.Duration) (rows, calls int64) {
	rows, calls = m.rows.Load(), m.scans.Load()+m.gets.Load()
	time.Sleep(d)
	return m.rows.Load() - rows, m.scans.Load() + m.gets.Load() - calls
}

// of the wall clock that is off by so much.
func behind(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(-by) }
}

// soonDone fails if a run is not done within a time.
func soonDone(t *testing.T, h *engine.Handle[string], within time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		i, err := h.Describe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if i.Status == checkpoint.StatusCompleted {
			return
		}
		if took := time.Since(began); took > within {
			t.Errorf("%s is not done after %v, want it within %v", h.ID(), took, within)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// What an idle engine passes over, because it has no such workflow, it does not read in
// each poll; what it has is found within one all the same, and what was written late not
// much later.
func TestWhatIsPassedOverIsReadSeldom(t *testing.T) {
	n := torture.Rounds(20_000, 20_000, 1_000)
	virtual(t, func(t *testing.T) {
		s := &metered{Storage: fresh(t)}
		foreign, own := flow("foreign", nil2), flow("own", nil2)
		client := made(t, s)
		defer client.Close()
		for i := range n {
			start(t, foreign, client, sprint(i), "")
		}
		bootOn(t, storagetest.NewFaulty(s, nil), own)
		began, gets := s.rows.Load(), s.gets.Load()
		time.Sleep(3 * time.Minute)
		if rows := s.rows.Load() - began; rows > int64(15*n) {
			t.Errorf("%d rows in the first three minutes, with %d entries", rows, n)
		}
		if gets := s.gets.Load() - gets; gets > int64(n+1000) {
			t.Errorf("%d records are read in the first three minutes, with %d entries", gets, n)
		}
		if rows, calls := s.during(10 * time.Minute); rows > int64(12*n) || calls > 600*7 {
			t.Errorf("%d rows and %d calls in ten minutes, with %d entries", rows, calls, n)
		}
		t.Logf("%d rows", s.rows.Load()-began)
		for i, late := range []time.Duration{0, 4 * time.Second, 10 * time.Second, time.Hour} {
			start(t, foreign, client, sprint("another ", i), "") // later than all that is late
			time.Sleep(2500 * time.Millisecond)                  // it is looked at, and then passed over
			slow := made(t, s)
			engine.SetNow(slow, behind(late))
			h := start(t, own, slow, sprint("late by ", late), "")
			soonDone(t, own.Handle(client, h.ID()), min(2*late, 70*time.Second)+1500*time.Millisecond)
			slow.Close()
		}
	})
}

// What was passed over because another deployment is active is taken up when this one is, at whatever moment that is:
// all that is passed over is read again once a minute in any case.
func TestWhatIsPassedOverUntilAnActivation(t *testing.T) {
	for _, offset := range []time.Duration{0, 20 * time.Second, 40 * time.Second} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			wf := pinned("w", nil2)
			client := made(t, s, on("one"), wf)
			defer client.Close()
			activate(t, client, "one")
			const n = 1000
			for i := range n {
				start(t, wf, client, sprint(i), "")
			}
			boot(t, s, on("two"), wf)
			time.Sleep(10*time.Minute + offset)
			activate(t, client, "two")
			time.Sleep(5 * time.Second)
			for i := range n {
				if i := describe(t, client, sprint(i)); i.Status != checkpoint.StatusCompleted {
					t.Fatalf("%v past a minute: %+v, want it completed", offset, i)
				}
			}
		})
	}
}

// The same in the line of a queue, where others may wait that this engine does not run.
func TestWhatIsPassedOverInALine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &metered{Storage: fresh(t)}
		foreign, own := flow("foreign", nil2), flow("own", nil2)
		foreign.Defaults.Queue, own.Defaults.Queue = "q", "q"
		client := made(t, s)
		defer client.Close()
		const n = 2000
		for i := range n {
			start(t, foreign, client, sprint(i), "")
		}
		bootOn(t, storagetest.NewFaulty(s, nil), own, func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q", Concurrency: 3}} })
		time.Sleep(3 * time.Minute)
		if rows, _ := s.during(10 * time.Minute); rows > 20*n {
			t.Errorf("%d rows in ten minutes, with %d entries", rows, n)
		}
		start(t, own, client, "own", "")
		soonDone(t, own.Handle(client, "own"), 1500*time.Millisecond)
	})
}

// The same with what a dead engine held: what this one has is taken over at once.
func TestWhatIsPassedOverOfTheDead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &metered{Storage: fresh(t)}
		nap := func(name string) *engine.Workflow[string, string] {
			return flow(name, func(run *engine.Run) (string, error) { return "rested", run.Sleep(24 * time.Hour) })
		}
		const n = 600
		p := bootOn(t, storagetest.NewFaulty(s, nil), nap("foreign"), nap("own"))
		time.Sleep(time.Second)
		for i := range n {
			start(t, nap("foreign"), p, fmt.Sprintf("a%04d", i), "")
		}
		start(t, nap("own"), p, "own", "")
		p.kill()
		p = bootOn(t, storagetest.NewFaulty(s, nil), flow("own", nil2))
		time.Sleep(2 * time.Second)
		client := made(t, s)
		defer client.Close()
		if i := describe(t, client, "own"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("%+v, want it taken over", i)
		}
		time.Sleep(3 * time.Minute)
		if rows, _ := s.during(10 * time.Minute); rows > 20*n {
			t.Errorf("%d rows in ten minutes, with %d entries", rows, n)
		}
		p.kill()
		dead := describe(t, client, "a0500").Owner
		bootOn(t, storagetest.NewFaulty(s, nil), nap("foreign"))
		time.Sleep(5 * time.Second)
		if i := describe(t, client, "a0500"); i.Owner == "" || i.Owner == dead {
			t.Errorf("%+v, want it taken over by an engine that has it", i)
		}
	})
}
