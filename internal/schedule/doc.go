// Package schedule starts workflows at the times of schedules.
//
// [Schedules] has what clients and operators ask for (put, verbs, trigger, list), and the duty by which an
// engine serves all schedules of its store (fire). All engines do so at once.
//
// A schedule is one record, sch:{id} (record). Its cursor is the time up to which everything has been
// dealt with, so nothing is queued: what waits, or was missed, lies between the cursor and now (decide).
// The commit that starts a workflow for a time also moves the cursor. It has the conditions that the
// record is unchanged, that the id of the workflow is free, and that the workflow that was started
// before is as it was read. So a time is started once, whichever engines try, and whenever they die.
//
// An entry due:{time}:sch:{id} says when to look at a schedule. The record names the one that counts, whose
// value is the Token of the record: so an engine that lets the schedule wait sees that it was put anew. Any other is a
// hint: a workflow that ends writes one if a schedule has started it.
package schedule
