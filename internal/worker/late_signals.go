package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/run"
)

// MayArrive remembers that a run of this engine may get a signal, or an update, of which the sender will
// not notify it: the sender timed out, but its commit may still take effect.
func (e *Worker) MayArrive(id string) {
	e.mu.Lock()
	l := e.incarnation
	e.mu.Unlock()
	if l == nil || e.Executing(id) == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lateSignals[id] = arrival{since: time.Now()}
}

// An arrival has the time since which something may arrive late, and the time of the last look for it; zero: none yet.
type arrival struct{ since, told time.Time }

// due reports whether to look now. The first interval is not zero: a run that has just ended has the
// engine poll at once when it is told.
func (a arrival) due() bool {
	return a.told.IsZero() || time.Since(a.told) >= max(time.Millisecond, a.told.Sub(a.since))
}

// hear makes the runs to which a signal may arrive late look at their inbox: at once, and then at intervals that double, so
// that a run may be parked in between. A run that this engine does not execute any more is removed: its next owner looks at
// the inbox, and a write that depends on the old claim is refused from then on.
func (l *Incarnation) hear(context.Context) error {
	l.mu.Lock()
	expecting := maps.Clone(l.lateSignals)
	l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(expecting)) {
		was := expecting[id]
		is, x := was, l.Worker.Executing(id)
		if x != nil && is.due() {
			x.Post(run.Written{Inbox: true, Updates: true})
			is.told = time.Now()
		}
		l.mu.Lock()
		switch {
		case l.lateSignals[id] != was: // a newer one replaced it
		case x == nil || time.Since(is.since) > patience:
			delete(l.lateSignals, id)
		default:
			l.lateSignals[id] = is
		}
		l.mu.Unlock()
	}
	return nil
}
