package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/lock"
)

// A run can kill the process that drives it: an activity that exhausts the memory does so
// in each life. Many runs are driven when a process dies. Any of them may be the cause, or
// none: the process may have been killed from outside. So each run counts the deaths of
// its owners, and a run with too many is a suspect. Suspects are quarantined: they are
// driven after all other runs, in groups, those with fewer deaths first. A group is halved
// with each death, so the run that kills is soon driven alone. A run that dies alone again
// and again is held.
//
// A run is cleared when it has got beyond the place where it died: every attempt that may
// have been in flight has been made again and has returned. Recording something else
// meanwhile, such as a timer beside such an attempt, does not clear it.

const (
	// suspectAfter is the number of deaths after which a run is a suspect. Two kills
	// from outside make no difference to any run.
	suspectAfter = 3

	// holdAfter is the number of deaths after which a run is held, if it was the only
	// suspect driven in the last aloneAtLeast of them. Once is not enough: the process
	// may have been killed from outside just then.
	holdAfter    = 10
	aloneAtLeast = 3

	// forgetAfter is how long a suspect is driven before its deaths are forgotten.
	forgetAfter = time.Hour
)

// longestWait is how long the next group waits for a suspect with so many deaths. A run
// that takes longer than that to kill its process dies with others once more, and the
// wait doubles.
func longestWait(deaths int) time.Duration {
	return min(time.Second/4<<min(deaths, 20), forgetAfter)
}

// A probation is of a run that was driven when a process died. It ends when the run has got
// beyond the place where it died.
type probation struct {
	deaths int
	fresh  bool      // the process has died since it was driven last: it was not parked since
	alone  bool      // no other suspect is driven for the first time with it
	began  time.Time // by the monotonic clock

	listed   bool         // inFlight was
	inFlight []*operation // whose attempt may have been, and has not returned since
	returned bool         // an attempt has, or none was in flight
}

// list notes what may have been in flight at the death: what the branches ask for when
// everything durable was delivered. What is due only now, or later, was not.
func (t *probation) list(x *execution) {
	if t.listed {
		return
	}
	t.listed = true
	for o := range x.ops.all() {
		if o.call != nil && !o.asksPerson() && !o.due.After(x.begunAt) {
			t.inFlight = append(t.inFlight, o)
		}
	}
	t.returned = t.fresh && len(t.inFlight) == 0
}

// back notes that an attempt of o has returned.
func (t *probation) back(o *operation) {
	t.returned = true
	t.inFlight = slices.DeleteFunc(t.inFlight, func(other *operation) bool { return other == o })
}

// shown says that the run has got beyond the place where it died. An operation that was
// given up, such as one whose attempts are used up by the deaths, does not count.
func (t *probation) shown() bool {
	t.inFlight = slices.DeleteFunc(t.inFlight, func(o *operation) bool { return !o.open || o.asksPerson() })
	return t.listed && t.returned && len(t.inFlight) == 0
}

// asksPerson says that nothing is done for o until a person says what.
func (o *operation) asksPerson() bool {
	return o.held() || o.keyed != nil && o.keyed.parked
}

// rest is how long the run has to be driven until something follows from that alone.
// wf is its record.
func (t *probation) rest(wf *checkpoint.Workflow) (time.Duration, bool) {
	switch {
	case t == nil || t.deaths < suspectAfter:
		return 0, false
	case wf.Alone > 0:
		return longestWait(t.deaths) - time.Since(t.began), true
	}
	return forgetAfter - time.Since(t.began), true
}

// mustHold says that the run is to be held. wf is its record.
func (t *probation) mustHold(wf *checkpoint.Workflow) bool {
	if t == nil {
		return false
	}
	alone := wf.Alone
	if t.alone {
		alone-- // this time, too, but it has not died
	}
	return wf.Deaths >= holdAfter && alone >= aloneAtLeast
}

// recordProbation adds to c that the run is cleared: it has got beyond the place where it
// died, or it has run for long enough. For a run that is no suspect nothing is recorded:
// after two deaths more it is asked again.
func (x *execution) recordProbation(c *checkpoint.Change) {
	t := x.probation
	if t == nil {
		return
	}
	shown := t.shown()
	if shown && t.deaths < suspectAfter {
		x.endProbation()
		return
	}
	rest, ok := t.rest(x.hold.Workflow)
	if !shown && (!ok || rest > 0) {
		return
	}
	wf := x.hold.Workflow
	if c.Workflow != nil {
		wf = c.Workflow
	}
	next := *wf
	if shown || next.Alone == 0 {
		next.Deaths = 0
	}
	next.Alone = 0
	c.Workflow = &next
	c.Events = append(c.Events, checkpoint.Event{Kind: checkpoint.Survived})
}

// endProbation ends the probation of x, if there is one: no other suspect waits for x any
// more.
func (x *execution) endProbation() {
	x.probation = nil
	x.life.quarantine.end(x)
}

// parkDeaths has wf, the record with which x is parked, say what is known of its deaths. A
// run that waits for its next attempt has not shown anything, and dies of that attempt.
func (x *execution) parkDeaths(wf *checkpoint.Workflow) {
	switch t := x.probation; {
	case t == nil:
		wf.Deaths, wf.Alone = 0, 0
	case t.alone && wf.Alone > 0:
		wf.Alone-- // it did not die of this
	}
}

// A quarantine holds the suspects of a life back until it is their turn.
type quarantine struct {
	wake chan struct{} // there may be a group to release

	mu         lock.Mutex          // guards what follows
	found      map[string]suspect  // by the poll under way, which may find more
	waiting    map[string]suspect  // for their turn
	probations map[*execution]bool // of runs that are driven; the next group waits for them
}

// A suspect is a prospect that was driven at too many deaths.
type suspect struct {
	prospect
	deaths int
}

func newQuarantine() *quarantine {
	return &quarantine{
		wake:       make(chan struct{}, 1),
		found:      map[string]suspect{},
		waiting:    map[string]suspect{},
		probations: map[*execution]bool{},
	}
}

func (d *quarantine) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// add has p wait. The poll that found it may find others of its group, so that nothing is
// released before ready.
func (d *quarantine) add(p prospect, deaths int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found[p.id] = suspect{p, deaths}
}

// has says that a run is in quarantine.
func (d *quarantine) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, found := d.found[id]
	_, waits := d.waiting[id]
	return found || waits
}

// ready ends a poll: it has found all suspects, and all other runs are driven.
func (d *quarantine) ready() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.found) > 0 {
		maps.Copy(d.waiting, d.found)
		clear(d.found)
		d.notify()
	}
}

// begin has the next group wait until the probation of x ends.
func (d *quarantine) begin(x *execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.probations[x] = true
}

// end says that the probation of x has ended, or that x is over.
func (d *quarantine) end(x *execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.probations[x] {
		delete(d.probations, x)
		d.notify()
	}
}

// next is the group whose turn it is, all with the same number of deaths. The group of a
// run is the first bits of a hash of its id, one bit more with each death: a group whose
// members have died together is halved, and one that has not died stays whole.
func (d *quarantine) next() (group []suspect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.waiting {
		order := -1
		if len(group) > 0 {
			order = cmp.Or(cmp.Compare(s.deaths, group[0].deaths), cmp.Compare(s.group(), group[0].group()))
		}
		switch {
		case order < 0:
			group = append(group[:0], s)
		case order == 0:
			group = append(group, s)
		}
	}
	slices.SortFunc(group, func(a, b suspect) int { return cmp.Compare(a.id, b.id) }) // so that a fault can be repeated
	return group
}

func (s *suspect) group() uint64 {
	return weigh("", s.id) >> max(64-(s.deaths-suspectAfter+1), 0)
}

// release takes a group out of the quarantine.
func (d *quarantine) release(group []suspect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range group {
		delete(d.waiting, s.id)
	}
}

// idle says that no run is on probation.
func (d *quarantine) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.probations) == 0
}

// driveSuspects drives one group of suspects after the other. A group begins when no run is
// on probation any more, or after longestWait.
func (l *life) driveSuspects(ctx context.Context) {
	var since time.Time // when there was something to wait for
	for {
		group := l.quarantine.next()
		rest := forgetAfter
		if len(group) > 0 {
			if since.IsZero() {
				since = time.Now()
			}
			rest = longestWait(group[0].deaths) - time.Since(since)
			if rest <= 0 || l.quarantine.idle() {
				l.quarantine.release(group)
				l.drive(ctx, group)
				since = time.Now()
				continue
			}
		}
		tick := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-l.quarantine.wake:
		case <-tick.C:
		}
		if tick.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// drive claims a group of suspects and drives them. Those for which there is no room are
// found again when there is.
func (l *life) drive(ctx context.Context, group []suspect) {
	crew := newCrew(l)
	defer crew.wait()
	for _, s := range group {
		p := s.prospect
		p.called, p.alone = true, len(group) == 1
		if ok, _ := crew.claim(ctx, p); !ok {
			return
		}
	}
}
