package weft

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
)

// An Actor is who acts on a workflow, and why. Both fields are required, except by Cancel.
// Together they have at most 4,096 bytes of UTF-8.
type Actor struct{ Name, Reason string }

// ChildOptions are the options of a child. The zero value is right for most children.
type ChildOptions struct {
	// ID is the id of the child. If it is empty, a unique id is derived from the parent and
	// the operation.
	ID string

	// OnParentEnd says what happens to a child that has not ended when the parent's
	// function returns.
	OnParentEnd ParentEnd
}

// A ParentEnd says what happens to a child when its parent ends.
type ParentEnd uint8

const (
	// ParentEndCancel: the child is cancelled.
	ParentEndCancel ParentEnd = iota

	// ParentEndAbandon: the child continues. It is not cancelled when the parent is
	// cancelled, either.
	ParentEndAbandon

	// ParentEndAwait: the parent waits for the child and ends after it.
	ParentEndAwait
)

// A StartRequest describes a start.
type StartRequest struct {
	Workflow string
	ID       string // 1 to 200 bytes of UTF-8, its namespace included; empty: the engine generates one
	Input    any    // may be json.RawMessage
	Options  StartOptions

	// New: the workflow must not exist yet. An id that is in use is then an *ExistsError also if
	// its workflow was started with the same input, and ExistsError.Same says so. After an error
	// that leaves open whether the workflow was started, this may be the workflow of the same
	// call.
	New bool
}

// An UpdateRequest describes a call of an update, without its types. See engine.Update.Call.
type UpdateRequest struct {
	WorkflowID string  // empty if Start is set
	Update     string  // its name
	ID         *string // 1 to 128 bytes of UTF-8; nil: one is generated
	Input      any     // may be json.RawMessage

	// Start, if not nil, starts the workflow if it does not exist. The start and the update are then
	// one commit.
	Start *StartRequest
}

// StartID returns the id of the workflow. It makes r a signal.Start.
func (r *StartRequest) StartID() string { return r.ID }

// Retention says how long workflows are kept after they have ended, by how they ended. In
// engine.Config, zero means for ever. In engine.Workflow, zero means as in engine.Config, and a
// negative time means for ever.
type Retention struct {
	Completed time.Duration
	Failed    time.Duration
	Cancelled time.Duration // also those that an operator has terminated
}

// After returns for how long a workflow with a status is kept. Zero or less means for ever, and is
// what After returns for a workflow that has not ended.
func (r Retention) After(s checkpoint.Status) time.Duration {
	switch s {
	case checkpoint.StatusCompleted:
		return r.Completed
	case checkpoint.StatusFailed:
		return r.Failed
	case checkpoint.StatusCancelled:
		return r.Cancelled
	}
	return 0
}

// Or returns r with the times of other in place of those that are zero.
func (r Retention) Or(other Retention) Retention {
	return Retention{
		Completed: cmp.Or(r.Completed, other.Completed),
		Failed:    cmp.Or(r.Failed, other.Failed),
		Cancelled: cmp.Or(r.Cancelled, other.Cancelled),
	}
}

// Ownership is how an engine prevents two owners of one workflow from both writing.
// The zero value is the safe mode. New refuses unknown values.
type Ownership uint8

const (
	// OwnershipCASRequired needs a store with ConditionalBatch: every write has the
	// condition that nothing it depends on has changed.
	OwnershipCASRequired Ownership = iota

	// OwnershipSingleOwner is a promise of yours: exactly one engine, in one
	// process, uses the store, and everything goes through it. It needs only
	// AtomicBatch. What needs ConditionalBatch is refused, also if the store has it. A store
	// that was used in one mode is refused in the other.
	OwnershipSingleOwner
)

func (o Ownership) String() string {
	switch o {
	case OwnershipCASRequired:
		return "cas-required"
	case OwnershipSingleOwner:
		return "single-owner"
	}
	return fmt.Sprintf("unknown(%d)", uint8(o))
}

// A Queue is where workflows that were started with its name (StartOptions.Queue) wait to
// be executed. Only engines that list it in engine.Config.Queues execute them. They are admitted
// in the order in which they were started, as far as the clocks of the engines that started
// them agree. An engine skips workflows that are not in its engine.Config.Workflows.
//
// The limits apply across all engines of a store. Each engine admits by its own limits, so
// configure the same in all of them. While they differ, the larger Concurrency applies, and
// each engine admits by its own Rate.
type Queue struct {
	Name string

	// Concurrency limits the runs of the queue that have been admitted and have not ended.
	// It is at most 10,000; zero means no limit. A run counts also while it is parked,
	// while it is held (see ReleaseHeld), and while its engine is dead and no other has taken it over. So a
	// run must not wait for a workflow in the same queue, such as its own child.
	Concurrency int

	// ReleaseHeld frees the slot of a run when it is held. When the run continues it has no
	// slot, so then Concurrency may be exceeded by it. Without ReleaseHeld, as many held runs
	// as there are slots stop the queue until an operator acts.
	ReleaseHeld bool

	// Rate limits how many runs are admitted within a period, by the wall clocks of the
	// engines. It may be off by the difference between these clocks. Its Count is at most
	// 1,000. Zero means no limit.
	Rate activity.Rate
}

// MaxPayload is the maximum size in bytes of an encoded input, result or signal
// payload.
const MaxPayload = 16 << 20

// StartOptions are the options of a start. The zero value is right for most workflows.
type StartOptions struct {
	// Queue is the queue in which the workflow waits until an engine that serves it
	// (engine.Config.Queues) executes the workflow. Empty means no queue, but for a StartRequest
	// without NoQueue: then it means the queue of the engine's own definition of the workflow
	// (engine.Workflow.Defaults), if engine.Config.Workflows of the engine that accepts the start
	// has it. A child does not inherit its parent's queue.
	Queue string

	// NoQueue: the workflow waits in no queue, whatever the engine's definition says. A start
	// with an engine.Workflow sets it if its options name no Queue. With a Queue it is
	// ErrInvalid.
	NoQueue bool

	// Deployment is the deployment on which the run and its children are from their start, Pinned
	// or not: only engines with this engine.Config.Deployment execute them, and they wait while
	// there is none. It need not be active. Empty means: where a workflow that is Pinned or not
	// is executed otherwise, see engine.Workflow.Pinned. A child that has a Deployment in its own
	// options is on that one. A detached workflow does not inherit it. It has at most 100 bytes of
	// UTF-8. If the id of a repeated start is in use, it is ignored.
	Deployment string

	// Labels are for finding the workflow with a Filter: at most 16 of them. A name has 1 to 64
	// bytes and does not begin with "weft.", which is reserved. A value has 1 to 128 bytes. All
	// are UTF-8, and together they have at most 1,024 bytes. engine.Run.SetLabel and
	// engine.Engine.Label change them later. A child does not inherit its parent's labels. They
	// are no part of what makes two starts the same: if the id is in use, the labels of a
	// repeated start are ignored. They are stored as they are, whatever the codec does, and
	// everyone who lists workflows sees them. So they are no place for secrets or personal data.
	Labels map[string]string

	// StartAt delays the workflow: nothing is executed before this time, whatever is sent to the
	// workflow. Signals wait for it. A workflow that is cancelled before is cancelled at once, and its
	// function is never called. If the workflow has a queue, it joins the line then. A time that has
	// passed, as the zero time, means no delay. It must be before the year 2200. Until the workflow
	// begins, engines of releases without StartAt leave it alone. It is no part of what makes two
	// starts the same.
	StartAt time.Time
}

// MaxProgress is the maximum size in bytes of an attempt's encoded progress.
const MaxProgress = 64 << 10
