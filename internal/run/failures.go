package run

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/told"
)

// A failure is logged when it is durable, by the execution that recorded it: a replay logs
// nothing. docs/guides/monitoring.md lists what is logged at which level.

// logger returns the engine's logger for what concerns the run.
func (x *Execution) logger() *slog.Logger {
	return x.host.Log.With("workflow", x.ID, "type", x.Definition.Name)
}

// logger returns the engine's logger for what concerns o.
func (o *operation) logger() *slog.Logger {
	return o.x.logger().With("operation", o.id, "kind", o.kind.name, "name", o.name)
}

// logFailure logs e, which was applied to o, if it says that o has failed or needs an operator.
func (x *Execution) logFailure(o *operation, e logged) {
	if e.old || o == nil || o.call == nil || e.Error == "" && e.Category == "" {
		return
	}
	args := []any{"attempt", e.Attempt, "error", e.Error}
	if e.Stack != "" {
		args = append(args, "stack", e.Stack)
	}
	switch {
	case e.Kind == checkpoint.KindHeld && e.Name == string(weft.ReasonIndeterminate):
		o.logger().Warn("weft: outcome of an operation is unknown; it waits for an operator", "attempt", e.Attempt, "error", e.Error)
	case e.Kind == checkpoint.KindHeld && e.Name == string(weft.ReasonUncompensated):
		o.logger().Warn("weft: call cannot be undone; the run waits for an operator", "attempt", e.Attempt, "error", e.Error)
	case e.Kind == checkpoint.KindSettled:
		switch activity.Category(e.Category) {
		case activity.CategoryIndeterminate, activity.CategoryContradiction:
			o.logger().Warn("weft: outcome of an operation is unknown; the workflow gets an error", "attempt", e.Attempt, "error", o.outcomeOf(e).err)
		case activity.CategoryResultUnavailable:
			o.logger().Warn("weft: result of an operation is lost; the workflow gets an error", "attempt", e.Attempt, "error", o.outcomeOf(e).err)
		default:
			o.logger().Info("weft: operation failed; the workflow gets an error", args...)
		}
	case e.Kind != checkpoint.KindAttempted || e.Due == 0: // if an operator decides what follows, KindHeld is next
	case o.failures == 1:
		o.logger().Info("weft: attempt failed; another one or the verifier follows", append(args, "next", journal.Time(e.Due))...)
	case told.PowerOfTen(o.failures):
		o.logger().Warn("weft: attempts keep failing", append(args, "failures", o.failures, "next", journal.Time(e.Due))...)
	default:
		o.logger().Debug("weft: attempt failed again", append(args, "next", journal.Time(e.Due))...)
	}
}

// logEnd logs that the workflow has failed. That its function panicked is a fault of the program;
// that it returned an error may be what it is meant to do.
func (x *Execution) logEnd(out *journal.Output) {
	switch {
	case out.Status != checkpoint.StatusFailed:
	case out.Stack != "":
		x.logger().Warn("weft: workflow function panicked; the workflow failed", "error", out.Error, "stack", out.Stack)
	default:
		x.logger().Info("weft: workflow failed", "error", out.Error)
	}
}

// logUnverified logs the first of the verifier's answers that decide nothing.
func (o *operation) logUnverified(v activity.Verdict) {
	if o.keyed.asked == 1 {
		o.logger().Info("weft: verifier does not know the outcome; it is asked again", "attempt", o.keyed.record.Attempt, "reason", payload.Recordable(v.Reason))
	}
}

// mostError is how many bytes of an error are shown of an operation that waits.
const mostError = 200

// progressText describes how far an operation with attempts has come, and how the last attempt
// failed. It is empty for one whose attempts have not failed and that needs nobody.
func (o *operation) progressText() string {
	if o.call == nil {
		return ""
	}
	var s string
	switch k := o.keyed; {
	case o.held(), k != nil && k.parked:
		s = ", an operator decides"
	case k != nil && (k.asking != nil || k.next == reconcile.Verify):
		s = fmt.Sprintf(", then its verifier says what became of attempt %d", k.record.Attempt)
	case o.failures == 0:
		return ""
	case o.working != nil:
		s = fmt.Sprintf(", attempt %d in progress", o.working.number)
	default:
		s = fmt.Sprintf(", then attempt %d", o.attempt+o.ownersLost+1)
	}
	if o.failures > 0 {
		failed, cut := o.lastError, ""
		if len(failed) > mostError {
			failed, cut = strings.ToValidUTF8(failed[:mostError], ""), "…"
		}
		s += fmt.Sprintf("; attempt %d failed: %s%s", o.attempt, failed, cut)
	}
	return s
}
