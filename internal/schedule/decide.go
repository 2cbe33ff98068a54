package schedule

import (
	"hash/fnv"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/cron"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

const (
	// retryAfter is after which time an engine looks again at a schedule that waits, or has a problem.
	retryAfter = time.Minute

	// grace is how late a time with MissedNone is started.
	grace = time.Minute

	// mostCounted is how many times of cron expressions are counted at once.
	mostCounted = 10_000
)

// A step is what is to be done for a schedule at one look.
type step struct {
	start *occasion // to start; nil: nothing

	// Everything up to passed is dealt with, whatever becomes of start; zero: nothing new is. missed
	// is how many times among it are missed.
	passed time.Time
	missed int

	next time.Time // if there is nothing to do: when there will be; zero: never
}

// An occasion is a reason to start a workflow.
type occasion struct {
	id      string    // of the workflow
	nominal time.Time // zero: it was triggered
}

// decide returns what is to be done for r at a time. It does not ask whether the workflow that was
// started last has ended.
func (r *Record) decide(c *cron.Calendar, now time.Time) step {
	switch {
	case len(r.Triggered) > 0:
		return step{start: &occasion{id: r.Triggered[0].ID}}
	case r.Pause != nil:
		return step{}
	}
	var s step
	from := r.mark()
	if r.Within > 0 {
		if tooOld := now.Add(-duration(r.Within)).Add(-1); tooOld.After(from.At) {
			last, ok := c.Last(from, tooOld)
			if ok && r.ripe(c, last).After(tooOld) { // each one before it was ripe before it
				last, ok = c.Last(from, last.Add(-1))
			}
			if ok {
				s.passed, s.missed = last, c.Count(from, last, mostCounted)
				from.At = last
			}
		}
	}
	first, ok := c.Next(from)
	switch {
	case !ok:
		return s
	case r.ripe(c, first).After(now):
		s.next = r.ripe(c, first)
		return s
	case r.Missed == weft.MissedAll:
		s.start = r.occasion(first)
		return s
	}
	last, _ := c.Last(from, now)
	if r.ripe(c, last).After(now) { // it is delayed, so an earlier one is the last
		last, _ = c.Last(from, last.Add(-1))
	}
	s.missed += c.Count(from, last, mostCounted) - 1
	if r.Missed == weft.MissedNone && now.Sub(r.ripe(c, last)) > grace {
		s.passed = last
		s.missed++
		return s
	}
	s.start = r.occasion(last)
	return s
}

func (r *Record) occasion(nominal time.Time) *occasion {
	return &occasion{weft.Schedule{ID: r.ID}.RunID(nominal), nominal}
}

// ripe returns when a workflow for a time is to be started: later by the jitter, but before the next
// time.
func (r *Record) ripe(c *cron.Calendar, nominal time.Time) time.Time {
	most := duration(r.Jitter)
	if next, ok := c.Next(cron.Mark{At: nominal}); ok {
		most = min(most, next.Sub(nominal))
	}
	if most = most.Truncate(time.Millisecond); most <= 0 {
		return nominal
	}
	h := fnv.New64a()
	h.Write([]byte(weft.Schedule{ID: r.ID}.RunID(nominal)))
	return nominal.Add(time.Duration(h.Sum64()%uint64(most/time.Millisecond)) * time.Millisecond)
}

// soonest is the time of an entry that is due whatever a clock says. A hint is due at the time zero, and no
// record names one.
var soonest = time.UnixMicro(1)

// look sets when an engine looks at r next. That depends on r alone: if it were not before the present time, an engine whose
// clock is ahead, and that dies then, would leave an entry at which the others look when their clocks get there.
func (r *Record) look(c *cron.Calendar) {
	at := soonest
	switch next, ok := c.Next(r.mark()); {
	case len(r.Triggered) > 0:
	case r.Pause != nil, !ok:
		r.Due = nil
		return
	default:
		if ripe := r.ripe(c, next); ripe.After(at) {
			at = ripe
		}
	}
	r.Due = keys.ScheduleDue(at, r.ID)
}

// dealt moves the cursor of r, a copy, over what s has passed over.
func (r *Record) dealt(c *cron.Calendar, s step) {
	if !s.passed.IsZero() {
		r.advance(c, s.passed)
	}
	r.Misses += int64(s.missed)
}

// done notes that the occasion o has been dealt with.
func (r *Record) done(c *cron.Calendar, o *occasion) {
	if o.nominal.IsZero() {
		for i, t := range r.Triggered {
			if t.ID == o.id {
				r.Triggered = append(r.Triggered[:i:i], r.Triggered[i+1:]...)
				break
			}
		}
		return
	}
	r.advance(c, o.nominal)
}

// started notes that a workflow was started for o.
func (r *Record) started(c *cron.Calendar, o *occasion, generation string, now time.Time) {
	r.done(c, o)
	r.Starts++
	r.Last = &Started{ID: o.id, Generation: generation, Nominal: journal.Micro(o.nominal), At: journal.Micro(now)}
}

// note notes why a try failed; "" is that it did not. It reports whether that is new.
func (r *Record) note(problem string, now time.Time) (news bool) {
	if problem == r.Problem {
		return false
	}
	r.Problem, r.Since = problem, journal.Micro(now)
	if problem == "" {
		r.Since = 0
	}
	return problem != ""
}

// Continues reports whether r has times that have not been dealt with, as far as this machine knows
// its zone.
func (r *Record) Continues() bool {
	c, err := r.times().Calendar()
	if err != nil {
		return false
	}
	_, ok := c.Next(r.mark())
	return ok
}
