package postgres

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/weft-go/weft/storage"
)

// A ticket is a batch being committed. Its fields are guarded by queue.mu while it waits;
// after that they belong to the goroutine that took it.
type ticket struct {
	batch   storage.Batch
	bytes   int
	ranges  bool // it has a DeleteRange
	names   []mention
	since   time.Time
	lane    *lane // in which it waits, or nil
	taken   bool  // it no longer waits
	left    bool  // its caller does not want it to wait in a lane
	skipped bool  // it was not judged, because one of its rows is locked by others
	err     error // the answer
	woken   chan struct{}
}

// A mention is a key that a batch names. It is hashed: a hash collision only makes one batch
// wait for another.
type mention struct {
	hash   uint64
	writes bool
}

var seed = maphash.MakeSeed()

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
		t.names = append(t.names, mention{hash: maphash.Bytes(seed, c.Key)})
	}
	for _, o := range b.Ops {
		if o.Kind == storage.DeleteRangeOp {
			t.ranges = true
			continue
		}
		t.bytes += len(o.Key) + len(o.Value)
		t.names = append(t.names, mention{hash: maphash.Bytes(seed, o.Key), writes: true})
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

// claims count, for each key named by tickets, how many of them write it and how many only
// compare it.
type claims map[uint64]claim

type claim struct{ writers, readers int32 }

// clash reports whether t must not be applied concurrently with the tickets in c.
func (c claims) clash(t *ticket) bool {
	if len(c) == 0 {
		return false
	}
	for _, m := range t.names {
		if x := c[m.hash]; x.writers > 0 || m.writes && x.readers > 0 {
			return true
		}
	}
	return false
}

func (c claims) add(t *ticket) {
	for _, m := range t.names {
		x := c[m.hash]
		if m.writes {
			x.writers++
		} else {
			x.readers++
		}
		c[m.hash] = x
	}
}

func (c claims) drop(t *ticket) {
	for _, m := range t.names {
		x := c[m.hash]
		if m.writes {
			x.writers--
		} else {
			x.readers--
		}
		if x == (claim{}) {
			delete(c, m.hash)
		} else {
			c[m.hash] = x
		}
	}
}
