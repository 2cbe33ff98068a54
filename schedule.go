package weft

import (
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/cron"
)

// MaxScheduleID is the maximum length of the id of a schedule in bytes.
const MaxScheduleID = 150

// A Schedule starts a workflow again and again: at the times of cron expressions, or at an
// interval. engine.Engine.PutSchedule puts it into the store, and every engine that runs on the
// store serves it. For each of its times one workflow is started, however many engines there are.
//
// The id of a workflow that it starts is that of the schedule, '@' and the time in UTC, such as
// "report@2026-03-01T01:30:00Z". The workflow has the label "weft.schedule" with the id of the
// schedule. engine.Run.Nominal returns the time.
type Schedule struct {
	// ID has 1 to 150 bytes of UTF-8.
	ID string

	// Start is what is started. Its ID must be empty, New false and Options.StartAt zero. Its input
	// is encoded once, by PutSchedule, and has at most 256 KiB then.
	Start *StartRequest

	// Cron are cron expressions: the schedule has the times of all of them, at most 32. Each has the
	// five fields minute, hour, day of the month, month and day of the week. Ranges, lists, steps
	// and English names of three letters are allowed, and so are @yearly, @monthly, @weekly, @daily
	// and @hourly instead. If neither the day of the month nor the day of the week is *, a day matches if
	// either does.
	//
	// If the hour is * or a step of it, as in */2, the expression means minutes as they pass. Otherwise
	// it means times of the clock, each of them once a date: one that is skipped when the clocks are
	// set forward happens right after the gap, and one that comes twice when they are set back
	// happens the first time.
	Cron []string

	// Zone is the time zone of Cron, such as "Europe/Berlin". The default is UTC. The zone data is
	// that of the engine's machine, or of package time/tzdata in its program. An engine whose zone
	// data lacks the zone leaves the schedule to others.
	Zone string

	// Every is the interval, instead of Cron: whole seconds of elapsed time, counted from the
	// beginning of 1970 in UTC. So the times do not depend on when the schedule was put or an engine
	// began to run. Offset moves them, by whole seconds and less than Every.
	Every, Offset time.Duration

	// From is the earliest time, and Until the first that is too late. Zero means no bound.
	From, Until time.Time

	// Overlap says what happens at a time when the workflow that was started last has not ended.
	Overlap Overlap

	// Missed says what happens to times that have passed, because no engine ran or because the
	// schedule waited.
	Missed Missed

	// Within is how late a time may be started, apart from its delay by Jitter. Older ones are missed,
	// whatever Missed says. Zero means no bound.
	Within time.Duration

	// Jitter is by how much a start is delayed at most. The delay follows from the id and the time,
	// and ends before the next time. Zero means that nothing is delayed.
	Jitter time.Duration
}

// An Overlap says what happens at a time of a Schedule when the workflow that was started last has
// not ended. One that waits in a queue, or is held, has not ended.
type Overlap string

const (
	// OverlapSkip, the default: the time is skipped.
	OverlapSkip Overlap = ""

	// OverlapWait: the time waits until that workflow has ended. If more times pass meanwhile,
	// Schedule.Missed says which of them are started.
	OverlapWait Overlap = "wait"

	// OverlapCancel: that workflow is asked to stop, and the time waits until it has ended.
	OverlapCancel Overlap = "cancel"

	// OverlapTerminate: that workflow is terminated. See engine.Engine.Terminate.
	OverlapTerminate Overlap = "terminate"

	// OverlapAllow: both run.
	OverlapAllow Overlap = "allow"
)

// A Missed says what happens to times of a Schedule that have passed.
type Missed string

const (
	// MissedLast, the default: the last of them is started, however late. The others are not.
	MissedLast Missed = ""

	// MissedAll: each of them is started, the oldest first. With OverlapSkip only those are that find
	// the one before ended.
	MissedAll Missed = "all"

	// MissedNone: none is started more than a minute late. If several have passed within the last
	// minute, the last one is.
	MissedNone Missed = "none"
)

// Next returns the first n times of s after a time, in UTC, without Jitter. There are fewer if the
// schedule ends. A backfill is a loop over them that starts workflows under the ids that the
// schedule would have used.
//
// It looks only at the fields that determine the times: ID and Start may be empty. The error is
// ErrInvalid.
func (s Schedule) Next(after time.Time, n int) (times []time.Time, _ error) {
	if n < 0 {
		return nil, fmt.Errorf("%w: schedule %q: the next %d times were asked for", ErrInvalid, s.ID, n)
	}
	c, err := cron.Times{Cron: s.Cron, Zone: s.Zone, Every: s.Every, Offset: s.Offset, From: s.From, Until: s.Until}.Calendar()
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %q: %w", ErrInvalid, s.ID, err)
	}
	for len(times) < n {
		next, ok := c.Next(c.Mark(after))
		if !ok {
			break
		}
		times, after = append(times, next), next
	}
	return times, nil
}

// RunID returns the id of the workflow that the schedule starts for one of its times.
func (s Schedule) RunID(at time.Time) string { return s.ID + "@" + at.UTC().Format(time.RFC3339) }

// A ScheduleInfo is the state of a schedule.
type ScheduleInfo struct {
	// Schedule is as it was put. Its Start has the input as a json.RawMessage if the JSON codec
	// encoded it, and otherwise none. If the record is damaged, only the ID is known.
	Schedule Schedule

	Next time.Time     // its next time, without Jitter; zero: there is none, or it is paused
	Last *ScheduledRun // the workflow that was started last; nil: none was

	// How many workflows were started, by Trigger too, and how many times were skipped because the
	// workflow before had not ended. Missed is how many have passed and were not started; of cron
	// expressions at most 10,000 count at once.
	Started, Skipped, Missed int64

	// Triggered are the ids of the workflows that Trigger has asked for and that wait for the end of
	// the last one.
	Triggered []string

	Paused *Pause // nil: it is not paused

	// Problem is why the last try to start a workflow failed, or why no time comes as it should, and
	// Since when. It is tried again every minute.
	Problem string
	Since   time.Time
}

// A ScheduledRun is a workflow that a schedule has started.
type ScheduledRun struct {
	ID        string
	At        time.Time // the time for which it was started; zero: Trigger has started it
	StartedAt time.Time // when it was started
}

// A Pause says who has paused a schedule, why and when.
type Pause struct {
	By, Reason string
	At         time.Time
}
