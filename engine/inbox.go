package engine

import (
	"cmp"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/signal"
)

// inboxPage is how many signals of a name are kept in memory, and read at once.
const inboxPage = 100

// An inbox is what a run knows of its accepted signals: of each name that it
// receives the next ones. However many wait, it keeps a page of each.
type inbox struct {
	end   uint64 // the last place that was heard of, with all before it
	lines map[string]*line
}

// A line is the signals of one name, in the order of acceptance.
type line struct {
	waiting []signal.Waiting // next, and not consumed
	seen    uint64           // the inbox was read up to here
	more    bool             // there may be something behind
}

// begin takes in ws, which were accepted in the commit that claimed wf, parked until
// then. Of the names that it waits for, nothing else is there.
func (in *inbox) begin(wf *checkpoint.Workflow, ws []signal.Waiting) {
	if ws[0].Seq != wf.Heard+1 {
		return // others came before: the inbox is read
	}
	in.end, in.lines = wf.Heard, map[string]*line{}
	for _, name := range wf.Awaits {
		in.lines[name] = &line{seen: wf.Heard}
	}
	in.arrived(ws)
}

// hinted notes that there may be more than is known.
func (in *inbox) hinted() {
	for _, l := range in.lines {
		l.more = true
	}
}

// arrived takes in signals that were accepted one after the other. Where one is
// missing before them, the inbox is read instead.
func (in *inbox) arrived(ws []signal.Waiting) {
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

// arrived takes in the place after those that are known, and what is there if it
// is mine and there is room.
func (l *line) arrived(w signal.Waiting, mine bool) {
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

// A found signal is one that a receive is going to consume.
type found struct {
	signal.Waiting
	*signal.Payload
}

// lookForSignals finds a signal for each receive, reading no more of the inbox than that
// takes.
func (x *execution) lookForSignals() error {
	if x.blocked != nil {
		return nil
	}
	for _, o := range x.ops.timed {
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
		p, err := signal.Read(x.ctx, x.store, x.id, w)
		if err != nil {
			return err
		}
		switch err := x.takes(o, payload{p.Codec, p.Data}); {
		case err == errStopped:
			return err
		case err != nil:
			x.inbox.putBack(w)
			x.block(o, &signal.PayloadError{WorkflowID: x.id, SignalName: w.Name, SignalID: w.ID, Err: err})
			return nil
		}
		o.found = &found{w, p}
	}
	return nil
}

// takes says whether o can decode p: a signal is received only if its receiver can. One
// that cannot be decoded stays in the inbox, where corrected code finds it, or a person
// takes it away.
func (x *execution) takes(o *operation, p payload) error {
	if o.wait.New == nil {
		return nil
	}
	return x.readable(p, o.wait.New())
}

// block has the run held because of what o was to learn, as soon as nothing of it is
// under way. What is under way comes to its end, and that is recorded.
func (x *execution) block(o *operation, cause error) {
	x.blocked = undecodable(o.id, o.name, cause)
	x.blocked.again = true
	x.eng.log.Error("weft: run cannot go on, and is held when nothing of it is under way", "workflow", x.id, "type", x.def.name, "operation", o.id, "error", x.blocked)
}

// match takes the first signal of a name out of what is waiting.
func (x *execution) match(name string) (signal.Waiting, bool, error) {
	l := x.inbox.lines[name]
	if l == nil {
		l = &line{more: true}
		if x.inbox.lines == nil {
			x.inbox.lines = map[string]*line{}
		}
		x.inbox.lines[name] = l
	}
	for len(l.waiting) == 0 {
		if !l.more {
			return signal.Waiting{}, false, nil
		}
		page, last, err := signal.Inbox(x.ctx, x.store, x.id, l.seen+1, inboxPage)
		if err != nil {
			return signal.Waiting{}, false, err
		}
		l.more = !last
		x.inbox.read(l, name, page)
	}
	w := l.waiting[0]
	l.waiting[0] = signal.Waiting{}
	l.waiting = l.waiting[1:]
	return w, true, nil
}

// read takes in a page that was read for l, the line of a name.
func (in *inbox) read(l *line, name string, page []signal.Waiting) {
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
func (in *inbox) putBack(w signal.Waiting) {
	l := in.lines[w.Name]
	if l == nil {
		return // forgotten, and read again
	}
	i, _ := slices.BinarySearchFunc(l.waiting, w.Seq, func(w signal.Waiting, seq uint64) int { return cmp.Compare(w.Seq, seq) })
	l.waiting = slices.Insert(l.waiting, i, w)
}

// forgetSignals has the inbox read again, from its beginning: something in it is
// not as it was.
func (x *execution) forgetSignals() {
	x.inbox = inbox{}
	for _, o := range x.ops.timed {
		o.found = nil
	}
}
