package checkpoint

import (
	"time"

	"github.com/weft-go/weft/internal/saturate"
)

// A Reading is what the clocks of an engine say at one moment: the wall clock, which
// somebody may set, and the monotonic one, which goes on as time does.
type Reading struct {
	Wall time.Time
	Mono time.Time // of time.Now; zero is none
}

// Now is the run's time at a moment: that of its last checkpoint, and what has passed
// since then. As long as all wall clocks are right it is what they say. It never goes
// back, and it does not stand still when a wall clock is set back, or was ahead when the
// checkpoint was written: then the monotonic clock tells what has passed or, if another
// process wrote that, how far the wall clock is past what its writer's said.
//
// A run whose time is ahead of the wall clock has its time go slower by a 64th until it
// is not: so it heals, and what it waits for takes no more than that longer.
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
		// The clock is nearer to the run's time than to that of who wrote last: his was
		// behind, or the run's time is ahead by less than has passed.
		return later(h.HeadTime, wall)
	}
	passed = max(passed, 0)
	return h.HeadTime.Add(passed - min(ahead, passed/slower))
}

// In is how long it takes until the run's time has gone on by d.
func (h *Hold) In(d time.Duration) time.Duration {
	return saturate.Add(d, min(h.ahead, max(d, 0)/(slower-1)+time.Microsecond))
}

// From is h, of which the monotonic clock tells from now on what has passed.
func (h *Hold) From(mono time.Time) *Hold {
	c := *h
	c.mono = sinceEpoch(mono)
	return &c
}

// With is h, whose workflow record has changed to wf.
func (h *Hold) With(wf *Workflow) *Hold {
	c := *h
	c.Workflow = wf
	return &c
}

// slower is by what part the time of a run that is ahead goes slower.
const slower = 64

var epoch = time.Now()

// sinceEpoch is a monotonic time as what has passed since this process began; 0 is none.
func sinceEpoch(mono time.Time) time.Duration {
	if mono.IsZero() {
		return 0
	}
	if d := mono.Sub(epoch); d != 0 {
		return d
	}
	return 1
}

// Within is by how much a wall clock may differ from the monotonic one after some time
// without having been set: it is adjusted by up to a 2000th.
func Within(passed time.Duration) time.Duration { return 50*time.Millisecond + passed/1000 }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
