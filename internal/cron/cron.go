// Package cron computes the times of a schedule: those of cron expressions in a time zone, or
// those of an interval. It reads no clock and no store.
//
// [Times] says which times are meant, and [Calendar] finds them. A library parses the
// expressions and knows the calendar. It is asked only about clocks whose offset from UTC never
// changes. What happens where the offset of a zone changes is decided here:
//
//   - An expression with a fixed hour means wall-clock times. Each of them happens once a date. A
//     time that the clocks skip happens at the first instant behind the gap. A time that comes
//     twice happens the first time.
//   - An expression whose hour is * or */n means minutes as they pass: both of two that have the
//     same name, and none of those that are skipped.
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	library "github.com/netresearch/go-cron"
)

// ErrZone means that the zone data of this machine does not have a zone.
var ErrZone = errors.New("its Zone cannot be loaded")

// MaxExpressions is how many cron expressions a schedule may have.
const MaxExpressions = 32

// Times says which times are meant: those of Cron in Zone, or those of Every.
type Times struct {
	Cron          []string
	Zone          string // of the IANA; "" is UTC
	Every, Offset time.Duration
	From, Until   time.Time // From is the first instant, Until the first one that is too late; zero: no bound
}

// The first and the last time that there can be: keys have no earlier ones, and nobody needs later
// ones.
var (
	first = time.Unix(0, 0).UTC()
	last  = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// A Calendar finds the times of a schedule.
type Calendar struct {
	expressions   []expression
	zone          *time.Location
	every, offset int64 // in seconds
	from, until   time.Time
}

// An expression is a cron expression.
type expression struct {
	calendar library.Schedule
	minutes  bool // it means minutes as they pass, and not wall-clock times
}

// searchYears is how many years the library looks ahead. The 29th of February is at most eight
// years away.
const searchYears = 12

var parser = library.MustNewParser(library.Minute | library.Hour | library.Dom | library.Month | library.Dow | library.Descriptor | library.DowOrDom).
	WithMaxSearchYears(searchYears)

// Calendar checks t. An error that wraps ErrZone is about this machine, and may be about t.
func (t Times) Calendar() (*Calendar, error) {
	c := &Calendar{zone: time.UTC, from: t.From, until: t.Until}
	switch {
	case len(t.Cron) == 0 && t.Every == 0:
		return nil, errors.New("it has neither Cron nor Every")
	case len(t.Cron) > 0 && (t.Every != 0 || t.Offset != 0):
		return nil, errors.New("it has both Cron and Every or Offset")
	case len(t.Cron) > MaxExpressions:
		return nil, fmt.Errorf("it has %d cron expressions, at most %d", len(t.Cron), MaxExpressions)
	case !t.From.IsZero() && !t.Until.IsZero() && !t.From.Before(t.Until):
		return nil, errors.New("its From is not before its Until")
	case len(t.Cron) == 0:
		return c, c.setEvery(t)
	}
	for _, text := range t.Cron {
		x, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("cron expression %q: %w", text, err)
		}
		c.expressions = append(c.expressions, x)
	}
	if t.Zone == "Local" {
		return nil, errors.New(`its Zone is "Local", which is another one on each machine`)
	}
	zone, err := time.LoadLocation(t.Zone)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: if it is right, import time/tzdata", ErrZone, err)
	}
	c.zone = zone
	return c, nil
}

func (c *Calendar) setEvery(t Times) error {
	switch {
	case t.Zone != "":
		return errors.New("it has a Zone without Cron: an interval is elapsed time")
	case t.Every < time.Second || t.Every%time.Second != 0:
		return fmt.Errorf("its Every is %v, and must be whole seconds and at least one", t.Every)
	case t.Offset < 0 || t.Offset >= t.Every || t.Offset%time.Second != 0:
		return fmt.Errorf("its Offset is %v, and must be whole seconds, not negative and less than Every", t.Offset)
	}
	c.every, c.offset = int64(t.Every/time.Second), int64(t.Offset/time.Second)
	return nil
}

func parse(text string) (expression, error) {
	switch {
	case strings.Contains(text, "TZ="):
		return expression{}, errors.New("names a zone: set Zone instead")
	case strings.HasPrefix(text, "@every"):
		return expression{}, errors.New("is an interval: set Every instead")
	}
	calendar, err := parser.Parse(text)
	if err != nil {
		return expression{}, err
	}
	x := expression{calendar: calendar, minutes: text == "@hourly"}
	if fields := strings.Fields(text); len(fields) == 5 {
		x.minutes = strings.ContainsAny(fields[1], "*?")
	}
	if x.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return expression{}, errors.New("matches no time")
	}
	return x, nil
}

// next returns the first time after a time that x matches, by a clock that has UTC. It returns zero
// if there is none.
func (x expression) next(after time.Time) time.Time { return x.calendar.Next(after) }

// A Mark is a place in the sequence of times: everything up to At has been dealt with.
type Mark struct {
	At time.Time

	// Wall is what the clocks in the zone showed then, as if it were UTC; zero: unknown. An
	// expression with a fixed hour has no time with an earlier wall-clock time, also if the zone
	// data was changed and says that it is still to come.
	Wall time.Time
}

// Mark returns the Mark of an instant, by the zone data of this machine.
func (c *Calendar) Mark(at time.Time) Mark { return Mark{At: at, Wall: wall(at.In(c.zone))} }

// wall returns what a clock shows at t in t's zone, as if it were UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// Next returns the first time after m, in UTC. It returns false if there is none.
func (c *Calendar) Next(m Mark) (next time.Time, ok bool) {
	after := latest(m.At, first.Add(-1))
	if !c.from.IsZero() {
		after = latest(after, c.from.Add(-1))
	}
	if !after.Before(last) {
		return time.Time{}, false
	}
	if c.every > 0 {
		next, ok = c.nextInterval(after), true
	}
	for _, x := range c.expressions {
		if t, found := c.nextOf(x, after, m.Wall); found && (!ok || t.Before(next)) {
			next, ok = t, true
		}
	}
	if !ok || !next.Before(last) || !c.until.IsZero() && !next.Before(c.until) {
		return time.Time{}, false
	}
	return next.UTC(), true
}

func (c *Calendar) nextInterval(after time.Time) time.Time {
	since := after.Unix() - c.offset
	n := since / c.every
	if since < 0 { // by less than Every
		n = -1
	}
	return time.Unix(c.offset+(n+1)*c.every, 0)
}

// nextOf returns the first time of x after an instant. It goes from one change of the zone's
// offset to the next.
func (c *Calendar) nextOf(x expression, after, dealt time.Time) (time.Time, bool) {
	for in := after.Add(1).In(c.zone); ; {
		start, end := in.ZoneBounds() // zero: for ever
		_, seconds := in.Zone()
		offset := time.Duration(seconds) * time.Second
		from := after.UTC().Add(offset) // the wall-clock time behind which to search
		if !start.IsZero() && start.After(after) {
			from = start.UTC().Add(offset - 1)
		}
		if !x.minutes {
			if !start.IsZero() {
				shown := shownBefore(start)
				if start.After(after) && !shown.After(from) {
					skipped := x.next(latest(shown.Add(-1), dealt))
					if !skipped.IsZero() && !skipped.After(from) {
						return start, true
					}
				}
				from = latest(from, shown.Add(-1))
			}
			from = latest(from, dealt)
		}
		at := x.next(from)
		switch {
		case at.IsZero():
			return time.Time{}, false
		case end.IsZero() || at.Before(end.UTC().Add(offset)):
			return at.Add(-offset), true
		}
		in = end
	}
}

// shownBefore returns the wall-clock time up to which clocks had come, or had skipped, before the
// offset changed at start. What they show again after start has happened before.
func shownBefore(start time.Time) time.Time {
	const most = 48 * time.Hour // no offset changes by more
	var shown time.Time
	for at := start; start.Sub(at) < most; {
		before := at.Add(-1)
		shown = latest(shown, wall(before).Add(1))
		at, _ = before.ZoneBounds()
		if at.IsZero() {
			break
		}
	}
	return shown
}

// Last returns the last time after m that is not after limit. It returns false if there is none. It
// asks for few times, however many there are.
func (c *Calendar) Last(m Mark, limit time.Time) (time.Time, bool) {
	found, ok := c.Next(m)
	if !ok || found.After(limit) {
		return time.Time{}, false
	}
	for none := limit; ; { // there is no time between none and limit
		t, ok := c.Next(Mark{found, m.Wall})
		if !ok || t.After(limit) {
			return found, true
		}
		found = t
		middle := found.Add(none.Sub(found) / 2)
		if t, ok = c.Next(Mark{middle, m.Wall}); ok && !t.After(limit) {
			found = t
		} else {
			none = middle
		}
	}
}

// Count returns how many times there are after m that are not after limit. Of cron expressions it
// counts at most as many as most.
func (c *Calendar) Count(m Mark, limit time.Time, most int) int {
	next, ok := c.Next(m)
	if c.every > 0 && ok && !next.After(limit) {
		end, _ := c.Last(m, limit)
		return int((end.Unix()-next.Unix())/c.every) + 1
	}
	n := 0
	for ; ok && !next.After(limit) && n < most; n++ {
		next, ok = c.Next(Mark{next, m.Wall})
	}
	return n
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
