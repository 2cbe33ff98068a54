package weft

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
)

// Errors for callers to test with errors.Is.
var (
	// ErrNotFound: no workflow, no schedule or no bulk has this id; or no open hook has the token, or the
	// history of a workflow no such operation.
	ErrNotFound = errors.New("engine: workflow not found")

	// ErrExists: the id of a start is in use by another workflow, or by the same
	// workflow with another input. The error is an *ExistsError.
	ErrExists = errors.New("engine: workflow id is taken")

	// ErrTerminal: the workflow has ended. The error is a *TerminalError.
	ErrTerminal = errors.New("engine: workflow has ended")

	// ErrHeld: the workflow is held, and nothing is executed for it. The error is a
	// *HeldError.
	ErrHeld = errors.New("engine: workflow is held")

	// ErrInvalid: an id, a name or a payload is empty, too large, not UTF-8 or
	// not encodable. Nothing was written.
	ErrInvalid = errors.New("engine: invalid")

	// ErrNotApplicable: the call does not apply to the current state.
	ErrNotApplicable = errors.New("engine: not applicable")

	// ErrProtected: an operator has protected the workflow with engine.Engine.Protect, so it is
	// not removed. Nothing was written.
	ErrProtected = errors.New("engine: workflow is protected")

	// ErrBusy: too much of this kind waits already, or the workflow has continued as new while its
	// history was read. Nothing was written; try again later.
	ErrBusy = errors.New("engine: busy")

	// ErrMismatch: the ID of an update was used before, in the same workflow, for another update or
	// with another input, or another bulk has the id. Nothing was written.
	ErrMismatch = errors.New("engine: id was used for something else")

	// ErrRejected: the check of a workflow has refused an update. The error is a *RejectedError.
	ErrRejected = errors.New("engine: update rejected")

	// ErrNoActiveDeployment: no deployment was activated with engine.Engine.Activate, and a
	// caller wanted to start a Pinned workflow or asked for the active deployment.
	ErrNoActiveDeployment = errors.New("engine: no deployment is active")

	// ErrClosed: the engine was closed.
	ErrClosed = errors.New("engine: closed")

	// ErrCancelled: in a run, its cancellation was requested, or the function of
	// engine.Run.WithCancel was called. From Result, the workflow ended cancelled, or was
	// terminated.
	ErrCancelled = errors.New("engine: workflow cancelled")

	// ErrTerminated: the workflow was terminated while it executed an update. It wraps ErrCancelled.
	ErrTerminated = fmt.Errorf("%w: terminated", ErrCancelled)

	// ErrTimeout: in a run, the timeout of engine.Run.WithTimeout has passed.
	ErrTimeout = errors.New("engine: time is up")

	// ErrNoCase: a Select has no case left to wait for.
	ErrNoCase = errors.New("engine: select without a case")

	// ErrForeignRun: a Run was used outside its branch: inside an activity or a
	// Step, in a goroutine that the workflow started itself, or after the workflow
	// function returned. The error that wraps it says in which call.
	ErrForeignRun = errors.New("engine: run used outside its branch")
)

// A ConfigError describes a problem of a field of engine.Config. engine.New joins all of them.
type ConfigError struct{ Field, Problem string }

func (e *ConfigError) Error() string { return fmt.Sprintf("engine: config: %s %s", e.Field, e.Problem) }

// A CheckpointOwnershipCapabilityError is returned by engine.New if the store lacks a
// capability that the ownership mode needs. It wraps errors.ErrUnsupported.
type CheckpointOwnershipCapabilityError struct {
	Capability string // "conditionalBatch"
	Mode       Ownership
	Adapter    string // the store's type, "*bolt.Store"
}

func (e *CheckpointOwnershipCapabilityError) Error() string {
	return fmt.Sprintf("engine: checkpoint ownership %s needs %s, which %s does not have; one that is opened ReadOnly never has it", e.Mode, e.Capability, e.Adapter)
}

func (e *CheckpointOwnershipCapabilityError) Unwrap() error { return errors.ErrUnsupported }

// An OwnershipModeError is returned by engine.New if engines of another ownership mode
// have used the store.
type OwnershipModeError struct{ Configured, Stored Ownership }

func (e *OwnershipModeError) Error() string {
	return fmt.Sprintf("engine: ownership mode is %s, but the store belongs to engines of mode %s", e.Configured, e.Stored)
}

// A WorkflowError is returned by engine.Handle.Result if the workflow failed, and by Do and Go of a child
// that failed or was cancelled.
type WorkflowError struct {
	WorkflowID, Workflow string
	Message              string
	Stack                string // of a panic
	Sentinel             error  // one of engine.Workflow.Errors, if the engine or the Handle has the workflow; or nil
	SentinelText         string // the text of the error of engine.Workflow.Errors that it matched when it was recorded; "": none
}

func (e *WorkflowError) Error() string {
	return fmt.Sprintf("engine: workflow %s %q: %s", e.Workflow, e.WorkflowID, e.Message)
}

func (e *WorkflowError) Unwrap() error { return e.Sentinel }

// An ExistsError means that the id of a start is in use. It wraps ErrExists. In a run, of a child
// or a detached workflow, it has the WorkflowID only.
type ExistsError struct {
	WorkflowID string
	Workflow   string            // the name of the workflow that has the id
	Status     checkpoint.Status // its status when the start was refused
	Asked      string            // the name of the workflow that was to be started

	// Same: Workflow and input are those of the start. This can be only if StartRequest.New was
	// set; otherwise the start returns the workflow, and no error.
	Same bool
}

func (e *ExistsError) Error() string {
	switch {
	case e.Workflow == "":
		return fmt.Sprintf("%v: %q", ErrExists, e.WorkflowID)
	case e.Same:
		return fmt.Sprintf("%v: %q was started before with the same input, and is %s", ErrExists, e.WorkflowID, e.Status)
	case e.Workflow != e.Asked:
		return fmt.Sprintf("%v: %q is a run of workflow %q, not of %q", ErrExists, e.WorkflowID, e.Workflow, e.Asked)
	}
	return fmt.Sprintf("%v: %q was started with another input: use another id, or the same input", ErrExists, e.WorkflowID)
}

func (e *ExistsError) Unwrap() error { return ErrExists }

// A TerminalError means that a workflow has ended, with Status. It wraps ErrTerminal.
type TerminalError struct {
	WorkflowID string
	Status     checkpoint.Status
}

func (e *TerminalError) Error() string {
	return fmt.Sprintf("engine: workflow %q has ended: %s", e.WorkflowID, e.Status)
}

func (e *TerminalError) Unwrap() error { return ErrTerminal }

// A NoValueError means that a workflow exists and has not published a value of this name. It wraps
// ErrNotFound.
type NoValueError struct{ WorkflowID, Name string }

func (e *NoValueError) Error() string {
	return fmt.Sprintf("engine: workflow %q has not published the value %q", e.WorkflowID, e.Name)
}

func (e *NoValueError) Unwrap() error { return ErrNotFound }

// An EventsGoneError means that events of a workflow that follow After are not stored any more, because the
// workflow has continued as new, or that its history has no event After. Nothing was passed over
// without this error. To read on with the first event that is stored, begin without After.
type EventsGoneError struct {
	WorkflowID string
	After      string // the ID of the last event that was given, or the one of the caller; "": none
}

func (e *EventsGoneError) Error() string {
	if e.After == "" {
		return fmt.Sprintf("engine: workflow %q has continued as new before its first events were read", e.WorkflowID)
	}
	return fmt.Sprintf("engine: workflow %q: the events behind %q are not stored any more, or there is no such event", e.WorkflowID, e.After)
}

// A RejectedError means that the check of a workflow has refused an update, and that the workflow
// has done nothing for it. It wraps ErrRejected, and Sentinel if there is one. The same ID gets the
// same answer again.
type RejectedError struct {
	WorkflowID, Update, UpdateID string
	Message                      string // of the error that the check returned
	Sentinel                     error  // one of engine.Update.Errors that it matched, or nil
	SentinelText                 string // the text of that error; "": none
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("engine: workflow %q rejected update %s: %s", e.WorkflowID, e.Update, e.Message)
}

func (e *RejectedError) Unwrap() []error {
	if e.Sentinel == nil {
		return []error{ErrRejected}
	}
	return []error{ErrRejected, e.Sentinel}
}

// An UpdateError means that a workflow has accepted an update, and that executing it has failed. It
// wraps Sentinel if there is one.
type UpdateError struct {
	WorkflowID, Update, UpdateID string
	Message                      string
	Stack                        string // of a panic
	Sentinel                     error  // one of engine.Update.Errors, ErrCancelled, ErrTerminated or ErrTimeout; or nil
	SentinelText                 string // the text of that error; "": none
}

func (e *UpdateError) Error() string {
	return fmt.Sprintf("engine: workflow %q: update %s: %s", e.WorkflowID, e.Update, e.Message)
}

func (e *UpdateError) Unwrap() error { return e.Sentinel }

// A HeldError is returned by engine.Engine.Cancel if the request is durable and the workflow is
// held, so that its function cannot react to the request. It does when the workflow continues.
// engine.Engine.Terminate ends the workflow as it is. It wraps ErrHeld.
type HeldError struct {
	WorkflowID string
	Reason     Reason
	Detail     string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("engine: cancel %q: the request is recorded, but the workflow is held (%s: %s), so its function cannot react; remove the cause and call Resume, or end it with Terminate", e.WorkflowID, e.Reason, e.Detail)
}

func (e *HeldError) Unwrap() error { return ErrHeld }

// A NonDeterminismError means that a workflow function did not do in a replay what
// its history has recorded. The run does not fail, it is held: it continues with code
// that agrees with the history. An empty Operation stands for the end of the function. Line is
// the place in the code that started the operation, such as "shop/order.go:42", or empty if
// it is not known.
type NonDeterminismError struct{ WorkflowID, Operation, Recorded, Asked, Line string }

func (e *NonDeterminismError) Error() string {
	if e.Operation == "" {
		return fmt.Sprintf("engine: replay of %q: its end was %s and is now %s: the function returns something else, or earlier%s", e.WorkflowID, e.Recorded, e.Asked, advice)
	}
	asked := e.Asked
	if e.Line != "" {
		asked += fmt.Sprintf(" (at %s)", e.Line)
	}
	return fmt.Sprintf("engine: replay of %q: operation %s was %s and is now %s: it, or a call before it in the same branch, was changed, added, removed or moved%s", e.WorkflowID, e.Operation, e.Recorded, asked, advice)
}

// An UnknownVersionError means that a run goes by a version of a change that its Workflow.Versions do
// not have: the code is older than what the run has begun to do, or the change was removed too
// early. The run is not held. Engines with such code leave it to others.
type UnknownVersionError struct {
	WorkflowID string
	Change     string
	Version    int // by which the run goes
	Newest     int // that the code has; 0: it does not have the change
}

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("engine: workflow %q: %s", e.WorkflowID, e.Problem())
}

// Problem returns what is wrong, without the id of the workflow.
func (e *UnknownVersionError) Problem() string {
	has := "do not have it"
	if e.Newest > 0 {
		has = fmt.Sprintf("have version %d", e.Newest)
	}
	return fmt.Sprintf("it goes by version %d of the change %q, and the Versions of its workflow %s", e.Version, e.Change, has)
}

// A MapError is returned by engine.Map if not every element has a result. It wraps the errors of
// its items, and Cause.
type MapError struct {
	Name       string      // of the Map
	Of         int         // elements
	Items      []ItemError // elements whose branch failed, in their order
	NotStarted int         // elements at the end without a branch
	Cause      error       // why they have none: ErrCancelled or ErrTimeout
}

// An ItemError is the error of the branch that a Map has started for in[Index].
type ItemError struct {
	Index     int
	Operation string
	Err       error
}

func (e *ItemError) Error() string {
	return fmt.Sprintf("item %d (operation %s): %v", e.Index, e.Operation, e.Err)
}

func (e *ItemError) Unwrap() error { return e.Err }

// mostItems is how many items the text of a MapError names.
const mostItems = 5

func (e *MapError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "map %s: ", e.Name)
	if n := len(e.Items); n > 0 {
		fmt.Fprintf(&text, "%d of %d items failed: ", n, e.Of)
	}
	for i := range e.Items[:min(len(e.Items), mostItems)] {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(e.Items[i].Error())
	}
	if n := len(e.Items) - mostItems; n > 0 {
		fmt.Fprintf(&text, "; and %d more", n)
	}
	if e.NotStarted > 0 {
		if len(e.Items) > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%d of %d items were not started: %v", e.NotStarted, e.Of, e.Cause)
	}
	return text.String()
}

func (e *MapError) Unwrap() []error {
	var errs []error
	for i := range e.Items {
		errs = append(errs, &e.Items[i])
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}

// advice is where a *NonDeterminismError refers to.
const advice = "; what to do: https://github.com/weft-go/weft/blob/main/docs/guides/workflows.md#when-code-and-history-disagree"

// A TransactLimitError is the cause with which the context of a function in a
// transaction ends if the function takes too long. On a store with a single writer,
// such as SQLite, all other writers wait for the transaction, including the lease
// renewals of all engines on that store. Nothing of the transaction was written. It
// wraps activity.ErrTimeout.
//
// The workflow gets an *activity.Error as the outcome of the step. It also wraps
// activity.ErrTimeout and has the text of this error.
type TransactLimitError struct {
	Step     string
	Limit    time.Duration
	LeaseTTL time.Duration // engine.Config.LeaseTTL, if Limit is a third of it; 0: Limit is the store's
}

func (e *TransactLimitError) Error() string {
	whose, raise := "the store's limit", "the store's limit, such as sqlite.Options.TransactLimit"
	if e.LeaseTTL > 0 {
		whose, raise = fmt.Sprintf("a third of Config.LeaseTTL, %v", e.LeaseTTL), "Config.LeaseTTL"
	}
	return fmt.Sprintf("engine: transaction of step %q took longer than %v, which is %s; nothing of it was written: do what takes long before or after it, or raise %s", e.Step, e.Limit, whose, raise)
}

func (e *TransactLimitError) Unwrap() error { return activity.ErrTimeout }

// A DecodeError means that the current code cannot decode what is stored: the type has
// changed, the codec is missing or lacks a key, or the decoder panics.
type DecodeError struct {
	Type  string // the Go type to decode into
	Codec string // the name of the codec that encoded it
	Err   error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %s with codec %q: %v", e.Type, e.Codec, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// An InputChangedError means that a workflow function, in engine.Engine.Replay, started operations
// with an input that differs from the recorded one. No run is held for that. The change
// may be intended, such as a new field of a struct. Or an operation is mistaken for
// another one of the same name and gets the outcome of that one.
type InputChangedError struct {
	WorkflowID string
	Operations []string // such as "3 (activity charge)", in the order of their events; at most a hundred
}

func (e *InputChangedError) Error() string {
	more := ""
	if n := len(e.Operations) - 1; n > 0 {
		more = fmt.Sprintf(", and so were %s", strings.Join(e.Operations[1:min(n+1, 6)], ", "))
		if n > 5 {
			more += fmt.Sprintf(" and %d more", n-5)
		}
	}
	return fmt.Sprintf("engine: replay of %q: operation %s was started with another input%s", e.WorkflowID, e.Operations[0], more)
}

// An InterruptedError is returned by a call that could not finish. Either its context
// ended while it waited, for the store or for the end of a workflow. Or the store could not
// be read: a failed read is repeated only if the call may already have written something.
// It wraps the context's error and cause, and the last error of the store.
type InterruptedError struct {
	Call    string // the call, such as `signal "approved" to workflow "order-42"`
	Unknown bool   // true: the call may have taken effect, or may still do so; false: nothing was written
	Last    error  // the last error of the store; nil: it has returned none

	WaitedFor string // what the call waited for when its context ended
	ReadOnly  bool   // the call writes nothing
	Err       error  // the error with which the call ended
	Ended     error  // the context's error and cause; nil: the store could not be read
}

func (e *InterruptedError) Error() string {
	s := fmt.Sprintf("engine: %s: ", e.Call)
	if e.Ended != nil {
		s += fmt.Sprintf("%v while waiting for %s", e.Ended, e.WaitedFor)
	} else {
		s += "the store could not be read"
	}
	switch {
	case e.Unknown:
		s += ", outcome unknown"
	case !e.ReadOnly:
		s += ", nothing was written"
	}
	if e.Last != nil {
		s += fmt.Sprintf(": last error of the store: %v", e.Last)
	}
	return s
}

func (e *InterruptedError) Unwrap() (errs []error) {
	for _, err := range []error{e.Ended, e.Err, e.Last} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
