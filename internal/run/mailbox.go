package run

import (
	"time"

	"github.com/weft-go/weft/internal/lock"
)

// A mailbox holds the messages that other goroutines send to the driver of a run.
type mailbox struct {
	mu    lock.Mutex
	posts []Message
	spare []Message // a slice to reuse for posts
	shut  bool      // closed: no driver reads it any more
	lent  bool      // the driver is running an attempt: see inline_attempt
	bell  chan struct{}

	receiving []string // signals of these names can be handed to the driver: see delivery
}

// Post sends a message to the driver. It never blocks. A message that comes too late to
// be read is forwarded to the run's next driver.
func (x *Execution) Post(p Message) {
	m := &x.mailbox
	m.mu.Lock()
	shut := m.shut
	if !shut {
		m.add(p)
	}
	relieve := m.lent && !returns(p)
	m.mu.Unlock()
	if shut {
		x.pass(p)
		return
	}
	if relieve {
		x.relieve()
	}
	x.ring()
}

// add appends p to the waiting messages, or merges it with the last of them.
func (m *mailbox) add(p Message) {
	if last := len(m.posts) - 1; last >= 0 {
		if both, ok := merge(m.posts[last], p); ok {
			m.posts[last] = both
			return
		}
	}
	m.posts = append(m.posts, p)
}

// ring wakes the driver to read its mailbox.
func (x *Execution) ring() {
	select {
	case x.mailbox.bell <- struct{}{}:
	default:
	}
}

// Shut closes the mailbox. It is called when x has ended.
func (x *Execution) Shut() {
	m := &x.mailbox
	m.mu.Lock()
	m.shut = true
	m.mu.Unlock()
	for o := range x.Ops.all() {
		o.forgo()
	}
	x.unneeded()
	if x.delivery != nil {
		x.pass(x.delivery)
	}
	x.pass(m.take()...)
	x.updates.leaveToStore()
}

// pass forwards messages that no driver of x will read. If one of them reports a write
// for the run, and the run has not ended, its next life looks, or the engine looks at the run
// again.
func (x *Execution) pass(posts ...Message) {
	look := false
	for _, p := range posts {
		look = p.forward(x) || look
	}
	switch next := x.Next(); {
	case !look || x.Output != nil:
	case next != nil:
		next.Post(Anything)
	default:
		x.Owner.Doubt(x.ID)
	}
}

func (m *mailbox) take() []Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	posts := m.posts
	m.posts, m.spare = m.spare[:0], nil
	m.receiving = m.receiving[:0]
	return posts
}

// giveBack keeps the slice of posts, which were read, for reuse.
func (m *mailbox) giveBack(posts []Message) {
	clear(posts)
	if cap(posts) > 64 {
		return
	}
	m.mu.Lock()
	m.spare = posts
	m.mu.Unlock()
}

// Nudge has a driver that rests look again whether the run is to leave memory.
func (x *Execution) Nudge() { x.ring() }

// read processes all posted messages, and only then does what can fail.
func (x *Execution) read() error {
	posts := x.mailbox.take()
	defer x.mailbox.giveBack(posts)
	for _, p := range posts {
		p.read(x)
	}
	if x.recordStale {
		x.recordStale = false
		return x.refresh(false)
	}
	return nil
}

// facing describes what the run waits for, as text for operators.
func (x *Execution) facing() []string {
	var words []string
	for o := range x.Ops.all() {
		s := describe(o.kind.name, o.name)
		if !o.due.IsZero() {
			s += " until " + x.wall(o.due, x.host.Now()).UTC().Format(time.RFC3339)
		}
		s += o.progressText()
		if o.inLine || o.permit != nil && !o.permit.granted {
			s += ", in line"
		}
		words = append(words, s)
	}
	return words
}
