package run

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
)

// A Delivery is a signal that its sender hands to the driver of a run that waits in a receive. One commit of the driver
// accepts and consumes it. The payload goes directly into the checkpoint and is never in the inbox.
type Delivery struct {
	In   *acceptance.Incoming
	To   Address
	From context.Context             // of the sender, which learns the errors of the commit
	Done chan *acceptance.Acceptance // receives one value; nil: it was not delivered

	// Tried is the time of acceptance that the driver has tried to write, in microseconds since 1970, or zero.
	Tried atomic.Int64
}

// Offer posts d to a driver that waits for such a signal and will answer it soon. It reports whether it did.
func (x *Execution) Offer(d *Delivery) bool {
	m := &x.mailbox
	m.mu.Lock()
	offered := !m.shut && slices.Contains(m.receiving, d.In.Name)
	if offered {
		m.receiving = m.receiving[:0] // one delivery at a time
		m.posts = append(m.posts, d)
	}
	m.mu.Unlock()
	if offered {
		x.ring()
	}
	return offered
}

// expect publishes in the mailbox which signals the waiting run would receive at once.
func (x *Execution) expect() {
	m := &x.mailbox
	m.mu.Lock()
	defer m.mu.Unlock()
	if !x.takesNext() {
		return
	}
	for _, o := range x.Ops.timed {
		if o.open && o.wait != nil {
			m.receiving = append(m.receiving, o.name)
		}
	}
}

// takesNext reports whether a signal that is accepted now would be the next one received
// by the operation that waits for its name: all earlier ones are known and consumed.
func (x *Execution) takesNext() bool {
	return x.mayBegin() && !slices.ContainsFunc(x.Ops.timed, func(o *operation) bool {
		return o.open && (o.found != nil || o.wait != nil && !x.Inbox.drained(o.name))
	})
}

// drained reports whether all signals of a name are known and consumed.
func (in *inbox) drained(name string) bool {
	l := in.lines[name]
	return l != nil && !l.more && len(l.waiting) == 0
}

// receive commits d as accepted and received, and answers it. It returns false if the run has changed since the delivery was
// offered, or if the commit was refused. The sender then finds out why.
func (x *Execution) receive(d *Delivery) (done bool, err error) {
	var answer *acceptance.Acceptance
	defer func() { d.Done <- answer }()
	wf := x.Hold.Workflow
	if !x.takesNext() || !bytes.Equal(d.To.Workflow.Raw(), wf.Raw()) {
		return false, nil
	}
	i := slices.IndexFunc(x.Ops.timed, func(o *operation) bool { return o.open && o.wait != nil && o.name == d.In.Name })
	if i < 0 {
		return false, nil
	}
	a, err := acceptance.AcceptConsumed(d.In, wf.Generation, d.To.Counted, x.host.Now())
	if err != nil || a.Arrived[0].Seq != x.Inbox.end+1 {
		return false, nil // an earlier signal is not known yet
	}
	o := x.Ops.timed[i]
	if x.takes(o, payload.Payload{Codec: d.In.Codec, Data: d.In.Data}) != nil {
		return false, nil // it is to be accepted, but not received
	}
	unsure := x.unsure
	defer func() { x.unsure = unsure }()
	x.unsure = func(err error) {
		waiting.LeftTo(d.From, true, err)
		unsure(err)
	}
	d.Tried.Store(a.Arrived[0].Answer.AcceptedAt.UnixMicro())
	done, err = x.commit(journal.Change{
		Events: []checkpoint.Event{o.receives(&found{a.Arrived[0].Waiting, a.Arrived[0].Payload})},
		If:     a.Batch.If,
		Ops:    a.Batch.Ops,
	})
	if done {
		answer = a
		x.Inbox.passed(a.Arrived[0].Waiting)
	}
	return done, err
}

// passed notes that a signal was accepted, directly after all known ones, and consumed.
func (in *inbox) passed(w acceptance.Waiting) {
	in.end = w.Seq
	for _, l := range in.lines {
		l.arrived(w, false)
	}
}

// receives returns the event that o received f.
func (o *operation) receives(f *found) checkpoint.Event {
	e := o.event(checkpoint.KindReceived)
	e.Result, e.Codec, e.SignalID, e.Seq = f.Data, f.Codec, f.ID, f.Seq
	return e
}
