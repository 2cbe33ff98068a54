// Package storage defines the contract between Weft and its store: an ordered
// map from byte keys to byte values, read by key and by range and written in
// conditional batches.
//
// An adapter implements the five methods of [Storage], and [Exclusive] if one process
// at a time can have the store open. It declares in [Capabilities] what it supports,
// and is tested with package storagetest. The other interfaces are optional. All
// guarantees of Weft rest on [Storage.Commit] and its three outcomes: applied,
// certainly not applied, unknown.
package storage

import (
	"context"
	"errors"
	"fmt"
)

// A Storage is a persistent ordered map from byte keys to byte values. Keys are in
// the order of bytes.Compare. Its methods are safe for concurrent use.
//
// An adapter copies what it is given: it neither keeps nor changes a caller's
// bytes after the call has returned. Returned bytes belong to the caller, who may
// modify them.
//
// A call whose context is already done returns the context's error and does
// nothing.
type Storage interface {
	// Get returns the value of key, or ErrNotFound if the key does not exist.
	// An empty value is returned as an empty value, not as ErrNotFound. A key
	// that no batch may have, because it is empty or too long, does not exist.
	Get(ctx context.Context, key []byte) ([]byte, error)

	// Scan returns one page: the first entries of a range, at most r.Limit, in
	// key order (in reverse if r.Reverse). A page with fewer than r.Limit
	// entries is the last one, so a store must not return a shorter page for
	// any other reason. If Capabilities declare Snapshot, a page is one
	// consistent view; two pages never are. Scan leaves no transaction open, so
	// the caller may write between pages.
	Scan(ctx context.Context, r Range) ([]Entry, error)

	// Commit applies all of a batch or none of it. It returns
	//
	//   - nil: all conditions held and everything is written. Every later read,
	//     by anyone, sees it. If Capabilities declare Durable, it survives a
	//     power loss.
	//   - ErrConflict: a condition did not hold. Nothing was written.
	//   - any other error: the outcome is unknown. The batch may have been
	//     written, may not have been, or may still be in flight. Three errors
	//     say more: with ErrInvalidBatch, errors.ErrUnsupported or a
	//     *WithdrawnError nothing was written. The first two are permanent: the
	//     same batch will be refused again.
	//
	// If the context ends while the batch is still queued, Commit withdraws the
	// batch and returns a *WithdrawnError. Once the batch is being written,
	// Commit waits for the outcome, up to the adapter's own deadline. It does
	// not read the caller's bytes or slices after it has returned.
	Commit(ctx context.Context, b Batch) error

	// Capabilities returns what this store supports. It never changes.
	Capabilities() Capabilities

	// Close releases the store's resources. Later calls return ErrClosed. A
	// second Close may return either ErrClosed or nil.
	Close() error
}

// Errors for callers to test with errors.Is. Adapters wrap them with details.
var (
	// ErrNotFound is returned by Get for a key that does not exist.
	ErrNotFound = errors.New("storage: not found")

	// ErrConflict is returned by Commit if a condition did not hold. Nothing
	// was written.
	ErrConflict = errors.New("storage: a condition did not hold")

	// ErrInvalidBatch is returned by Commit for a batch that no store accepts:
	// see Batch.Check. Nothing was written.
	ErrInvalidBatch = errors.New("storage: invalid batch")

	// ErrClosed is returned by a store that is closed.
	ErrClosed = errors.New("storage: closed")

	// ErrAborted is returned by a Tx whose transaction cannot continue.
	ErrAborted = errors.New("storage: transaction aborted")

	// ErrTransactionLost is returned by Transact if the transaction was lost
	// before its commit and the function did not cause it: the connection was
	// cut, or the server stopped. Nothing was written. Ignore what the function
	// returned; it may be called again in a new transaction.
	ErrTransactionLost = errors.New("storage: transaction lost")

	// ErrTransactionRefused is returned by Transact if the database refused, because of what the
	// function did, to commit: a constraint that is checked at the commit does not hold, for
	// example. Nothing was written. It is the outcome of the function, which would be refused again.
	ErrTransactionRefused = errors.New("storage: transaction refused")

	// ErrCorrupt means that the data read is not the data that was written. The
	// error that wraps it names the file or the key.
	ErrCorrupt = errors.New("storage: corrupt")

	// ErrMoved means that a file of the store was deleted, renamed or replaced
	// while the store was open. The store confirms no further commit, because
	// whoever opens the path next would not find it. Stop the process that has
	// the store open, check what is at the path, and open the store again.
	ErrMoved = errors.New("storage: a file of the store was deleted, renamed or replaced while it was open; stop, and open the store again")

	// ErrFailed means that a write or a sync has failed in a way after which nobody
	// knows what is on the disk. Every later call returns it. What was acknowledged
	// before is kept; of the commits that failed, any may have been written. Stop the
	// process, or close the store, and open the store again.
	ErrFailed = errors.New("storage: the store has failed and must be opened again")

	// ErrInUse is returned when a store is opened that can be open once at a time, and is
	// open already. Adapters wrap it in the error of Open.
	ErrInUse = errors.New("storage: the store is open in another process, or in this one already")

	// ErrFutureFormat means that a newer release wrote the data. Nothing was changed.
	ErrFutureFormat = errors.New("storage: written by a newer release")
)

// A WithdrawnError is returned by Commit if its context ended while the batch was still
// queued behind other commits, or waiting for a lock held by others. Nothing was written.
// It wraps the context's error.
type WithdrawnError struct {
	Ended error // the context's error
	Last  error // the last error of the commits ahead, such as a lock or a full disk; nil if none
}

func (e *WithdrawnError) Error() string {
	s := fmt.Sprintf("storage: batch withdrawn before it was applied: %v", e.Ended)
	if e.Last != nil {
		s += fmt.Sprintf(": last error of the store: %v", e.Last)
	}
	return s
}

func (e *WithdrawnError) Unwrap() error { return e.Ended }

// An Entry is a key and its value.
type Entry struct{ Key, Value []byte }

// A Range is the half-open interval of keys [Start, End). A nil Start begins at the
// first key; a nil End ends after the last. An End that is empty but not nil is before
// every key. A range whose Start is not before its End is empty.
type Range struct {
	Start, End []byte
	Limit      int // maximum number of entries in a page; 0 or less means DefaultLimit
	Reverse    bool
}

// DefaultLimit is the page size if Range.Limit is zero or negative.
const DefaultLimit = 1000

// Prefix returns the range of all keys that begin with p.
func Prefix(p []byte) Range {
	end := make([]byte, len(p))
	copy(end, p)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return Range{Start: p, End: end[:i+1]}
		}
	}
	return Range{Start: p} // p is empty or all 0xff: the range extends to the last key
}

// MaxKey is the maximum length of a key in bytes, chosen so that every adapter can
// index it. (PostgreSQL refuses index rows larger than 2,704 bytes.)
const MaxKey = 2300

// A Batch is applied atomically if all of its conditions hold.
//
// Conditions are evaluated against the state before the batch. Operations are
// applied in order. Both may be missing: a batch without conditions never conflicts,
// and an empty batch is applied.
type Batch struct {
	If  []Condition
	Ops []Op

	// Urgent batches never wait to be grouped with others: for lease renewals.
	Urgent bool

	// Group, if not nil, is where Commit puts the number of batches that were in the same
	// transaction, this one included. Commit may do so if it returns nil or ErrConflict. With
	// any other error, and if the adapter does not group batches, Commit leaves *Group as it
	// is. It never writes *Group after it has returned.
	Group *int
}

// A Condition is a requirement on the state of one key.
type Condition struct {
	Kind       ConditionKind
	Key, Value []byte // Value is used by IsEqual only
}

// A ConditionKind is the kind of a condition. The zero value is invalid.
type ConditionKind uint8

const (
	IsEqual ConditionKind = iota + 1
	IsAbsent
	IsPresent
)

// Equal holds if the value of key is byte for byte value.
func Equal(key, value []byte) Condition { return Condition{Kind: IsEqual, Key: key, Value: value} }

// Absent holds if key does not exist. The same batch must put or delete key: otherwise
// nothing would prevent another writer from putting it between the check and the write.
// A batch that deletes it leaves it absent.
func Absent(key []byte) Condition { return Condition{Kind: IsAbsent, Key: key} }

// Present holds if key exists, whatever its value.
func Present(key []byte) Condition { return Condition{Kind: IsPresent, Key: key} }

// An Op is one change.
type Op struct {
	Kind       OpKind
	Key, Value []byte // Value is used by PutOp only
	Range      Range  // used by DeleteRangeOp only; Limit and Reverse are ignored
}

// An OpKind is the kind of an operation. The zero value is invalid.
type OpKind uint8

const (
	PutOp OpKind = iota + 1
	DeleteOp
	DeleteRangeOp
)

// Put sets the value of key, replacing any previous value.
func Put(key, value []byte) Op { return Op{Kind: PutOp, Key: key, Value: value} }

// Delete removes key. It is not an error if key does not exist.
func Delete(key []byte) Op { return Op{Kind: DeleteOp, Key: key} }

// DeleteRange removes all keys in a range. A batch that contains one is not grouped
// with others, so keep the range small.
func DeleteRange(r Range) Op { return Op{Kind: DeleteRangeOp, Range: r} }

// A Size is the size of a batch: the number of its conditions and operations, and
// the total bytes of their keys and values.
type Size struct{ Ops, Bytes int }

// Size returns the size of b.
func (b Batch) Size() Size {
	s := Size{Ops: len(b.If) + len(b.Ops)}
	for _, c := range b.If {
		s.Bytes += len(c.Key) + len(c.Value)
	}
	for _, o := range b.Ops {
		s.Bytes += len(o.Key) + len(o.Value) + len(o.Range.Start) + len(o.Range.End)
	}
	return s
}

// Check returns an error that wraps ErrInvalidBatch if b is invalid, and nil
// otherwise. Adapters call it before they evaluate conditions, so that an invalid
// batch is never a conflict. A batch is invalid if
//
//   - a key is empty or longer than MaxKey,
//   - a condition or an operation has no valid kind,
//   - two conditions, or two operations other than DeleteRange, name the same key,
//   - a key with an Absent condition is neither put nor deleted by the batch,
//   - it is larger than max in a field of max that is not zero.
func (b Batch) Check(max Size) error {
	if s := b.Size(); max.Ops > 0 && s.Ops > max.Ops || max.Bytes > 0 && s.Bytes > max.Bytes {
		return fmt.Errorf("%w: %d operations of %d bytes, at most %d of %d", ErrInvalidBatch, s.Ops, s.Bytes, max.Ops, max.Bytes)
	}
	var changed, judged keySet
	for _, o := range b.Ops {
		switch o.Kind {
		case DeleteRangeOp:
			continue
		case PutOp, DeleteOp:
		default:
			return fmt.Errorf("%w: operation on %q has the unknown kind %d", ErrInvalidBatch, o.Key, o.Kind)
		}
		if err := checkKey(o.Key); err != nil {
			return err
		}
		if !changed.add(o.Key) {
			return fmt.Errorf("%w: two operations on %q", ErrInvalidBatch, o.Key)
		}
	}
	for _, c := range b.If {
		if err := checkKey(c.Key); err != nil {
			return err
		}
		if c.Kind < IsEqual || c.Kind > IsPresent {
			return fmt.Errorf("%w: condition on %q has the unknown kind %d", ErrInvalidBatch, c.Key, c.Kind)
		}
		if !judged.add(c.Key) {
			return fmt.Errorf("%w: two conditions on %q", ErrInvalidBatch, c.Key)
		}
		if c.Kind == IsAbsent && !changed.has(c.Key) {
			return fmt.Errorf("%w: %q must be absent and is neither put nor deleted", ErrInvalidBatch, c.Key)
		}
	}
	return nil
}

// A keySet is a set of keys. Up to 16 keys are searched linearly, which is faster than
// hashing and allocates nothing.
type keySet struct {
	few  [16][]byte
	n    int // number of entries of few in use
	many map[string]struct{}
}

// add adds key and reports whether it was new.
func (s *keySet) add(key []byte) bool {
	if s.has(key) {
		return false
	}
	if s.n < len(s.few) {
		s.few[s.n] = key
		s.n++
		return true
	}
	if s.many == nil {
		s.many = map[string]struct{}{}
	}
	s.many[string(key)] = struct{}{}
	return true
}

func (s *keySet) has(key []byte) bool {
	for _, k := range s.few[:s.n] {
		if string(k) == string(key) {
			return true
		}
	}
	_, ok := s.many[string(key)]
	return ok
}

func checkKey(key []byte) error {
	if len(key) == 0 {
		return fmt.Errorf("%w: empty key", ErrInvalidBatch)
	}
	if len(key) > MaxKey {
		return fmt.Errorf("%w: key of %d bytes, at most %d", ErrInvalidBatch, len(key), MaxKey)
	}
	return nil
}

// HasDeleteRange reports whether b has a DeleteRange, and so must not be grouped with others.
func (b Batch) HasDeleteRange() bool {
	for _, o := range b.Ops {
		if o.Kind == DeleteRangeOp {
			return true
		}
	}
	return false
}
