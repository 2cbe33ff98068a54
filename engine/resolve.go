package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/storage"
)

// Resolve settles what became of an activity with an idempotency key, where a
// person knows better: operation is the one that the workflow's Attention names.
// The answer is activity.CompletedWithResult, activity.CompletedResultUnavailable,
// activity.Failed, or activity.NotCompleted, after which the activity is attempted
// again, within its bounds. It is durable when Resolve returns, and stands in the
// history with who and why.
//
// It also says what follows where a Compensate has failed for good and the Attention
// is Uncompensated, of an operation such as "3.undo". After activity.NotCompleted it
// is attempted again, with all its attempts. After activity.CompletedWithResult[any](nil),
// which says that it is undone, and after activity.Failed, which gives it up, the
// workflow undoes what is left, and ends.
//
// An answer that comes before the activity's own, or its verifier's, wins; only
// NotCompleted is taken for nothing but what needs a person, because another
// attempt may be under way. Errors: ErrNotApplicable if there is no such operation,
// it has its outcome, or nobody asks; ErrInvalid for an answer that is none, or a
// result that is too large or, if Config.Activities has the activity, not of its
// type; a *TerminalError for a workflow that has ended, which is retried first;
// ErrNotFound, ErrClosed.
func (e *Engine) Resolve(ctx context.Context, id, operation string, a activity.Answer, by Audit) error {
	ctx, explain := waiting(ctx, "resolve of operation "+quoted(operation)+" of workflow", id)
	return explain(e.resolveOperation(ctx, id, operation, a, by))
}

func (e *Engine) resolveOperation(ctx context.Context, id, operation string, a activity.Answer, by Audit) error {
	v, result, err := e.personal(a, operation)
	if err := errors.Join(by.check(), err); err != nil {
		return err
	}
	verb := checkpoint.Verb{Name: resolution(operation, v.State), By: by.By, Why: by.Why}
	if undoes(operation) && v.Reason != "" {
		verb.Why += ": " + v.Reason
	}
	said := saying{verb: verb}
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		wf, err := e.load(ctx, id)
		if err != nil {
			return err
		}
		if done, err := said.recorded(ctx, e.store, wf); done || err != nil {
			return err // an attempt of unknown outcome had landed
		}
		b, err := e.resolving(ctx, wf, operation, v, result, verb)
		if err != nil {
			return err
		}
		err = e.store.Commit(ctx, b)
		e.hint(wf, post{asked: true}) // also if the outcome is unknown
		switch {
		case err == nil:
			e.log.Info("weft: operation resolved", "workflow", id, "operation", operation, "as", v.State.String(), "by", by.By, "why", by.Why)
			return nil
		case checkpoint.Hopeless(err) || !backoff.Wait(ctx, wait):
			return fmt.Errorf("engine: resolve %q: %w", id, err)
		}
	}
}

// resolution is the name of the verb in histories.
func resolution(operation string, s activity.State) string {
	return fmt.Sprintf("resolve %s: %s", operation, s)
}

// personal is a person's answer about an operation, with its result encoded: one that
// undoes a call has none.
func (e *Engine) personal(a activity.Answer, operation string) (v activity.Verdict, result activity.Payload, err error) {
	if isNil(a) {
		return v, result, fmt.Errorf("%w: answer is nil", ErrInvalid)
	}
	switch v = a.Verdict(); v.State {
	case activity.StateCompletedWithResult:
		if undoes(operation) {
			break
		}
		if result = e.payload(v.Result); result.Lost != "" {
			return v, result, fmt.Errorf("%w: %s", ErrInvalid, result.Lost)
		}
	case activity.StateNotCompleted, activity.StateCompletedResultUnavailable, activity.StateFailed:
	default:
		return v, result, fmt.Errorf("%w: answer %s is none of a person's", ErrInvalid, v.State)
	}
	v.Reason = recordable(v.Reason)
	return v, result, nil
}

// resolving decides a Resolve: the operation's record, and the workflow's, so that
// its owner looks.
func (e *Engine) resolving(ctx context.Context, wf *checkpoint.Workflow, operation string, v activity.Verdict, result activity.Payload, verb checkpoint.Verb) (b storage.Batch, err error) {
	if wf.Status.Terminal() {
		return b, &TerminalError{wf.ID, wf.Status}
	}
	if undoes(operation) {
		return e.resolvingUndo(wf, operation, v, verb)
	}
	records, err := activity.Records(ctx, e.store, wf.ID, wf.Generation)
	if err != nil {
		return b, err
	}
	i := slices.IndexFunc(records, func(r activity.Record) bool { return r.Operation == operation })
	if i >= 0 {
		records[i] = reopened(records[i], wf)
	}
	asked := slices.ContainsFunc(wf.Attention, func(a checkpoint.Attention) bool {
		return a.Reason == string(Indeterminate) && a.Operation == operation
	})
	switch {
	case i < 0:
		return b, fmt.Errorf("%w: resolve %q: operation %q has no idempotency key, or has not begun", ErrNotApplicable, wf.ID, operation)
	case records[i].Settled:
		return b, fmt.Errorf("%w: resolve %q: operation %s is %s", ErrNotApplicable, wf.ID, operation, records[i].Status)
	case v.State == activity.StateNotCompleted && !asked:
		return b, fmt.Errorf("%w: resolve %q: operation %s may be under way", ErrNotApplicable, wf.ID, operation)
	case v.State == activity.StateCompletedWithResult && !e.accepts(records[i].Activity, v.Result):
		return b, fmt.Errorf("%w: a %T is no result of activity %s", ErrInvalid, v.Result, records[i].Activity)
	}
	_, settle, err := records[i].Resolved(e.now(), v, result).Seal()
	if err != nil {
		return b, err
	}
	next := *wf
	b, err = e.acting(wf, &next, verb)
	b.If = append(b.If, records[i].Unchanged())
	b.Ops = append(b.Ops, settle)
	return b, err
}

// resolvingUndo decides a Resolve of an operation that undoes a call: the answer is
// the verb, which the run learns.
func (e *Engine) resolvingUndo(wf *checkpoint.Workflow, operation string, v activity.Verdict, verb checkpoint.Verb) (b storage.Batch, err error) {
	about := func(a checkpoint.Attention) bool {
		return (a.Reason == string(Uncompensated) || a.Reason == string(Undecodable)) && a.Operation == operation
	}
	switch {
	case !slices.ContainsFunc(wf.Attention, about):
		return b, fmt.Errorf("%w: resolve %q: nobody asks about operation %s", ErrNotApplicable, wf.ID, operation)
	case !isNil(v.Result):
		return b, fmt.Errorf("%w: a %T is no result of a Compensate, which has none", ErrInvalid, v.Result)
	}
	next := *wf
	next.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), about)
	return e.acting(wf, &next, verb)
}

// acting is the batch by which verb turns wf into next, and its owner looks.
func (e *Engine) acting(wf, next *checkpoint.Workflow, verb checkpoint.Verb) (b storage.Batch, err error) {
	next.State++
	next.Verbs = append(slices.Clone(wf.Verbs), verb)
	_, put, err := next.Seal()
	b.If = []storage.Condition{wf.Unchanged()}
	b.Ops = []storage.Op{put}
	if e.drives(wf) == nil {
		b.Ops = wakeUp(b.Ops, wf, e.now(), e.newID())
	}
	return b, err
}

// accepts says that result is of an activity's type, as far as this engine knows.
func (e *Engine) accepts(name string, result any) bool {
	for _, a := range e.config.Activities {
		if a.Title() == name {
			return a.Accepts(result)
		}
	}
	return true
}
