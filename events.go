package weft

import (
	"context"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
)

// Events are callbacks for metrics and traces. Any of them may be nil. Module
// github.com/weft-go/weft/otelweft has those for OpenTelemetry.
//
// The engine calls them synchronously and concurrently, and holds no lock then. What it was
// doing waits, so a callback must not block and must not call the engine. It must not end its
// goroutine, either, as runtime.Goexit and testing.T.FailNow do. If it panics, the panic is
// logged, and nothing else changes.
//
// What a callback says of a run is durable, unless its comment says otherwise. It is called at
// most once: not if the process dies between the commit and the callback, and not again in a
// replay. So the counts of callbacks are estimates. What is certain is in the store:
// Engine.List.
//
// Do not use an id or the text of an error as the label of a metric: there are too many.
type Events struct {
	// Starting: a workflow is about to be started. It may not be: the commit may fail, or the
	// id may be in use. Config.Propagator gets the context that Starting returns; nothing else
	// uses it. The goroutine is that of the caller, or of the run that starts a child. A run
	// that is replayed before its commit calls it again.
	Starting func(context.Context, StartingEvent) context.Context

	// Started: a start was accepted by the store. The goroutine is that of Starting. It is not
	// called for a start in a transaction of the host (Engine.In), which the host may roll
	// back.
	Started func(StartedEvent)

	// Admitted: a run has left the line of its queue.
	Admitted func(AdmittedEvent)

	// ExecutionBegan: this engine has started a run or claimed it, and begins to execute it.
	// That happens again each time the run comes back from the store. The attempts of the
	// execution and the starts of its children get the values of the context that it returns.
	// The context ends when the engine must release the run. The goroutine is the run's
	// driver.
	ExecutionBegan func(context.Context, ExecutionBeganEvent) context.Context

	// Replayed: an execution has read the whole history of its run. The goroutine is the run's
	// driver.
	Replayed func(ReplayedEvent)

	// ExecutionEnded: this engine executes the run no longer. It is called exactly once after
	// each ExecutionBegan, with the context that that returned. Attempts may still be in
	// progress. The goroutine is the run's driver.
	ExecutionEnded func(context.Context, ExecutionEndedEvent)

	// Ended: a run has ended, also by Terminate or because it was cancelled in the line of its
	// queue. A failed run that an operator resumes ends again. The goroutine is the run's
	// driver, or that of the caller who ended it.
	Ended func(EndedEvent)

	// Removed: a workflow that had ended was removed from the store. Records of a large one may
	// still be being deleted. The goroutine is the one that removed it.
	Removed func(RemovedEvent)

	// AttemptBegan: a function of an activity, a step or a send is about to be called. The
	// function gets the values of the context that AttemptBegan returns. The goroutine is the
	// one that calls the function. Nothing durable says so of an attempt without an
	// idempotency key.
	AttemptBegan func(context.Context, AttemptBeganEvent) context.Context

	// AttemptEnded: the function has returned. It is called exactly once after each
	// AttemptBegan, in the same goroutine, with the context that that returned. The outcome is
	// not durable yet, and may never be. An attempt that ignores its timeout ends when it
	// returns, which may be never.
	AttemptEnded func(context.Context, AttemptEndedEvent)

	// RetryScheduled: an attempt has failed, or its outcome is unknown, and another attempt or
	// a call of the verifier follows. The goroutine is the run's driver.
	RetryScheduled func(RetryScheduledEvent)

	// AttentionRaised: a run needs an operator, for a reason that it did not have. A claim
	// takes back all reasons, so an engine that meets the same fault raises it again. Reasons
	// that only Describe and List find, such as ReasonUnregistered, are not told. The
	// goroutine is the one that made the commit.
	AttentionRaised func(AttentionRaisedEvent)

	// AttentionCleared: a reason for which a run needed an operator is gone, also because the
	// run was claimed again or has ended. The goroutine is the one that made the commit.
	AttentionCleared func(AttentionClearedEvent)

	// SignalAccepted: a call that sends a signal has got its answer. It is not called if the
	// caller gives up before, although the signal may have been accepted, nor for a signal in
	// a transaction of the host. The goroutine is the sender's.
	SignalAccepted func(SignalAcceptedEvent)

	// SignalReceived: a run has received a signal. The goroutine is the run's driver.
	SignalReceived func(SignalReceivedEvent)

	// Committed: the store has answered a Commit of the engine. A commit of unknown outcome is
	// tried again, and each try is told. Commits in a transaction are not: those of
	// Engine.In and of steps in a transaction. The goroutine is the one that called Commit.
	Committed func(CommittedEvent)

	// Takeover: a run was claimed whose previous owner is dead or has stopped.
	Takeover func(TakeoverEvent)

	// LostRace: a claim was refused because another write came first.
	LostRace func(LostRaceEvent)

	// Fenced: a commit was refused, or abandoned, because the run has another
	// owner or has ended. Its contents are discarded.
	Fenced func(FencedEvent)

	// Unknown: the outcome of a commit is unknown. It is settled before anything
	// else happens to the run.
	Unknown func(UnknownEvent)

	// InputChanged: in a replay of the run, an operation was started with an input that
	// differs from the recorded one. Only the first such operation is reported. The run
	// continues. docs/guides/workflows.md describes what is compared. An engine usually
	// reports a run once.
	InputChanged func(InputChangedEvent)

	// Deposed: an incarnation has lost its lease and releases all its runs. The
	// engine continues as another incarnation.
	Deposed func(DeposedEvent)
}

// A StartingEvent: a workflow is about to be started. Parent is the workflow of which it is a
// child, or "".
type StartingEvent struct{ WorkflowID, Workflow, Queue, Parent string }

// A StartedEvent: a start was accepted by the store. Parent is the workflow of which it is a
// child, or "".
type StartedEvent struct{ WorkflowID, Workflow, Queue, Parent string }

// An AdmittedEvent: a run has left the line of its queue. Waited is how long it was in it, by
// the clocks of the engines.
type AdmittedEvent struct {
	WorkflowID, Workflow, Queue string
	Waited                      time.Duration
}

// An ExecutionBeganEvent: an engine begins to execute a run. First reports that no engine has
// executed the run before.
type ExecutionBeganEvent struct {
	WorkflowID, Workflow, Queue string
	First                       bool
}

// A ReplayedEvent: the history of a run was read. Took is from the first read to the last, with
// the calls of the workflow function between them.
type ReplayedEvent struct {
	WorkflowID, Workflow string
	Events               int // of the history
	Took                 time.Duration
}

// An ExecutionEndedEvent: an engine executes a run no longer. Status and Error are of the run,
// if it has ended.
type ExecutionEndedEvent struct {
	WorkflowID, Workflow string
	Exit                 Exit
	Status               checkpoint.Status
	Error                string
	Took                 time.Duration
}

// An Exit is why an engine executes a run no longer.
type Exit string

const (
	// ExitEnded: the run has ended by its function.
	ExitEnded Exit = "ended"

	// ExitParked: the run is in the store alone, because it only waits or because the engine
	// stops.
	ExitParked Exit = "parked"

	// ExitHeld: the run needs an operator before it can continue.
	ExitHeld Exit = "held"

	// ExitContinued: the run continues as new, and the engine executes its next life.
	ExitContinued Exit = "continued"

	// ExitReleased: the engine stops, has lost its lease or the run, or could not commit; or
	// the run was terminated.
	ExitReleased Exit = "released"
)

// An EndedEvent: a run has ended. Took is since its start was accepted, by the clocks of the
// engines.
type EndedEvent struct {
	WorkflowID, Workflow, Queue string
	Status                      checkpoint.Status
	Took                        time.Duration
}

// A RemovedEvent: a workflow that had ended was removed. Kept is how long ago it had ended, by the
// clocks of the engines.
type RemovedEvent struct {
	WorkflowID, Workflow string
	Status               checkpoint.Status
	Cause                Removal
	Kept                 time.Duration
}

// A Removal is why a workflow was removed.
type Removal string

const (
	RemovedByRetention Removal = "retention" // it was older than its Retention
	RemovedByPurge     Removal = "purge"     // engine.Engine.Purge
	RemovedByDelete    Removal = "delete"    // engine.Engine.Delete
)

// An AttemptBeganEvent: a function of an activity, a step or a send is about to be called.
type AttemptBeganEvent struct {
	WorkflowID, Workflow string
	Operation            string         // its place in the workflow
	Kind, Name           string         // of the operation: "activity", "step", "transaction" or "send", and its name
	Phase                activity.Phase // which function: Run, Verify or Compensate
	Attempt              int            // counted from 1
}

// An AttemptEndedEvent: the function of an AttemptBeganEvent has returned. Error is as it is
// recorded, or "".
type AttemptEndedEvent struct {
	AttemptBeganEvent
	Took    time.Duration
	Outcome AttemptOutcome
	Error   string
}

// An AttemptOutcome says how the call of a function ended.
type AttemptOutcome string

const (
	AttemptCompleted AttemptOutcome = "completed" // it returned no error
	AttemptFailed    AttemptOutcome = "failed"    // it returned an error, or a result that cannot be stored
	AttemptTimedOut  AttemptOutcome = "timed-out" // it failed after its time limit
	AttemptPanicked  AttemptOutcome = "panicked"
	AttemptCancelled AttemptOutcome = "cancelled"  // it failed after its context had ended: the engine stops, or nobody waits for it
	AttemptLeaseLost AttemptOutcome = "lease-lost" // it failed after its engine had lost its lease
)

// A RetryScheduledEvent: an attempt has failed, or its outcome is unknown, and another attempt or
// a call of the verifier is due at At. Failures is how many attempts have failed since the
// operation began, or since an operator resumed it.
type RetryScheduledEvent struct {
	WorkflowID, Workflow  string
	Operation, Kind, Name string
	Attempt, Failures     int
	At                    time.Time
	Error                 string
}

// An AttentionRaisedEvent: a run needs an operator. Operation is the one concerned, or "".
type AttentionRaisedEvent struct {
	WorkflowID, Workflow string
	Reason               Reason
	Operation            string
}

// An AttentionClearedEvent: a reason for which a run needed an operator is gone.
type AttentionClearedEvent struct {
	WorkflowID, Workflow string
	Reason               Reason
	Operation            string
}

// A SignalAcceptedEvent: a call that sends a signal has got its answer. Duplicate is
// signal.Accepted.Repeated.
type SignalAcceptedEvent struct {
	WorkflowID, Signal, SignalID string
	Duplicate                    bool
}

// A SignalReceivedEvent: a run has received a signal.
type SignalReceivedEvent struct{ WorkflowID, Workflow, Signal, SignalID string }

// A CommittedEvent: the store has answered a Commit. Bytes is the size of the batch: see
// storage.Size. Group is how many batches shared the transaction: see storage.Batch.
type CommittedEvent struct {
	Operations int // without conditions
	Bytes      int
	Group      int
	Took       time.Duration
	Outcome    CommitOutcome
	Error      string // if the outcome is unknown or failed
}

// A CommitOutcome is what the answer of a store says of a commit.
type CommitOutcome string

const (
	CommitApplied  CommitOutcome = "applied"
	CommitConflict CommitOutcome = "conflict" // a condition did not hold: nothing was written
	CommitUnknown  CommitOutcome = "unknown"  // it may have been written
	CommitFailed   CommitOutcome = "failed"   // nothing was written: the batch is invalid, or it was withdrawn
)

// A Propagator carries values of the context of a start, such as those of a trace, to the
// attempts of the run, in whatever process they are made. It is called by many goroutines. If
// it panics, the panic is logged, and the run continues without those values.
type Propagator interface {
	// Inject returns what is to be stored with a start that gets ctx, or nil. That is stored
	// as it is, and not encoded by Config.Codec: it must not contain secrets. If it is larger
	// than MaxHeaders or is not UTF-8, it is dropped, and this is logged.
	Inject(ctx context.Context) map[string]string

	// Extract returns ctx with the values of what Inject returned. Only the values of the
	// returned context are used, not its end. It is called each time an engine begins to
	// execute the run, if Inject returned something.
	Extract(ctx context.Context, headers map[string]string) context.Context
}

// MaxHeaders is the maximum number of bytes that a Propagator may store with a start: of all
// keys and values together.
const MaxHeaders = 4 << 10

// A TakeoverEvent: a run was claimed whose previous owner is dead or has stopped. From and To
// are incarnations: see EngineInfo.
type TakeoverEvent struct{ WorkflowID, From, To string }

// A LostRaceEvent: a claim was refused because another write came first.
type LostRaceEvent struct{ WorkflowID string }

// A FencedEvent: a commit was refused, or abandoned, because the run has another owner or has
// ended.
type FencedEvent struct{ WorkflowID string }

// An UnknownEvent: the outcome of a commit is unknown. The WorkflowID is empty if the commit
// belongs to no run.
type UnknownEvent struct{ WorkflowID string }

// An InputChangedEvent: a replay started an operation with another input than the recorded one.
type InputChangedEvent struct{ WorkflowID, Operation string }

// A DeposedEvent: an incarnation has lost its lease.
type DeposedEvent struct{ Incarnation string }
