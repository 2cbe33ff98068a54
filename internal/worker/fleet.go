package worker

import (
	"context"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// On a shared store all engines find the same work: runs that are due, and runs of dead incarnations. If all of them claimed
// a run, one would win and the others would have wasted their work. So rendezvous hashing over the fleet ranks the engines
// for each run. The first may claim it immediately. The others, in order of rank, claim it only if those before them did not
// do so in time because they are dead, busy, or have no room. When the fleet changes, this affects only runs that are found
// from then on. No run changes owners.
//
// Correctness does not depend on this, or on two engines seeing the same fleet, because a claim is a compare-and-swap.

// A fleet is the set of live incarnations that share the work: they run the same workflows
// of the same deployment, with the same versions of changes, and serve the same queues as this one.
type fleet struct {
	members   []string             // without this one
	refreshed time.Time            // when members was last read
	pause     time.Duration        // until it is read again
	gone      map[string]time.Time // when an incarnation that owns runs was found gone

	others  map[string]membership.Vitality // all other incarnations, in the fleet or not
	changed time.Time                      // when others last changed
	calm    bool                           // there are no others, or they have not changed for a LeaseTTL
}

// refreshFleet reads the fleet, at most once per PollInterval, or sooner to look at sessions.
func (l *Incarnation) refreshFleet(ctx context.Context) (next time.Duration, _ error) {
	l.fleet.calm = false
	if !l.Shared() {
		return l.Worker.PollInterval, nil
	}
	if time.Since(l.fleet.refreshed) < l.fleet.pause {
		return l.fleet.pause, nil
	}
	l.fleet.pause = l.Worker.PollInterval
	var engines []engine
	for entry, err := range storage.All(ctx, l.Worker.Store, keys.Engines()) {
		if err != nil {
			return l.fleet.pause, err
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil || incarnation == l.name {
			continue
		}
		if r, err := membership.OpenRegistration(entry.Key, entry.Value); err == nil { // a damaged record is no member of any fleet
			engines = append(engines, engine{incarnation, entry.Value, r})
		}
	}
	pause, unseen := l.lookAtSessions(ctx, engines)
	var members []string
	others := map[string]membership.Vitality{}
	told := map[string]membership.Testimony{}
	for _, o := range engines {
		incarnation, r := o.incarnation, o.registration
		v, err := l.judge(ctx, incarnation, o.raw, r)
		if err != nil {
			return l.fleet.pause, err
		}
		others[incarnation] = v
		if v == membership.Alive {
			told[incarnation] = membership.Testimony{Raw: string(o.raw), Wall: journal.Time(r.Clock), Proven: journal.Time(r.Proven), At: time.Now()}
		} else {
			l.LedAstray(incarnation, r)
		}
		if v == membership.Alive && l.isPeer(r) {
			members = append(members, incarnation)
		}
	}
	maps.DeleteFunc(l.sightings, func(incarnation string, _ sighting) bool { _, there := others[incarnation]; return !there })
	l.witness.Hear(told)
	now := time.Now()
	if !maps.Equal(others, l.fleet.others) {
		l.fleet.others, l.fleet.changed = others, now
	}
	l.fleet.members, l.fleet.refreshed, l.fleet.pause = members, now, pause
	l.fleet.calm = len(others) == 0 || now.Sub(l.fleet.changed) > l.Worker.LeaseTTL
	return pause, unseen
}

// An engine is another incarnation, with its record as it was read.
type engine struct {
	incarnation  string
	raw          []byte
	registration *membership.Registration
}

// isPeer reports whether a live incarnation is in this one's fleet.
func (l *Incarnation) isPeer(r *membership.Registration) bool {
	e := l.Worker
	return r.Deployment == e.Deployment && slices.Equal(r.Workflows, e.Types()) && slices.Equal(r.Queues, e.Queues()) &&
		maps.EqualFunc(r.Versions, e.Versions(), maps.Equal[map[string]int])
}

// leftFleet removes an incarnation that is gone from the fleet. It returns when it was first found gone.
func (l *Incarnation) leftFleet(incarnation string) time.Time {
	since, known := l.fleet.gone[incarnation]
	if !known {
		since = time.Now()
		l.fleet.gone[incarnation] = since
		l.fleet.members = slices.DeleteFunc(l.fleet.members, func(m string) bool { return m == incarnation })
	}
	return since
}

// leaveToOthers returns how much longer a run that has waited is left to other engines. Each
// engine that ranks before this one, up to mostBefore, gets one PollInterval, because it
// may take that long to look. The first gets half a PollInterval more.
func (l *Incarnation) leaveToOthers(id string, waited time.Duration) time.Duration {
	poll := l.Worker.PollInterval
	before := min(l.rank(id), mostBefore)
	if before == 0 {
		return 0
	}
	return max(saturate.Sub(saturate.Add(saturate.Times(int64(before), poll), poll/2), waited), 0)
}

// Ahead returns by how much the todo entry of a run is backdated when this incarnation
// releases the run, so that the engine that ranks next may claim it immediately.
func (l *Incarnation) Ahead() time.Duration {
	return saturate.Add(l.Worker.PollInterval, l.Worker.PollInterval/2)
}

const mostBefore = 3

// rank returns how many members of the fleet come before this incarnation for a run.
func (l *Incarnation) rank(id string) (before int) {
	weight := weigh(l.name, id)
	for _, m := range l.fleet.members {
		if weigh(m, id) > weight {
			before++
		}
	}
	return before
}

// First reports whether, of the engines with the same workflows, this one is to do what needs only
// one of them. While the fleet changes, several may be. Only the poll calls it.
func (l *Incarnation) First(what string) bool { return l.rank(what) == 0 }

// weigh returns a hash of incarnation and id that is the same in every process.
func weigh(incarnation, id string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, incarnation)
	io.WriteString(h, "\n")
	io.WriteString(h, id)
	// Inputs that differ only at their end have hashes that differ only in the lower bits. Mix these into the higher bits.
	n := h.Sum64()
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
