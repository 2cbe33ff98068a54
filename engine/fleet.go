package engine

import (
	"context"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// On a store that several processes share, all of them find the same: what is due, and
// what the dead have left. Were all of them to claim it, one would win and the others
// have worked in vain. So each takes at once what rendezvous hashing over the fleet says
// is its own, and of the rest, in the order that the same hashes give, what those before
// it have not taken in time: they are dead, have no room, or are busy. When the fleet
// changes, only what is found anew goes elsewhere, and nothing is handed over.
//
// Nobody's safety depends on any of this, nor on two engines seeing the same fleet: a
// claim is a compare-and-swap.

// A fleet is who shares the work: the incarnations that live, run the same workflows
// of the same deployment as this one, and serve the same queues.
type fleet struct {
	members   []string             // without this one
	refreshed time.Time            // when they were counted
	gone      map[string]time.Time // when an incarnation that holds something was found gone

	others  map[string]vitality // all incarnations but this one, of the fleet or not
	changed time.Time           // when others were found there, or otherwise
	calm    bool                // this look has found what all did for a lease, or nobody
}

// refreshFleet counts the fleet, no more often than PollInterval.
func (l *life) refreshFleet(ctx context.Context) error {
	l.fleet.calm = false
	if !l.shared() || time.Since(l.fleet.refreshed) < l.eng.config.PollInterval {
		return nil
	}
	var members []string
	others := map[string]vitality{}
	told := map[string]testimony{}
	for entry, err := range storage.All(ctx, l.eng.store, keys.Engines()) {
		if err != nil {
			return err
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil || incarnation == l.incarnation {
			continue
		}
		r, err := openRegistration(entry.Key, entry.Value)
		if err != nil {
			continue // damaged: it is nobody's peer
		}
		v, err := l.judge(ctx, incarnation, entry.Value, r)
		if err != nil {
			return err
		}
		others[incarnation] = v
		if v == alive {
			told[incarnation] = testimony{string(entry.Value), checkpoint.Time(r.Clock), checkpoint.Time(r.Proven), time.Now()}
		} else {
			l.ledAstray(incarnation, r)
		}
		if v == alive && l.isPeer(r) {
			members = append(members, incarnation)
		}
	}
	maps.DeleteFunc(l.sightings, func(incarnation string, _ sighting) bool { _, there := others[incarnation]; return !there })
	l.witness.hear(told)
	now := time.Now()
	if !maps.Equal(others, l.fleet.others) {
		l.fleet.others, l.fleet.changed = others, now
	}
	l.fleet.members, l.fleet.refreshed = members, now
	l.fleet.calm = len(others) == 0 || now.Sub(l.fleet.changed) > l.eng.config.LeaseTTL
	return nil
}

// isPeer says that a living incarnation shares this one's work.
func (l *life) isPeer(r *registration) bool {
	e := l.eng
	return r.Deployment == e.config.Deployment && slices.Equal(r.Workflows, e.types()) && slices.Equal(r.Queues, e.queues())
}

// lost strikes out an incarnation that is gone, and returns since when that is known.
func (l *life) lost(incarnation string) time.Time {
	since, known := l.fleet.gone[incarnation]
	if !known {
		since = time.Now()
		l.fleet.gone[incarnation] = since
		l.fleet.members = slices.DeleteFunc(l.fleet.members, func(m string) bool { return m == incarnation })
	}
	return since
}

// leave is how long a run that has waited is left to others. Each of them, up to
// mostBefore, is given a PollInterval, and the first a half more: that is how long it
// may take until it looks.
func (l *life) leave(id string, waited time.Duration) time.Duration {
	poll := l.eng.config.PollInterval
	before := min(l.rank(id), mostBefore)
	if before == 0 {
		return 0
	}
	return max(saturate.Sub(saturate.Add(saturate.Times(int64(before), poll), poll/2), waited), 0)
}

// ahead is by how much a run is overdue when this incarnation gives it up: those to
// whom it still comes first go past it.
func (l *life) ahead() time.Duration {
	return saturate.Add(l.eng.config.PollInterval, l.eng.config.PollInterval/2)
}

const mostBefore = 3

// rank is how many of the fleet come before this incarnation where a run is concerned.
func (l *life) rank(id string) (before int) {
	weight := weigh(l.incarnation, id)
	for _, m := range l.fleet.members {
		if weigh(m, id) > weight {
			before++
		}
	}
	return before
}

// weigh is a hash of both, the same in every process.
func weigh(incarnation, id string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, incarnation)
	io.WriteString(h, "\n")
	io.WriteString(h, id)
	// What differs only at its end differs, so far, only in the lower bits.
	n := h.Sum64()
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
