package engine

import (
	"context"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// unclaimed is the duty to claim the runs that nobody owns when they are due.
type unclaimed struct {
	life   *life
	prompt trail                // of what is due now
	todo   trail                // of what is due at a time
	early  map[string]time.Time // entries that are due now and written by a clock that is ahead, since they were seen
	astray bool                 // a parked run may be where a clock that was ahead has put it
}

// look claims the unclaimed workflows that are due. Then all are taken up that this look
// at the store can find, and it is the turn of the suspects among them.
func (u *unclaimed) look(ctx context.Context) (next time.Duration, _ error) {
	l := u.life
	next = l.eng.config.PollInterval
	defer l.quarantine.ready()
	if err := u.pickUpAstray(ctx); err != nil {
		return next, err
	}
	now := later(l.eng.now(), time.UnixMicro(0)) // keys tell no earlier times
	overdue := func(entry []byte) (time.Time, error) {
		due, atOnce, err := keys.Due(entry)
		if atOnce { // whatever its writer's clock says
			due = time.Time{}
		}
		return due, err
	}
	due, ok, err := l.firstTime(ctx, keys.TodoOf(0), overdue)
	if err != nil || !ok {
		return next, err
	}
	if rest := due.Sub(now); rest > 0 { // as a rule, and one look is enough
		next = min(next, rest)
		return next, nil
	}
	seen := map[string]time.Time{}
	waited := func(entry []byte) (time.Duration, error) {
		due, atOnce, err := keys.Due(entry)
		past := now.Sub(due)
		if !atOnce || past >= 0 {
			return past, err
		}
		first, known := u.early[string(entry)] // its writer's clock is ahead
		if !known {
			first = time.Now()
		}
		seen[string(entry)] = first
		return time.Since(first), err
	}
	defer func() { u.early = seen }()
	// What a clock that is ahead has written comes behind what others write later: it has
	// no trail, so that nothing is passed over for it.
	written, ahead, timed := keys.TodoDue(0, now)
	looked := time.Now()
	follow := func(t *trail, r storage.Range) error {
		p := t.look(looked, l.eng.config.PollInterval, r.End)
		if p.start != nil {
			r.Start = p.start
		}
		soonest, err := l.adopt(ctx, r, p, "", checkpoint.HandedOver, waited)
		next = min(next, soonest)
		if err != nil {
			return err
		}
		t.passed(p, looked)
		return nil
	}
	if err := follow(&u.prompt, written); err != nil {
		return next, err
	}
	others := keys.TodoOf(0)
	others.Start = written.End
	due, ok, err = l.firstTime(ctx, others, overdue)
	if err != nil || !ok || due.After(now) { // as a rule
		if ok && err == nil {
			next = min(next, due.Sub(now))
		}
		return next, err
	}
	if err := follow(new(trail), ahead); err != nil {
		return next, err
	}
	if err := follow(&u.todo, timed); err != nil {
		return next, err
	}
	if due, ok, err = l.firstTime(ctx, keys.TodoNext(0, now), overdue); ok {
		next = min(next, max(due.Sub(now), 0))
	}
	return next, err
}

// pickUpAstray claims, now and then, parked runs that a clock which was ahead has put
// where nobody looks for as long: it is enough that one is driven for a moment, which puts
// it where it belongs.
func (u *unclaimed) pickUpAstray(ctx context.Context) error {
	l := u.life
	if !u.astray {
		return nil
	}
	now := l.eng.now()
	crew := newCrew(l)
	defer crew.wait()
	for entry, err := range storage.All(ctx, l.eng.store, keys.TodoNext(0, now)) {
		if err != nil {
			return err
		}
		if parked, ok := keys.Parked(entry.Key); !ok || parked.Sub(now) < mostAhead || l.leavesAlone(entry.Key) {
			continue
		}
		id, err := keys.ID(entry.Key)
		if err != nil {
			return err
		}
		if ok, err := crew.claim(ctx, prospect{id: id, entry: entry.Key, why: checkpoint.HandedOver}); !ok {
			return err // there is no room: the next look goes on
		}
	}
	u.astray = false
	return nil
}

// mostAhead is by how much clocks of engines may differ without anybody looking for what
// that has put astray.
const mostAhead = time.Second

// goneAstray has parked runs looked for that a clock which was ahead has put astray.
func (l *life) goneAstray() {
	l.unclaimed.astray = true
	l.pokeNow()
}

// ledAstray does so if the clock of an incarnation that is gone was ahead of this
// engine's.
func (l *life) ledAstray(incarnation string, r *registration) {
	if r.latest().Sub(l.eng.now()) >= mostAhead && l.once("ahead "+incarnation) {
		l.goneAstray()
	}
}

// firstTime is the time in the first key of r, and false if there is none.
func (l *life) firstTime(ctx context.Context, r storage.Range, timeIn func(key []byte) (time.Time, error)) (at time.Time, ok bool, err error) {
	r.Limit = 1
	page, err := l.eng.store.Scan(ctx, r)
	if err != nil || len(page) == 0 {
		return at, false, err
	}
	at, err = timeIn(page[0].Key)
	return at, err == nil, err
}
