package engine

import (
	"context"
	"iter"
)

// PutSchedule puts a schedule into the store: every engine that runs on the store serves it from then
// on. If there is one with this ID, the new one replaces it. Putting the same again writes nothing, so
// every process of a service may do so when it starts.
//
// A new schedule, or one with other times, has its first time after now: times that have passed are
// not started. Other changes leave what waits or was missed as it is. A schedule that is paused stays
// paused.
//
// An engine that is idle finds what another engine has put, or asked for by Trigger, within ten
// PollIntervals, or within a minute if that is sooner, but not before its next poll.
//
// The schedule is durable when PutSchedule returns nil. Errors: ErrInvalid for a schedule that is not
// valid, such as one with a cron expression that matches no time, with an unknown zone, or with both or
// neither of Cron and Every, and for an input that cannot be encoded; ErrClosed; storage.ErrCorrupt if
// the record of the schedule is damaged; storage.ErrFutureFormat if only a newer release understands
// it; the store's.
func (e *Engine) PutSchedule(ctx context.Context, s Schedule, by Actor) error {
	return e.schedules.Put(ctx, s, by)
}

// Trigger starts one workflow of a schedule now, also while the schedule is paused. The next time
// of the schedule stays as it is. The id of the workflow is that of the schedule, '@' and a ULID.
//
// If the workflow that was started before has not ended, Overlap says what happens. With OverlapSkip the
// error is ErrNotApplicable. With OverlapWait, OverlapCancel and OverlapTerminate, an engine starts the
// workflow when the one before has ended. Info has its ID then, and Info.Waiting says so; Describe
// finds the workflow when it was started. Up to 100 may wait like that; for more the error is ErrBusy.
//
// Each call that returns nil starts one workflow. After an error of the store the outcome is unknown.
// Other errors: ErrNotFound, ErrInvalid, ErrClosed, ErrNoActiveDeployment; ErrNotApplicable if this
// machine does not have the schedule's zone.
func (e *Engine) Trigger(ctx context.Context, id string, by Actor) (Info, error) {
	return e.schedules.Trigger(ctx, id, by)
}

// Schedules yields all schedules with ids that begin with prefix, in the order of their ids. One whose
// record is damaged, or was written by a newer release, is yielded as its ID and that error, and the
// others follow. Any other error ends the sequence: ErrInvalid, ErrClosed, the store's.
func (e *Engine) Schedules(ctx context.Context, prefix string) iter.Seq2[ScheduleInfo, error] {
	return e.schedules.All(ctx, prefix)
}

// PauseSchedule has a schedule start nothing until ResumeSchedule is called. What it has started
// continues. Pausing one that is paused changes nothing. Errors: ErrNotFound, ErrInvalid, ErrClosed,
// the store's.
func (e *Engine) PauseSchedule(ctx context.Context, id string, by Actor) error {
	return e.schedules.Pause(ctx, id, by)
}

// ResumeSchedule has a paused schedule continue with its first time after now. The times that have
// passed are not started. It does the same for a schedule whose times were dealt with by an
// engine with a clock that is ahead: ScheduleInfo.Problem says so. No time is started again for which
// there is a workflow. Resuming any other schedule changes nothing. Errors: ErrNotFound, ErrInvalid,
// ErrClosed, the store's; ErrNotApplicable if this machine does not have the schedule's zone.
func (e *Engine) ResumeSchedule(ctx context.Context, id string, by Actor) error {
	return e.schedules.Resume(ctx, id, by)
}

// DeleteSchedule removes a schedule, also one whose record is damaged. The workflows that it has
// started stay and continue. Errors: ErrNotFound, ErrInvalid, ErrClosed, the store's.
func (e *Engine) DeleteSchedule(ctx context.Context, id string, by Actor) error {
	return e.schedules.Delete(ctx, id, by)
}
