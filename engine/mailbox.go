package engine

import (
	"time"

	"github.com/weft-go/weft/internal/lock"
)

// A mailbox is where other goroutines leave what the driver of a run should know.
type mailbox struct {
	mu    lock.Mutex
	posts []message
	spare []message // its memory is for later posts
	shut  bool      // nobody reads it any more
	lent  bool      // its reader runs an attempt: see lend
	bell  chan struct{}

	receiving []string // signals of these names are taken at once: see delivery
}

// post leaves a message. It never waits. What comes too late to be read is for whoever
// drives the run next.
func (x *execution) post(p message) {
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

// add puts p behind the messages that wait, or into the last of them.
func (m *mailbox) add(p message) {
	if last := len(m.posts) - 1; last >= 0 {
		if both, ok := merge(m.posts[last], p); ok {
			m.posts[last] = both
			return
		}
	}
	m.posts = append(m.posts, p)
}

// ring has the driver look into its mailbox.
func (x *execution) ring() {
	select {
	case x.mailbox.bell <- struct{}{}:
	default:
	}
}

// shut ends the reading of the mailbox. It is called when x is driven no more.
func (x *execution) shut() {
	m := &x.mailbox
	m.mu.Lock()
	m.shut = true
	m.mu.Unlock()
	x.unneeded()
	for o := range x.ops.all() {
		o.forgo()
	}
	if x.delivery != nil {
		x.pass(x.delivery)
	}
	x.pass(m.take()...)
}

// pass forwards messages for a run that is driven no more, and has the engine look at the
// run if it has not ended and something was written for it.
func (x *execution) pass(posts ...message) {
	look := false
	for _, p := range posts {
		look = p.forward(x) || look
	}
	if look && x.output == nil {
		x.life.doubt(x.id)
	}
}

func (m *mailbox) take() []message {
	m.mu.Lock()
	defer m.mu.Unlock()
	posts := m.posts
	m.posts, m.spare = m.spare[:0], nil
	m.receiving = m.receiving[:0]
	return posts
}

// giveBack has the memory of posts, which were read, used again.
func (m *mailbox) giveBack(posts []message) {
	clear(posts)
	if cap(posts) > 64 {
		return
	}
	m.mu.Lock()
	m.spare = posts
	m.mu.Unlock()
}

// read takes in what was posted: all of it, before it may meet an error.
func (x *execution) read() error {
	posts := x.mailbox.take()
	defer x.mailbox.giveBack(posts)
	for _, p := range posts {
		p.read(x)
	}
	if x.recordStale {
		x.recordStale = false
		return x.refresh()
	}
	return nil
}

// facing is what the run waits for, in words.
func (x *execution) facing() []string {
	var words []string
	for o := range x.ops.all() {
		s := describe(o.of, o.name)
		if !o.due.IsZero() {
			s += " until " + x.wall(o.due, x.eng.now()).UTC().Format(time.RFC3339)
		}
		if o.permit != nil && !o.permit.granted {
			s += ", in line"
		}
		words = append(words, s)
	}
	return words
}
