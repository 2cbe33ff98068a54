package engine

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// A duty is one of the things that the poll looks after. What it remembers from one look
// to the next is its own: only the goroutine of the poll touches it.
type duty struct {
	name string // for logs

	// look returns the longest time until it wants to look again.
	look func(ctx context.Context) (next time.Duration, err error)
}

// duties are what the poll looks after, in this order in each poll.
func (l *life) duties() []duty {
	return []duty{
		{"runs in doubt", l.always(l.resolve)},
		{"signals that may come late", l.always(l.hear)},
		{"other engines", l.always(l.refreshFleet)},
		{"active deployment", l.always(l.active.look)},
		{"runs of dead engines", l.takeover.look},
		{"unclaimed runs", l.unclaimed.look},
		{"queues", l.lines.look},
		{"wakes", l.always(l.wake)},
		{"expiry", l.always(l.expiry.look)},
		{"stamp of the store", l.always(l.stamped.look)},
		{"housekeeping", l.always(l.housekeeping.look)},
		{"functions that block", l.always(l.watch)},
		{"clock", l.always(l.noteJump)},
	}
}

// always is the look of a duty that has no wish beyond PollInterval.
func (l *life) always(look func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) { return l.eng.config.PollInterval, look(ctx) }
}

// poll looks for work: what dead incarnations held, what is due, what was
// written for this one. It does so at once, every PollInterval, when the next
// unclaimed workflow is due, and when poked. It returns when ctx is done, or with the
// error of a store that is not where it was, or is a newer release's: what is under way
// is then cut off.
func (l *life) poll(ctx context.Context) error {
	duties := l.duties()
	for ctx.Err() == nil {
		rest := l.eng.config.PollInterval
		for _, d := range duties {
			next, err := d.look(ctx)
			rest = min(rest, next)
			if why := fatal(err); why != "" {
				l.eng.log.Error("weft: "+why+"; all runs are put down", "incarnation", l.incarnation, "error", err)
				l.cancel(activity.ErrStopped)
				return err
			}
			if err != nil && ctx.Err() == nil {
				l.eng.log.Warn("weft: poll", "duty", d.name, "error", err)
			}
		}
		tick := time.NewTimer(rest)
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

// fatal says why a poll that met err cannot go on; "" is that it can.
func fatal(err error) string {
	if errors.Is(err, storage.ErrMoved) {
		return "the store is not where it was"
	}
	if _, ok := errors.AsType[*outgrownError](err); ok {
		return "a newer release has made the store its own"
	}
	return ""
}

// rarely is how many times PollInterval lie between two looks, at most, that have no
// reason. To ask a server costs an idle engine as much as all else that it does.
const rarely = 10

// noteJump has everything looked at again when the wall clock has jumped.
func (l *life) noteJump(context.Context) error {
	if l.clock.jumped() {
		l.goneAstray()
		l.eng.nudge()
	}
	return nil
}

// nudge makes every run look again: at its timers, at its inbox.
func (e *Engine) nudge() {
	for _, x := range e.allDriven() {
		x.post(anything)
	}
}

// A clock notices that the wall clock went another way than time does. Who waits for
// a time of the wall clock reads it here: what was seen of it between two polls, and
// is not any more, may have set a timer too.
type clock struct {
	read func() checkpoint.Reading

	mu      lock.Mutex // guards what follows
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
