package storagetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-go/weft/storage"
)

// What a Faulty answers of its own accord.
var (
	// ErrInjected is the answer of a call with the fault ErrorBefore or
	// ErrorAfter.
	ErrInjected = errors.New("storagetest: injected error")

	// ErrCrashed is the answer of every call from a crash on.
	ErrCrashed = errors.New("storagetest: crashed")
)

// A Call is what a Faulty is asked to do.
type Call struct {
	N      int           // 1 for the first call, in the order in which they are decided
	Method string        // "Get", "Scan" or "Commit"
	Key    []byte        // of Get
	Range  storage.Range // of Scan
	Batch  storage.Batch // of Commit
}

// A Fault is what happens to a call.
type Fault uint8

const (
	// None: the call reaches the inner store.
	None Fault = iota

	// ErrorBefore: the call answers ErrInjected and does not reach the inner
	// store.
	ErrorBefore

	// ErrorAfter: the call reaches the inner store and then answers
	// ErrInjected, whatever the inner store answered. To the caller of Commit
	// this looks like ErrorBefore.
	ErrorAfter

	// CancelMiddle: the context that the inner store is given is alive when it
	// first looks and then cancelled. The answer is the inner store's.
	CancelMiddle

	// CrashBefore: the call does not reach the inner store, and from it on all
	// calls answer ErrCrashed.
	CrashBefore

	// CrashAfter: the call reaches the inner store, and from then on all calls
	// answer ErrCrashed, this one too.
	CrashAfter
)

// A Faulty is a store that fails when it is told to. It stands for the life of
// one process: after a crash, the next life is a new Faulty around the same
// inner store, which neither a crash nor Close closes.
//
// It hides no ability of the inner store: what storage.As finds behind it is
// not injected with faults.
type Faulty struct {
	inner   storage.Storage
	opening string

	mu      sync.Mutex // guards what follows, and is held while decide decides
	decide  func(Call) Fault
	calls   int
	closed  bool
	crash   chan struct{} // closed by a crash
	crashed bool
}

var (
	_ storage.Wrapper   = (*Faulty)(nil)
	_ storage.Exclusive = (*Faulty)(nil)
)

// NewFaulty wraps inner. Each call is first put to decide, one at a time, so
// that decide needs no lock of its own; it must not call the store. Nil decides
// None.
func NewFaulty(inner storage.Storage, decide func(Call) Fault) *Faulty {
	if decide == nil {
		decide = func(Call) Fault { return None }
	}
	f := &Faulty{inner: inner, decide: decide, crash: make(chan struct{})}
	if x, ok := storage.As[storage.Exclusive](inner); ok && x.Opening() != "" {
		f.opening = rand.Text()
	}
	return f
}

// Get reads from the inner store, as far as decide lets it.
func (f *Faulty) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = f.call(ctx, Call{Method: "Get", Key: key}, func(ctx context.Context) error {
		value, err = f.inner.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Scan reads from the inner store, as far as decide lets it.
func (f *Faulty) Scan(ctx context.Context, r storage.Range) (page []storage.Entry, err error) {
	err = f.call(ctx, Call{Method: "Scan", Range: r}, func(ctx context.Context) error {
		page, err = f.inner.Scan(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// Commit writes to the inner store, as far as decide lets it.
func (f *Faulty) Commit(ctx context.Context, b storage.Batch) error {
	return f.call(ctx, Call{Method: "Commit", Batch: b}, func(ctx context.Context) error {
		return f.inner.Commit(ctx, b)
	})
}

// Capabilities are those of the inner store.
func (f *Faulty) Capabilities() storage.Capabilities { return f.inner.Capabilities() }

// Close makes later calls answer storage.ErrClosed. The inner store stays open.
func (f *Faulty) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// Unwrap returns the inner store.
func (f *Faulty) Unwrap() storage.Storage { return f.inner }

// Opening identifies this Faulty. It is empty where the inner store is not
// storage.Exclusive.
func (f *Faulty) Opening() string { return f.opening }

// Crash makes all calls answer ErrCrashed from now on, those included that are
// under way.
func (f *Faulty) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.die()
}

// Crashed is closed when the store crashes.
func (f *Faulty) Crashed() <-chan struct{} { return f.crash }

// Calls is how many calls were put to decide so far.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *Faulty) call(ctx context.Context, c Call, inner func(context.Context) error) error {
	fault, n, err := f.begin(c)
	if err != nil {
		return err
	}
	switch fault {
	case ErrorBefore:
		return fmt.Errorf("%s, call %d: %w", c.Method, n, ErrInjected)
	case ErrorAfter:
		inner(ctx)
		err = fmt.Errorf("%s, call %d: %w", c.Method, n, ErrInjected)
	case CancelMiddle:
		l := cancelOnLook(ctx)
		err = inner(l)
		l.wait()
	case CrashAfter:
		inner(ctx)
		f.Crash()
	default:
		err = inner(ctx)
	}
	return f.end(c, n, err)
}

// begin counts a call and decides on its fault.
func (f *Faulty) begin(c Call) (fault Fault, n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return None, 0, storage.ErrClosed
	}
	if f.crashed {
		return None, 0, fmt.Errorf("%s: %w", c.Method, ErrCrashed)
	}
	f.calls++
	c.N = f.calls
	fault = f.decide(c)
	if fault == CrashBefore {
		f.die()
		err = fmt.Errorf("%s, call %d: %w", c.Method, c.N, ErrCrashed)
	}
	return fault, c.N, err
}

// end is the answer of a call: a dead process hears none.
func (f *Faulty) end(c Call, n int, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return fmt.Errorf("%s, call %d: %w", c.Method, n, ErrCrashed)
	}
	return err
}

// die is called with mu held.
func (f *Faulty) die() {
	if !f.crashed {
		f.crashed = true
		close(f.crash)
	}
}

// A lookedAt is a context that is cancelled once somebody looked at it.
type lookedAt struct {
	context.Context
	cancel    context.CancelFunc
	once      sync.Once
	cancelled chan struct{}
}

func cancelOnLook(ctx context.Context) *lookedAt {
	l := &lookedAt{cancelled: make(chan struct{})}
	l.Context, l.cancel = context.WithCancel(ctx)
	return l
}

// Err is that of a live context at the first look.
func (l *lookedAt) Err() error {
	defer l.cancel()
	return l.Context.Err()
}

// Done closes soon and not at once, so that whoever waits for it has begun.
func (l *lookedAt) Done() <-chan struct{} {
	l.once.Do(func() { go l.end() })
	return l.Context.Done()
}

func (l *lookedAt) end() {
	l.cancel()
	close(l.cancelled)
}

// wait returns when the context is cancelled for good.
func (l *lookedAt) wait() {
	l.once.Do(l.end)
	<-l.cancelled
}
