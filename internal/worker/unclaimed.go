package worker

import (
	"bytes"
	"context"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/trail"
	"github.com/weft-go/weft/storage"
)

// unclaimed is the duty to claim runs without an owner when they are due.
type unclaimed struct {
	incarnation *Incarnation
	prompt      trail.Trail          // of entries that are due immediately
	todo        trail.Trail          // of entries that are due at a time
	early       map[string]time.Time // entries due immediately, written by a clock that is ahead: when first seen
	astray      bool                 // a parked run may have a wrong due time, from a clock that was ahead
	astrayFrom  []byte               // where to continue with that; nil: at the beginning
}

// look claims the unclaimed workflows that are due. It then has the quarantine execute the
// suspects that this poll has found.
func (u *unclaimed) look(ctx context.Context) (next time.Duration, _ error) {
	l := u.incarnation
	next = l.Worker.PollInterval
	defer l.quarantine.ready()
	if err := u.pickUpAstray(ctx); err != nil {
		return next, err
	}
	now := membership.Later(l.Worker.Now(), time.UnixMicro(0)) // keys cannot contain earlier times
	overdue := func(entry []byte) (time.Time, error) {
		due, atOnce, err := keys.Due(entry)
		if atOnce { // due, whatever its writer's clock was
			due = time.Time{}
		}
		return due, err
	}
	due, ok, err := reads.First(ctx, l.Worker.Store, keys.TodoOf(0), overdue, l.Unreadable)
	if err != nil || !ok {
		return next, err
	}
	if rest := due.Sub(now); rest > 0 { // the common case
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
	// Entries written by a clock that is ahead sort after entries that others write later.
	// So their range is read without a trail: a trail would skip new entries.
	written, ahead, timed := keys.TodoDue(0, now)
	looked := time.Now()
	follow := func(t *trail.Trail, r storage.Range) error {
		p := t.Look(looked, l.Worker.PollInterval, r.End)
		if p.Start != nil {
			r.Start = p.Start
		}
		soonest, err := l.adopt(ctx, r, p, "", checkpoint.HandedOver, waited)
		next = min(next, soonest)
		if err != nil {
			return err
		}
		t.Passed(p, looked)
		return nil
	}
	if err := follow(&u.prompt, written); err != nil {
		return next, err
	}
	others := keys.TodoOf(0)
	others.Start = written.End
	due, ok, err = reads.First(ctx, l.Worker.Store, others, overdue, l.Unreadable)
	if err != nil || !ok || due.After(now) { // the common case
		if ok && err == nil {
			next = min(next, due.Sub(now))
		}
		return next, err
	}
	if err := follow(new(trail.Trail), ahead); err != nil {
		return next, err
	}
	if err := follow(&u.todo, timed); err != nil {
		return next, err
	}
	if due, ok, err = reads.First(ctx, l.Worker.Store, keys.TodoNext(0, now), overdue, l.Unreadable); ok {
		next = min(next, max(due.Sub(now), 0))
	}
	return next, err
}

// pickUpAstray claims parked runs that may have a due time far too late, because the clock of the engine that parked them
// was ahead. The run is executed briefly and then parked again with the right due time.
func (u *unclaimed) pickUpAstray(ctx context.Context) error {
	l := u.incarnation
	if !u.astray {
		return nil
	}
	now := l.Worker.Now()
	crew := newCrew(l)
	defer crew.wait()
	later, read := keys.TodoNext(0, now), 0
	if bytes.Compare(u.astrayFrom, later.Start) > 0 {
		later.Start = u.astrayFrom
	}
	for entry, err := range storage.All(ctx, l.Worker.Store, later) {
		if err != nil {
			return err
		}
		if read++; read > astrayAtOnce {
			u.astrayFrom = entry.Key
			l.PokeNow() // continue after the other duties
			return nil
		}
		if parked, ok := keys.Parked(entry.Key); !ok || parked.Sub(now) < membership.MostAhead || l.left.Has(entry.Key) {
			continue
		}
		id, err := keys.ID(entry.Key)
		if err != nil {
			l.Unreadable(entry.Key, err)
			continue
		}
		if ok, err := crew.claim(ctx, prospect{id: id, entry: entry.Key, why: checkpoint.HandedOver}); !ok {
			return err // there is no room: the next look continues
		}
	}
	u.astray, u.astrayFrom = false, nil
	return nil
}

// astrayAtOnce is how many entries pickUpAstray reads in one look.
const astrayAtOnce = 20_000

// SearchAstray has the next look search for parked runs with a wrong due time, from the first entry on. The poll calls it.
func (l *Incarnation) SearchAstray() { l.unclaimed.astray, l.unclaimed.astrayFrom = true, nil }

// goneAstray has the poll look for parked runs with a wrong due time.
func (l *Incarnation) goneAstray() {
	l.SearchAstray()
	l.PokeNow()
}

// LedAstray calls goneAstray if the clock of an incarnation that is gone was ahead of this
// engine's by at least mostAhead, once per incarnation.
func (l *Incarnation) LedAstray(incarnation string, r *membership.Registration) {
	if r.Latest().Sub(l.Worker.Now()) >= membership.MostAhead && l.Once("ahead "+incarnation) {
		l.goneAstray()
	}
}

// Unreadable logs once that a key cannot be read. It must not keep what is behind it.
func (l *Incarnation) Unreadable(key []byte, err error) {
	if l.Once("key " + string(key)) {
		l.Worker.Log.Error("weft: a key cannot be read; it is passed over", "error", err)
	}
}
