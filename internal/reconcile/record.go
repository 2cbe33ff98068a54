package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Record is what is known of the effect of one operation of a workflow:
// act:{workflow}:{activity}:{operation}:{key}. It is written before the first attempt
// starts, and is authoritative from then on. Times are in microseconds since 1970,
// durations in nanoseconds.
type Record struct {
	Generation string `cbor:"1,keyasint"`

	WorkflowID     string `cbor:"2,keyasint"`
	Activity       string `cbor:"3,keyasint"`
	Operation      string `cbor:"4,keyasint"`
	IdempotencyKey string `cbor:"5,keyasint"`

	Status Status `cbor:"6,keyasint"`

	// Result is set only if Status is Completed. Even then it is absent if it is lost.
	HasResult bool   `cbor:"7,keyasint,omitempty"`
	Result    []byte `cbor:"8,keyasint,omitempty"` // encoded by Codec
	Codec     string `cbor:"9,keyasint,omitempty"` // "" is JSON

	// Error is the latest failure, even while another attempt is in progress.
	Error *Failure `cbor:"10,keyasint,omitempty"`

	CreatedAt int64 `cbor:"11,keyasint"` // the first attempt started
	UpdatedAt int64 `cbor:"12,keyasint"` // rises with every change

	Attempt  int    `cbor:"13,keyasint"` // the last that has started
	Epoch    uint64 `cbor:"14,keyasint"` // of the owner that started it
	Token    uint64 `cbor:"15,keyasint"` // its fencing token: the checkpoint at which it started
	Deadline int64  `cbor:"16,keyasint"`

	// Timeout and Settle are those of that attempt, and Waited is how much of them is
	// known to have passed.
	Timeout time.Duration `cbor:"17,keyasint"`
	Settle  time.Duration `cbor:"18,keyasint"`
	Waited  time.Duration `cbor:"19,keyasint,omitempty"`

	Input []byte `cbor:"20,keyasint"` // digest of the input's plaintext

	// Settled says that the operation has its outcome, which the other fields describe.
	Settled bool `cbor:"21,keyasint,omitempty"`

	// Seen is why the effect probably happened, although the result was not accepted.
	Seen string `cbor:"22,keyasint,omitempty"`

	// Retry is the number of the run's retry that opened the operation again, RetriedAt
	// its time, and Spent the number of attempts that had started before.
	Retry     int   `cbor:"23,keyasint,omitempty"`
	RetriedAt int64 `cbor:"24,keyasint,omitempty"`
	Spent     int   `cbor:"25,keyasint,omitempty"`

	// Withdrawn is why an operator's last answer was not accepted. It is empty if there
	// was none, or if it was accepted.
	Withdrawn string `cbor:"26,keyasint,omitempty"`

	// By is the operator whose answer the record is, or empty.
	By string `cbor:"27,keyasint,omitempty"`

	// SeenResult is the result that Seen tells of, and VerifiedResult a different one, of
	// the first answer of the verifier that contradicted the others.
	SeenResult     *Observation `cbor:"28,keyasint,omitempty"`
	VerifiedResult *Observation `cbor:"29,keyasint,omitempty"`

	raw     []byte
	unknown record.Unknown
}

// An Observation is a result that was observed, and was not accepted as the outcome.
type Observation struct {
	Codec  string `cbor:"1,keyasint,omitempty"` // "" is JSON
	Data   []byte `cbor:"2,keyasint,omitempty"` // encoded by Codec; absent if it is large
	Digest []byte `cbor:"3,keyasint,omitempty"` // of the plaintext; absent if it has none
}

// Version is the version of the records that this package writes.
const Version = 1

// A Status is the state of an effect.
type Status string

const (
	StatusCompleted     Status = "completed"
	StatusFailed        Status = "failed" // and nothing happened
	StatusCancelled     Status = "cancelled"
	StatusTimedOut      Status = "timed-out"     // the last attempt, and no more is known
	StatusIndeterminate Status = "indeterminate" // also while an attempt is in progress
)

// A Failure is how an attempt ended, or why an operation was given up.
type Failure struct {
	Category activity.Category `cbor:"1,keyasint"`
	Message  string            `cbor:"2,keyasint"`
	Stack    string            `cbor:"3,keyasint,omitempty"` // of a panic
	Sentinel string            `cbor:"4,keyasint,omitempty"` // text of the user's sentinel that the error is
	Attempt  int               `cbor:"5,keyasint,omitempty"`

	Permanent bool `cbor:"6,keyasint,omitempty"` // a retry will not help
	NoEffect  bool `cbor:"7,keyasint,omitempty"` // nothing happened outside

	Other string `cbor:"8,keyasint,omitempty"` // of a contradiction, the second observation
}

// Err is the failure as the workflow sees it, of an operation of the activity name. sentinel
// is the error that f.Sentinel stands for.
func (f *Failure) Err(name, operation, key string, sentinel error) error {
	switch f.Category {
	case activity.CategoryIndeterminate:
		return &activity.IndeterminateError{Activity: name, Operation: operation, IdempotencyKey: key, Attempt: f.Attempt, Reason: f.Message}
	case activity.CategoryResultUnavailable:
		return &activity.ResultUnavailableError{Activity: name, Operation: operation, IdempotencyKey: key, Reason: f.Message}
	case activity.CategoryContradiction:
		return &activity.ContradictionError{Activity: name, Operation: operation, IdempotencyKey: key, First: f.Message, Second: f.Other}
	}
	return &activity.Error{Activity: name, Attempt: f.Attempt, Message: f.Message, Stack: f.Stack, Sentinel: sentinel}
}

func (r *Record) key() []byte {
	return keys.Activity(r.WorkflowID, r.Activity, r.Operation, r.IdempotencyKey)
}

// Begun is when the TotalTimeout begins: with the first, or with the last
// retry of the run. It is zero before.
func (r *Record) Begun() time.Time {
	if r.CreatedAt == 0 {
		return time.Time{}
	}
	return time.UnixMicro(max(r.CreatedAt, r.RetriedAt))
}

// Raw returns the stored bytes that r was read from or sealed to; nil if it was
// never stored.
func (r *Record) Raw() []byte { return r.raw }

// Unchanged is the condition that the stored record still is r.
func (r *Record) Unchanged() storage.Condition {
	if r.raw == nil {
		return storage.Absent(r.key())
	}
	return storage.Equal(r.key(), r.raw)
}

// Anew is a record of a new effect in the place of r.
func (r Record) Anew() Record { return Record{raw: r.raw} }

// Seal returns r as it is to be stored, and the operation that does so.
func (r Record) Seal() (Record, storage.Op, error) {
	raw, err := record.Seal(r.key(), Version, &r, r.unknown)
	if err != nil {
		return r, storage.Op{}, err
	}
	r.raw = raw
	return r, storage.Put(r.key(), raw), nil
}

// OpenRecord decodes the record of an operation that was stored under its key.
func OpenRecord(workflowID, activity, operation, idempotencyKey string, raw []byte) (Record, error) {
	r := Record{raw: raw}
	key := keys.Activity(workflowID, activity, operation, idempotencyKey)
	unknown, err := record.Open(key, raw, Version, &r)
	if err != nil {
		return Record{}, err
	}
	if r.WorkflowID != workflowID || r.Activity != activity || r.Operation != operation || r.IdempotencyKey != idempotencyKey {
		return Record{}, fmt.Errorf("%w: record %q says that it is another's", storage.ErrCorrupt, key)
	}
	r.unknown = unknown
	return r, nil
}

// ReadRecord reads the record of an operation. One of an earlier workflow with the same
// id is returned too: it has another Generation. The error is storage.ErrNotFound if
// there is none, or the store's.
func ReadRecord(ctx context.Context, s storage.Storage, workflowID, activity, operation, idempotencyKey string) (Record, error) {
	raw, err := s.Get(ctx, keys.Activity(workflowID, activity, operation, idempotencyKey))
	if err != nil {
		return Record{}, err
	}
	return OpenRecord(workflowID, activity, operation, idempotencyKey, raw)
}

// Records reads the records of one generation of a workflow, in the order of their
// keys.
func Records(ctx context.Context, s storage.Storage, workflowID, generation string) ([]Record, error) {
	var rs []Record
	for r, err := range All(ctx, s, workflowID) {
		if err != nil {
			return nil, err
		}
		if r.Generation == generation {
			rs = append(rs, r)
		}
	}
	return rs, nil
}

// All yields the records of a workflow, of all generations. One that is damaged comes with an
// error, and has only its Activity and Operation.
func All(ctx context.Context, s storage.Storage, workflowID string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		of := keys.ActivitiesOf(workflowID)
		of.Limit = keys.PayloadPage
		for e, err := range storage.All(ctx, s, of) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			parts, err := storage.SplitKey(e.Key)
			if err != nil || len(parts) != 5 {
				yield(Record{}, errors.Join(storage.ErrCorrupt, fmt.Errorf("activity: key %q", e.Key), err))
				return
			}
			r, err := OpenRecord(parts[1], parts[2], parts[3], parts[4], e.Value)
			if err != nil {
				r = Record{Activity: parts[2], Operation: parts[3]}
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// A Beat is the progress that an attempt reported last: beat:{workflow}:{operation}. It
// is not part of what is known of an effect. Its time is in microseconds since 1970.
type Beat struct {
	Generation string `cbor:"1,keyasint"`
	Activity   string `cbor:"2,keyasint"`
	Attempt    int    `cbor:"3,keyasint"`
	At         int64  `cbor:"4,keyasint"` // rises with every change
	Codec      string `cbor:"5,keyasint,omitempty"`
	Progress   []byte `cbor:"6,keyasint"`

	key, raw []byte
	unknown  record.Unknown
}

// ReadBeat reads the progress of an operation. If there is none it returns an empty
// one, which can be written. One of an earlier workflow with the same id is returned
// too: it has another Generation.
func ReadBeat(ctx context.Context, s storage.Storage, workflowID, operation string) (Beat, error) {
	b := Beat{key: keys.Beat(workflowID, operation)}
	raw, err := s.Get(ctx, b.key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return b, nil
	case err != nil:
		return b, err
	}
	if b.unknown, err = record.Open(b.key, raw, Version, &b); err != nil {
		return b, fmt.Errorf("activity: progress of %q, operation %s: %w", workflowID, operation, err)
	}
	b.raw = raw
	return b, nil
}

// Unchanged is the condition that the stored record still is b.
func (b *Beat) Unchanged() storage.Condition {
	if b.raw == nil {
		return storage.Absent(b.key)
	}
	return storage.Equal(b.key, b.raw)
}

// Seal returns b as it is to be stored, and the operation that does so.
func (b Beat) Seal() (Beat, storage.Op, error) {
	raw, err := record.Seal(b.key, Version, &b, b.unknown)
	if err != nil {
		return b, storage.Op{}, err
	}
	b.raw = raw
	return b, storage.Put(b.key, raw), nil
}
