package run

import "github.com/weft-go/weft/checkpoint"

// A lookahead has the checkpoints of the history that were read before their turn.
type lookahead struct {
	quiet    fifo[past] // those that do not count
	counting past       // behind them, the first one that counts
	counts   bool       // there is such a one
	end      bool       // there is nothing more to read
}

// A past is a checkpoint of the history, or the error or the end that came in its place.
type past struct {
	checkpoint.Checkpoint
	err error
	ok  bool
}

// readOn returns the next checkpoint of the history, after it has read on until one counts: passed
// must know whether one does.
func (x *Execution) readOn() past {
	var next past
	switch l := &x.ahead; {
	case l.quiet.len() > 0:
		next = l.quiet.take()
	case l.counts:
		next, l.counting, l.counts = l.counting, past{}, false
	default:
		next = x.readNext()
	}
	for l := &x.ahead; !l.counts && !l.end; {
		p := x.readNext()
		if l.counts = p.ok && p.err == nil && counts(p.Events); l.counts {
			l.counting = p
		} else {
			l.quiet.put(p)
		}
	}
	return next
}

func (x *Execution) readNext() past {
	c, err, ok := x.history()
	x.ahead.end = !ok || err != nil || c.Number == x.Hold.Head
	return past{c, err, ok}
}

// passed reports whether the function was behind the place where it is now before: a checkpoint
// that counts follows, or an event that is about to be delivered is about what the function
// starts only now, because a Map has a lower limit than it had then.
func (x *Execution) passed() bool { return x.makesRoom || x.ahead.counts }
