package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
)

// Resolve is Engine.Resolve.
func (e *admin) Resolve(ctx context.Context, id, operation string, a activity.Answer, by Actor) error {
	call := waiting(ctx, "resolve of operation "+quoted(operation)+" of workflow", id)
	return call.explain(e.resolveOperation(call, id, operation, a, by))
}

func (e *admin) resolveOperation(ctx context.Context, id, operation string, a activity.Answer, by Actor) error {
	v, result, err := e.personal(a, operation)
	if err := errors.Join(checkActor(by), err); err != nil {
		return err
	}
	verb := checkpoint.Verb{Name: resolution(operation, v.State), By: by.Name, Why: by.Reason}
	if undoes(operation) && v.Reason != "" {
		verb.Why += ": " + v.Reason
	}
	err = e.change(ctx, id, e.act(verb, "resolve", func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
		return e.resolving(ctx, wf, operation, v, result, verb)
	}))
	if err == nil {
		e.log.Info("weft: operation resolved", "workflow", id, "operation", operation, "as", v.State.String(), "by", by.Name, "why", by.Reason)
	}
	return err
}

// personal checks an operator's answer about an operation and encodes its result. The
// answer about an operation that undoes a call has no result.
func (e *admin) personal(a activity.Answer, operation string) (v activity.Verdict, result activity.Payload, err error) {
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
		return v, result, fmt.Errorf("%w: an operator cannot give the answer %s", ErrInvalid, v.State)
	}
	v.Reason = recordable(v.Reason)
	return v, result, nil
}

// resolving decides a Resolve. It writes the operation's record, and the workflow's record
// so that the owner notices.
func (e *admin) resolving(ctx context.Context, wf *checkpoint.Workflow, operation string, v activity.Verdict, result activity.Payload, verb checkpoint.Verb) (*changing, error) {
	if wf.Status.Terminal() {
		return nil, &TerminalError{WorkflowID: wf.ID, Status: wf.Status}
	}
	if undoes(operation) {
		return e.resolvingUndo(wf, operation, v, verb)
	}
	records, err := activity.Records(ctx, e.store, wf.ID, wf.Generation)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(records, func(r activity.Record) bool { return r.Operation == operation })
	if i >= 0 {
		records[i] = reopened(records[i], wf)
	}
	asked := slices.ContainsFunc(wf.Attention, func(a checkpoint.Attention) bool {
		return a.Reason == string(ReasonIndeterminate) && a.Operation == operation
	})
	switch {
	case i < 0:
		return nil, fmt.Errorf("%w: resolve %q: operation %q has no idempotency key, or has not started", ErrNotApplicable, wf.ID, operation)
	case records[i].Settled:
		return nil, fmt.Errorf("%w: resolve %q: operation %s is %s", ErrNotApplicable, wf.ID, operation, records[i].Status)
	case v.State == activity.StateNotCompleted && !asked:
		return nil, fmt.Errorf("%w: resolve %q: an attempt of operation %s may be in progress", ErrNotApplicable, wf.ID, operation)
	case v.State == activity.StateCompletedWithResult:
		if err := e.expected(ctx, records[i].Activity, v.Result, result); err != nil {
			return nil, err
		}
	}
	_, settle, err := records[i].Resolved(e.now(), verb.By, v, result).Seal()
	if err != nil {
		return nil, err
	}
	next := *wf
	d, err := e.acting(wf, &next, verb)
	if err != nil {
		return nil, err
	}
	d.batch.If = append(d.batch.If, records[i].Unchanged())
	d.batch.Ops = append(d.batch.Ops, settle)
	return d, nil
}

// resolvingUndo decides a Resolve of an operation that undoes a call. The run gets the
// answer as the verb.
func (e *admin) resolvingUndo(wf *checkpoint.Workflow, operation string, v activity.Verdict, verb checkpoint.Verb) (*changing, error) {
	about := func(a checkpoint.Attention) bool {
		return (a.Reason == string(ReasonUncompensated) || a.Reason == string(ReasonUndecodable)) && a.Operation == operation
	}
	switch {
	case !slices.ContainsFunc(wf.Attention, about):
		return nil, fmt.Errorf("%w: resolve %q: operation %s needs no operator", ErrNotApplicable, wf.ID, operation)
	case !isNil(v.Result):
		return nil, fmt.Errorf("%w: a %T is no result of a Compensate, which has none", ErrInvalid, v.Result)
	}
	next := *wf
	next.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), about)
	return e.acting(wf, &next, verb)
}

// acting returns the decision to replace wf by next and to record verb.
func (e *admin) acting(wf, next *checkpoint.Workflow, verb checkpoint.Verb) (*changing, error) {
	next.Verbs = append(slices.Clone(wf.Verbs), verb)
	return e.rewritten(wf, next)
}

// expected checks that an operator's result, and its encoding, is of the type that the
// activity with that name returns. If this engine does not know the type, the run's owner
// checks: see unreadableAnswer.
func (e *admin) expected(ctx context.Context, name string, result any, encoded activity.Payload) error {
	var errs []error
	for _, a := range e.known(name) {
		err := e.fitsResult(ctx, a, result, encoded)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fitsResult checks that an operator's result is of the type that a returns, and that its
// encoding can be decoded as that type. A tool that does not know the type passes a
// json.RawMessage.
func (e *admin) fitsResult(ctx context.Context, a activity.Definition, result any, encoded activity.Payload) error {
	into := a.NewResult()
	want := typeOf(into)
	if _, raw := result.(json.RawMessage); !raw && !a.Accepts(result) {
		return fmt.Errorf("%w: a %T is no result of activity %s, which returns %s", ErrInvalid, result, a.Title(), want)
	}
	select {
	case err := <-e.decodes(payload{codec: encoded.Codec, data: encoded.Data}, into):
		if err != nil {
			return fmt.Errorf("%w: a %T is no result of activity %s, which returns %s: %w", ErrInvalid, result, a.Title(), want, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
