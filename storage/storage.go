// Package storage is the contract between Weft and the place where it keeps
// things: an ordered map from byte keys to byte values, read by key and by
// range and written in conditional batches.
//
// An adapter implements [Storage], five methods, states in [Capabilities] what
// it can do, and proves it with package storagetest. Everything that Weft
// promises rests on one method, [Storage.Commit], and on its three answers:
// done, certainly not done, unknown.
package storage

import (
	"context"
	"errors"
	"fmt"
)

// A Storage is an ordered map of byte keys to byte values that outlives the
// process. Keys are ordered as bytes.Compare orders them. Its methods may be
// called by many goroutines at once.
//
// Bytes belong to whoever made them: an adapter does not keep or change what a
// caller passed after the call returned (it copies), and a caller may do with
// returned bytes what it likes.
//
// A call whose context is done before it begins answers the context's error and
// does nothing.
type Storage interface {
	// Get returns the value under key, or ErrNotFound. A value that was put
	// empty is returned empty, not as ErrNotFound.
	Get(ctx context.Context, key []byte) ([]byte, error)

	// Scan returns the first entries of a range, at most r.Limit, as one page
	// in key order (reversed if r.Reverse). A page with fewer than r.Limit
	// entries is the last of its range. A page is one consistent view where
	// Capabilities say Snapshot. Two pages are two views. No transaction
	// stays open behind a page, so the caller may write between two of them.
	Scan(ctx context.Context, r Range) ([]Entry, error)

	// Commit applies all of a batch, or none of it, and has three answers:
	//
	//   - nil: all conditions held, everything is written, and a later read by
	//     anybody sees it; where Capabilities say Durable, power loss does not
	//     undo it.
	//   - ErrConflict: a condition did not hold; nothing was written.
	//   - anything else: the outcome is unknown. The batch may have been
	//     written, or not, or may still be on its way. Three kinds are known
	//     better: ErrInvalidBatch and errors.ErrUnsupported are answered
	//     before anything is written, and will be answered again; of a
	//     *WithdrawnError nothing was written.
	//
	// A Commit whose context is done is withdrawn if it was still waiting its
	// turn, else it is waited for, under the adapter's own deadline. The
	// caller's bytes are not read after Commit returned.
	Commit(ctx context.Context, b Batch) error

	// Capabilities says what this store can do. It never changes.
	Capabilities() Capabilities

	// Close releases what the store holds. Later calls answer ErrClosed, and
	// so does a second Close or, equally right, nil.
	Close() error
}

// What callers branch on. Adapters wrap them with what they know.
var (
	// ErrNotFound is Get's answer for a key that is not there.
	ErrNotFound = errors.New("storage: not found")

	// ErrConflict is Commit's answer when a condition did not hold. Nothing
	// was written.
	ErrConflict = errors.New("storage: a condition did not hold")

	// ErrInvalidBatch is Commit's answer to a batch that no store would take:
	// see Batch.Check. Nothing was written.
	ErrInvalidBatch = errors.New("storage: invalid batch")

	// ErrClosed is the answer of a store that was closed.
	ErrClosed = errors.New("storage: closed")

	// ErrAborted is the answer of a Tx whose transaction cannot go on.
	ErrAborted = errors.New("storage: transaction aborted")

	// ErrTransactionLost is Transact's answer when its transaction was gone before
	// it could be committed, through nothing that the function did: the connection
	// was cut, the server ended. Nothing was written. What the function returned
	// does not count, and it may be called again in another transaction.
	ErrTransactionLost = errors.New("storage: transaction lost")

	// ErrCorrupt says that what was read is not what was written. The error
	// that wraps it names the file or the key.
	ErrCorrupt = errors.New("storage: corrupt")

	// ErrMoved says that a file of the store is not at its path any more: it was
	// deleted or renamed, or another file was put there, while the store was open.
	// Nothing is acknowledged from then on, as nobody would find it. Stop what has
	// the store open, see what is at the path, and open it again.
	ErrMoved = errors.New("storage: a file of the store was deleted, renamed or replaced while it was open; stop, and open the store again")

	// ErrFutureFormat says that a newer release wrote this. It was not touched.
	ErrFutureFormat = errors.New("storage: written by a newer release")
)

// A WithdrawnError is Commit's answer when its context ended while the batch waited its
// turn: behind other commits, or for a lock that others have. Nothing was written. It
// wraps the context's error.
type WithdrawnError struct {
	Ended error // of the context
	Last  error // what those before it met last, such as a lock or a full disk; nil: no error
}

func (e *WithdrawnError) Error() string {
	s := fmt.Sprintf("storage: withdrawn while it waited its turn: %v", e.Ended)
	if e.Last != nil {
		s += fmt.Sprintf(": last error of the store: %v", e.Last)
	}
	return s
}

func (e *WithdrawnError) Unwrap() error { return e.Ended }

// An Entry is a key and what is stored under it.
type Entry struct{ Key, Value []byte }

// A Range is the keys from Start to before End. A nil Start is the first key;
// a nil End is after the last.
type Range struct {
	Start, End []byte
	Limit      int // entries in a page; 0: DefaultLimit
	Reverse    bool
}

// DefaultLimit is the size of a page where Range.Limit is zero.
const DefaultLimit = 1000

// Prefix is the range of all keys that begin with p.
func Prefix(p []byte) Range {
	end := make([]byte, len(p))
	copy(end, p)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return Range{Start: p, End: end[:i+1]}
		}
	}
	return Range{Start: p} // nothing but 0xff bytes: up to the last key
}

// MaxKey is the longest key in bytes: what every adapter can index.
// (PostgreSQL refuses an index row above 2,704 bytes.)
const MaxKey = 2300

// A Batch is applied as a whole if all of its conditions hold.
//
// Conditions are judged on what was there before the batch. Operations are
// applied in their order.
type Batch struct {
	If  []Condition
	Ops []Op

	// Urgent never waits in a group with others: for lease renewals.
	Urgent bool
}

// A Condition is something that must hold of one key.
type Condition struct {
	Kind       ConditionKind
	Key, Value []byte // Value only for IsEqual
}

// A ConditionKind says what a condition asks. Zero asks nothing and is invalid.
type ConditionKind uint8

const (
	IsEqual ConditionKind = iota + 1
	IsAbsent
	IsPresent
)

// Equal holds when the stored value is byte for byte value.
func Equal(key, value []byte) Condition { return Condition{Kind: IsEqual, Key: key, Value: value} }

// Absent holds when nothing is stored under key. The same batch must put or delete
// it: else nothing would keep others from putting it between the look and the batch.
// A batch that deletes it leaves it absent.
func Absent(key []byte) Condition { return Condition{Kind: IsAbsent, Key: key} }

// Present holds when something is stored under key, whatever it is.
func Present(key []byte) Condition { return Condition{Kind: IsPresent, Key: key} }

// An Op is one change.
type Op struct {
	Kind       OpKind
	Key, Value []byte // Value only for PutOp
	Range      Range  // only for DeleteRangeOp; its Limit and Reverse are not looked at
}

// An OpKind says what an operation does. Zero does nothing and is invalid.
type OpKind uint8

const (
	PutOp OpKind = iota + 1
	DeleteOp
	DeleteRangeOp
)

// Put stores value under key, whatever was there.
func Put(key, value []byte) Op { return Op{Kind: PutOp, Key: key, Value: value} }

// Delete removes key. A key that is not there is no error.
func Delete(key []byte) Op { return Op{Kind: DeleteOp, Key: key} }

// DeleteRange removes all keys of a range. A batch with one is applied alone,
// not in a group, so keep the range small.
func DeleteRange(r Range) Op { return Op{Kind: DeleteRangeOp, Range: r} }

// Size is the extent of a batch: its conditions and operations, and the bytes
// of all its keys and values.
type Size struct{ Ops, Bytes int }

// Size returns the extent of b.
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

// Check says what is wrong with b, as an error that wraps ErrInvalidBatch, or
// nil. Adapters call it before a batch joins a group. A batch is invalid if
//
//   - a key is empty or longer than MaxKey,
//   - a condition or an operation has no valid kind,
//   - two conditions, or two operations other than DeleteRange, name one key,
//   - a key that must be absent is neither put nor deleted by the batch,
//   - it is larger than max, where max is not zero.
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

// A keySet is a set of keys. A few are looked through, which is quicker than to
// hash them and allocates nothing.
type keySet struct {
	few  [16][]byte
	n    int // of few in use
	many map[string]struct{}
}

// add says whether key is new.
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

// HasDeleteRange says that b must be applied alone, not in a group.
func (b Batch) HasDeleteRange() bool {
	for _, o := range b.Ops {
		if o.Kind == DeleteRangeOp {
			return true
		}
	}
	return false
}
