package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/reconcile"
)

// takesBack reports whether e is the failure of an activity or a step that a retry of the
// run has taken back. The outcome of an effect that happened and whose result is lost is
// never taken back.
func (x *Execution) takesBack(e logged) bool {
	if len(x.Hold.Workflow.Retries) == 0 || e.Kind != checkpoint.KindSettled || e.Error == "" && e.Category == "" {
		return false
	}
	switch e.Of {
	case ofActivity.name, ofStep.name, ofTransaction.name:
	default:
		return false
	}
	return e.Category != string(activity.CategoryResultUnavailable) &&
		slices.ContainsFunc(x.Hold.Workflow.Retries, func(r journal.Retry) bool { return r.Covers(e.place) })
}

// retried notes that o had failed and is attempted again because its run was retried.
func (o *operation) retried(e logged) {
	o.attempt, o.ownersLost, o.failures, o.answer = e.Attempt, 0, 0, nil
	if o.due = e.at; o.keyed != nil {
		o.keyed.kept = false
	}
	o.x.Ops.time(o)
}

// since returns the time at which a limit that was set at t starts to count: t, or the last
// retry or reset of the run, if that is later.
func (x *Execution) since(t time.Time) time.Time {
	if again := journal.Time(x.Hold.Workflow.TakenUp()); again.After(t) {
		return again
	}
	return t
}

// Reopened returns the record of an open operation after the last retry of wf.
func Reopened(r reconcile.Record, wf *journal.Workflow) reconcile.Record {
	if n := len(wf.Retries); n > 0 {
		return r.Reopened(n, wf.Retries[n-1].At)
	}
	return r
}

// Resolution returns the name of the verb in histories.
func Resolution(operation string, s activity.State) string {
	return fmt.Sprintf("resolve %s: %s", operation, s)
}

// IsResolution reports whether the verb with this name has resolved the operation.
func IsResolution(name, operation string) bool {
	return strings.HasPrefix(name, fmt.Sprintf("resolve %s: ", operation))
}

// Retried is the name of the verb in histories.
const Retried = export.Retried
