package storagetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-go/weft/storage"
)

// Errors that a Faulty returns itself.
var (
	// ErrInjected is returned by a call with the fault ErrorBefore or
	// ErrorAfter.
	ErrInjected = errors.New("storagetest: injected error")

	// ErrCrashed is returned by every call after a crash.
	ErrCrashed = errors.New("storagetest: crashed")
)

// A Call is a call of one of a Faulty's methods.
type Call struct {
	N      int           // counts the calls from 1, in the order in which decide is asked
	Method string        // "Get", "Scan" or "Commit"
	Key    []byte        // of Get
	Range  storage.Range // of Scan
	Batch  storage.Batch // of Commit, with slices that decide may keep
}

// A Fault is the fault to inject into a call.
type Fault uint8

const (
	// None: the call reaches the inner store.
	None Fault = iota

	// ErrorBefore: the call returns ErrInjected and does not reach the inner
	// store.
	ErrorBefore

	// ErrorAfter: the call reaches the inner store and then returns
	// ErrInjected, whatever the inner store returned. To the caller of Commit
	// this looks like ErrorBefore.
	ErrorAfter

	// CancelMiddle: the inner store's context is cancelled right after the
	// inner store first checks it. The call returns the inner store's result.
	CancelMiddle

	// CrashBefore: the call does not reach the inner store. This call and all
	// later calls return ErrCrashed.
	CrashBefore

	// CrashAfter: the call reaches the inner store. This call and all later
	// calls return ErrCrashed.
	CrashAfter
)

// A Faulty is a store with injected faults. It represents one incarnation of a
// process: to continue after a crash, wrap the same inner store in a new Faulty.
// Neither a crash nor Close closes the inner store.
//
// It hides no optional interface of the inner store. No faults are injected into
// calls to a store that storage.As finds behind it.
type Faulty struct {
	inner   storage.Storage
	opening string

	mu      sync.Mutex // guards the fields below; held while decide runs
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

// NewFaulty wraps inner. Each call first asks decide for its fault, one call at a
// time, so decide needs no lock of its own. decide must not call the store. A nil
// decide always returns None.
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

// Get reads from the inner store, unless a fault prevents it.
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

// Scan reads from the inner store, unless a fault prevents it.
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

// Commit writes to the inner store, unless a fault prevents it.
func (f *Faulty) Commit(ctx context.Context, b storage.Batch) error {
	given := b
	given.If, given.Ops = slices.Clone(b.If), slices.Clone(b.Ops) // whose caller may use its slices again
	return f.call(ctx, Call{Method: "Commit", Batch: given}, func(ctx context.Context) error {
		return f.inner.Commit(ctx, b)
	})
}

// Capabilities returns the capabilities of the inner store.
func (f *Faulty) Capabilities() storage.Capabilities { return f.inner.Capabilities() }

// Close makes later calls return storage.ErrClosed. The inner store stays open.
func (f *Faulty) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// Unwrap returns the inner store.
func (f *Faulty) Unwrap() storage.Storage { return f.inner }

// Opening identifies this Faulty. It is empty if the inner store is not
// storage.Exclusive.
func (f *Faulty) Opening() string { return f.opening }

// Crash makes all calls from now on, and those in progress, return ErrCrashed.
func (f *Faulty) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.die()
}

// Crashed returns a channel that is closed when the store crashes.
func (f *Faulty) Crashed() <-chan struct{} { return f.crash }

// Calls returns the number of calls that decide was asked about so far.
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

// end returns the result of a call, which is ErrCrashed after a crash.
func (f *Faulty) end(c Call, n int, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return fmt.Errorf("%s, call %d: %w", c.Method, n, ErrCrashed)
	}
	return err
}

// die must be called with mu held.
func (f *Faulty) die() {
	if !f.crashed {
		f.crashed = true
		close(f.crash)
	}
}

// A lookedAt is a context that is cancelled once it has been checked.
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

// Err returns nil at the first check, if the parent context is not done.
func (l *lookedAt) Err() error {
	defer l.cancel()
	return l.Context.Err()
}

// Done's channel is closed soon but not at once, so that its caller has started to wait.
func (l *lookedAt) Done() <-chan struct{} {
	l.once.Do(func() { go l.end() })
	return l.Context.Done()
}

func (l *lookedAt) end() {
	l.cancel()
	close(l.cancelled)
}

// wait returns when the context has been cancelled.
func (l *lookedAt) wait() {
	l.once.Do(l.end)
	<-l.cancelled
}
