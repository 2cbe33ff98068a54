// Package clock reads a wall clock as far as it is to be believed.
package clock

import (
	"fmt"
	"sync"
	"time"
)

// A Clock reads the wall clock, and compares it with the monotonic clock and with the wall clocks of other
// holders. A reading that has parted from the monotonic clock by more than a minute is not believed for
// an hour: until then the time is that of the reading before, and what has passed since. A process that is alone,
// and wrong from its start, finds nothing to compare with: so a Retention is twice the time for which it
// matters.
type Clock struct {
	Wall func() time.Time // reads the wall clock; not changed while the Clock is in use

	mu        sync.Mutex // guards the fields below
	believed  reading
	candidate reading   // what is to be believed in an hour; zero: nothing
	parted    time.Time // monotonic time at which clocks were last found to differ; zero: never

	// Monotonic times at which the clock was last compared with that of another holder, and found to differ.
	compared, contradicted time.Time
	why                    string
}

// A reading is what both clocks showed at one moment.
type reading struct{ wall, mono time.Time }

// at returns what the wall clock should show later.
func (r reading) at(mono time.Time) time.Time { return r.wall.Add(mono.Sub(r.mono)) }

const (
	MostDrift  = time.Minute // between clocks that agree
	distrusted = time.Hour   // after clocks were found to differ
)

// Now returns the time.
func (c *Clock) Now() time.Time {
	wall := c.Wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := reading{wall.Round(0), time.Now()}
	expected := c.believed.at(now.mono)
	drift := now.wall.Sub(expected)
	switch {
	case c.believed.mono.IsZero():
		c.believed = now
	case drift.Abs() <= MostDrift:
		c.candidate = reading{}
		if now.mono.Sub(c.believed.mono) > distrusted { // clocks that run at different speeds are no jump
			c.believed = now
		}
	default:
		c.part(fmt.Sprintf("it jumped by %v", drift.Round(time.Second)))
		if c.candidate.mono.IsZero() || now.wall.Sub(c.candidate.at(now.mono)).Abs() > MostDrift {
			c.candidate = now
		}
		contradicted := !c.contradicted.IsZero() && now.mono.Sub(c.contradicted) < distrusted
		if contradicted || now.mono.Sub(c.candidate.mono) < distrusted {
			return expected
		}
		c.believed, c.candidate = now, reading{}
	}
	return now.wall
}

// Begun reports whether the clock has been read.
func (c *Clock) Begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.believed.mono.IsZero()
}

// Doubt returns why the time cannot be trusted, or "".
func (c *Clock) Doubt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parted.IsZero() || time.Since(c.parted) > distrusted {
		return ""
	}
	return c.why
}

// Compare notes whether the wall clock of another holder differs from ours. If renewed, its lease was
// written at most ago; otherwise at an unknown time, so that only clocks that agree say something. It returns
// whether they could be compared.
func (c *Clock) Compare(theirs time.Time, renewed bool, ago time.Duration) bool {
	ours := c.Wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	d := ours.Sub(theirs)
	if d.Abs() > MostDrift && !renewed {
		return false
	}
	c.compared = time.Now()
	if renewed && (d > MostDrift+ago || d < -MostDrift) {
		c.contradicted = c.compared
		c.part(fmt.Sprintf("it differs by %v from that of another process", d.Round(time.Second)))
	}
	return true
}

// ComparedLately says whether the clock was compared with that of another holder within an hour. Without that,
// a process whose clock was wrong from its start would believe it.
func (c *Clock) ComparedLately() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.compared.IsZero() && time.Since(c.compared) < distrusted
}

func (c *Clock) part(why string) { c.parted, c.why = time.Now(), why }
