package run

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A RetryReads store retries reads until they succeed or fail permanently, because a run in
// memory can only wait for a transient fault to pass. It does not retry commits; see
// journal.Settle.
type RetryReads struct{ storage.Storage }

func (p RetryReads) Unwrap() storage.Storage { return p.Storage }

func (p RetryReads) Get(ctx context.Context, key []byte) ([]byte, error) {
	return outlast(ctx, func() ([]byte, error) { return p.Storage.Get(ctx, key) })
}

func (p RetryReads) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	return outlast(ctx, func() ([]storage.Entry, error) { return p.Storage.Scan(ctx, r) })
}

// outlasts calls do as outlast calls read. These errors are none.
func (x *Execution) outlasts(do func() error, none ...error) error {
	_, err := outlast(x.Ctx, func() (any, error) {
		err := do()
		if payload.MatchSentinel(err, none) != nil {
			err = nil
		}
		return nil, err
	})
	return err
}

// outlast calls read until it succeeds, the error is permanent, or ctx ends.
func outlast[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		v, err := read()
		if err == nil || errors.Is(err, storage.ErrNotFound) || settle.Hopeless(err) || !backoff.Wait(ctx, wait) {
			return v, err
		}
	}
}
