package weft

import (
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/signal"
)

// MaxBulkID is the maximum length of the id of a bulk operation in bytes.
const MaxBulkID = 200

// MaxRefusals is how many of the workflows that a bulk operation has refused are listed.
const MaxRefusals = 1000

// A Bulk is one operation on every workflow that a filter selects. engine.Engine.StartBulk puts it into
// the store, and an engine carries it out.
type Bulk struct {
	// Filter selects the workflows, as they are when the bulk begins. With a Status, those are
	// selected that had it then and still have it when it is their turn. With Attention, those that needed
	// an operator then, by a reason in their records. After and Before are of the time of the
	// status if there is a Status with a Workflow, Labels or nothing else, and otherwise of the creation.
	// A Filter that selects everything is refused: set Before to do that.
	Filter Filter

	// Do is what is done to each.
	Do Verb

	// Before is for BulkReset: the operation to before which each is reset, or "" for the start. See
	// engine.Engine.Reset.
	Before string

	// Signal is for BulkSignal: what is sent to each. It has a Name and a Payload, which is encoded once, by
	// StartBulk, and has at most 64 KiB then. It has neither a WorkflowID nor Start nor Token. Without
	// an ID, one is made that belongs to the bulk.
	Signal signal.Message

	// Rate is how many operations begin within a time at most, at even intervals, whichever engine
	// carries out the bulk. Zero means no limit; then one is begun after the other.
	Rate activity.Rate
}

// A Verb is what a Bulk does to each workflow: what the method of engine.Engine with this name does.
type Verb string

const (
	// BulkCancel: Engine.Cancel. Workflows that had ended when the bulk began are passed over.
	BulkCancel Verb = "cancel"

	// BulkTerminate: Engine.Terminate. Workflows that had ended when the bulk began are passed over.
	BulkTerminate Verb = "terminate"

	// BulkSignal: a signal is sent. Workflows that had ended when the bulk began are passed over.
	BulkSignal Verb = "signal"

	// BulkResume: Engine.Resume. Only workflows that had failed, or needed an operator, when the bulk
	// began are resumed.
	BulkResume Verb = "resume"

	// BulkReset: Engine.Reset. A workflow that cannot be reset stays as it is.
	BulkReset Verb = "reset"

	// BulkPurge: Engine.Purge. Only workflows that had ended when the bulk began are purged.
	BulkPurge Verb = "purge"

	// BulkDelete: Engine.Delete.
	BulkDelete Verb = "delete"

	// BulkProtect: Engine.Protect.
	BulkProtect Verb = "protect"

	// BulkUnprotect: Engine.Unprotect.
	BulkUnprotect Verb = "unprotect"
)

// A BulkInfo is the state of a bulk operation.
type BulkInfo struct {
	ID string

	// Bulk is as it was started. Its Signal has the payload as a json.RawMessage if the JSON codec encoded
	// it and the bulk has not ended, and otherwise none. If the record is damaged, only the ID is known.
	Bulk Bulk

	By      Actor // who has started it, and why
	Began   time.Time
	EndedAt time.Time // when it had dealt with all workflows, or was stopped; zero: it goes on
	Stopped *Actor    // who has stopped it, and why; nil: nobody has

	// Done is to how many workflows it was done, and Refused to how many it could not be done.
	// The first 1,000 of these are in Refusals. What an engine does is counted within seconds, or after
	// each operation if the Rate is less than one in five seconds.
	Done, Refused int64
	Refusals      []Refusal

	Last   string // the id of the workflow that was dealt with last, as far as they are counted
	Engine string // the incarnation that carries it out; "": none yet
}

// A Refusal says why an operation could not be done to a workflow.
type Refusal struct{ ID, Reason string }
