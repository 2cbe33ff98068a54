package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/run"
)

// A quarantine keeps the suspects of an incarnation until their group is executed.
type quarantine struct {
	wake chan struct{} // there may be a group to release

	mu         lock.Mutex              // guards the fields below
	found      map[string]suspect      // by the current poll, which may find more
	waiting    map[string]suspect      // ready to be released
	probations map[*run.Execution]bool // executions on probation; the next group waits for them
}

// A suspect is a prospect with too many deaths.
type suspect struct {
	prospect
	deaths int
}

func newQuarantine() *quarantine {
	return &quarantine{
		wake:       make(chan struct{}, 1),
		found:      map[string]suspect{},
		waiting:    map[string]suspect{},
		probations: map[*run.Execution]bool{},
	}
}

func (d *quarantine) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// add puts p into quarantine. It is not released before ready, because the same poll may find others of its group.
func (d *quarantine) add(p prospect, deaths int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found[p.id] = suspect{p, deaths}
}

// has reports whether a run is in quarantine.
func (d *quarantine) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, found := d.found[id]
	_, waits := d.waiting[id]
	return found || waits
}

// ready allows the suspects that the current poll has found to be released. The poll calls
// it when it has found all suspects and claimed all other runs.
func (d *quarantine) ready() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.found) > 0 {
		maps.Copy(d.waiting, d.found)
		clear(d.found)
		d.notify()
	}
}

// startProbation has the next group wait until the probation of x ends.
func (d *quarantine) startProbation(x *run.Execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.probations[x] = true
}

// end records that the probation of x, or x itself, has ended.
func (d *quarantine) end(x *run.Execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.probations[x] {
		delete(d.probations, x)
		d.notify()
	}
}

// next returns the next group to execute. All its members have the same number of deaths.
// The group of a run is the first bits of a hash of its id, one bit more with each death. So
// a group whose members have died together is halved, and one that has not stays whole.
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
	slices.SortFunc(group, func(a, b suspect) int { return cmp.Compare(a.id, b.id) }) // so that faults are reproducible
	return group
}

func (s *suspect) group() uint64 {
	return weigh("", s.id) >> max(64-(s.deaths-run.SuspectAfter+1), 0)
}

// release removes a group from the quarantine.
func (d *quarantine) release(group []suspect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range group {
		delete(d.waiting, s.id)
	}
}

// idle reports whether no run is on probation.
func (d *quarantine) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.probations) == 0
}

// driveSuspects executes one group of suspects after the other. It starts a group when no
// run is on probation, or after longestWait.
func (l *Incarnation) driveSuspects(ctx context.Context) {
	var since time.Time // start of the wait; zero before the first group
	for {
		group := l.quarantine.next()
		var tick <-chan time.Time
		if len(group) > 0 {
			if since.IsZero() {
				since = time.Now()
			}
			rest := run.LongestWait(group[0].deaths) - time.Since(since)
			if rest <= 0 || l.quarantine.idle() {
				l.quarantine.release(group)
				l.drive(ctx, group)
				since = time.Now()
				continue
			}
			tick = time.After(rest)
		}
		select {
		case <-ctx.Done():
		case <-l.quarantine.wake:
		case <-tick:
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// drive claims a group of suspects and executes them. The poll finds those again for which there is no room.
func (l *Incarnation) drive(ctx context.Context, group []suspect) {
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
