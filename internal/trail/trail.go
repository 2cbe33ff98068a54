package trail

import (
	"bytes"
	"time"
)

// An engine skips entries of runs that other engines execute: runs of a type that it does
// not know, of another deployment, or of a queue that it does not serve. There may be any
// number of such entries. Reading all of them in each poll would cost an idle engine more
// than everything else that it does.

const (
	// few is the number of skipped entries up to which all are read in each poll.
	few = 256

	// Otherwise all skipped entries are read after seldom polls or aMinute, whichever is
	// shorter, or later so that no more than mostRead entries are read per second.
	seldom   = 1 << levels
	aMinute  = time.Minute
	mostRead = 1000

	levels = 6
)

// distance returns the time between two reads of all skipped entries.
func distance(entries int, poll time.Duration) time.Duration {
	if entries <= few || poll >= aMinute {
		return 0
	}
	return max(min(seldom*poll, aMinute), time.Duration(entries/mostRead)*time.Second)
}

// A Trail records how far an engine has skipped the entries of a list that is ordered by
// time. As a rule, new entries come at its end. But a commit may be applied late, and clocks
// differ. So the engine reads some skipped entries again: those of the last poll in each
// poll, those of the last 2 polls in every second poll, those of the last 4 in every fourth,
// and so on. If an entry appears late by some time, it is found after about that time again.
//
// The zero trail is at the beginning of the list. Only the poll uses it.
type Trail struct {
	end   []byte    // just after the last skipped entry; nil if none was skipped
	count int       // approximate number of skipped entries
	whole time.Time // when the whole list was last read
	again [levels]struct {
		at     time.Time // of the last look
		end    []byte    // trail.end after that look
		before []byte    // trail.end after the look before
	}
}

// A Passage is one look at the list of a trail.
type Passage struct {
	level   int    // -1: reads new entries only; levels: reads the whole list
	Start   []byte // first key to read; nil for the beginning
	end     []byte // just after the last of the entries skipped before one that was not
	n       int    // number of these entries
	stopped bool   // an entry was not skipped
}

// Look starts a passage over a list that ends at until, in an engine that polls every poll.
func (t *Trail) Look(now time.Time, poll time.Duration, until []byte) *Passage {
	p := &Passage{level: -1, Start: t.end}
	for i, a := range t.again {
		if now.Sub(a.at) >= poll<<i {
			p.level, p.Start = i, a.before
		}
	}
	back := bytes.Compare(t.end, until) >= 0 // the clock was set back
	if p.Start == nil || back || now.Sub(t.whole) >= distance(t.count, poll) {
		p.level, p.Start = levels, nil
	}
	return p
}

// Over records that an entry was skipped.
func (p *Passage) Over(key []byte) {
	if !p.stopped {
		p.end, p.n = append(append(p.end[:0], key...), 0), p.n+1
	}
}

// Stop records that an entry was not skipped. The next look reads it again, and all after it.
func (p *Passage) Stop() { p.stopped = true }

// Passed updates t after the passage p, which started at now.
func (t *Trail) Passed(p *Passage, now time.Time) {
	switch {
	case p.Start == nil:
		t.whole, t.count = now, p.n
	case bytes.Equal(p.Start, t.end):
		t.count += p.n
	}
	if t.end = p.end; p.n == 0 {
		t.end = p.Start
	}
	for i := range min(p.level+1, levels) {
		a := &t.again[i]
		a.at, a.before, a.end = now, a.end, t.end
	}
}

// A Leaving is how long the held entries of a dead incarnation are not read, because other
// engines execute all of its runs.
type Leaving struct {
	Until time.Time
	pause time.Duration
}

// Then returns the leaving after the passage p.
func (l Leaving) Then(p *Passage, now time.Time, poll time.Duration) Leaving {
	most := distance(p.n, poll)
	if p.stopped || most == 0 {
		return Leaving{}
	}
	pause := min(max(2*l.pause, poll), most)
	return Leaving{now.Add(pause), pause}
}
