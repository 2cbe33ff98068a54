package storage

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"
)

// A Wrapper is a store that wraps another, to count, log or inject faults. A
// wrapper that changes values must not claim ConditionalBatch, unless it compares
// the changed bytes. If the store that it wraps is a Transactor, it must be one itself, which changes the
// values too: otherwise As finds that of the wrapped store.
type Wrapper interface {
	Storage
	Unwrap() Storage
}

// Innermost returns the store that s wraps in the end, or s. Two stores have the same data if they have the same
// innermost store.
func Innermost(s Storage) Storage {
	for {
		w, ok := s.(Wrapper)
		if !ok {
			return s
		}
		s = w.Unwrap()
	}
}

// As returns the outermost store in s's chain of wrappers that is a T. It is the
// way to find an optional interface of a store.
func As[T any](s Storage) (T, bool) {
	for {
		if t, ok := s.(T); ok {
			return t, true
		}
		w, ok := s.(Wrapper)
		if !ok {
			var none T
			return none, false
		}
		s = w.Unwrap()
	}
}

// A Watcher can notify of changes made by other processes.
type Watcher interface {
	Storage

	// Watch calls wake at least once after something under prefix has changed,
	// and possibly at other times, until ctx is done. It is only a hint:
	// calls may be late or lost, so nothing may depend on them. It need not
	// notify of Urgent batches.
	Watch(ctx context.Context, prefix []byte, wake func()) error
}

// An Exclusive store can be opened once at a time. Each store that is not Shared
// implements it. Engines of an earlier opening are certainly dead, so their runs can
// be taken over without the leases that a Shared store needs.
type Exclusive interface {
	Storage

	// Opening returns an identifier that is unique to this opening. It is empty
	// if the store is not exclusive after all: if it was opened to be Shared, or
	// wraps such a store. An engine refuses a store that is Shared and has an Opening.
	Opening() string
}

// A Prover is a Shared store that can prove that a process no longer has the store open, sooner
// than its lease runs out. An engine holds a session as long as it lives, and publishes the
// session's proof. Other engines ask the store whether the session has ended.
//
// An ended session proves that a connection has ended, and no more. So an engine whose session
// ends while it lives withdraws the proof at once, and others look twice before they believe it.
type Prover interface {
	Storage

	// OpenSession opens a session that ends with this process at the latest, also if the process
	// is killed. It ends earlier if it is closed, or if its connection is lost. If the process
	// is only silent, because it is stopped or cannot be reached, the session lasts for at least
	// the given silence. name tells operators of the store whose session it is. Close of the
	// store does not close the session. OpenSession returns nil if a session of this store
	// would prove nothing.
	OpenSession(ctx context.Context, name string, silence time.Duration) (Session, error)

	// SessionsEnded reports for each proof whether its session has certainly ended. The answer
	// is false for a session that lasts, and if the store does not know: for a proof of another
	// kind, or if the store has restarted since.
	SessionsEnded(ctx context.Context, proofs []string) ([]bool, error)
}

// A Session of a Prover lasts as long as the process that opened it, unless it is closed or lost.
type Session interface {
	// Proof identifies the session to SessionsEnded, in any process.
	Proof() string

	// Lost returns a channel that is closed when the store can no longer tell that the session
	// lasts. From then on it may have ended, or may last until Close.
	Lost() <-chan struct{}

	// Close ends the session. It may be called more than once.
	Close()
}

// A Tx is a store inside a transaction of the host. What is committed to it takes
// effect if and only if the host commits. An adapter's WithTx returns one. Use it only
// in the goroutine that owns the transaction.
//
// Commit evaluates conditions under locks: if it returns nil, the batch is applied
// when the transaction commits. After an error that wraps ErrAborted the host must roll back.
// After any other, such as ErrConflict or ErrInvalidBatch, nothing was written and the
// transaction is still usable.
type Tx interface {
	Storage

	// Base returns the store that the transaction belongs to.
	Base() Storage
}

// A Transactor can run a function in a new transaction and apply a batch in that
// same transaction.
type Transactor interface {
	Storage

	// Transact begins a transaction and calls f with a context that carries the
	// transaction; the adapter says how f gets it from there. Then Transact
	// evaluates the conditions of the batch that f returned, applies the batch
	// and commits. It tries the commit once.
	//
	// If f fails, Transact rolls back and returns f's error unchanged. If the
	// transaction was lost meanwhile, it returns an error that wraps
	// ErrTransactionLost instead. If what f did cannot be committed, the error
	// wraps ErrTransactionRefused. Its other results are those of Commit.
	Transact(ctx context.Context, f func(ctx context.Context) (Batch, error)) error
}

// A TransactLimiter is a Transactor with a single writer: until a transaction ends,
// nobody else can write, not even to renew a lease. So the function's time is limited.
type TransactLimiter interface {
	Transactor

	// TransactLimit returns how long a function in Transact may run. The caller
	// of Transact must enforce it: when the time is up, f must return, so that
	// Transact rolls back, even if the user's code is still running. A caller
	// with a lease may need a shorter limit, because nobody can renew the lease
	// meanwhile. Zero means no limit.
	TransactLimit() time.Duration
}

// All iterates over a range page by page; r.Limit is the page size. No
// transaction is open between entries, so the loop body may write. Each page is
// a separate view. If there is an error, All yields it last.
func All(ctx context.Context, s Storage, r Range) iter.Seq2[Entry, error] {
	if r.Limit <= 0 {
		r.Limit = DefaultLimit
	}
	return func(yield func(Entry, error) bool) {
		r := r // so that each loop over the sequence starts from the beginning
		for {
			page, err := s.Scan(ctx, r)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			full := len(page) >= r.Limit
			if full {
				last := page[len(page)-1].Key
				if r.Start != nil && !r.Reverse && bytes.Compare(last, r.Start) < 0 || r.End != nil && r.Reverse && bytes.Compare(last, r.End) >= 0 {
					yield(Entry{}, fmt.Errorf("%w: %q is out of order", ErrCorrupt, last)) // the loop would never end
					return
				}
				r = after(r, last)
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if !full {
				return
			}
		}
	}
}

// after returns the rest of r beyond key. It copies key, because the loop body may
// modify it.
func after(r Range, key []byte) Range {
	if r.Reverse {
		r.End = bytes.Clone(key)
	} else {
		r.Start = append(bytes.Clone(key), 0)
	}
	return r
}
