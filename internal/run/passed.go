package run

import (
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/fifo"
)

// A lookahead has the checkpoints of the history that were read before their turn.
type lookahead struct {
	quiet    fifo.Queue[past] // those that do not count, or that a replay passes over
	counting past             // behind them, the first one that counts
	counts   bool             // there is such a one
	end      bool             // there is nothing more to read
}

// A past is a checkpoint of the history, or the error or the end that came in its place.
type past struct {
	checkpoint.Checkpoint
	err error
	ok  bool
}

// takePast returns the next checkpoint of the history.
func (x *Execution) takePast() past {
	l := &x.ahead
	if l.quiet.Len() > 0 {
		return l.quiet.Take()
	}
	next := l.counting
	l.counting, l.counts = past{}, false
	x.lookAhead()
	return next
}

// lookAhead reads on until a checkpoint counts, or to the end: passed must know whether one does,
// before the function continues.
func (x *Execution) lookAhead() {
	for l := &x.ahead; !l.counts && !l.end; {
		p := x.readNext()
		if l.counts = p.ok && p.err == nil && counts(p.Events) && x.stands(p.Checkpoint); l.counts {
			l.counting = p
		} else {
			l.quiet.Put(p)
		}
	}
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
