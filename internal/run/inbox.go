package run

import (
	"cmp"
	"slices"

	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
)

// inboxPage is how many signals of a name are kept in memory at most, and how many are read at once.
const inboxPage = 100

// An inbox caches a run's accepted signals: for each name that the run receives, at most one page of those that come next.
type inbox struct {
	end   uint64 // the last sequence number that is known, with all before it
	lines map[string]*line
}

// A line is the signals of one name, in the order of acceptance.
type line struct {
	waiting []acceptance.Waiting // the next signals, not consumed
	seen    uint64               // sequence number up to which the line is complete
	more    bool                 // there may be more signals in the store
}

// TakeIn takes in ws, which were accepted in the commit that claimed wf, a parked run. No
// other signals of the names that wf waits for are in the inbox.
func (in *inbox) TakeIn(wf *journal.Workflow, ws []acceptance.Waiting) {
	if ws[0].Seq != wf.Heard+1 {
		return // others were accepted before: read the inbox instead
	}
	in.end, in.lines = wf.Heard, map[string]*line{}
	for _, name := range wf.Awaits {
		in.lines[name] = &line{seen: wf.Heard}
	}
	in.arrived(ws)
}

// hinted notes that there may be more signals in the store than are known.
func (in *inbox) hinted() {
	for _, l := range in.lines {
		l.more = true
	}
}

// arrived takes in signals with consecutive sequence numbers. If a signal before them is not
// known, the inbox is read from the store instead.
func (in *inbox) arrived(ws []acceptance.Waiting) {
	for _, w := range ws {
		if w.Seq <= in.end {
			continue
		}
		if w.Seq > in.end+1 {
			in.hinted()
			return
		}
		in.end = w.Seq
		for name, l := range in.lines {
			l.arrived(w, name == w.Name)
		}
	}
}

// arrived takes in the signal that follows those that are known. The line keeps it if it has
// the line's name (mine) and there is room for it.
func (l *line) arrived(w acceptance.Waiting, mine bool) {
	switch {
	case l.more:
	case mine && len(l.waiting) >= inboxPage:
		l.more = true
	default:
		if l.seen = w.Seq; mine {
			l.waiting = append(l.waiting, w)
		}
	}
}

// receiving is the state of an operation that receives a signal.
type receiving struct {
	wait  *signal.Wait // nil: it receives nothing
	found *found       // the signal that it is going to consume
}

// A found signal is one that a receive is going to consume.
type found struct {
	acceptance.Waiting
	*acceptance.Payload
}

// lookForSignals finds a signal for each receive. It reads no more of the inbox than it needs.
func (x *Execution) lookForSignals() error {
	if x.blocked != nil {
		return nil
	}
	for _, o := range x.Ops.timed {
		if !o.open || o.wait == nil || o.found != nil {
			continue
		}
		w, ok, err := x.match(o.name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		p, err := acceptance.Read(x.Ctx, x.store, x.ID, w)
		if err != nil {
			return err
		}
		switch err := x.takes(o, payload.Payload{Codec: p.Codec, Data: p.Data}); {
		case err == errStopped:
			return err
		case err != nil:
			x.Inbox.putBack(w)
			x.block(o, &signal.PayloadError{WorkflowID: x.ID, SignalName: w.Name, SignalID: w.ID, Err: err})
			return nil
		}
		o.found = &found{w, p}
	}
	return nil
}

// takes returns an error if o cannot decode p. A signal is received only if its receiver can decode it. Otherwise it stays
// in the inbox until the code is corrected or an operator clears the signal.
func (x *Execution) takes(o *operation, p payload.Payload) error {
	if o.wait.New == nil {
		return nil
	}
	return x.readable(p, o.wait.New())
}

// block has the run held because of data for o that cannot be decoded. Attempts in progress
// first return, and their outcomes are recorded.
func (x *Execution) block(o *operation, cause error) {
	x.blocked = undecodable(o.id, o.name, cause)
	x.blocked.again = true
	o.logger().Warn("weft: run cannot continue; it is held when its attempts have returned", "error", x.blocked)
}

// match takes the first waiting signal of a name, reading the inbox if necessary.
func (x *Execution) match(name string) (acceptance.Waiting, bool, error) {
	l := x.Inbox.lines[name]
	if l == nil {
		l = &line{more: true}
		if x.Inbox.lines == nil {
			x.Inbox.lines = map[string]*line{}
		}
		x.Inbox.lines[name] = l
	}
	for len(l.waiting) == 0 {
		if !l.more {
			return acceptance.Waiting{}, false, nil
		}
		page, last, err := acceptance.Inbox(x.Ctx, x.store, x.ID, l.seen+1, inboxPage)
		if err != nil {
			return acceptance.Waiting{}, false, err
		}
		l.more = !last
		x.Inbox.read(l, name, page)
	}
	w := l.waiting[0]
	l.waiting[0] = acceptance.Waiting{}
	l.waiting = l.waiting[1:]
	return w, true, nil
}

// read takes in a page of the inbox that was read for l, the line of the given name.
func (in *inbox) read(l *line, name string, page []acceptance.Waiting) {
	for _, w := range page {
		l.seen = w.Seq
		if w.Name == name {
			l.waiting = append(l.waiting, w)
		} else if other := in.lines[w.Name]; other != nil && other.seen < w.Seq {
			other.more = true
		}
	}
	in.end = max(in.end, l.seen)
}

// putBack returns a signal that is not going to be consumed after all.
func (in *inbox) putBack(w acceptance.Waiting) {
	l := in.lines[w.Name]
	if l == nil {
		return // the inbox was forgotten, and is read again
	}
	i, _ := slices.BinarySearchFunc(l.waiting, w.Seq, func(w acceptance.Waiting, seq uint64) int { return cmp.Compare(w.Seq, seq) })
	l.waiting = slices.Insert(l.waiting, i, w)
}

// forgetSignals clears the cache, so that the inbox is read again from its beginning. It is
// called when the inbox may have changed in another way than by new signals.
func (x *Execution) forgetSignals() {
	x.Inbox = inbox{}
	for _, o := range x.Ops.timed {
		o.found = nil
	}
}

// ReceiveSignal is engine.Run.ReceiveSignal.
func (r *Handle) ReceiveSignal(w signal.Wait) future.Operation {
	op := r.startOperation(ofReceive, w.Name, nil)
	if o, ok := op.(*operation); ok {
		o.wait = &w
		if w.Within != nil {
			o.due = after(o.begins(), *w.Within)
		}
	}
	return op
}

// giveSignal passes a received signal to its receiver.
func giveSignal(r *Handle, o *operation, result any) error {
	if !o.outcome.received {
		return nil
	}
	decode := func(v any) error {
		r.decode(o.outcome.result, v, func(err error) *fault {
			return undecodable(o.id, o.name, &signal.PayloadError{WorkflowID: r.x.ID, SignalName: o.name, SignalID: o.outcome.signalID, Err: err})
		})
		return nil
	}
	if o.wait.Take != nil {
		return o.wait.Take(decode)
	}
	return decode(result)
}
