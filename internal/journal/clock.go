package journal

import (
	"time"

	"github.com/weft-go/weft/internal/saturate"
)

// A Reading is the time on an engine's clocks at one moment: the wall clock, which may
// be set, and the monotonic clock, which may not.
type Reading struct {
	Wall time.Time
	Mono time.Time // of time.Now; zero is none
}

// Now returns the run's time: the time of its last checkpoint plus the time that has
// passed since. While all wall clocks are right, this is the wall clock's time. It never
// decreases. It also advances if a wall clock was set back, or was ahead when the
// checkpoint was written. In these cases the time that has passed is measured with the
// monotonic clock or, if another process wrote the checkpoint, from that process's wall
// clock to this one.
//
// If the run's time is ahead of the wall clock, it advances slower by a 64th until it no
// longer is. What the run waits for is delayed by no more than that.
func (h *Hold) Now(now Reading) time.Time {
	wall := now.Wall.Round(0)
	if h.HeadTime.IsZero() {
		return wall
	}
	passed, ahead := wall.Sub(h.HeadTime.Add(-h.ahead)), h.ahead
	switch {
	case h.mono != 0:
		if mono := sinceEpoch(now.Mono) - h.mono; saturate.Sub(mono, passed) > Within(mono) {
			passed = mono // the wall clock was set back
		}
	case ahead > 0 && h.HeadTime.Sub(wall) < passed:
		// The wall clock is closer to the run's time than to the clock of the last
		// writer: that clock was behind, or the run's time is ahead by less than has
		// passed.
		return later(h.HeadTime, wall)
	}
	passed = max(passed, 0)
	return h.HeadTime.Add(passed - min(ahead, passed/slower))
}

// In returns how long it takes until the run's time has advanced by d.
func (h *Hold) In(d time.Duration) time.Duration {
	return saturate.Add(d, min(h.ahead, max(d, 0)/(slower-1)+time.Microsecond))
}

// From returns a copy of h that measures the time from now on with the monotonic clock.
func (h *Hold) From(mono time.Time) *Hold {
	c := *h
	c.mono = sinceEpoch(mono)
	return &c
}

// With returns a copy of h with the changed workflow record wf.
func (h *Hold) With(wf *Workflow) *Hold {
	c := *h
	c.Workflow = wf
	return &c
}

// slower: the time of a run that is ahead of the wall clock advances slower by a 64th.
const slower = 64

var epoch = time.Now()

// sinceEpoch converts a monotonic time to the time since this process started; 0 means none.
func sinceEpoch(mono time.Time) time.Duration {
	if mono.IsZero() {
		return 0
	}
	if d := mono.Sub(epoch); d != 0 {
		return d
	}
	return 1
}

// Within returns how far a wall clock may deviate from the monotonic clock after some time
// without having been set. Clocks are adjusted by up to a 2000th.
func Within(passed time.Duration) time.Duration { return 50*time.Millisecond + passed/1000 }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
