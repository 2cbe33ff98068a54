package weft

import (
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// Info is the state of a workflow. Fields that are empty are absent from its JSON.
type Info struct {
	ID         string            `json:"id"`
	Workflow   string            `json:"workflow"`
	Status     checkpoint.Status `json:"status"`
	Failure    string            `json:"failure,omitempty"`   // the text of the error that Result returns, if it has failed or was cancelled
	Attention  []Attention       `json:"attention,omitempty"` // why it needs an operator
	Cancel     *Cancellation     `json:"cancel,omitempty"`
	Waiting    []string          `json:"waiting,omitempty"`    // what it waits for; only of a run that is parked, waits in a queue, has no engine, or is executed by this one
	Unreceived []string          `json:"unreceived,omitempty"` // the signals that wait although it has not asked for them; only from Describe, of a run that is parked or executed by this engine
	Parent     string            `json:"parent,omitempty"`     // the id of its parent; "": none
	Queue      string            `json:"queue,omitempty"`      // in which it waits, or waited, to be admitted
	Owner      string            `json:"owner,omitempty"`      // the incarnation that owns it
	Deployment string            `json:"deployment,omitempty"` // the one on which it stays; "": none
	Epoch      uint64            `json:"epoch,omitempty"`      // rises whenever the owner changes
	CreatedAt  time.Time         `json:"createdAt,omitzero"`
	StartedAt  time.Time         `json:"startedAt,omitzero"`
	Life       int               `json:"life,omitempty"`  // how often it has continued as new: see engine.ContinueAsNew
	LifeAt     time.Time         `json:"lifeAt,omitzero"` // when its present life began, if it has continued as new
	EndedAt    time.Time         `json:"endedAt,omitzero"`
	Labels     map[string]string `json:"labels,omitempty"`    // see StartOptions.Labels
	Versions   map[string]int    `json:"versions,omitempty"`  // by which it goes on, by change: see engine.Workflow.Versions
	Protected  *Protection       `json:"protected,omitempty"` // it is not removed, see engine.Engine.Protect; nil: it may be
	Damaged    string            `json:"damaged,omitempty"`   // what is wrong with its record, of which only the ID is known; only in a Page
}

// An Attention is a reason why a running workflow needs an operator.
type Attention struct {
	Reason    Reason    `json:"reason"`
	Operation string    `json:"operation,omitempty"`
	Name      string    `json:"name,omitempty"`
	Detail    string    `json:"detail,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}

// A Reason is the kind of an Attention.
type Reason string

const (
	// ReasonNonDeterminism: the current code does not do what the history has recorded.
	ReasonNonDeterminism Reason = "non-determinism"

	// ReasonUnregistered: no engine that this one knows of has the workflow, or the versions of
	// changes by which the run goes, or none that is alive belongs to the deployment on which the
	// run stays or will start.
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

	// ReasonBadDefinition: an activity that the workflow uses has an invalid definition, or Config.Codec
	// could not encode a signal.Opened.
	ReasonBadDefinition Reason = "bad-definition"

	// ReasonBadInput: the workflow called an activity with an idempotency key with an input that
	// cannot be encoded, or decoded again. No attempt was made. The run continues with code that
	// gives it another input. Releases before this reason recorded ReasonBadDefinition.
	ReasonBadInput Reason = "bad-input"

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

// A Cancellation is a request to cancel a workflow, or its termination.
type Cancellation struct {
	By     string    `json:"by,omitempty"` // who requested it; "" if the request did not say, or the parent ended
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"` // of the request; after a reset of a terminated workflow, when it was delivered

	// Terminated: an operator has ended the workflow with engine.Engine.Terminate. It was not
	// asked to stop.
	Terminated bool `json:"terminated,omitempty"`
}

// A Protection says who has protected a workflow from being removed, why, and since when.
type Protection struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"`
}

// An EngineInfo describes an incarnation: an execution of engine.Engine.Run, or the part of it under
// one lease.
type EngineInfo struct {
	Incarnation string   `json:"incarnation"` // its unique name, which begins with Config.Name
	Name        string   `json:"name,omitempty"`
	Deployment  string   `json:"deployment,omitempty"` // its Config.Deployment
	Workflows   []string `json:"workflows,omitempty"`  // the names of the workflows that it executes
	Queues      []string `json:"queues,omitempty"`     // that it serves, besides runs without a queue

	// Versions are the newest versions of changes that it has, by workflow and change. See
	// engine.Workflow.Versions.
	Versions map[string]map[string]int `json:"versions,omitempty"`

	// Alive is false if it has stopped, or was found dead. On a Shared store another
	// running engine finds it dead: after a LeaseTTL, or on a storage.Prover as soon as
	// its session has ended.
	Alive    bool          `json:"alive"`
	LeaseTTL time.Duration `json:"leaseTtl,omitempty"` // zero: this store needs no leases
	Runs     int           `json:"runs"`               // how many it owns

	Since   time.Time `json:"since,omitzero"`
	Stopped time.Time `json:"stopped,omitzero"` // zero: it has not shut down cleanly
	Renewed time.Time `json:"renewed,omitzero"` // when it has last renewed its lease, by its clock; zero: this store needs no leases

	// How often it claimed a run from another incarnation, lost the race for a claim,
	// was refused a commit because it did not own the run any more, and did not know
	// the outcome of a commit. For another engine, the values are those of its last
	// renewal.
	Takeovers uint64 `json:"takeovers"`
	LostRaces uint64 `json:"lostRaces"`
	Fenced    uint64 `json:"fenced"`
	Unknown   uint64 `json:"unknown"`
}

// A Rehearsal says whether a run could go on with the code of an engine.
type Rehearsal struct {
	ID       string
	Workflow string

	// Err is nil if the run would go on. See engine.Engine.Rehearse.
	Err error
}

// A Filter selects the workflows that have all that its fields say. A field that is zero selects
// all. The Filter also determines the order of the list, by the first of these rules that applies:
//
//   - With an IDPrefix: the order of the ids, whatever PageRequest.Ascending says. All that is no
//     letter, digit, '-', '.', '_' or '~' of ASCII comes before these.
//   - With Parent or Attention: the order in which the workflows were created.
//   - With Workflow, Status or Labels: the order in which they came into the status that they have,
//     which is when they were created, began, were resumed after a failure, or ended.
//   - Otherwise: the order in which they were created.
type Filter struct {
	Workflow  string            // only those of this name
	Status    checkpoint.Status // only those with this status
	Attention bool              // only those that need an operator
	Parent    string            // only children of the workflow with this id
	TopLevel  bool              // only those without a parent
	Labels    map[string]string // only those with all of these labels, with these values: see StartOptions.Labels
	IDPrefix  string            // only those whose ids begin with this

	// Deployment: only those that are bound to this deployment.
	Deployment string `json:",omitempty"` // so that a Cursor of an earlier release is still one

	// NoNamespace: only those that belong to no namespace. The workflows of a namespace have the
	// label weft.namespace, so Labels selects those.
	NoNamespace bool `json:",omitempty"`

	// After and Before select by the time of the order: when a workflow came into its
	// status, or when it was created, also with an IDPrefix. After is included, Before is
	// not. A time of creation is compared in milliseconds. A Cursor belongs to these times:
	// compute them once for all pages of a list.
	After, Before time.Time
}

// A SignalInfo describes a signal that was accepted and is not consumed.
type SignalInfo struct {
	Name       string    `json:"name"`
	ID         string    `json:"id"`
	AcceptedAt time.Time `json:"acceptedAt,omitzero"`
	Bytes      int       `json:"bytes"` // of the payload

	// Indeterminate: the payload exists, but the record of its acceptance does not.
	// Sending the signal again returns a *signal.IndeterminateError until it is cleared.
	Indeterminate bool `json:"indeterminate,omitempty"`
}
