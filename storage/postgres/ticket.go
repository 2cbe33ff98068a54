package postgres

import (
	"sync"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres/internal/claims"
)

// A ticket is a batch being committed. Its fields are guarded by queue.mu while it waits;
// after that they belong to the goroutine that took it.
type ticket struct {
	batch   storage.Batch
	bytes   int
	ranges  bool // it has a DeleteRange
	names   []claims.Mention
	since   time.Time
	lane    *lane // in which it waits, or nil
	taken   bool  // it no longer waits
	left    bool  // its caller does not want it to wait in a lane
	skipped bool  // it was not judged, because one of its rows is locked by others
	err     error // the answer
	woken   chan struct{}
}

// A pool keeps tickets for reuse. Each store has its own, because a channel made in a
// testing/synctest bubble cannot be used outside of it.
type pool struct{ free sync.Pool }

func (p *pool) get(b storage.Batch) *ticket {
	t, ok := p.free.Get().(*ticket)
	if !ok {
		t = &ticket{woken: make(chan struct{}, 1)}
	}
	t.batch, t.since = b, time.Now()
	for _, c := range b.If {
		t.bytes += len(c.Key) + len(c.Value)
		t.names = append(t.names, claims.Compares(c.Key))
	}
	for _, o := range b.Ops {
		if o.Kind == storage.DeleteRangeOp {
			t.ranges = true
			continue
		}
		t.bytes += len(o.Key) + len(o.Value)
		t.names = append(t.names, claims.Writes(o.Key))
	}
	return t
}

// put takes back an answered ticket.
func (p *pool) put(t *ticket) {
	*t = ticket{names: t.names[:0], woken: t.woken}
	p.free.Put(t)
}

// judged reports whether t, which is answered, was applied or had a conflict.
func (t *ticket) judged() bool { return t.err == nil || t.err == storage.ErrConflict }

func (t *ticket) answer() { t.woken <- struct{}{} }
