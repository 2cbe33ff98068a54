package engine

import "github.com/weft-go/weft"

// What callers, operators and tools of workflows exchange is defined in package weft. This
// package has it under the same names.

// Requests and their options.
type (
	// StartRequest describes a start. See [weft.StartRequest].
	StartRequest = weft.StartRequest

	// UpdateRequest describes a call of an update. See [weft.UpdateRequest].
	UpdateRequest = weft.UpdateRequest

	// StartOptions are the options of a start. See [weft.StartOptions].
	StartOptions = weft.StartOptions

	// ChildOptions are the options of a child. See [weft.ChildOptions].
	ChildOptions = weft.ChildOptions

	// ParentEnd says what happens to a child when its parent ends. See [weft.ParentEnd].
	ParentEnd = weft.ParentEnd

	// Protection says who has protected a workflow from being removed. See [weft.Protection].
	Protection = weft.Protection

	// Schedule starts a workflow again and again. See [weft.Schedule].
	Schedule = weft.Schedule

	// Overlap says what a schedule does while the workflow before has not ended. See
	// [weft.Overlap].
	Overlap = weft.Overlap

	// Missed says what a schedule does with times that have passed. See [weft.Missed].
	Missed = weft.Missed

	// Bulk is one operation on every workflow that a filter selects. See [weft.Bulk].
	Bulk = weft.Bulk

	// Verb is what a bulk does to each workflow. See [weft.Verb].
	Verb = weft.Verb

	// Actor is who acts on a workflow, and why. See [weft.Actor].
	Actor = weft.Actor
)

// What a schedule does at a time when the workflow before has not ended.
const (
	OverlapSkip      = weft.OverlapSkip
	OverlapWait      = weft.OverlapWait
	OverlapCancel    = weft.OverlapCancel
	OverlapTerminate = weft.OverlapTerminate
	OverlapAllow     = weft.OverlapAllow
)

// What a schedule does with times that have passed.
const (
	MissedLast = weft.MissedLast
	MissedAll  = weft.MissedAll
	MissedNone = weft.MissedNone
)

// What a bulk does to each workflow.
const (
	BulkCancel    = weft.BulkCancel
	BulkTerminate = weft.BulkTerminate
	BulkSignal    = weft.BulkSignal
	BulkResume    = weft.BulkResume
	BulkReset     = weft.BulkReset
	BulkPurge     = weft.BulkPurge
	BulkDelete    = weft.BulkDelete
	BulkProtect   = weft.BulkProtect
	BulkUnprotect = weft.BulkUnprotect
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

	// Payloads are the input and the outcome of a workflow as stored. See [weft.Payloads].
	Payloads = weft.Payloads

	// ValueInfo is a value that a workflow has published. See [weft.ValueInfo].
	ValueInfo = weft.ValueInfo

	// Encoded is an encoded value. See [weft.Encoded].
	Encoded = weft.Encoded

	// Attention is a reason why a running workflow needs an operator. See [weft.Attention].
	Attention = weft.Attention

	// Reason is the kind of an Attention. See [weft.Reason].
	Reason = weft.Reason

	// Cancellation is a request to cancel a workflow. See [weft.Cancellation].
	Cancellation = weft.Cancellation

	// Rehearsal: whether a run could go on with the code of an engine. See [weft.Rehearsal].
	Rehearsal = weft.Rehearsal

	// Filter selects workflows. See [weft.Filter].
	Filter = weft.Filter

	// PageRequest says which page of a list is wanted. See [weft.PageRequest].
	PageRequest = weft.PageRequest

	// Page is a part of a list. See [weft.Page].
	Page[T any] = weft.Page[T]

	// Event is something that a run learnt, at its place in the history. See [weft.Event].
	Event = weft.Event

	// SignalInfo describes a signal that was accepted and is not consumed. See
	// [weft.SignalInfo].
	SignalInfo = weft.SignalInfo

	// EngineInfo describes an incarnation of an engine. See [weft.EngineInfo].
	EngineInfo = weft.EngineInfo

	// ScheduleInfo is the state of a schedule. See [weft.ScheduleInfo].
	ScheduleInfo = weft.ScheduleInfo

	// ScheduledRun is a workflow that a schedule has started. See [weft.ScheduledRun].
	ScheduledRun = weft.ScheduledRun

	// Pause says who has paused a schedule. See [weft.Pause].
	Pause = weft.Pause

	// BulkInfo is the state of a bulk operation. See [weft.BulkInfo].
	BulkInfo = weft.BulkInfo

	// Refusal says why an operation could not be done to a workflow. See [weft.Refusal].
	Refusal = weft.Refusal
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
	ReasonBadInput       = weft.ReasonBadInput
	ReasonUndecodable    = weft.ReasonUndecodable
	ReasonIndeterminate  = weft.ReasonIndeterminate
	ReasonUncompensated  = weft.ReasonUncompensated
)

// Parts of Config.
type (
	// Retention says how long workflows are kept after they have ended. See [weft.Retention].
	Retention = weft.Retention

	// Queue is where workflows wait to be executed. See [weft.Queue].
	Queue = weft.Queue

	// Ownership is how an engine prevents two owners of one workflow from both writing. See
	// [weft.Ownership].
	Ownership = weft.Ownership

	// Codec encodes and decodes inputs, results and signals. See [weft.Codec].
	Codec = weft.Codec

	// Events are callbacks for metrics and traces. See [weft.Events].
	Events = weft.Events

	// StartingEvent: a workflow is about to be started. See [weft.StartingEvent].
	StartingEvent = weft.StartingEvent

	// StartedEvent: a start was accepted. See [weft.StartedEvent].
	StartedEvent = weft.StartedEvent

	// AdmittedEvent: a run has left the line of its queue. See [weft.AdmittedEvent].
	AdmittedEvent = weft.AdmittedEvent

	// ExecutionBeganEvent: an engine begins to execute a run. See [weft.ExecutionBeganEvent].
	ExecutionBeganEvent = weft.ExecutionBeganEvent

	// ReplayedEvent: the history of a run was read. See [weft.ReplayedEvent].
	ReplayedEvent = weft.ReplayedEvent

	// ExecutionEndedEvent: an engine executes a run no longer. See [weft.ExecutionEndedEvent].
	ExecutionEndedEvent = weft.ExecutionEndedEvent

	// EndedEvent: a run has ended. See [weft.EndedEvent].
	EndedEvent = weft.EndedEvent

	// RemovedEvent: a workflow was removed from the store. See [weft.RemovedEvent].
	RemovedEvent = weft.RemovedEvent

	// Removal is why a workflow was removed. See [weft.Removal].
	Removal = weft.Removal

	// AttemptBeganEvent: a function is about to be called. See [weft.AttemptBeganEvent].
	AttemptBeganEvent = weft.AttemptBeganEvent

	// AttemptEndedEvent: the function has returned. See [weft.AttemptEndedEvent].
	AttemptEndedEvent = weft.AttemptEndedEvent

	// RetryScheduledEvent: an attempt has failed, and more follows. See [weft.RetryScheduledEvent].
	RetryScheduledEvent = weft.RetryScheduledEvent

	// AttentionRaisedEvent: a run needs an operator. See [weft.AttentionRaisedEvent].
	AttentionRaisedEvent = weft.AttentionRaisedEvent

	// AttentionClearedEvent: a run no longer needs an operator for a reason. See [weft.AttentionClearedEvent].
	AttentionClearedEvent = weft.AttentionClearedEvent

	// SignalAcceptedEvent: a call that sends a signal has got its answer. See [weft.SignalAcceptedEvent].
	SignalAcceptedEvent = weft.SignalAcceptedEvent

	// SignalReceivedEvent: a run has received a signal. See [weft.SignalReceivedEvent].
	SignalReceivedEvent = weft.SignalReceivedEvent

	// CommittedEvent: the store has answered a commit. See [weft.CommittedEvent].
	CommittedEvent = weft.CommittedEvent

	// Exit is why an engine executes a run no longer. See [weft.Exit].
	Exit = weft.Exit

	// AttemptOutcome says how the call of a function ended. See [weft.AttemptOutcome].
	AttemptOutcome = weft.AttemptOutcome

	// CommitOutcome is what the answer of a store says. See [weft.CommitOutcome].
	CommitOutcome = weft.CommitOutcome

	// Propagator carries values of a context from a start to the attempts of the run. See
	// [weft.Propagator].
	Propagator = weft.Propagator

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

// Why an engine executes a run no longer.
const (
	ExitEnded     = weft.ExitEnded
	ExitParked    = weft.ExitParked
	ExitHeld      = weft.ExitHeld
	ExitContinued = weft.ExitContinued
	ExitReleased  = weft.ExitReleased
)

// Why a workflow was removed.
const (
	RemovedByRetention = weft.RemovedByRetention
	RemovedByPurge     = weft.RemovedByPurge
	RemovedByDelete    = weft.RemovedByDelete
)

// How the call of a function ended.
const (
	AttemptCompleted = weft.AttemptCompleted
	AttemptFailed    = weft.AttemptFailed
	AttemptTimedOut  = weft.AttemptTimedOut
	AttemptPanicked  = weft.AttemptPanicked
	AttemptCancelled = weft.AttemptCancelled
	AttemptLeaseLost = weft.AttemptLeaseLost
)

// What the answer of a store says of a commit.
const (
	CommitApplied  = weft.CommitApplied
	CommitConflict = weft.CommitConflict
	CommitUnknown  = weft.CommitUnknown
	CommitFailed   = weft.CommitFailed
)

// Modes of ownership.
const (
	OwnershipCASRequired = weft.OwnershipCASRequired
	OwnershipSingleOwner = weft.OwnershipSingleOwner
)

// JSON is the default codec.
var JSON = weft.JSON

// Maximum sizes in bytes of an encoded input, result or signal payload, of an attempt's
// encoded progress, and of the headers of a start.
const (
	MaxPayload  = weft.MaxPayload
	MaxProgress = weft.MaxProgress
	MaxHeaders  = weft.MaxHeaders
)

// Maximum lengths of the id of a schedule, and of a bulk operation, in bytes, and the maximum number of
// workflows in BulkInfo.Refusals.
const (
	MaxScheduleID = weft.MaxScheduleID
	MaxBulkID     = weft.MaxBulkID
	MaxRefusals   = weft.MaxRefusals
)

// Errors for callers to test with errors.Is. Package weft says what each of them means.
var (
	ErrNotFound           = weft.ErrNotFound
	ErrExists             = weft.ErrExists
	ErrTerminal           = weft.ErrTerminal
	ErrHeld               = weft.ErrHeld
	ErrInvalid            = weft.ErrInvalid
	ErrNotApplicable      = weft.ErrNotApplicable
	ErrProtected          = weft.ErrProtected
	ErrBusy               = weft.ErrBusy
	ErrMismatch           = weft.ErrMismatch
	ErrRejected           = weft.ErrRejected
	ErrTerminated         = weft.ErrTerminated
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

	// MapError: elements of a Map have no result. See [weft.MapError].
	MapError = weft.MapError
	// ItemError: a branch of a Map failed. See [weft.ItemError].
	ItemError = weft.ItemError
	// WorkflowError: a workflow failed. See [weft.WorkflowError].
	WorkflowError = weft.WorkflowError

	// ExistsError: the id of a start is in use. See [weft.ExistsError].
	ExistsError = weft.ExistsError

	// TerminalError: a workflow has ended. See [weft.TerminalError].
	TerminalError = weft.TerminalError

	// NoValueError: a workflow has not published a value. See [weft.NoValueError].
	NoValueError = weft.NoValueError

	// EventsGoneError: events are not stored any more. See [weft.EventsGoneError].
	EventsGoneError = weft.EventsGoneError

	// RejectedError: a workflow has refused an update. See [weft.RejectedError].
	RejectedError = weft.RejectedError

	// UpdateError: a workflow has failed to execute an update. See [weft.UpdateError].
	UpdateError = weft.UpdateError

	// HeldError: a workflow is held and cannot react. See [weft.HeldError].
	HeldError = weft.HeldError

	// UnknownVersionError: a run goes by a version that the code does not have. See [weft.UnknownVersionError].
	UnknownVersionError = weft.UnknownVersionError

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
