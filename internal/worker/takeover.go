package worker

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/trail"
	"github.com/weft-go/weft/storage"
)

// takeover is the duty to take over the runs of dead incarnations.
type takeover struct {
	incarnation *Incarnation
	idle        bool                     // the current poll skips takeovers, wakes and the stamp check
	unheld      time.Time                // start of the last look that found no runs of this or dead incarnations
	recallAt    time.Time                // the time of the next recall
	recallFrom  []byte                   // the entry from which it goes on; nil: from the first
	leavings    map[string]trail.Leaving // by dead incarnation
}

// look takes over the runs of dead incarnations. It first decides whether this incarnation is idle, so that it can skip
// this: the fleet has not changed for a while, and neither this incarnation nor a dead one owned a run at the last look. A
// run may be owned and not executed, for example if it is held. A commit of a dead incarnation may be applied late, so an
// idle incarnation still looks now and then.
func (t *takeover) look(ctx context.Context) (time.Duration, error) {
	l := t.incarnation
	often := min(saturate.Times(run.Rarely, l.Worker.PollInterval), l.Worker.LeaseTTL)
	t.idle = l.fleet.calm && !l.held.Load() && time.Since(t.unheld) < often
	if t.idle {
		return l.Worker.PollInterval, nil
	}
	l.held.Store(false) // Launch sets it again
	began := time.Now()
	found, next, err := t.inherit(ctx)
	if found || err != nil {
		l.held.Store(true)
	} else {
		t.unheld = began
	}
	return next, err
}

// Idle reports whether the current poll skips what is needed only if this or a dead incarnation may own runs.
func (l *Incarnation) Idle() bool { return l.takeover.idle }

// inherit takes over the runs of dead incarnations. It reports whether this incarnation or one that is not alive owns runs.
// It finds the incarnations in the held entries, with one read for each, and so does not depend on their records.
func (t *takeover) inherit(ctx context.Context) (found bool, next time.Duration, _ error) {
	l := t.incarnation
	next = l.Worker.PollInterval
	for last := ""; ; {
		owner, ok, err := reads.First(ctx, l.Worker.Store, keys.HeldAfter(last), keys.Incarnation, l.Unreadable)
		if err != nil || !ok {
			return found, next, err
		}
		last = owner
		found = found || last == l.name
		v, err := l.vital(ctx, last)
		if record.Damaged(err) {
			found = true
			if l.Once("engine " + last) {
				l.Worker.Log.Error("weft: the record of an engine is damaged; its runs are not taken over", "incarnation", last, "error", err)
			}
			continue
		}
		if err != nil {
			return found, next, err
		}
		if v == membership.Alive {
			if last == l.name && !time.Now().Before(t.recallAt) {
				if err := t.recall(ctx); err != nil {
					return found, next, err
				}
			}
			continue
		}
		found = true
		since, now := l.leftFleet(last), time.Now()
		if now.Before(t.leavings[last].Until) {
			continue
		}
		var p trail.Passage
		soonest, err := l.adopt(ctx, keys.HeldBy(last), &p, last, v.Why(), func([]byte) (time.Duration, error) { return time.Since(since), nil })
		next = min(next, soonest)
		if err != nil {
			return found, next, err
		}
		t.leavings[last] = t.leavings[last].Then(&p, now, l.Worker.PollInterval)
	}
}

const (
	recallEvery  = time.Minute // the least time between two looks at all runs of this incarnation
	mostRecalled = 100         // how many runs one recall has the poll look at, one after the other
)

// recall has the poll look at runs of this incarnation that it does not execute: the store may have lost the checkpoint that
// parked or ended one, or the run was released after an error. If there are many, the next recall goes on with the others.
func (t *takeover) recall(ctx context.Context) error {
	l := t.incarnation
	t.recallAt = time.Now().Add(recallEvery)
	r, n := keys.HeldBy(l.name), 0
	if t.recallFrom != nil {
		r.Start, t.recallFrom = t.recallFrom, nil
	}
	for entry, err := range storage.All(ctx, l.Worker.Store, r) {
		if err != nil {
			return err
		}
		id, err := keys.ID(entry.Key)
		if err != nil {
			l.Unreadable(entry.Key, err)
			continue
		}
		if l.Worker.Tells(id) || l.startInProgress(id) {
			continue
		}
		if n++; n > mostRecalled {
			t.recallFrom, t.recallAt = entry.Key, time.Now().Add(l.Worker.PollInterval) // not at once: Doubt pokes the poll
			return nil
		}
		l.Doubt(id)
	}
	return nil
}
