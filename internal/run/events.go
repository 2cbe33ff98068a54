package run

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/payload"
)

// Guarded returns the callbacks of ev so that a panic in one of them is logged and otherwise
// ignored. Those that are nil stay nil.
func Guarded(ev weft.Events, log *slog.Logger) weft.Events {
	return weft.Events{
		Starting:         guardedBegin(log, "Starting", ev.Starting),
		Started:          guarded(log, "Started", ev.Started),
		Admitted:         guarded(log, "Admitted", ev.Admitted),
		ExecutionBegan:   guardedBegin(log, "ExecutionBegan", ev.ExecutionBegan),
		Replayed:         guarded(log, "Replayed", ev.Replayed),
		ExecutionEnded:   guardedEnd(log, "ExecutionEnded", ev.ExecutionEnded),
		Ended:            guarded(log, "Ended", ev.Ended),
		Removed:          guarded(log, "Removed", ev.Removed),
		AttemptBegan:     guardedBegin(log, "AttemptBegan", ev.AttemptBegan),
		AttemptEnded:     guardedEnd(log, "AttemptEnded", ev.AttemptEnded),
		RetryScheduled:   guarded(log, "RetryScheduled", ev.RetryScheduled),
		AttentionRaised:  guarded(log, "AttentionRaised", ev.AttentionRaised),
		AttentionCleared: guarded(log, "AttentionCleared", ev.AttentionCleared),
		SignalAccepted:   guarded(log, "SignalAccepted", ev.SignalAccepted),
		SignalReceived:   guarded(log, "SignalReceived", ev.SignalReceived),
		Committed:        guarded(log, "Committed", ev.Committed),
		Takeover:         guarded(log, "Takeover", ev.Takeover),
		LostRace:         guarded(log, "LostRace", ev.LostRace),
		Fenced:           guarded(log, "Fenced", ev.Fenced),
		Unknown:          guarded(log, "Unknown", ev.Unknown),
		InputChanged:     guarded(log, "InputChanged", ev.InputChanged),
		Deposed:          guarded(log, "Deposed", ev.Deposed),
	}
}

func guarded[E any](log *slog.Logger, name string, f func(E)) func(E) {
	if f == nil {
		return nil
	}
	return func(e E) {
		lock.NoneHeld("a callback of Events")
		defer logPanic(log, "Events."+name)
		f(e)
	}
}

func guardedEnd[E any](log *slog.Logger, name string, f func(context.Context, E)) func(context.Context, E) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e E) {
		lock.NoneHeld("a callback of Events")
		defer logPanic(log, "Events."+name)
		f(ctx, e)
	}
}

func guardedBegin[E any](log *slog.Logger, name string, f func(context.Context, E) context.Context) func(context.Context, E) context.Context {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e E) (with context.Context) {
		lock.NoneHeld("a callback of Events")
		with = ctx
		defer logPanic(log, "Events."+name)
		return withValues(ctx, f(ctx, e))
	}
}

// logPanic is deferred around a call of the host's code.
func logPanic(log *slog.Logger, callback string) {
	if p := recover(); p != nil {
		log.Error("weft: callback panicked", "name", callback, "error", payload.Panicked(p), "stack", string(debug.Stack()))
	}
}

// valuesOf has the values of another context, and ends as its own does.
type valuesOf struct {
	context.Context
	values context.Context
}

// withValues returns ctx with the values of other, which may be nil. So a callback that returns
// another context than it should cannot keep an attempt from being cancelled.
func withValues(ctx, other context.Context) context.Context {
	if other == nil || other == ctx {
		return ctx
	}
	return valuesOf{ctx, other}
}

func (v valuesOf) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// Announce says that a start is about to be decided, and gives it its headers. It does so once.
func (s *PreparedStart) Announce(ctx context.Context) {
	if s.announced {
		return
	}
	s.announced = true
	if f := s.host.Events.Starting; f != nil {
		ctx = f(ctx, weft.StartingEvent(s.event()))
	}
	s.headers = s.host.inject(ctx, s.Workflow.ID)
}

// tellStarted says that the start is durable.
func (s *PreparedStart) tellStarted() {
	if f := s.host.Events.Started; f != nil {
		f(s.event())
	}
}

func (s *PreparedStart) event() weft.StartedEvent {
	e := weft.StartedEvent{WorkflowID: s.Workflow.ID, Workflow: s.Workflow.Type, Queue: s.Workflow.Queue}
	if p := s.Workflow.Parent; p != nil {
		e.Parent = p.ID
	}
	return e
}

// inject returns what the propagator stores with the start of the workflow id.
func (e *Env) inject(ctx context.Context, id string) (headers map[string]string) {
	if e.Propagator == nil {
		return nil
	}
	lock.NoneHeld("a Propagator")
	defer logPanic(e.Log, "Propagator.Inject")
	stored := maps.Clone(e.Propagator.Inject(ctx))
	size, valid := 0, true
	for k, v := range stored {
		size += len(k) + len(v)
		valid = valid && utf8.ValidString(k) && utf8.ValidString(v)
	}
	var reason string
	switch {
	case size > weft.MaxHeaders:
		reason = fmt.Sprintf("they have %d bytes, at most %d", size, weft.MaxHeaders)
	case !valid:
		reason = "they are not UTF-8"
	default:
		return stored
	}
	e.Log.Warn("weft: headers of a start are dropped", "workflow", id, "reason", reason)
	return nil
}

// extract returns ctx with the values of headers.
func (e *Env) extract(ctx context.Context, headers map[string]string) (with context.Context) {
	if e.Propagator == nil || len(headers) == 0 {
		return ctx
	}
	lock.NoneHeld("a Propagator")
	with = ctx
	defer logPanic(e.Log, "Propagator.Extract")
	return withValues(ctx, e.Propagator.Extract(ctx, maps.Clone(headers)))
}

// telling is what an execution has for Events and the Propagator.
type telling struct {
	headers      map[string]string // of the start
	within       context.Context   // Execution.Ctx with the values of the Propagator and of ExecutionBegan
	announced    bool              // ExecutionBegan was told
	replayEvents int               // events of the history that were read
}

// announce makes the context of the attempts of x, and says that x is executed.
func (x *Execution) announce() {
	x.within = x.host.extract(x.Ctx, x.headers)
	x.announced = true
	if f := x.host.Events.ExecutionBegan; f != nil {
		wf := x.Hold.Workflow
		x.within = f(x.within, weft.ExecutionBeganEvent{WorkflowID: x.ID, Workflow: wf.Type, Queue: wf.Queue, First: x.history == nil && wf.Life == 0})
	}
}

// leave says that x, whose loop has ended with err, is not executed any longer.
func (x *Execution) leave(err error) {
	f := x.host.Events.ExecutionEnded
	if f == nil || !x.announced {
		return
	}
	e := weft.ExecutionEndedEvent{WorkflowID: x.ID, Workflow: x.Hold.Workflow.Type, Exit: weft.ExitReleased, Took: time.Since(x.began)}
	switch {
	case x.Output != nil:
		e.Exit, e.Status, e.Error = weft.ExitEnded, x.Output.Status, x.Output.Error
	case x.Next() != nil:
		e.Exit = weft.ExitContinued
	case err == errParked:
		e.Exit = weft.ExitParked
	case Held(x.Hold.Workflow):
		e.Exit = weft.ExitHeld
	}
	f(x.within, e)
}

// caughtUp is called when the whole history has been read.
func (x *Execution) caughtUp() {
	x.replayed()
	if f := x.host.Events.Replayed; f != nil {
		f(weft.ReplayedEvent{WorkflowID: x.ID, Workflow: x.Hold.Workflow.Type, Events: x.replayEvents, Took: x.replayTook})
	}
}

// Changed tells what the durable change of a workflow's record from was to now means.
func (e *Env) Changed(was, now *journal.Workflow) {
	if was == now {
		return
	}
	if f := e.Events.AttentionRaised; f != nil {
		for _, a := range missing(now.Attention, was.Attention) {
			f(weft.AttentionRaisedEvent{WorkflowID: now.ID, Workflow: now.Type, Reason: weft.Reason(a.Reason), Operation: a.Operation})
		}
	}
	if f := e.Events.AttentionCleared; f != nil {
		for _, a := range missing(was.Attention, now.Attention) {
			f(weft.AttentionClearedEvent{WorkflowID: now.ID, Workflow: now.Type, Reason: weft.Reason(a.Reason), Operation: a.Operation})
		}
	}
	if f := e.Events.Ended; f != nil && now.Status.Terminal() && !was.Status.Terminal() {
		took := journal.Time(now.EndedAt).Sub(journal.Time(now.CreatedAt))
		f(weft.EndedEvent{WorkflowID: now.ID, Workflow: now.Type, Queue: now.Queue, Status: now.Status, Took: max(took, 0)})
	}
}

// missing returns those of as that others does not have.
func missing(as, others []journal.Attention) (ms []journal.Attention) {
	for _, a := range as {
		same := func(b journal.Attention) bool { return b.Reason == a.Reason && b.Operation == a.Operation }
		if !slices.ContainsFunc(others, same) {
			ms = append(ms, a)
		}
	}
	return ms
}

// tellRetry says that e, which was applied to o, is a failure that another attempt follows.
func (x *Execution) tellRetry(o *operation, e logged) {
	f := x.host.Events.RetryScheduled
	if f == nil || e.old || e.Due == 0 {
		return
	}
	f(weft.RetryScheduledEvent{
		WorkflowID: x.ID, Workflow: x.Hold.Workflow.Type, Operation: o.id, Kind: o.calls(), Name: o.name,
		Attempt: e.Attempt, Failures: o.failures, At: journal.Time(e.Due), Error: e.Error,
	})
}

// tellReceived says that o has received the signal of e.
func (x *Execution) tellReceived(o *operation, e logged) {
	if f := x.host.Events.SignalReceived; f != nil && e.Kind == checkpoint.KindReceived && !e.old {
		f(weft.SignalReceivedEvent{WorkflowID: x.ID, Workflow: x.Hold.Workflow.Type, Signal: o.name, SignalID: e.SignalID})
	}
}

// calls returns the kind of the operation whose function o calls.
func (o *operation) calls() string {
	if o.undo != nil {
		return o.undo.of.kind.name
	}
	return o.kind.name
}

// A call of a user's function of which Events are told.
type toldCall struct {
	ended func(context.Context, weft.AttemptEndedEvent)
	ctx   context.Context // returned by AttemptBegan
	event weft.AttemptBeganEvent
	began time.Time
}

// tellCall says that a function of o is about to be called with ctx, the context of an attempt. It returns the context for
// the function, and what to tell when it has returned; nil if nobody listens.
func (e *Env) tellCall(ctx context.Context, o *operation) (context.Context, *toldCall) {
	began, ended := e.Events.AttemptBegan, e.Events.AttemptEnded
	if began == nil && ended == nil {
		return ctx, nil
	}
	i := activity.InfoFrom(ctx)
	c := &toldCall{ended, ctx, weft.AttemptBeganEvent{
		WorkflowID: i.WorkflowID, Workflow: i.Workflow, Operation: i.Operation,
		Kind: o.calls(), Name: i.Activity, Phase: i.Phase, Attempt: i.Attempt,
	}, time.Now()}
	if began != nil {
		c.ctx = began(ctx, c.event)
	}
	return c.ctx, c
}

// returned says that the function has returned. c may be nil.
func (c *toldCall) returned(o weft.AttemptOutcome, problem string) {
	if c != nil && c.ended != nil {
		c.ended(c.ctx, weft.AttemptEndedEvent{AttemptBeganEvent: c.event, Took: time.Since(c.began), Outcome: o, Error: problem})
	}
}

// answered is returned for the answer of an attempt with ctx.
func (c *toldCall) answered(ctx context.Context, a *answer) {
	switch {
	case c == nil:
	case a.failure == nil:
		c.returned(weft.AttemptCompleted, "")
	case a.panicked:
		c.returned(weft.AttemptPanicked, a.failure.Message)
	default:
		c.returned(failedAs(ctx), a.failure.Message)
	}
}

// verified is returned for a call of a verifier with ctx that has returned err, or panicked.
func (c *toldCall) verified(ctx context.Context, panicked bool, err error) {
	switch {
	case c == nil:
	case panicked:
		c.returned(weft.AttemptPanicked, "")
	case err != nil:
		c.returned(failedAs(ctx), payload.FailureOf(err, "", nil).Message)
	default:
		c.returned(weft.AttemptCompleted, "")
	}
}

// failedAs returns the outcome of a call with ctx that failed.
func failedAs(ctx context.Context) weft.AttemptOutcome {
	cause := context.Cause(ctx)
	_, limited := cause.(*weft.TransactLimitError)
	switch {
	case cause == nil:
		return weft.AttemptFailed
	case limited || cause == activity.ErrTimeout:
		return weft.AttemptTimedOut
	case cause == activity.ErrLeaseLost:
		return weft.AttemptLeaseLost
	}
	return weft.AttemptCancelled
}
