package engine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// takeover is the duty to take over what dead incarnations hold.
type takeover struct {
	life     *life
	idle     bool               // this look has nothing to take over, and nothing to hint
	unheld   time.Time          // when it looked last and found that nothing is held
	leavings map[string]leaving // of what dead incarnations hold
}

// look takes over what dead incarnations hold, and decides whether this one is idle:
// as a rule there is nothing to take over then, and nothing to hint, as for a while nobody
// has died, and nobody whom it concerns holds a run, the dead or this one. A run may be
// held and not driven, as those are that wait for a person. A write of the dead may land
// late, so nobody is idle for long.
func (t *takeover) look(ctx context.Context) (time.Duration, error) {
	l := t.life
	often := min(saturate.Times(rarely, l.eng.config.PollInterval), l.eng.config.LeaseTTL)
	t.idle = l.fleet.calm && !l.held.Load() && time.Since(t.unheld) < often
	if t.idle {
		return l.eng.config.PollInterval, nil
	}
	l.held.Store(false) // what is launched from here on says so again
	began := time.Now()
	found, next, err := t.inherit(ctx)
	if found || err != nil {
		l.held.Store(true)
	} else {
		t.unheld = began
	}
	return next, err
}

// inherit is the look. It says whether any incarnation but those of others that
// live holds something. It skips over the names in the list of what is held, and so does
// not depend on the records of incarnations.
func (t *takeover) inherit(ctx context.Context) (found bool, next time.Duration, _ error) {
	l := t.life
	next = l.eng.config.PollInterval
	for last := ""; ; {
		r := keys.HeldAfter(last)
		r.Limit = 1
		page, err := l.eng.store.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return found, next, err
		}
		if last, err = keys.Incarnation(page[0].Key); err != nil {
			return found, next, err
		}
		if bytes.Compare(page[0].Key, r.Start) < 0 { // there would be no end
			return found, next, fmt.Errorf("%w: record %q is out of order", storage.ErrCorrupt, page[0].Key)
		}
		found = found || last == l.incarnation
		v, err := l.vital(ctx, last)
		if record.Damaged(err) {
			found = true
			if l.once("engine " + last) {
				l.eng.log.Error("weft: what an engine holds is left alone", "incarnation", last, "error", err)
			}
			continue
		}
		if err != nil {
			return found, next, err
		}
		if v == alive {
			continue
		}
		found = true
		since, now := l.lost(last), time.Now()
		if now.Before(t.leavings[last].until) {
			continue
		}
		var p passage
		soonest, err := l.adopt(ctx, keys.HeldBy(last), &p, last, v.why(), func([]byte) (time.Duration, error) { return time.Since(since), nil })
		next = min(next, soonest)
		if err != nil {
			return found, next, err
		}
		t.leavings[last] = t.leavings[last].then(&p, now, l.eng.config.PollInterval)
	}
}
