package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/weft-go/weft/signal"
)

// A mailbox is where other goroutines leave what the driver of a run should know.
type mailbox struct {
	mu    sync.Mutex
	posts []post
	spare []post // its memory is for later posts
	shut  bool   // nobody reads it any more
	lent  bool   // its reader runs an attempt: see lend
	bell  chan struct{}

	receiving []string // signals of these names are taken at once: see delivery
}

// A post is one thing to know.
type post struct {
	hint    bool             // the inbox may have something new
	signals []signal.Waiting // these are new in it, and follow each other
	kids    bool             // children may have ended
	asked   bool             // the workflow record may have
	stop    bool             // begin nothing new, and end when nothing is under way
	facing  chan []string
	place   bool    // among MaxActivities: it is x's now
	permit  *permit // is granted

	op       *operation // an attempt of this operation
	attempt  *attempt
	answer   *answer // came to this
	returned bool    // and its goroutine is over
	overdue  bool    // or should be

	verdict *verdict // or its verifier has answered

	delivery *delivery
}

// post leaves p. It never waits. What comes too late to be read is for whoever
// drives the run next.
func (x *execution) post(p post) {
	m := &x.mailbox
	m.mu.Lock()
	shut := m.shut
	if !shut && !m.merge(p) {
		m.posts = append(m.posts, p)
	}
	relieve := m.lent && !p.returned // an attempt that returns gives its driver back
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

// ring has the driver look into its mailbox.
func (x *execution) ring() {
	select {
	case x.mailbox.bell <- struct{}{}:
	default:
	}
}

// merge adds p to the last post, if both only tell of signals: a run that is busy
// keeps no more than a page of them in memory.
func (m *mailbox) merge(p post) bool {
	if len(m.posts) == 0 {
		return false
	}
	last := &m.posts[len(m.posts)-1]
	if !p.news() || !last.news() {
		return false
	}
	last.hint = last.hint || p.hint || len(last.signals)+len(p.signals) > inboxPage
	if last.hint {
		last.signals = nil
	} else {
		last.signals = append(last.signals, p.signals...)
	}
	return true
}

// news says that p tells of signals and of nothing else.
func (p *post) news() bool {
	return (p.hint || p.signals != nil) && !p.asked && !p.kids && !p.stop && p.facing == nil && p.op == nil && p.delivery == nil
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
	x.pass(post{delivery: x.delivery})
	x.pass(m.take()...)
}

// pass has the engine look at a run that is driven no more and has not ended,
// if one of the posts says that something was written for it. A place is for
// somebody else.
func (x *execution) pass(posts ...post) {
	doubt := false
	for _, p := range posts {
		doubt = doubt || p.hint || p.asked || p.kids || p.signals != nil
		if p.place {
			x.eng.leave()
		}
		if p.delivery != nil {
			p.delivery.done <- nil
		}
	}
	if doubt && x.output == nil {
		x.life.doubt(x.id)
	}
}

func (m *mailbox) take() []post {
	m.mu.Lock()
	defer m.mu.Unlock()
	posts := m.posts
	m.posts, m.spare = m.spare[:0], nil
	m.receiving = m.receiving[:0]
	return posts
}

// giveBack has the memory of posts, which were read, used again.
func (m *mailbox) giveBack(posts []post) {
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
	asked := false
	for _, p := range posts {
		asked = asked || p.asked
		if p.place {
			x.places++
		}
		if p.hint {
			x.inbox.hinted()
		}
		x.inbox.arrived(p.signals)
		x.kidsStale = x.kidsStale || p.kids
		switch {
		case p.stop:
			x.stopping = true
		case p.facing != nil:
			p.facing <- x.facing()
		case p.permit != nil:
			x.permitGranted(p.permit)
		case p.delivery != nil:
			x.delivery = p.delivery
		case p.verdict != nil:
			x.readVerdict(p)
		case p.overdue:
			x.readOverdue(p)
		case p.op != nil:
			x.readAnswer(p)
		}
	}
	if asked {
		return x.refresh()
	}
	return nil
}

// readAnswer takes in an attempt's answer. Each attempt counts once: what comes
// after its time was up is dropped.
func (x *execution) readAnswer(p post) {
	o := p.op
	if p.returned {
		o.working = nil
		x.ops.working--
		if x.probation != nil {
			x.probation.back(o)
		}
		x.heard(o)
	}
	if o.keyed != nil {
		x.reconciledAnswer(o, p)
		return
	}
	if o.done || o.answer != nil || p.answer.attempt <= o.attempt {
		return
	}
	if u := p.answer.unreadable; u != nil { // that is no failure: nothing was tried
		x.block(o, fmt.Errorf("result of %s, which %s undoes: %w", describe(ofActivity, o.name), o.id, u))
		x.blocked.again = false
		return
	}
	o.answer = p.answer
	x.ops.ready = append(x.ops.ready, o)
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
