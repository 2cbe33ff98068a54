package waiting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A wait is the context of a call that may wait, and records what the call waits for and
// its last error. Contexts that are derived from it carry it to the store.
type wait struct {
	context.Context
	what, id string // see InterruptedError.Call

	mu      lock.Mutex
	last    error  // the last error of the store, other than the end of the context
	unknown bool   // the outcome of a commit was, or is, unknown
	pending string // the last thing that the call waited for and did not get
	reads   bool   // the call writes nothing
}

type waitKey struct{}

func (w *wait) Value(key any) any {
	if key == (waitKey{}) {
		return w
	}
	return w.Context.Value(key)
}

func waitOf(ctx context.Context) *wait {
	w, _ := ctx.Value(waitKey{}).(*wait)
	return w
}

// New returns ctx for a call that may wait.
func New(ctx context.Context, what, id string) *wait {
	return &wait{Context: ctx, what: what, id: id}
}

// Explain returns err as an *InterruptedError, which says what the call waited for, if the
// context has ended or the store could not be read. Otherwise it returns err.
func (w *wait) Explain(err error) error {
	if err == nil {
		return nil
	}
	ended, cause := w.Err(), context.Cause(w)
	if !Failed(w, err) && (ended == nil || !errors.Is(err, cause)) {
		return err // an answer that has nothing to do with the context
	}
	if cause != ended {
		ended = fmt.Errorf("%w (%w)", ended, cause)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	waited := w.pending
	if waited == "" {
		waited = "its turn to commit"
	}
	return &weft.InterruptedError{Call: w.what + " " + Quoted(w.id), Unknown: w.unknown, Last: w.last, WaitedFor: waited, ReadOnly: w.reads, Err: err, Ended: ended}
}

// Failed reports whether err is not an answer: it comes from the end of ctx, or it is the
// last error of the store for the call of ctx, and another try may succeed.
func Failed(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err != nil
	}
	w := waitOf(ctx)
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last != nil && errors.Is(err, w.last) && (ctx.Err() != nil || !settle.Hopeless(err))
}

// Quoted returns an id in quotes, cut after 200 characters.
func Quoted(id string) string { return fmt.Sprintf("%.200q", id) }

// met records an error of the store for the call of ctx, which was waiting for what.
func met(ctx context.Context, err error, what string, commits bool) {
	w := waitOf(ctx)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if withdrawn, ok := errors.AsType[*storage.WithdrawnError](err); ok {
		if !w.unknown {
			w.pending = "its turn to commit"
		}
		if withdrawn.Last != nil {
			w.last = withdrawn.Last
		}
		return
	}
	w.pending = what
	if commits && !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrInvalidBatch) && !errors.Is(err, errors.ErrUnsupported) {
		w.unknown = true
	}
	if !errors.Is(err, storage.ErrConflict) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		w.last = err
	}
}

// LeftTo records that the call of ctx has left its commit to another call: whether that
// call tried it, and its error.
func LeftTo(ctx context.Context, tried bool, err error) {
	w := waitOf(ctx)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if tried {
		w.unknown, w.pending = true, "the store to commit"
	}
	if err != nil {
		w.last = err
	}
}

// For records what the call of ctx waits for now, and that the call writes nothing.
func For(ctx context.Context, what string) {
	if w := waitOf(ctx); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending, w.reads = what, true
	}
}

// On records what the call of ctx waits for now.
func On(ctx context.Context, what string) {
	if w := waitOf(ctx); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending = what
	}
}

// doubtful reports whether something may have been written for the call of ctx.
func doubtful(ctx context.Context) bool {
	w := waitOf(ctx)
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unknown
}

// A Store store records its errors in the wait of the call that uses it.
type Store struct {
	storage.Storage
	Closing <-chan struct{} // closed when the engine is
}

func (s Store) Unwrap() storage.Storage { return s.Storage }

func (s Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	lock.NoneHeld("a read")
	return look(ctx, s.Closing, func() ([]byte, error) { return s.Storage.Get(ctx, key) })
}

func (s Store) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	lock.NoneHeld("a read")
	return look(ctx, s.Closing, func() ([]storage.Entry, error) { return s.Storage.Scan(ctx, r) })
}

// look reads once. If something may have been written for the call, it repeats a failed
// read: otherwise the call could not find out the outcome.
func look[T any](ctx context.Context, closing <-chan struct{}, read func() (T, error)) (T, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		began := ctx.Err() == nil // if not, the store does nothing
		v, err := read()
		if err == nil || errors.Is(err, storage.ErrNotFound) {
			return v, err
		}
		if began {
			met(ctx, err, "the store to read", false)
		}
		if !doubtful(ctx) || settle.Hopeless(err) || Closed(closing) || !backoff.Wait(ctx, wait) {
			return v, err
		}
	}
}

func (s Store) Commit(ctx context.Context, b storage.Batch) error {
	lock.NoneHeld("a commit")
	began := ctx.Err() == nil
	err := s.Storage.Commit(ctx, b)
	if _, withdrawn := errors.AsType[*storage.WithdrawnError](err); withdrawn || err != nil && began {
		met(ctx, err, "the store to commit", true)
	}
	return err
}

// Closed reports whether c is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
