package weft

import (
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// Info is the state of a workflow.
type Info struct {
	ID, Workflow                  string
	Status                        checkpoint.Status
	Attention                     []Attention // why it needs an operator
	Cancel                        *Cancellation
	Waiting                       []string // what it waits for; only of a run that is parked, waits in a queue, or is executed by this engine
	Parent                        string   // the id of its parent; "": none
	Queue                         string   // in which it waits, or waited, to be admitted
	Owner                         string   // the incarnation that owns it
	Deployment                    string   // the one it is pinned to; "": none
	Epoch                         uint64   // rises whenever the owner changes
	CreatedAt, StartedAt, EndedAt time.Time
}

// An Attention is a reason why a running workflow needs an operator.
type Attention struct {
	Reason                  Reason
	Operation, Name, Detail string
	Since                   time.Time
}

// A Reason is the kind of an Attention.
type Reason string

const (
	// ReasonNonDeterminism: the current code does not do what the history has recorded.
	ReasonNonDeterminism Reason = "non-determinism"

	// ReasonUnregistered: no engine that this one knows of has the workflow, or none that
	// is alive belongs to the deployment on which the run stays or will start.
	ReasonUnregistered Reason = "unregistered"

	// ReasonNewerRelease: a newer release of Weft has used something in the run that this one
	// does not know: Attention.Name. Only an engine of that release executes or ends it.
	ReasonNewerRelease Reason = "newer-release"

	// ReasonNoProgress: the process died each time this run was executed, ten times or more,
	// and at least the last three times no other quarantined run was executed with it.
	// After engine.Engine.Resume it is executed again.
	ReasonNoProgress Reason = "no-progress"

	// ReasonStuck: the function has not called the engine for 30 s. It blocks on something
	// outside the engine, or computes for long. The reason is removed when the
	// function calls the engine again.
	ReasonStuck Reason = "stuck"

	// ReasonUnresponsive: an attempt of an activity is unresponsive. It has not returned, although
	// its timeout and then Settle have passed. It still counts toward MaxActivities,
	// and no other attempt of the call starts. The rest of the run continues. The
	// reason is removed when the attempt returns.
	ReasonUnresponsive Reason = "unresponsive"

	// ReasonDamaged: a record of the run is corrupt.
	ReasonDamaged Reason = "damaged"

	// ReasonBadDefinition: an activity that the workflow uses has an invalid definition.
	ReasonBadDefinition Reason = "bad-definition"

	// ReasonUndecodable: the current code cannot decode something that is stored for the run:
	// its input, a result or a signal. The workflow's function has not seen it. The run
	// continues with code that can decode it: an engine that starts with such code tries by
	// itself, and after engine.Engine.Resume it is tried at once. engine.Engine.ClearSignal can remove a signal
	// that was not received yet. If a Compensate needs the result, engine.Engine.Resolve decides
	// what follows. A result that was set by engine.Engine.Resolve is decoded before it becomes
	// the outcome; if that fails, the reason is ReasonIndeterminate.
	ReasonUndecodable Reason = "undecodable"

	// ReasonIndeterminate: the outcome of an activity that has AwaitOperator cannot be determined, or
	// the result that engine.Engine.Resolve set cannot be decoded as the activity's result
	// type. The rest of the run continues. engine.Engine.Resolve sets the outcome.
	ReasonIndeterminate Reason = "indeterminate"

	// ReasonUncompensated: the workflow ends without success, and one of its Compensate
	// functions has failed permanently. Earlier calls are not undone until
	// engine.Engine.Resolve decides what follows. For the call "3", the Operation is "3.undo".
	ReasonUncompensated Reason = "uncompensated"
)

// A Cancellation is a request to cancel a workflow.
type Cancellation struct {
	By     string // who requested it; "" if the request did not say, or the parent ended
	Reason string
	At     time.Time
}

// An EngineInfo describes an incarnation: an execution of engine.Engine.Run, or the part of it under
// one lease.
type EngineInfo struct {
	Incarnation string // its unique name, which begins with Config.Name
	Name        string
	Deployment  string   // its Config.Deployment
	Workflows   []string // the names of the workflows that it executes
	Queues      []string // that it serves, besides runs without a queue

	// Alive is false if it has stopped, or was found dead. On a Shared store it
	// takes a LeaseTTL, and another running engine, to find it dead.
	Alive    bool
	LeaseTTL time.Duration // zero: this store needs no leases
	Runs     int           // how many it owns

	Since   time.Time
	Stopped time.Time // zero: it has not shut down cleanly

	// How often it claimed a run from another incarnation, lost the race for a claim,
	// was refused a commit because it did not own the run any more, and did not know
	// the outcome of a commit. For another engine, the values are those of its last
	// renewal.
	Takeovers, LostRaces, Fenced, Unknown uint64
}

// A Filter selects the workflows that List yields. A zero field selects all.
type Filter struct {
	Workflow  string
	Status    checkpoint.Status
	Attention bool   // only those that need an operator
	Parent    string // only its children
}

// A SignalInfo describes a signal that was accepted and is not consumed.
type SignalInfo struct {
	Name, ID   string
	AcceptedAt time.Time
	Bytes      int // of the payload

	// Indeterminate: the payload exists, but the record of its acceptance does not.
	// Sending the signal again returns a *signal.IndeterminateError until it is cleared.
	Indeterminate bool
}
