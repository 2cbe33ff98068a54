package engine

import (
	"bytes"
	"time"
)

// An engine passes over what is others' to drive: a type that it does not know, another
// deployment's runs, a queue that it does not serve. Such entries stay where they are,
// and there may be any number of them. To read all of them in each poll would cost an
// idle engine more than all else that it does.

const (
	// few is how many entries that are passed over are read in each poll nevertheless.
	few = 256

	// seldom is how many polls lie between two looks at all of them, at most, and
	// aMinute the longest time: but for so many that more than mostRead would have to
	// be read in a second.
	seldom   = 1 << levels
	aMinute  = time.Minute
	mostRead = 1000

	levels = 6
)

// distance is how long it is until so many entries are read again which were passed over.
func distance(entries int, poll time.Duration) time.Duration {
	if entries <= few || poll >= aMinute {
		return 0
	}
	return max(min(seldom*poll, aMinute), time.Duration(entries/mostRead)*time.Second)
}

// A trail is how far an engine has passed over the entries of a list that are in the
// order of time. New ones come at its end, as a rule. But a commit may land late, and
// clocks differ. So what was passed over within the last 1, 2, 4, ... polls is read again
// that often: what lands late by some time is found when about as much has passed again.
//
// The zero trail is at the beginning. It is the poll's.
type trail struct {
	end   []byte // of what was passed over, up to the last look; nil: nothing was
	count int    // of these entries, about
	whole time.Time
	again [levels]struct {
		at     time.Time // of the last look
		end    []byte    // as it was then
		before []byte    // and at the look before
	}
}

// A passage is one look along a trail.
type passage struct {
	level   int    // -1: at what is new only; levels: at all
	start   []byte // from where on it reads; nil: from the beginning
	end     []byte // behind the last entry that was passed over before any that was not
	n       int    // of these entries
	stopped bool
}

// look begins a look at a list that ends at until, in an engine that looks once in poll.
func (t *trail) look(now time.Time, poll time.Duration, until []byte) *passage {
	p := &passage{level: -1, start: t.end}
	for i, a := range t.again {
		if now.Sub(a.at) >= poll<<i {
			p.level, p.start = i, a.before
		}
	}
	back := bytes.Compare(t.end, until) >= 0 // the clock went back
	if p.start == nil || back || now.Sub(t.whole) >= distance(t.count, poll) {
		p.level, p.start = levels, nil
	}
	return p
}

// over notes that an entry was passed over.
func (p *passage) over(key []byte) {
	if !p.stopped {
		p.end, p.n = append(append(p.end[:0], key...), 0), p.n+1
	}
}

// stop notes that an entry was not: it is read again the next time, with all after it.
func (p *passage) stop() { p.stopped = true }

// passed notes what p, a look at a time, has found.
func (t *trail) passed(p *passage, now time.Time) {
	switch {
	case p.start == nil:
		t.whole, t.count = now, p.n
	case bytes.Equal(p.start, t.end):
		t.count += p.n
	}
	if t.end = p.end; p.n == 0 {
		t.end = p.start
	}
	for i := range min(p.level+1, levels) {
		a := &t.again[i]
		a.at, a.before, a.end = now, a.end, t.end
	}
}

// A leaving is for how long the list of what a dead incarnation holds is left alone,
// because there was nothing in it but what is others' to drive.
type leaving struct {
	until time.Time
	pause time.Duration
}

// then is the leaving after a look that p has made.
func (l leaving) then(p *passage, now time.Time, poll time.Duration) leaving {
	most := distance(p.n, poll)
	if p.stopped || most == 0 {
		return leaving{}
	}
	pause := min(max(2*l.pause, poll), most)
	return leaving{now.Add(pause), pause}
}
