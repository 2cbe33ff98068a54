package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
)

// Resolve is Engine.Resolve.
func (e *Admin) Resolve(ctx context.Context, id, operation string, a activity.Answer, by weft.Actor) error {
	call := waiting.New(ctx, "resolve of operation "+waiting.Quoted(operation)+" of workflow", id)
	return call.Explain(e.resolveOperation(call, id, operation, a, by))
}

func (e *Admin) resolveOperation(ctx context.Context, id, operation string, a activity.Answer, by weft.Actor) error {
	v, result, err := e.personal(a, operation)
	if err := errors.Join(CheckActor(by), err); err != nil {
		return err
	}
	verb := journal.Verb{Name: run.Resolution(operation, v.State), By: by.Name, Why: by.Reason}
	if run.Undoes(operation) && v.Reason != "" {
		verb.Why += ": " + v.Reason
	}
	var life lifeline
	err = e.Change(ctx, id, e.act(verb, "resolve", func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
		if err := life.holds(wf, "resolve"); err != nil {
			return nil, err
		}
		return e.resolving(ctx, wf, operation, v, result, verb)
	}))
	if err == nil && !e.Staged { // the host may roll back
		e.Log.Info("weft: operation resolved", "workflow", id, "operation", operation, "state", v.State.String(), "by", by.Name, "why", by.Reason)
	}
	return err
}

// personal checks an operator's answer about an operation and encodes its result. The
// answer about an operation that undoes a call has no result.
func (e *Admin) personal(a activity.Answer, operation string) (v activity.Verdict, result reconcile.Payload, err error) {
	if payload.IsNil(a) {
		return v, result, fmt.Errorf("%w: answer is nil", weft.ErrInvalid)
	}
	switch v = a.Verdict(); v.State {
	case activity.StateCompletedWithResult:
		if run.Undoes(operation) {
			break
		}
		if result = e.Payload(v.Result); result.Lost != "" {
			return v, result, fmt.Errorf("%w: %s", weft.ErrInvalid, result.Lost)
		}
	case activity.StateNotCompleted, activity.StateCompletedResultUnavailable, activity.StateFailed:
	default:
		return v, result, fmt.Errorf("%w: an operator cannot give the answer %s", weft.ErrInvalid, v.State)
	}
	v.Reason = payload.Recordable(v.Reason)
	return v, result, nil
}

// resolving decides a Resolve. It writes the operation's record, and the workflow's record
// so that the owner notices.
func (e *Admin) resolving(ctx context.Context, wf *journal.Workflow, operation string, v activity.Verdict, result reconcile.Payload, verb journal.Verb) (*worker.Changing, error) {
	if wf.Status.Terminal() {
		return nil, &weft.TerminalError{WorkflowID: wf.ID, Status: wf.Status}
	}
	if run.Undoes(operation) {
		return e.resolvingUndo(wf, operation, v, verb)
	}
	records, err := reconcile.Records(ctx, e.Store, wf.ID, wf.Generation)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(records, func(r reconcile.Record) bool { return r.Operation == operation && !wf.Former(operation) })
	if i >= 0 {
		if records[i], err = e.reopened(ctx, wf, records[i]); err != nil {
			return nil, err
		}
		if records[i].Settled && answered(wf, operation) {
			records[i] = records[i].Unanswered()
		}
	}
	asked := slices.ContainsFunc(wf.Attention, func(a journal.Attention) bool {
		return a.Reason == string(weft.ReasonIndeterminate) && a.Operation == operation
	})
	switch {
	case i < 0:
		return nil, fmt.Errorf("%w: resolve %q: operation %q has no idempotency key, or has not started", weft.ErrNotApplicable, wf.ID, operation)
	case records[i].Settled:
		return nil, fmt.Errorf("%w: resolve %q: operation %s has its outcome already, and the workflow goes on with it: %s", weft.ErrNotApplicable, wf.ID, operation, records[i].Status)
	case !asked && wf.PassedWhole(records[i].Token): // one that was begun before the point is tried again, or asks
		return nil, fmt.Errorf("%w: resolve %q: a reset has passed over the last attempt of operation %s: look at it again", weft.ErrNotApplicable, wf.ID, operation)
	case v.State == activity.StateNotCompleted && !asked:
		return nil, fmt.Errorf("%w: resolve %q: an attempt of operation %s may be in progress: wait until the run needs an operator for it", weft.ErrNotApplicable, wf.ID, operation)
	case v.State == activity.StateCompletedWithResult:
		if err := e.expected(ctx, records[i].Activity, v.Result, result); err != nil {
			return nil, err
		}
	}
	_, settle, err := records[i].Resolved(e.Now(), verb.By, v, result).Seal()
	if err != nil {
		return nil, err
	}
	next := *wf
	d, err := e.acting(wf, &next, verb)
	if err != nil {
		return nil, err
	}
	d.Batch.If = append(d.Batch.If, records[i].Unchanged())
	d.Batch.Ops = append(d.Batch.Ops, settle)
	return d, nil
}

// reopened returns the record after the last retry of wf, which has opened it unless the outcome stands: it came after the
// retry, or the workflow had gone on from it before it failed.
func (e *Admin) reopened(ctx context.Context, wf *journal.Workflow, r reconcile.Record) (reconcile.Record, error) {
	open := run.Reopened(r, wf)
	if open.Settled == r.Settled {
		return r, nil
	}
	stands := false
	for c, err := range journal.History(ctx, e.Store, wf) {
		if err != nil {
			return r, err
		}
		for i, ev := range c.Events {
			if ev.Operation == r.Operation && (ev.Kind == checkpoint.KindSettled || ev.Kind == checkpoint.KindGivenUp) {
				at := journal.Place{Checkpoint: c.Number, Event: i}
				stands = !slices.ContainsFunc(wf.Retries, func(retry journal.Retry) bool { return retry.Covers(at) })
			}
		}
	}
	if stands {
		return r, nil
	}
	return open, nil
}

// corrected precedes the name of an answer in histories that another one has replaced.
const corrected = "corrected: "

// answered reports whether an operator has resolved the operation and the run has not recorded
// that yet. So nothing is built on the answer, and another one may replace it.
func answered(wf *journal.Workflow, operation string) bool {
	return slices.ContainsFunc(wf.Verbs, func(v journal.Verb) bool { return run.IsResolution(v.Name, operation) })
}

// resolvingUndo decides a Resolve of an operation that undoes a call. The run gets the
// answer as the verb.
func (e *Admin) resolvingUndo(wf *journal.Workflow, operation string, v activity.Verdict, verb journal.Verb) (*worker.Changing, error) {
	about := func(a journal.Attention) bool {
		return (a.Reason == string(weft.ReasonUncompensated) || a.Reason == string(weft.ReasonUndecodable)) && a.Operation == operation
	}
	switch {
	case !slices.ContainsFunc(wf.Attention, about) && !answered(wf, operation):
		return nil, fmt.Errorf("%w: resolve %q: operation %s needs no operator", weft.ErrNotApplicable, wf.ID, operation)
	case !payload.IsNil(v.Result):
		return nil, fmt.Errorf("%w: a %T is no result of a Compensate, which has none", weft.ErrInvalid, v.Result)
	}
	next := *wf
	next.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), about)
	next.Verbs = slices.Clone(wf.Verbs)
	for i, v := range next.Verbs { // the run acts on the last answer, and the history has all
		if run.IsResolution(v.Name, operation) {
			next.Verbs[i].Name = corrected + v.Name
		}
	}
	return e.acting(wf, &next, verb)
}

// mostVerbs is how many actions of operators may wait in the record of a workflow until an engine that executes it records
// them in the history. What claims or ends the workflow records them all at once.
const mostVerbs = 100

// acting returns the decision to replace wf by next and to record verb. What ends that the workflow is held is recorded always:
// while it is held, nobody executes it.
func (e *Admin) acting(wf, next *journal.Workflow, verb journal.Verb) (*worker.Changing, error) {
	if len(next.Verbs) >= mostVerbs && (!run.Held(wf) || run.Held(next)) {
		return nil, fmt.Errorf("%w: %s %q: %d actions of operators wait until an engine that executes the workflow records them: start one, resume the workflow if it is held, or end it",
			weft.ErrNotApplicable, verb.Name, wf.ID, len(next.Verbs))
	}
	next.Verbs = append(slices.Clone(next.Verbs), verb)
	return e.Rewritten(wf, next)
}

// expected checks that an operator's result, and its encoding, is of the type that the
// activity with that name returns. If this engine does not know the type, the run's owner
// checks: see unreadableAnswer.
func (e *Admin) expected(ctx context.Context, name string, result any, encoded reconcile.Payload) error {
	if a := e.Known(name); a != nil {
		return e.fitsResult(ctx, a, result, encoded)
	}
	return nil
}

// fitsResult checks that an operator's result is of the type that a returns, and that its
// encoding can be decoded as that type. A tool that does not know the type passes a
// json.RawMessage.
func (e *Admin) fitsResult(ctx context.Context, a activity.Definition, result any, encoded reconcile.Payload) error {
	into := a.NewResult()
	want := payload.TypeOf(into)
	if _, raw := result.(json.RawMessage); !raw && !a.Accepts(result) {
		return fmt.Errorf("%w: a %T is no result of activity %s, which returns %s", weft.ErrInvalid, result, a.Title(), want)
	}
	select {
	case err := <-e.Decodes(payload.Payload{Codec: encoded.Codec, Data: encoded.Data}, into):
		if err != nil {
			return fmt.Errorf("%w: a %T is no result of activity %s, which returns %s: %w", weft.ErrInvalid, result, a.Title(), want, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
