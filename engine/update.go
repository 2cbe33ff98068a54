package engine

import (
	"context"
	"errors"

	"github.com/weft-go/weft/internal/payload"
	inner "github.com/weft-go/weft/internal/run"
)

// An Update is something that a workflow is asked to do, and that it answers. Unlike a signal, it can be
// refused, and the caller gets a result. Whatever fails, a workflow does it once for each ID.
//
// Define an Update once, as a variable, and use it on both sides. Its name is stored.
type Update[In, Out any] struct {
	Name string // 1 to 100 bytes

	// Errors are sentinels that callers can test for with errors.Is, also after a restart. They are
	// recorded by their text. Do not change it: recorded errors then match none.
	Errors []error
}

// UpdateOptions are the options of a call of an update.
type UpdateOptions struct {
	// ID identifies the update: a call with the same ID, of the same workflow, is the same update and
	// gets the same answer. It has 1 to 128 bytes of UTF-8.
	ID string
}

// Handle has run answer the update from here on. Where run waits, and an update comes, the engine calls
// check. It sees the state that the function has then, and must not change it. If it returns an error,
// or panics, the update is refused, and the workflow has nothing of it in its history. A nil check
// refuses nothing. An input that In cannot be decoded from is refused, too.
//
// Otherwise the update is accepted: its input is in the history, and do is called in a branch of its
// own, as by Go. It may do what a workflow function may do. What it returns is the answer. The function
// must be where it was when the update was accepted: call Handle before it waits for the first time.
//
// The workflow does not end, or continue as new, before all accepted updates are answered. If its
// function returns an error, or the workflow is cancelled, the operations of do get ErrCancelled. No
// update is accepted any more then.
//
// Handle is no operation: a call may be added anywhere. It must not be removed while there are runs that
// have accepted such an update. A second Handle of the same name replaces the first. A workflow handles
// at most 32 updates, and has at most 100 in progress; others wait. Errors: ErrInvalid if the name is
// not valid, or if it is one too many.
func (u *Update[In, Out]) Handle(run *Run, check func(in In) error, do func(run *Run, in In) (Out, error)) error {
	decoded := func(decode func(v any) error) (in In, err error) {
		err = decode(&in)
		return in, err
	}
	return run.handle().HandleUpdate(u.Name, u.Errors, func(decode func(v any) error) error {
		in, err := decoded(decode)
		if err == nil && check != nil {
			err = check(in)
		}
		return err
	}, func(run *inner.Handle, decode func(v any) error) (any, error) {
		in, err := decoded(decode)
		if err != nil {
			return nil, err
		}
		return do((*Run)(run), in)
	})
}

// Call asks the workflow with an id for the update and waits for the answer. If the workflow does not
// handle such updates yet, it waits until it does.
//
// After an error that leaves open what has become of the update, such as the end of ctx, call it again
// with the same ID: it is done once, and the answer is the same. Without options, an ID is generated, so
// that each call is another update. An answer is remembered for Config.SignalIDRetention, also after the
// workflow has ended.
//
// Errors: a *RejectedError if the workflow has refused the update; an *UpdateError if it has accepted it
// and failed; ErrMismatch if the ID was used for another update, or with another input; a
// *TerminalError if the workflow ended before it accepted the update; ErrNotFound; ErrBusy if about
// 1,000 updates wait already; ErrInvalid; ErrClosed; an error that wraps errors.ErrUnsupported if the
// store has no ConditionalBatch; a *DecodeError; the context's; the store's. If the workflow was
// terminated while it executed the update, the *UpdateError wraps ErrTerminated.
func (u *Update[In, Out]) Call(ctx context.Context, c Client, id string, in In, o *UpdateOptions) (Out, error) {
	return u.call(ctx, c, &UpdateRequest{WorkflowID: id, Update: u.Name, Input: in}, o)
}

// CallWithStart is Call for a workflow that is started if it does not exist: the start and the update
// are one commit. start is a Workflow.Request with an id. If another workflow has the id, or the same
// one with another input, the error is an *ExistsError.
func (u *Update[In, Out]) CallWithStart(ctx context.Context, c Client, start *StartRequest, in In, o *UpdateOptions) (Out, error) {
	if start == nil {
		panic("engine: CallWithStart of update " + u.Name + " needs a start, and got nil")
	}
	return u.call(ctx, c, &UpdateRequest{Start: start, Update: u.Name, Input: in}, o)
}

func (u *Update[In, Out]) call(ctx context.Context, c Client, r *UpdateRequest, o *UpdateOptions) (Out, error) {
	if payload.IsNil(c) {
		panic("engine: to call update " + u.Name + " needs a client, such as an *engine.Engine, and got nil")
	}
	if o != nil {
		r.ID = &o.ID
	}
	var out Out
	err := c.CallUpdate(ctx, r, &out)
	if rejected, ok := errors.AsType[*RejectedError](err); ok && rejected.Sentinel == nil {
		rejected.Sentinel = payload.SentinelOf(rejected.SentinelText, u.Errors)
	}
	if failed, ok := errors.AsType[*UpdateError](err); ok && failed.Sentinel == nil {
		failed.Sentinel = payload.SentinelOf(failed.SentinelText, u.Errors)
	}
	if err != nil {
		var zero Out
		return zero, err
	}
	return out, nil
}

// CallUpdate calls the update that r describes, and decodes the answer into result, a pointer or nil. A *weft.Encoded
// gets the answer as it is stored, for a transport. See Update.Call.
func (e *Engine) CallUpdate(ctx context.Context, r *UpdateRequest, result any) error {
	return e.intake.CallUpdate(ctx, r, result)
}
