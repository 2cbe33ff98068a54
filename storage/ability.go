package storage

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"
)

// A Wrapper is a store around another one: it counts, logs, injects faults.
// One that changes values must not claim ConditionalBatch, unless it compares
// the changed bytes.
type Wrapper interface {
	Storage
	Unwrap() Storage
}

// As returns the outermost store in s's chain of wrappers that is a T: how an
// ability beyond Storage is found.
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

// A Watcher can tell of changes that other processes made.
type Watcher interface {
	Storage

	// Watch calls wake, now and then and at least once after something under
	// prefix changed, until ctx is done. It is a hint and may be late or lost:
	// nobody may depend on it. It need not tell of Urgent batches.
	Watch(ctx context.Context, prefix []byte, wake func()) error
}

// An Exclusive store lets in one opener at a time. Engines that worked under
// another opening are certainly dead, which spares everybody the leases that a
// Shared store needs.
type Exclusive interface {
	Storage

	// Opening returns an identifier that no other opening ever has. It is
	// empty where the store is not exclusive after all, as one opened to be
	// Shared or a wrapper around one.
	Opening() string
}

// A Tx is a store inside a transaction of the host's: what it commits is staged,
// and happens if and only if the host commits. An adapter's WithTx makes it. It
// belongs to the goroutine that has the transaction.
//
// Its Commit judges conditions under locks, so nil means that the batch stands
// when the transaction does. ErrConflict leaves the transaction usable. Any
// other error wraps ErrAborted: the host rolls back.
type Tx interface {
	Storage

	// Base returns the store that the transaction is on.
	Base() Storage
}

// A Transactor can run a function in a transaction of its own and apply a batch
// in the same transaction.
type Transactor interface {
	Storage

	// Transact begins a transaction, calls f with a context that carries it
	// under a key of the adapter's own, judges the batch that f returns, applies
	// it and commits. An error of f rolls back and is returned as it is, unless the
	// transaction was lost meanwhile: that is an error that wraps ErrTransactionLost
	// and not f's. The other answers are those of Commit; the commit is tried once.
	Transact(ctx context.Context, f func(ctx context.Context) (Batch, error)) error
}

// A TransactLimiter is a Transactor that has one writer: until a transaction ends,
// nobody else writes, not even a lease. So its function has a limit.
type TransactLimiter interface {
	Transactor

	// TransactLimit is how long a function in Transact may take. Whoever calls
	// Transact keeps to it: when the time is up, f returns to Transact, which rolls
	// back, whatever the function does meanwhile. Where a lease is kept it may have
	// to be less. Zero is no limit.
	TransactLimit() time.Duration
}

// All iterates over a range page by page; r.Limit is the size of a page. It
// holds nothing open between two entries, so the loop body may write. Two pages
// are two views. The error is the last thing it yields.
func All(ctx context.Context, s Storage, r Range) iter.Seq2[Entry, error] {
	if r.Limit <= 0 {
		r.Limit = DefaultLimit
	}
	return func(yield func(Entry, error) bool) {
		r := r // each loop over the sequence begins anew
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
					yield(Entry{}, fmt.Errorf("%w: %q is out of order", ErrCorrupt, last)) // there would be no end
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

// after is what is left of r behind key. It keeps no bytes of key: they are the
// loop body's.
func after(r Range, key []byte) Range {
	if r.Reverse {
		r.End = bytes.Clone(key)
	} else {
		r.Start = append(bytes.Clone(key), 0)
	}
	return r
}
