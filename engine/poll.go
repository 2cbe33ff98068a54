package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// poll looks for work: what dead incarnations held, what is due, what was
// written for this one. It does so at once, every PollInterval, when the next
// unclaimed workflow is due, and when poked. It returns when ctx is done, or with the
// error of a store that is not where it was, or is a newer release's: what is under way
// is then cut off.
func (l *life) poll(ctx context.Context) error {
	var tidied time.Time
	for ctx.Err() == nil {
		l.next = l.eng.config.PollInterval
		for _, look := range []func(context.Context) error{l.resolve, l.hear, l.muster, l.follow, l.succeed, l.pickUp, l.serveQueues, l.wake, l.expire} {
			err := look(ctx)
			switch {
			case errors.Is(err, storage.ErrMoved):
				l.eng.log.Error("weft: the store is not where it was; all runs are put down", "incarnation", l.incarnation, "error", err)
				l.cancel(activity.ErrStopped)
				return err
			case err != nil && ctx.Err() == nil:
				l.eng.log.Warn("weft: poll", "error", err)
			}
		}
		if err := l.readStamp(ctx); err != nil {
			return err
		}
		if tidied.IsZero() || time.Since(tidied) > anHour {
			if !tidied.IsZero() {
				l.lookAgain() // what is gone is not kept for ever
				l.goneAstray()
			}
			tidied = time.Now()
			if err := l.forgetEngines(ctx); err != nil && ctx.Err() == nil {
				l.eng.log.Warn("weft: forget dead engines", "error", err)
			}
		}
		l.watch(ctx)
		if l.clock.jumped() {
			l.goneAstray()
			l.eng.nudge()
		}
		tick := time.NewTimer(l.next)
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
		case <-l.poke:
			tick.Stop()
		}
	}
	return nil
}

// rarely is how many times PollInterval lie between two looks, at most, that have no
// reason. To ask a server costs an idle engine as much as all else that it does.
const rarely = 10

// succeed takes over what dead incarnations hold, and decides whether this one is idle:
// as a rule there is nothing to take over then, and nothing to hint, as for a while nobody
// has died, and nobody whom it concerns holds a run, the dead or this one. A run may be
// held and not driven, as those are that wait for a person. A write of the dead may land
// late, so nobody is idle for long.
func (l *life) succeed(ctx context.Context) error {
	often := min(saturate.Times(rarely, l.eng.config.PollInterval), l.eng.config.LeaseTTL)
	l.idle = l.fleet.calm && !l.held.Load() && time.Since(l.unheld) < often
	if l.idle {
		return nil
	}
	l.held.Store(false) // what is launched from here on says so again
	began := time.Now()
	found, err := l.inherit(ctx)
	if found || err != nil {
		l.held.Store(true)
	} else {
		l.unheld = began
	}
	return err
}

// inherit is succeed's look. It says whether any incarnation but those of others that
// live holds something. It skips over the names in the list of what is held, and so does
// not depend on the records of incarnations.
func (l *life) inherit(ctx context.Context) (found bool, _ error) {
	for last := ""; ; {
		r := keys.HeldAfter(last)
		r.Limit = 1
		page, err := l.eng.store.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return found, err
		}
		if last, err = keys.Incarnation(page[0].Key); err != nil {
			return found, err
		}
		if bytes.Compare(page[0].Key, r.Start) < 0 { // there would be no end
			return found, fmt.Errorf("%w: record %q is out of order", storage.ErrCorrupt, page[0].Key)
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
			return found, err
		}
		if v == alive {
			continue
		}
		found = true
		since, now := l.lost(last), time.Now()
		if now.Before(l.leavings[last].until) {
			continue
		}
		var p passage
		if err := l.adopt(ctx, keys.HeldBy(last), &p, last, v.why(), func([]byte) (time.Duration, error) { return time.Since(since), nil }); err != nil {
			return found, err
		}
		l.leavings[last] = l.leavings[last].then(&p, now, l.eng.config.PollInterval)
	}
}

// pickUp claims the unclaimed workflows that are due. Then all are taken up that this look
// at the store can find, and it is the turn of the suspects among them.
func (l *life) pickUp(ctx context.Context) error {
	defer l.quarantine.ready()
	if err := l.pickUpAstray(ctx); err != nil {
		return err
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
		return err
	}
	if rest := due.Sub(now); rest > 0 { // as a rule, and one look is enough
		l.next = min(l.next, rest)
		return nil
	}
	seen := map[string]time.Time{}
	waited := func(entry []byte) (time.Duration, error) {
		due, atOnce, err := keys.Due(entry)
		past := now.Sub(due)
		if !atOnce || past >= 0 {
			return past, err
		}
		first, known := l.early[string(entry)] // its writer's clock is ahead
		if !known {
			first = time.Now()
		}
		seen[string(entry)] = first
		return time.Since(first), err
	}
	defer func() { l.early = seen }()
	// What a clock that is ahead has written comes behind what others write later: it has
	// no trail, so that nothing is passed over for it.
	written, ahead, timed := keys.TodoDue(0, now)
	looked := time.Now()
	follow := func(t *trail, r storage.Range) error {
		p := t.look(looked, l.eng.config.PollInterval, r.End)
		if p.start != nil {
			r.Start = p.start
		}
		if err := l.adopt(ctx, r, p, "", checkpoint.HandedOver, waited); err != nil {
			return err
		}
		t.passed(p, looked)
		return nil
	}
	if err := follow(&l.prompt, written); err != nil {
		return err
	}
	others := keys.TodoOf(0)
	others.Start = written.End
	due, ok, err = l.firstTime(ctx, others, overdue)
	if err != nil || !ok || due.After(now) { // as a rule
		if ok && err == nil {
			l.next = min(l.next, due.Sub(now))
		}
		return err
	}
	if err := follow(new(trail), ahead); err != nil {
		return err
	}
	if err := follow(&l.todo, timed); err != nil {
		return err
	}
	if due, ok, err = l.firstTime(ctx, keys.TodoNext(0, now), overdue); ok {
		l.next = min(l.next, max(due.Sub(now), 0))
	}
	return err
}

// pickUpAstray claims, now and then, parked runs that a clock which was ahead has put
// where nobody looks for as long: it is enough that one is driven for a moment, which puts
// it where it belongs.
func (l *life) pickUpAstray(ctx context.Context) error {
	if !l.astray {
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
	l.astray = false
	return nil
}

// mostAhead is by how much clocks of engines may differ without anybody looking for what
// that has put astray.
const mostAhead = time.Second

// goneAstray has parked runs looked for that a clock which was ahead has put astray.
func (l *life) goneAstray() {
	l.astray = true
	l.pokeNow()
}

// ledAstray does so if the clock of an incarnation that is gone was ahead of this
// engine's.
func (l *life) ledAstray(incarnation string, r *enrolment) {
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

// adopt claims the workflows that a range of held or todo entries names and that
// owner, who is gone, owned, and which have waited for so long that they are this
// engine's to claim. p notes what it passes over. Several at a time: claims share commits.
func (l *life) adopt(ctx context.Context, r storage.Range, p *passage, owner, why string, waited func(entry []byte) (time.Duration, error)) error {
	crew := newCrew(l)
	defer crew.wait()
	var doubles []prospect // of runs that other entries have in hand
	for entry, err := range storage.All(ctx, l.eng.store, r) {
		if err != nil {
			return err
		}
		if l.leavesAlone(entry.Key) {
			p.over(entry.Key)
			continue
		}
		p.stop()
		id, err := keys.ID(entry.Key)
		if err != nil {
			return err
		}
		if l.quarantine.has(id) {
			continue
		}
		past, err := waited(entry.Key)
		if err != nil {
			return err
		}
		if rest := l.leave(id, past); rest > 0 {
			l.next = min(l.next, rest)
			continue
		}
		p := prospect{id: id, entry: entry.Key, owner: owner, why: why}
		if _, inHand := crew.inHand.Load(id); inHand {
			doubles = append(doubles, p)
			continue
		}
		if ok, err := crew.claim(ctx, p); !ok {
			return err
		}
	}
	crew.wait()
	for _, p := range doubles {
		if ok, err := crew.claim(ctx, p); !ok {
			return err
		}
	}
	return nil
}

// A crew claims several runs at a time: claims share commits.
type crew struct {
	life *life
	busy sync.WaitGroup
	few  chan struct{}

	inHand sync.Map // the ids of the runs that are being claimed
}

// atOnce is how many claims are made at a time.
const atOnce = 64

func newCrew(l *life) *crew { return &crew{life: l, few: make(chan struct{}, atOnce)} }

// wait waits until nothing is being claimed.
func (c *crew) wait() { c.busy.Wait() }

// claim begins to claim p. It says no if there is no room: p will be found when there
// is.
func (c *crew) claim(ctx context.Context, p prospect) (bool, error) {
	coming, ok := c.life.eng.admit(false)
	if !ok {
		c.wait() // those before it may have come to nothing
		if coming, ok = c.life.eng.admit(true); !ok {
			return false, nil
		}
	}
	select {
	case c.few <- struct{}{}:
	case <-ctx.Done():
		coming()
		return false, ctx.Err()
	}
	c.inHand.Store(p.id, nil)
	c.busy.Go(func() {
		defer func() { <-c.few }()
		defer c.inHand.Delete(p.id)
		defer coming()
		defer p.ticket.giveBack()
		c.life.consider(ctx, p)
	})
	return true, nil
}

// wake hints the runs for which something was written by others. The entries of
// dead incarnations have no use any more: whoever claims their runs looks anyway.
func (l *life) wake(ctx context.Context) error {
	if l.idle {
		return nil
	}
	for entry, err := range storage.All(ctx, l.eng.store, keys.Wakes()) {
		if err != nil {
			return err
		}
		owner, err := keys.Incarnation(entry.Key)
		if err != nil {
			return err
		}
		if v, err := l.vital(ctx, owner); err != nil || v == alive && owner != l.incarnation {
			continue
		}
		id, err := keys.ID(entry.Key)
		if err != nil {
			return err
		}
		// The run looks before it rests, and after a crash its next owner
		// looks: the entry has done its work.
		if x := l.eng.driven(id); x != nil {
			x.post(post{hint: true, kids: true, asked: true})
		} else if owner == l.incarnation {
			l.doubt(id)
		}
		if err := l.drop(ctx, entry.Key); err != nil {
			return err
		}
	}
	return nil
}

// anHour is how often, and aDay after what time, the records of engines that
// have ended and hold nothing are removed.
const (
	anHour = time.Hour
	aDay   = 24 * time.Hour
)

func (l *life) forgetEngines(ctx context.Context) error {
	for entry, err := range storage.All(ctx, l.eng.store, keys.Engines()) {
		if err != nil {
			return err
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil {
			return err
		}
		r, err := openEnrolment(entry.Key, entry.Value)
		if err != nil {
			return err
		}
		v, err := l.vital(ctx, incarnation)
		if err != nil || v == alive {
			continue
		}
		l.ledAstray(incarnation, r)
		if ended := max(r.Since, r.Stopped); !l.witness.begun() || l.witness.now(l.eng.read()).Sub(checkpoint.Time(ended)) < aDay {
			continue
		}
		held := keys.HeldBy(incarnation)
		held.Limit = 1
		page, err := l.eng.store.Scan(ctx, held)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			continue
		}
		if err := l.drop(ctx, entry.Key); err != nil {
			return err
		}
	}
	return nil
}

// nudge makes every run look again: at its timers, at its inbox.
func (e *Engine) nudge() {
	for _, x := range e.allDriven() {
		x.post(post{hint: true, kids: true, asked: true})
	}
}

// A clock notices that the wall clock went another way than time does. Who waits for
// a time of the wall clock reads it here: what was seen of it between two polls, and
// is not any more, may have set a timer too.
type clock struct {
	read func() checkpoint.Reading

	mu      sync.Mutex // guards what follows
	last    checkpoint.Reading
	strayed bool // since jumped was asked last
}

func newClock(read func() checkpoint.Reading) *clock {
	return &clock{read: read, last: read()}
}

// note looks at the clock.
func (c *clock) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
}

// jumped says that the wall clock has jumped since this was asked last.
func (c *clock) jumped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	strayed := c.strayed
	c.strayed = false
	return strayed
}

// look notices. The caller has c.mu.
func (c *clock) look() {
	now := c.read()
	drift := saturate.Sub(now.Wall.Sub(c.last.Wall), now.Mono.Sub(c.last.Mono))
	c.strayed = c.strayed || drift.Abs() > 50*time.Millisecond
	c.last = now
}
