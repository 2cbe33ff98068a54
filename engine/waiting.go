package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-go/weft/storage"
)

// An InterruptedError is the answer of a call whose context ended while it waited: for
// the store, which it had tried again and again, or for the end of a workflow. It wraps
// the context's error and cause, and the last error of the store.
type InterruptedError struct {
	Call    string // what was called, such as `signal "approved" to workflow "order-42"`
	Unknown bool   // what was asked for may have been done, or be done still; else nothing was written
	Last    error  // what the store answered last; nil: it had not answered, or without an error

	waited string // for what
	reads  bool   // there is nothing to be written
	err    error
	ended  error
}

func (e *InterruptedError) Error() string {
	s := fmt.Sprintf("engine: %s: %v while waiting for %s", e.Call, e.ended, e.waited)
	switch {
	case e.Unknown:
		s += ", outcome unknown"
	case !e.reads:
		s += ", nothing was written"
	}
	if e.Last != nil {
		s += fmt.Sprintf(": last error of the store: %v", e.Last)
	}
	return s
}

func (e *InterruptedError) Unwrap() []error {
	errs := []error{e.ended, e.err}
	if e.Last != nil {
		errs = append(errs, e.Last)
	}
	return errs
}

// A wait is what a call has met while it waited. Its context carries it to the store.
type wait struct {
	mu      sync.Mutex
	last    error  // of the store, and not the end of the context
	unknown bool   // a commit was, or is
	pending string // what the store was asked last, and has not done
	reads   bool   // the call writes nothing
}

type waitKey struct{}

// waiting returns ctx for a call that may wait, and what makes an error of it tell for
// what it waited, if ctx has ended.
func waiting(ctx context.Context, what, id string) (context.Context, func(error) error) {
	w := new(wait)
	return context.WithValue(ctx, waitKey{}, w), func(err error) error {
		ended := ctx.Err()
		if err == nil || ended == nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !errors.Is(err, ended) && !errors.Is(err, context.Cause(ctx)) && (w.last == nil || !errors.Is(err, w.last)) {
			return err // an answer, and not for want of time
		}
		if cause := context.Cause(ctx); cause != ended {
			ended = fmt.Errorf("%w (%w)", ended, cause)
		}
		waited := w.pending
		if waited == "" {
			waited = "its turn"
		}
		return &InterruptedError{Call: what + " " + quoted(id), Unknown: w.unknown, Last: w.last, waited: waited, reads: w.reads, err: err, ended: ended}
	}
}

func quoted(id string) string { return fmt.Sprintf("%.200q", id) }

func (w *wait) note(ctx context.Context, err error, what string, commits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = what
	if commits && !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrInvalidBatch) && !errors.Is(err, errors.ErrUnsupported) {
		w.unknown = true
	}
	if !errors.Is(err, storage.ErrConflict) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		w.last = err
	}
}

// leftTo says that the call of ctx has left its commit to another call, which met err.
func leftTo(ctx context.Context, err error) {
	w, ok := ctx.Value(waitKey{}).(*wait)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unknown, w.pending = true, "the store to commit"
	if err != nil {
		w.last = err
	}
}

// waitingFor says what the call of ctx waits for now, which is not the store.
func waitingFor(ctx context.Context, what string) {
	if w, ok := ctx.Value(waitKey{}).(*wait); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending, w.reads = what, true
	}
}

// An attentive store tells the call that waits for it of its errors.
type attentive struct{ storage.Storage }

func (s attentive) Unwrap() storage.Storage { return s.Storage }

func (s attentive) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := s.Storage.Get(ctx, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		met(ctx, err, "the store to read", false)
	}
	return v, err
}

func (s attentive) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.Storage.Scan(ctx, r)
	if err != nil {
		met(ctx, err, "the store to read", false)
	}
	return page, err
}

func (s attentive) Commit(ctx context.Context, b storage.Batch) error {
	began := ctx.Err() == nil // else the store does nothing
	err := s.Storage.Commit(ctx, b)
	if err != nil {
		met(ctx, err, "the store to commit", began)
	}
	return err
}

func met(ctx context.Context, err error, what string, commits bool) {
	if w, ok := ctx.Value(waitKey{}).(*wait); ok {
		w.note(ctx, err, what, commits)
	}
}
