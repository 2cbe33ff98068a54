package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Version is the version of the records that this package writes.
const Version = 1

// A Workflow is the record wf:{id}. It is small, and steps do not change it. Times are in
// microseconds since 1970; zero means never.
type Workflow struct {
	ID string `cbor:"-"`

	// Generation is the ULID of this generation of the id. Records of other
	// generations are ignored.
	Generation string            `cbor:"1,keyasint"`
	Type       string            `cbor:"2,keyasint,omitempty"`
	Status     checkpoint.Status `cbor:"3,keyasint,omitempty"`

	// ByGeneration: the checkpoints are stored under the generation, and not under the id. See Log.
	ByGeneration bool `cbor:"66,keyasint,omitempty"`

	// Owner is the incarnation that drives the run, and Claim the number of the
	// checkpoint by which it claimed the run. An empty Owner means that there is none.
	Owner string `cbor:"4,keyasint,omitempty"`
	Claim uint64 `cbor:"5,keyasint,omitempty"`

	// State counts the changes of this record by others than its owner.
	State uint64 `cbor:"6,keyasint,omitempty"`

	// Base is the number of the first checkpoint of the present life.
	Base uint64 `cbor:"7,keyasint,omitempty"`

	// Life is how often the run has continued as new. From then on, First is the number of
	// the first operation of the present life, and LifeAt is when that life began. See Continue.
	Life   int    `cbor:"45,keyasint,omitempty"`
	First  uint64 `cbor:"46,keyasint,omitempty"`
	LifeAt int64  `cbor:"47,keyasint,omitempty"`

	// Resumed is when the run was last retried or reset in an earlier life. It belongs to the order of
	// lists: see Since.
	Resumed int64 `cbor:"48,keyasint,omitempty"`

	// Deaths counts the successive owners that crashed, since the run last showed that
	// it does not cause this.
	Deaths int `cbor:"8,keyasint,omitempty"`

	// Alone counts the successive claims under which the run was driven while no other
	// run with as many deaths was.
	Alone int `cbor:"30,keyasint,omitempty"`

	CreatedAt int64 `cbor:"9,keyasint,omitempty"`
	StartedAt int64 `cbor:"10,keyasint,omitempty"`
	EndedAt   int64 `cbor:"11,keyasint,omitempty"`

	// Digest and Canonical identify the input. See Identity.
	Digest    []byte `cbor:"12,keyasint,omitempty"`
	Canonical []byte `cbor:"33,keyasint,omitempty"`

	Cancel    *Request    `cbor:"13,keyasint,omitempty"`
	Attention []Attention `cbor:"14,keyasint,omitempty"`

	// Todo is the key of the entry by which an unclaimed run is found.
	Todo []byte `cbor:"15,keyasint,omitempty"`

	// Next, if not zero, marks the record as the tombstone of a purged workflow: a later
	// generation of the id starts with this checkpoint number.
	Next     uint64 `cbor:"16,keyasint,omitempty"`
	PurgedAt int64  `cbor:"17,keyasint,omitempty"`

	// Verbs are actions of operators on the run. Its next checkpoint records them.
	Verbs []Verb `cbor:"18,keyasint,omitempty"`

	// Parent is the workflow that started this one, if it is a child.
	Parent *Parent `cbor:"19,keyasint,omitempty"`

	// Untold, of a child that has ended: its parent had continued as new since it began the child, so it was not told, and
	// never will be.
	Untold bool `cbor:"67,keyasint,omitempty"`

	// Awaits are the names of the signals for which a parked run is claimed.
	Awaits []string `cbor:"20,keyasint,omitempty"`

	// Handles are the names of the updates for which a parked run is claimed.
	Handles []string `cbor:"60,keyasint,omitempty"`

	// Updates is the number of updates that earlier lives of the run have accepted. Those of the
	// present life are numbered on from it.
	Updates int `cbor:"61,keyasint,omitempty"`

	// Heard is the number of signals that the workflow had accepted, and of updates that were
	// admitted, when it was parked. None of them that is still pending has one of these names.
	Heard uint64 `cbor:"26,keyasint,omitempty"`

	// Facing describes what a parked run waits for.
	Facing []string `cbor:"21,keyasint,omitempty"`

	// Quiet, for a failed run, is the last event before its last operation began. Events
	// after it made the run do nothing but fail.
	Quiet *Place `cbor:"22,keyasint,omitempty"`

	// Retries are the failures after which the run was retried, in order.
	Retries []Retry `cbor:"23,keyasint,omitempty"`

	// Compensated means that the run has undone its effects before it ended.
	Compensated bool `cbor:"24,keyasint,omitempty"`

	// Deployment is the deployment to which the run is bound. It is written by the start, see
	// StartOn, or by the first claim, or inherited from the parent; "" means any.
	Deployment string `cbor:"25,keyasint,omitempty"`

	// Queue is the queue in which the run waits; "" means none. While Waits is true, the
	// run has not been admitted, and Todo is its place in the line. Slot, from 1, is the
	// slot that it occupies from its admission until its end; 0 means none, in a queue
	// without a limit.
	Queue string `cbor:"27,keyasint,omitempty"`
	Waits bool   `cbor:"28,keyasint,omitempty"`
	Slot  int    `cbor:"29,keyasint,omitempty"`

	// Needs are abilities that an engine must have to execute, end or purge the run. The
	// commit that first uses one adds it. See Unmet.
	Needs []string `cbor:"31,keyasint,omitempty"`

	// Labels are for finding the run in lists, by name.
	Labels map[string]string `cbor:"32,keyasint,omitempty"`

	// Versions are the choices between versions of changes of the workflow's code, one for each
	// change, in the order in which they were made.
	Versions []Choice `cbor:"34,keyasint,omitempty"`

	// Protected: the run is not removed. See Protect.
	Protected *Protection `cbor:"50,keyasint,omitempty"`

	// Resets are those of the present life, in order.
	Resets []Reset `cbor:"65,keyasint,omitempty"`

	// StartAt, until the run begins, is when it may begin at the earliest; zero means at once. A
	// run with a queue joins the line then. See Delay.
	StartAt int64 `cbor:"40,keyasint,omitempty"`

	// Schedule is the id of the schedule that has started the run; "" means none. An engine looks
	// at the schedule when the run has ended.
	Schedule string `cbor:"41,keyasint,omitempty"`

	key     []byte // nil: not made yet
	raw     []byte
	unknown record.Unknown
}

// A Place is the position of an event in a history. The zero Place is before the first event.
type Place struct {
	Checkpoint uint64 `cbor:"1,keyasint,omitempty"`
	Event      int    `cbor:"2,keyasint,omitempty"` // its number in the checkpoint, from 0
}

// After reports whether p is later than q.
func (p Place) After(q Place) bool {
	return p.Checkpoint > q.Checkpoint || p.Checkpoint == q.Checkpoint && p.Event > q.Event
}

// A Retry revokes an end of a run, and the failures of its operations after Quiet.
type Retry struct {
	Quiet Place  `cbor:"1,keyasint"`
	End   uint64 `cbor:"2,keyasint"` // the checkpoint with the end
	At    int64  `cbor:"3,keyasint"`
}

// Covers reports whether an event at p, if it is a failure, is revoked.
func (r Retry) Covers(p Place) bool { return p.After(r.Quiet) && p.Checkpoint <= r.End }

// A Choice is the version of a change by which a run goes on from a place. Before that, it
// went by version 0.
type Choice struct {
	Change  string `cbor:"1,keyasint"`
	Version int    `cbor:"2,keyasint"`
	From    Place  `cbor:"3,keyasint"`
}

// A Verb is an action of an operator.
type Verb struct {
	Name string `cbor:"1,keyasint"`
	By   string `cbor:"2,keyasint"`
	Why  string `cbor:"3,keyasint"`
}

// event returns the event by which the history has v.
func (v Verb) event() checkpoint.Event {
	return checkpoint.Event{Kind: checkpoint.KindActed, Name: v.Name, By: v.By, Why: v.Why}
}

// Acted returns the events of the verbs that the history of wf does not have yet.
func (w *Workflow) Acted() (events []checkpoint.Event) {
	for _, v := range w.Verbs {
		events = append(events, v.event())
	}
	return events
}

// A Request is a request that a run stop, or its termination.
type Request struct {
	Reason     string `cbor:"1,keyasint,omitempty"`
	At         int64  `cbor:"2,keyasint,omitempty"`
	By         string `cbor:"3,keyasint,omitempty"`
	Terminated bool   `cbor:"4,keyasint,omitempty"`
}

// A Protection says who has protected a run from being removed, and why.
type Protection struct {
	By     string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint"`
	At     int64  `cbor:"3,keyasint"`
}

// An Attention says why a running workflow needs a person.
type Attention struct {
	Reason    string `cbor:"1,keyasint"`
	Operation string `cbor:"2,keyasint,omitempty"`
	Name      string `cbor:"3,keyasint,omitempty"`
	Detail    string `cbor:"4,keyasint,omitempty"`
	Since     int64  `cbor:"5,keyasint,omitempty"`
}

// Identity returns what identifies the run's input.
func (w *Workflow) Identity() digest.Digest {
	return digest.Digest{Plain: w.Digest, Canonical: w.Canonical}
}

// Tombstone reports whether the workflow was purged and only its next number is kept.
func (w *Workflow) Tombstone() bool { return w.Next > 0 }

// abilities are those that a run may need and this release has. What every release can do is
// not among them. A release that stores something which an earlier one would not understand
// adds a name here.
var abilities = []string{keepsChildren, namespace.Need, versions, protects, startsLater, lives, updates, opensHooks, resets, streams}

// need notes an ability that whoever drives, ends or removes the run must have.
func (w *Workflow) need(ability string) {
	if !slices.Contains(w.Needs, ability) {
		w.Needs = append(slices.Clip(w.Needs), ability)
	}
}

// Log returns where the checkpoints of the workflow are. A tombstone has the one of what was purged.
func (w *Workflow) Log() keys.Log {
	if w.ByGeneration {
		return keys.LogOf(w.Generation)
	}
	return keys.LogUnder(w.ID)
}

// versions is the ability to go on by the run's choices, and to leave it to an engine whose code
// has their versions.
const versions = "versions"

// Choose adds choices between versions to the record.
func (w *Workflow) Choose(choices ...Choice) {
	w.Versions = slices.Concat(w.Versions, choices)
	w.need(versions)
}

// updates is the ability to execute the updates that a run has accepted, and to delete their records
// with the run.
const updates = "updates"

// Updated reports whether the run has had an update.
func (w *Workflow) Updated() bool { return slices.Contains(w.Needs, updates) }

// Update notes that the run has an update.
func (w *Workflow) Update() { w.need(updates) }

// streams is the ability to delete the streams of a run with it, and to reset a run that has closed one.
const streams = "streams"

// HasStreams reports whether the run has ever had a stream. If not, no chunks belong to it.
func (w *Workflow) HasStreams() bool { return slices.Contains(w.Needs, streams) }

// Stream notes that the run has a stream.
func (w *Workflow) Stream() { w.need(streams) }

// Streaming decides that the run has a stream, for a commit of somebody else than its driver. It has the
// condition that the record is unchanged.
func (w *Workflow) Streaming() (*Workflow, []storage.Op, error) {
	if w.HasStreams() {
		return w, nil, nil
	}
	next := *w
	next.State++
	next.Stream()
	ops, err := Replace(nil, w, &next)
	return &next, ops, err
}

// Chosen returns the run's choice of a change, or nil if there is none.
func (w *Workflow) Chosen(change string) *Choice {
	if i := slices.IndexFunc(w.Versions, func(c Choice) bool { return c.Change == change }); i >= 0 {
		return &w.Versions[i]
	}
	return nil
}

// startsLater is the ability to leave a run alone until its StartAt. A run needs it until it begins.
const startsLater = "delay"

// Delay has a run that is to be started begin at a time, and not before.
func (w *Workflow) Delay(until time.Time) {
	w.StartAt, w.Waits = Micro(until), false
	w.need(startsLater)
}

// Delayed reports whether the run was delayed and has not begun, nor joined the line of its queue.
func (w *Workflow) Delayed() bool { return w.StartAt != 0 }

// MayStart reports whether the time has come at which a delayed run may begin. It is true for any
// other run.
func (w *Workflow) MayStart(now time.Time) bool { return w.StartAt == 0 || Micro(now) >= w.StartAt }

// Enqueue decides that a delayed run joins the line of its queue.
func (w *Workflow) Enqueue(now time.Time) (storage.Batch, error) {
	next := *w
	next.undelay()
	next.State++
	next.Waits, next.Todo = true, keys.Line(w.Queue, now, w.ID)
	ops, err := Replace(nil, w, &next)
	return storage.Batch{
		If:  []storage.Condition{w.Unchanged()},
		Ops: append(ops, storage.Delete(w.Todo), storage.Put(next.Todo, nil)),
	}, err
}

// undelay notes that a run is not delayed any more.
func (w *Workflow) undelay() {
	if w.StartAt == 0 {
		return
	}
	w.StartAt = 0
	w.Needs = slices.DeleteFunc(slices.Clone(w.Needs), func(need string) bool { return need == startsLater })
	if len(w.Needs) == 0 {
		w.Needs = nil
	}
}

// keepsChildren is the ability to start the children of a run on its deployment, Pinned or not.
const keepsChildren = "deployment"

// protects is the ability to leave a run that is protected where it is.
const protects = "protected"

// Protect protects the run from being removed. A release that does not know of protection must not
// remove it either.
func (w *Workflow) Protect(p Protection) {
	w.Protected = &p
	w.need(protects)
}

// Unprotect permits that the run is removed.
func (w *Workflow) Unprotect() {
	w.Protected = nil
	w.Needs = slices.DeleteFunc(slices.Clone(w.Needs), func(need string) bool { return need == protects })
	if len(w.Needs) == 0 {
		w.Needs = nil
	}
}

// StartOn binds a run that is to be started to a deployment, with all of its children.
func (w *Workflow) StartOn(deployment string) {
	w.Deployment = deployment
	w.need(keepsChildren)
}

// KeepsChildren reports whether the children of the run start on its deployment, Pinned or not.
func (w *Workflow) KeepsChildren() bool { return slices.Contains(w.Needs, keepsChildren) }

// Namespace returns the name of the namespace that the run belongs to, or "". A run of an earlier
// release belongs to none, whatever its id is.
func (w *Workflow) Namespace() string {
	if !slices.Contains(w.Needs, namespace.Need) {
		return ""
	}
	name, _, _ := namespace.Split(w.ID)
	return name
}

// Unmet returns the first of the run's needs that this release does not know, or "". Then a
// newer release has made something of the run that this one would misunderstand. The engine
// may read the run, send it signals, record a request to cancel it, and report to it the end
// of a child. It must not execute, end, purge or otherwise rewrite it.
func (w *Workflow) Unmet() string {
	for _, need := range w.Needs {
		if !slices.Contains(abilities, need) {
			return need
		}
	}
	return ""
}

// Understood returns an error that wraps storage.ErrFutureFormat if the run has an unmet need.
func (w *Workflow) Understood() error {
	if need := w.Unmet(); need != "" {
		return fmt.Errorf("%w: workflow %q uses %q, which only a newer release knows; use an engine of that release", storage.ErrFutureFormat, w.ID, need)
	}
	return nil
}

// Parked reports whether the run is parked until something happens.
func (w *Workflow) Parked() bool {
	return w.Owner == "" && w.Status == checkpoint.StatusRunning && !w.Waits
}

// Raw returns the stored bytes that w was decoded from or sealed to, for use in conditions.
// It is nil for a record that was never stored.
func (w *Workflow) Raw() []byte { return w.raw }

// Unchanged returns the condition that the stored record is still w.
func (w *Workflow) Unchanged() storage.Condition {
	if w.key == nil {
		return storage.Equal(keys.Workflow(w.ID), w.raw)
	}
	return storage.Equal(w.key, w.raw)
}

// seal encodes w and returns the operation that stores it.
func (w *Workflow) seal() (storage.Op, error) {
	if w.key == nil {
		w.key = keys.Workflow(w.ID)
	}
	raw, err := record.Seal(w.key, Version, w, w.unknown)
	if err != nil {
		return storage.Op{}, err
	}
	w.raw = raw
	return storage.Put(w.key, raw), nil
}

// OpenWorkflow decodes a stored workflow record.
func OpenWorkflow(id string, raw []byte) (*Workflow, error) {
	w := &Workflow{ID: id, key: keys.Workflow(id), raw: raw}
	unknown, err := record.Open(w.key, raw, Version, w)
	if err != nil {
		return nil, err
	}
	w.unknown = unknown
	return w, nil
}

// Micro converts t for storage.
func Micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if micro := t.UnixMicro(); micro != 0 {
		return micro
	}
	return 1 // 0 is never
}

// Time converts a result of Micro back to a time, in UTC.
func Time(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}
