package run

import (
	"cmp"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/record"
)

// An archiving is what is known of the archive of the present life.
type archiving struct {
	taken    *journal.Hold // the state that the archive has taken last
	failures int
	again    time.Time // when the archive is asked again after a failure
}

// Pauses after Config.Archive has refused a life: the first, and the longest.
const (
	firstArchivePause   = time.Second
	longestArchivePause = time.Minute
)

// archiveLife hands the present life to Config.Archive, if there is one, because its history is deleted when the run
// continues as new. done is false if the archive has not taken it, and the caller must decide again: something may have
// happened to the run meanwhile. A life that has changed since it was archived is archived again.
func (x *Execution) archiveLife() (done bool, err error) {
	a := &x.archive
	switch {
	case x.host.ArchiveLife == nil, a.taken == x.Hold:
		return true, nil
	case time.Now().Before(a.again):
		if x.stopping {
			return false, errStopped // the next owner archives it
		}
		return false, x.waitUntil(a.again)
	}
	refused, err := x.host.ArchiveLife(x.Ctx, x.Hold.Workflow, x.Hold.Head)
	switch {
	case refused == nil && err == nil:
		a.taken, a.failures, a.again = x.Hold, 0, time.Time{}
		return true, nil
	case x.Ctx.Err() != nil:
		return false, errStopped
	case record.Damaged(err): // to try again does not help
		return false, x.outdated(err)
	}
	pause := min(firstArchivePause<<min(a.failures, 10), longestArchivePause)
	a.failures++
	a.again = time.Now().Add(pause)
	x.logger().Warn("weft: life of a run was not archived, so the run does not continue as new; trying again", "failures", a.failures, "pause", pause, "error", cmp.Or(refused, err))
	return false, nil
}

// waitUntil waits until a time, a message, or the end of the run's context.
func (x *Execution) waitUntil(until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-x.Ctx.Done():
		return errStopped
	case <-x.mailbox.bell:
	case <-t.C:
	}
	return nil
}
