package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// A run can kill the process that drives it, and would do so in each life. Many runs are
// driven when a process dies, and any of them may be the cause, or none: it may have been
// killed from outside. So deaths are counted for each run, and who has too many is a
// suspect. Suspects are driven after all others, and in groups, those with fewer deaths
// first. A run's group has half as many members after each death, so the cause of the
// deaths is soon alone, and who dies alone again and again is held.
//
// A run has shown that it is not the cause when it has got beyond the place where it
// died: every attempt that may have been in flight has been made again and has returned.
// That it has recorded something else meanwhile, such as a timer beside such an attempt,
// or that the attempt begins anew, shows nothing.

const (
	// suspicion is the number of deaths after which a run is a suspect. Two kills
	// from outside make no difference to any run.
	suspicion = 3

	// conviction is the number of deaths after which a run is held, if it was driven
	// without any other suspect in the last solitary of them. A process can be killed
	// for reasons of its own while a suspect is alone, so once alone is not enough.
	conviction = 10
	solitary   = 3

	// calm is how long a suspect is driven before its deaths are forgotten, whatever it
	// has shown.
	calm = time.Hour
)

// window is how long a suspect is waited for at most before the next ones are driven
// too. A run that takes longer than that to kill its process dies with others once more,
// and is waited for twice as long after that.
func window(deaths int) time.Duration {
	return min(time.Second/4<<min(deaths, 20), calm)
}

// A trial is what a run has to show that was driven when the process died.
type trial struct {
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
func (t *trial) list(x *execution) {
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
func (t *trial) back(o *operation) {
	t.returned = true
	t.inFlight = slices.DeleteFunc(t.inFlight, func(other *operation) bool { return other == o })
}

// shown says that the run has got beyond the place where it died. An operation that was
// given up, such as one whose attempts are used up by the deaths, shows nothing by itself.
func (t *trial) shown() bool {
	t.inFlight = slices.DeleteFunc(t.inFlight, func(o *operation) bool { return !o.open || o.asksPerson() })
	return t.listed && t.returned && len(t.inFlight) == 0
}

// asksPerson says that nothing is done for o until a person says what.
func (o *operation) asksPerson() bool {
	return o.held() || o.keyed != nil && o.keyed.parked
}

// rest is how long the run has to be driven until something follows from that alone.
// wf is its record.
func (t *trial) rest(wf *checkpoint.Workflow) (time.Duration, bool) {
	switch {
	case t == nil || t.deaths < suspicion:
		return 0, false
	case wf.Alone > 0:
		return window(t.deaths) - time.Since(t.began), true
	}
	return calm - time.Since(t.began), true
}

// convicts says that the run is to be held. wf is its record.
func (t *trial) convicts(wf *checkpoint.Workflow) bool {
	if t == nil {
		return false
	}
	alone := wf.Alone
	if t.alone {
		alone-- // this time, too, but it has not died
	}
	return wf.Deaths >= conviction && alone >= solitary
}

// plead adds to c what the run has shown since the process died: that it has got beyond
// the place where it died, or that it does not kill its process soon. That of a run which
// is no suspect is not recorded: two deaths more and it is asked again.
func (x *execution) plead(c *checkpoint.Change) {
	t := x.trial
	if t == nil {
		return
	}
	shown := t.shown()
	if shown && t.deaths < suspicion {
		x.acquit()
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

// acquit ends the trial of x, if there is one: nobody waits for it any more.
func (x *execution) acquit() {
	x.trial = nil
	x.life.dock.leave(x)
}

// putAside has wf, the record with which x is parked, say what is known of its deaths. A
// run that waits for its next attempt has not shown anything, and dies of that attempt.
func (x *execution) putAside(wf *checkpoint.Workflow) {
	switch t := x.trial; {
	case t == nil:
		wf.Deaths, wf.Alone = 0, 0
	case t.alone && wf.Alone > 0:
		wf.Alone-- // it did not die of this
	}
}

// A dock is where the suspects of a life wait for their turn.
type dock struct {
	bell chan struct{} // there is something new

	mu      sync.Mutex          // guards what follows
	found   map[string]suspect  // in this look at the store, of which there may be more
	waiting map[string]suspect  // for their turn
	trials  map[*execution]bool // of runs that are driven
}

// A suspect is a prospect in whose presence the process has died too often.
type suspect struct {
	prospect
	deaths int
}

func newDock() *dock {
	return &dock{
		bell:    make(chan struct{}, 1),
		found:   map[string]suspect{},
		waiting: map[string]suspect{},
		trials:  map[*execution]bool{},
	}
}

func (d *dock) ring() {
	select {
	case d.bell <- struct{}{}:
	default:
	}
}

// add has p wait, from the end of this look at the store on.
func (d *dock) add(p prospect, deaths int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found[p.id] = suspect{p, deaths}
}

// has says that a run waits.
func (d *dock) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, found := d.found[id]
	_, waits := d.waiting[id]
	return found || waits
}

// assemble ends a look at the store: all others were taken up that it has found, and the
// suspects are all there.
func (d *dock) assemble() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.found) > 0 {
		maps.Copy(d.waiting, d.found)
		clear(d.found)
		d.ring()
	}
}

// enter has others wait until x has shown what it has to, or is over.
func (d *dock) enter(x *execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trials[x] = true
}

// leave ends that.
func (d *dock) leave(x *execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trials[x] {
		delete(d.trials, x)
		d.ring()
	}
}

// next is the group whose turn it is, and how many deaths each of it has. The group of a
// run is the first bits of a hash of its id, one more with each death: those that have
// died together are split in halves, and whoever has not died since is spared that.
func (d *dock) next() (group []suspect) {
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
	return weigh("", s.id) >> max(64-(s.deaths-suspicion+1), 0)
}

// call takes a group out, whose turn it is now.
func (d *dock) call(group []suspect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range group {
		delete(d.waiting, s.id)
	}
}

// quiet says that nobody is driven who has something to show.
func (d *dock) quiet() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.trials) == 0
}

// driveSuspects drives one group of suspects after the other: when all runs that were
// driven before at a death have shown that they were not its cause, or after a window.
func (l *life) driveSuspects(ctx context.Context) {
	var since time.Time // when there was something to wait for
	for {
		group := l.dock.next()
		rest := calm
		if len(group) > 0 {
			if since.IsZero() {
				since = time.Now()
			}
			rest = window(group[0].deaths) - time.Since(since)
			if rest <= 0 || l.dock.quiet() {
				l.dock.call(group)
				l.drive(ctx, group)
				since = time.Now()
				continue
			}
		}
		tick := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-l.dock.bell:
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
