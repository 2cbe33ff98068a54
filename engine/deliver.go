package engine

import (
	"bytes"
	"context"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/signal"
)

// A delivery is a signal that its sender hands to the driver of a run that rests in
// a receive: its acceptance and its consumption are one commit, the driver's. The
// payload goes into the checkpoint, and no inbox has it in between.
type delivery struct {
	in   *signal.Incoming
	to   address
	from context.Context         // of the sender, who is told what the commit meets
	done chan *signal.Acceptance // receives once; nil: it was not delivered
}

// handOver delivers s to the driver of the workflow, if it waits for that.
// Otherwise the sender commits the acceptance by itself.
func (e *Engine) handOver(ctx context.Context, to address, s *sending) bool {
	x := e.drives(to.wf)
	if x == nil {
		return false
	}
	d := &delivery{s.in, to, ctx, make(chan *signal.Acceptance, 1)}
	if !x.offer(d) {
		return false
	}
	leftTo(ctx, true, nil)
	s.look = true // whatever comes of it: only the accepted response tells
	x.address = address{}
	var a *signal.Acceptance
	select {
	case a = <-d.done:
	case <-ctx.Done():
		a = d.answered()
	case <-x.ctx.Done(): // the run takes no more, and may have ended with this signal
		a = d.answered()
	}
	if a == nil {
		return false
	}
	x.address = address{to.wf, a.Counter}
	e.sends.settle(s, a.Arrived[0].Answer, nil)
	return true
}

// answered is the answer, if there is one already.
func (d *delivery) answered() *signal.Acceptance {
	select {
	case a := <-d.done:
		return a
	default:
		return nil
	}
}

// offer leaves d with a driver that rests, which answers it soon.
func (x *execution) offer(d *delivery) bool {
	m := &x.mailbox
	m.mu.Lock()
	offered := !m.shut && slices.Contains(m.receiving, d.in.Name)
	if offered {
		m.receiving = m.receiving[:0] // one at a time
		m.posts = append(m.posts, d)
	}
	m.mu.Unlock()
	if offered {
		x.ring()
	}
	return offered
}

// expect makes it known which signals the resting run would take at once.
func (x *execution) expect() {
	m := &x.mailbox
	m.mu.Lock()
	defer m.mu.Unlock()
	if !x.takesNext() {
		return
	}
	for _, o := range x.ops.timed {
		if o.open && o.wait != nil {
			m.receiving = append(m.receiving, o.name)
		}
	}
}

// takesNext says that a signal which is accepted now is the next to be received, by
// who waits for its name: all that were accepted before are known, and consumed.
func (x *execution) takesNext() bool {
	return x.mayBegin() && x.ops.receiver() == nil && !slices.ContainsFunc(x.ops.timed, func(o *operation) bool {
		return o.open && o.wait != nil && !x.inbox.drained(o.name)
	})
}

// drained says that all signals of a name are known, and consumed.
func (in *inbox) drained(name string) bool {
	l := in.lines[name]
	return l != nil && !l.more && len(l.waiting) == 0
}

// receive commits d as accepted and received, and answers it. It says no if the run is
// not as it was when the delivery was offered, or if it was refused: then its sender
// finds out why.
func (x *execution) receive(d *delivery) (done bool, err error) {
	var answer *signal.Acceptance
	defer func() { d.done <- answer }()
	wf := x.hold.Workflow
	if !x.takesNext() || !bytes.Equal(d.to.wf.Raw(), wf.Raw()) {
		return false, nil
	}
	i := slices.IndexFunc(x.ops.timed, func(o *operation) bool { return o.open && o.wait != nil && o.name == d.in.Name })
	if i < 0 {
		return false, nil
	}
	a, err := signal.AcceptConsumed(d.in, wf.Generation, d.to.counted, x.eng.now())
	if err != nil || a.Arrived[0].Seq != x.inbox.end+1 {
		return false, nil // there is one before it
	}
	o := x.ops.timed[i]
	if x.takes(o, payload{d.in.Codec, d.in.Data}) != nil {
		return false, nil // it is accepted, and not received
	}
	unsure := x.unsure
	defer func() { x.unsure = unsure }()
	x.unsure = func(err error) {
		leftTo(d.from, true, err)
		unsure(err)
	}
	done, err = x.commit(checkpoint.Change{
		Events: []checkpoint.Event{o.receives(&found{a.Arrived[0].Waiting, a.Arrived[0].Payload})},
		If:     a.Batch.If,
		Ops:    a.Batch.Ops,
	})
	if done {
		answer = a
		x.inbox.passed(a.Arrived[0].Waiting)
	}
	return done, err
}

// passed takes in that a signal was accepted, in the place after all that are known,
// and consumed.
func (in *inbox) passed(w signal.Waiting) {
	in.end = w.Seq
	for _, l := range in.lines {
		l.arrived(w, false)
	}
}

// receives is the event of o's receiving f.
func (o *operation) receives(f *found) checkpoint.Event {
	e := o.event(checkpoint.Received)
	e.Result, e.Codec, e.SignalID = f.Data, f.Codec, f.ID
	return e
}
