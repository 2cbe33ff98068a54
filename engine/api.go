package engine

import "github.com/weft-go/weft"

// What callers, operators and tools of workflows exchange is defined in package weft. This
// package has it under the same names.

// Requests and their options.
type (
	// StartRequest describes a start. See [weft.StartRequest].
	StartRequest = weft.StartRequest

	// StartOptions are the options of a start. See [weft.StartOptions].
	StartOptions = weft.StartOptions

	// ChildOptions are the options of a child. See [weft.ChildOptions].
	ChildOptions = weft.ChildOptions

	// ParentEnd says what happens to a child when its parent ends. See [weft.ParentEnd].
	ParentEnd = weft.ParentEnd

	// Actor is who acts on a workflow, and why. See [weft.Actor].
	Actor = weft.Actor
)

// What happens to a child when its parent ends.
const (
	ParentEndCancel  = weft.ParentEndCancel
	ParentEndAbandon = weft.ParentEndAbandon
	ParentEndAwait   = weft.ParentEndAwait
)

// States, as clients see them.
type (
	// Info is the state of a workflow. See [weft.Info].
	Info = weft.Info

	// Attention is a reason why a running workflow needs an operator. See [weft.Attention].
	Attention = weft.Attention

	// Reason is the kind of an Attention. See [weft.Reason].
	Reason = weft.Reason

	// Cancellation is a request to cancel a workflow. See [weft.Cancellation].
	Cancellation = weft.Cancellation

	// Filter selects the workflows that List yields. See [weft.Filter].
	Filter = weft.Filter

	// SignalInfo describes a signal that was accepted and is not consumed. See
	// [weft.SignalInfo].
	SignalInfo = weft.SignalInfo

	// EngineInfo describes an incarnation of an engine. See [weft.EngineInfo].
	EngineInfo = weft.EngineInfo
)

// Kinds of Attention.
const (
	ReasonNonDeterminism = weft.ReasonNonDeterminism
	ReasonUnregistered   = weft.ReasonUnregistered
	ReasonNoProgress     = weft.ReasonNoProgress
	ReasonNewerRelease   = weft.ReasonNewerRelease
	ReasonStuck          = weft.ReasonStuck
	ReasonUnresponsive   = weft.ReasonUnresponsive
	ReasonDamaged        = weft.ReasonDamaged
	ReasonBadDefinition  = weft.ReasonBadDefinition
	ReasonUndecodable    = weft.ReasonUndecodable
	ReasonIndeterminate  = weft.ReasonIndeterminate
	ReasonUncompensated  = weft.ReasonUncompensated
)

// Parts of Config.
type (
	// Queue is where workflows wait to be executed. See [weft.Queue].
	Queue = weft.Queue

	// Ownership is how an engine prevents two owners of one workflow from both writing. See
	// [weft.Ownership].
	Ownership = weft.Ownership

	// Codec encodes and decodes inputs, results and signals. See [weft.Codec].
	Codec = weft.Codec

	// Events are callbacks for metrics. See [weft.Events].
	Events = weft.Events

	// TakeoverEvent: a run was claimed from another owner. See [weft.TakeoverEvent].
	TakeoverEvent = weft.TakeoverEvent

	// LostRaceEvent: a claim was refused. See [weft.LostRaceEvent].
	LostRaceEvent = weft.LostRaceEvent

	// FencedEvent: a commit was refused or abandoned. See [weft.FencedEvent].
	FencedEvent = weft.FencedEvent

	// UnknownEvent: the outcome of a commit is unknown. See [weft.UnknownEvent].
	UnknownEvent = weft.UnknownEvent

	// InputChangedEvent: a replay found another input. See [weft.InputChangedEvent].
	InputChangedEvent = weft.InputChangedEvent

	// DeposedEvent: an incarnation has lost its lease. See [weft.DeposedEvent].
	DeposedEvent = weft.DeposedEvent
)

// Modes of ownership.
const (
	OwnershipCASRequired = weft.OwnershipCASRequired
	OwnershipSingleOwner = weft.OwnershipSingleOwner
)

// JSON is the default codec.
var JSON = weft.JSON

// Maximum sizes in bytes of an encoded input, result or signal payload, and of an attempt's
// encoded progress.
const (
	MaxPayload  = weft.MaxPayload
	MaxProgress = weft.MaxProgress
)

// Errors for callers to test with errors.Is. Package weft says what each of them means.
var (
	ErrNotFound           = weft.ErrNotFound
	ErrExists             = weft.ErrExists
	ErrTerminal           = weft.ErrTerminal
	ErrInvalid            = weft.ErrInvalid
	ErrNotApplicable      = weft.ErrNotApplicable
	ErrNoActiveDeployment = weft.ErrNoActiveDeployment
	ErrClosed             = weft.ErrClosed
	ErrCancelled          = weft.ErrCancelled
	ErrTimeout            = weft.ErrTimeout
	ErrNoCase             = weft.ErrNoCase
	ErrForeignRun         = weft.ErrForeignRun
)

// Errors for callers to find with errors.As.
type (
	// ConfigError describes a problem of a field of Config. See [weft.ConfigError].
	ConfigError = weft.ConfigError

	// CheckpointOwnershipCapabilityError: the store lacks a capability. See
	// [weft.CheckpointOwnershipCapabilityError].
	CheckpointOwnershipCapabilityError = weft.CheckpointOwnershipCapabilityError

	// OwnershipModeError: engines of another mode have used the store. See
	// [weft.OwnershipModeError].
	OwnershipModeError = weft.OwnershipModeError

	// WorkflowError: a workflow failed. See [weft.WorkflowError].
	WorkflowError = weft.WorkflowError

	// TerminalError: a workflow has ended. See [weft.TerminalError].
	TerminalError = weft.TerminalError

	// NonDeterminismError: a replay differs from the history. See [weft.NonDeterminismError].
	NonDeterminismError = weft.NonDeterminismError

	// TransactLimitError: a function in a transaction took too long. See
	// [weft.TransactLimitError].
	TransactLimitError = weft.TransactLimitError

	// DecodeError: the current code cannot decode what is stored. See [weft.DecodeError].
	DecodeError = weft.DecodeError

	// InputChangedError: a replay found other inputs. See [weft.InputChangedError].
	InputChangedError = weft.InputChangedError

	// InterruptedError: a call could not finish. See [weft.InterruptedError].
	InterruptedError = weft.InterruptedError
)
