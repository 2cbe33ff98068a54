package worker

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// A duty is one task of the poll. Only the goroutine of the poll uses its state.
type duty struct {
	name string // for logs

	// look does the work that is due. It returns how long the next look may wait at most.
	look func(ctx context.Context) (next time.Duration, err error)
}

// A Duty is a task of each poll that belongs to another package.
type Duty struct {
	Name string // for logs

	// Begin returns the look of an incarnation: see duty. It is called once for each.
	Begin func(l *Incarnation) (look func(ctx context.Context) (next time.Duration, err error))
}

// duties returns the tasks of each poll, in order.
func (l *Incarnation) duties() []duty {
	own := []duty{
		{"runs in doubt", l.always(l.settleDoubts)},
		{"signals that may come late", l.always(l.hear)},
		{"other engines", l.refreshFleet},
		{"active deployment", l.always(l.active.look)},
		{"runs of dead engines", l.takeover.look},
		{"unclaimed runs", l.unclaimed.look},
		{"queues", l.lines.look},
		{"wakes", l.always(l.wake)},
	}
	own = append(own, l.begun(l.Worker.Upkeep)...)
	own = append(own, []duty{
		{"functions that block", l.always(l.findStuck)},
		{"clock", l.always(l.noteJump)},
		{"purges to be logged", l.always(l.Worker.logPurges)},
	}...)
	return append(own, l.begun(l.Worker.Duties)...)
}

// begun begins duties of other packages.
func (l *Incarnation) begun(of []Duty) (all []duty) {
	for _, d := range of {
		all = append(all, duty{d.Name, d.Begin(l)})
	}
	return all
}

// always returns the look of a duty that runs at least once per PollInterval.
func (l *Incarnation) always(look func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) { return l.Worker.PollInterval, look(ctx) }
}

// poll looks for work: runs of dead incarnations, workflows that are due, and what was written for this incarnation's runs.
// It does so immediately, every PollInterval, when the next unclaimed workflow is due, and when poked. It returns nil when
// ctx is done. It returns a fatal error after it has cancelled all execution: see fatal.
func (l *Incarnation) poll(ctx context.Context) error {
	duties := l.duties()
	for ctx.Err() == nil {
		rest := l.Worker.PollInterval
		for _, d := range duties {
			next, err := d.look(ctx)
			rest = min(rest, next)
			if why := fatal(err); why != "" {
				l.Worker.Log.Error("weft: store cannot be used any more; all runs are released", "incarnation", l.name, "reason", why, "error", err)
				l.Cancel(activity.ErrStopped)
				return err
			}
			if err != nil && ctx.Err() == nil {
				l.Worker.Log.Warn("weft: poll failed", "duty", d.name, "error", err)
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

// fatal returns why the poll cannot continue after err, or "" if it can.
func fatal(err error) string {
	if errors.Is(err, storage.ErrMoved) {
		return "a file of the store was deleted, renamed or replaced"
	}
	if errors.Is(err, storage.ErrFailed) {
		return "the store has failed"
	}
	if _, ok := errors.AsType[*meta.OutgrownError](err); ok {
		return "a newer release has upgraded the store"
	}
	return ""
}

// noteJump has all runs looked at again if the wall clock has jumped.
func (l *Incarnation) noteJump(context.Context) error {
	if l.clock.jumped() {
		l.goneAstray()
		l.Worker.nudge()
	}
	return nil
}

// nudge has every run look at its timers and its inbox again.
func (e *Worker) nudge() {
	for _, x := range e.allDriven() {
		x.Post(run.Anything)
	}
}

// A clock detects jumps of the wall clock. Code that sets a timer for a wall clock time also calls note, because the timer
// may be set by a wrong time that the next poll no longer sees.
type clock struct {
	read func() journal.Reading

	mu      lock.Mutex // guards the fields below
	last    journal.Reading
	strayed bool // the wall clock has jumped since the last call of jumped
}

func newClock(read func() journal.Reading) *clock {
	return &clock{read: read, last: read()}
}

// note checks the clock for a jump.
func (c *clock) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
}

// jumped reports whether the wall clock has jumped since the last call.
func (c *clock) jumped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	strayed := c.strayed
	c.strayed = false
	return strayed
}

// look checks the clock for a jump. The caller holds c.mu.
func (c *clock) look() {
	now := c.read()
	drift := saturate.Sub(now.Wall.Sub(c.last.Wall), now.Mono.Sub(c.last.Mono))
	c.strayed = c.strayed || drift.Abs() > 50*time.Millisecond
	c.last = now
}
