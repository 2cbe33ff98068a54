package checkpoint

import (
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Version is the version of the records that this package writes.
const Version = 1

// A Workflow is the record wf:{id}: small, and not changed by steps. Times are
// in microseconds since 1970, zero for never.
type Workflow struct {
	ID string `cbor:"-"`

	// Generation is the ULID of this life of the id. Records of another
	// generation are not seen.
	Generation string `cbor:"1,keyasint"`
	Type       string `cbor:"2,keyasint,omitempty"`
	Status     Status `cbor:"3,keyasint,omitempty"`

	// Owner is the incarnation that drives the run, and Claim the number of the
	// checkpoint by which it came to. An empty Owner is nobody.
	Owner string `cbor:"4,keyasint,omitempty"`
	Claim uint64 `cbor:"5,keyasint,omitempty"`

	// State counts the changes of this record that are not its owner's.
	State uint64 `cbor:"6,keyasint,omitempty"`

	// Base is the number of the first checkpoint.
	Base uint64 `cbor:"7,keyasint,omitempty"`

	// Deaths counts the owners in a row that ended without a word, since the run has
	// last shown that this was not because of it.
	Deaths int `cbor:"8,keyasint,omitempty"`

	// Alone counts the claims in a row by which the run was driven while no other
	// was that had as many deaths.
	Alone int `cbor:"30,keyasint,omitempty"`

	CreatedAt int64 `cbor:"9,keyasint,omitempty"`
	StartedAt int64 `cbor:"10,keyasint,omitempty"`
	EndedAt   int64 `cbor:"11,keyasint,omitempty"`

	// Digest identifies the input: of its plaintext encoding.
	Digest []byte `cbor:"12,keyasint,omitempty"`

	Cancel    *Request    `cbor:"13,keyasint,omitempty"`
	Attention []Attention `cbor:"14,keyasint,omitempty"`

	// Todo is the key of the entry by which an unclaimed run is found.
	Todo []byte `cbor:"15,keyasint,omitempty"`

	// Next makes the record a tombstone: of a purged workflow, so that a later
	// life of the id goes on with this number.
	Next     uint64 `cbor:"16,keyasint,omitempty"`
	PurgedAt int64  `cbor:"17,keyasint,omitempty"`

	// Verbs are what operators did to a run. Its next checkpoint records them.
	Verbs []Verb `cbor:"18,keyasint,omitempty"`

	// Parent is whose child it is.
	Parent *Parent `cbor:"19,keyasint,omitempty"`

	// Awaits are the names of the signals that have a parked run claimed.
	Awaits []string `cbor:"20,keyasint,omitempty"`

	// Heard is how many signals the workflow had accepted when it parked: none of
	// them that is left has one of these names.
	Heard uint64 `cbor:"26,keyasint,omitempty"`

	// Facing is what a parked run waits for, in words.
	Facing []string `cbor:"21,keyasint,omitempty"`

	// Quiet, of a run that failed, is what it had learnt when its last operation
	// began. Nothing of what it learnt later has made it do anything but fail.
	Quiet *Place `cbor:"22,keyasint,omitempty"`

	// Retries are the failures after which somebody had the run go on, in order.
	Retries []Retry `cbor:"23,keyasint,omitempty"`

	// Compensated says that the run has undone what it did before it ended.
	Compensated bool `cbor:"24,keyasint,omitempty"`

	// Deployment is that on which the run stays. It is written by the first claim,
	// or inherited from the parent; "" is any.
	Deployment string `cbor:"25,keyasint,omitempty"`

	// Queue is where the run waits to be driven; "" is nowhere. Waits says that it
	// has not been admitted: Todo is then its place in the line. Slot, from 1, is
	// what it has of the queue from then on until it has ended; 0 is nothing, in a
	// queue without a bound.
	Queue string `cbor:"27,keyasint,omitempty"`
	Waits bool   `cbor:"28,keyasint,omitempty"`
	Slot  int    `cbor:"29,keyasint,omitempty"`

	key     []byte // nil: not made yet
	raw     []byte
	unknown record.Unknown
}

// A Place is that of an event in a history. The zero Place is before the first.
type Place struct {
	Checkpoint uint64 `cbor:"1,keyasint,omitempty"`
	Event      int    `cbor:"2,keyasint,omitempty"` // its number in the checkpoint, from 0
}

// After says that p is later than q.
func (p Place) After(q Place) bool {
	return p.Checkpoint > q.Checkpoint || p.Checkpoint == q.Checkpoint && p.Event > q.Event
}

// A Retry takes an end of a run back, and the failures of its operations that it
// learnt since Quiet.
type Retry struct {
	Quiet Place  `cbor:"1,keyasint"`
	End   uint64 `cbor:"2,keyasint"` // the checkpoint with the end
	At    int64  `cbor:"3,keyasint"`
}

// Covers says that an event at p, if it is a failure, is taken back.
func (r Retry) Covers(p Place) bool { return p.After(r.Quiet) && p.Checkpoint <= r.End }

// A Verb is an operator's act.
type Verb struct {
	Name string `cbor:"1,keyasint"`
	By   string `cbor:"2,keyasint"`
	Why  string `cbor:"3,keyasint"`
}

// A Request is something that was asked of a run.
type Request struct {
	Reason string `cbor:"1,keyasint,omitempty"`
	At     int64  `cbor:"2,keyasint,omitempty"`
}

// An Attention says why a running workflow needs a person.
type Attention struct {
	Reason    string `cbor:"1,keyasint"`
	Operation string `cbor:"2,keyasint,omitempty"`
	Name      string `cbor:"3,keyasint,omitempty"`
	Detail    string `cbor:"4,keyasint,omitempty"`
	Since     int64  `cbor:"5,keyasint,omitempty"`
}

// Tombstone says that the workflow was purged: it is not there, but its number is.
func (w *Workflow) Tombstone() bool { return w.Next > 0 }

// Parked says that the run was put aside until there is something new.
func (w *Workflow) Parked() bool { return w.Owner == "" && w.Status == Running && !w.Waits }

// Raw returns the stored bytes that w was decoded from or sealed to: what a
// condition compares. It is nil for a record that was never stored.
func (w *Workflow) Raw() []byte { return w.raw }

// Unchanged is the condition that the stored record still is w.
func (w *Workflow) Unchanged() storage.Condition {
	if w.key == nil {
		return storage.Equal(keys.Workflow(w.ID), w.raw)
	}
	return storage.Equal(w.key, w.raw)
}

// Seal returns a copy of w as it is to be stored, and the operation that does so.
func (w *Workflow) Seal() (*Workflow, storage.Op, error) {
	key := keys.Workflow(w.ID)
	raw, err := record.Seal(key, Version, w, w.unknown)
	if err != nil {
		return nil, storage.Op{}, err
	}
	c := *w
	c.key, c.raw = key, raw
	return &c, storage.Put(key, raw), nil
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

// Micro is t as records keep it.
func Micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if micro := t.UnixMicro(); micro != 0 {
		return micro
	}
	return 1 // 0 is never
}

// Time is what Micro made of a time, in UTC.
func Time(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}
