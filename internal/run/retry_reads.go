package run

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A RetryReads store retries reads until they succeed or fail permanently, because a run in memory can only wait for a
// transient fault to pass. It logs reads that keep failing. It does not retry commits; see journal.Settle.
type RetryReads struct {
	storage.Storage
	Log *slog.Logger
	ID  string // of the workflow that they are for; "": of none
}

func (p RetryReads) Unwrap() storage.Storage { return p.Storage }

func (p RetryReads) Get(ctx context.Context, key []byte) ([]byte, error) {
	return outlast(ctx, p.Log, p.ID, func() ([]byte, error) { return p.Storage.Get(ctx, key) })
}

func (p RetryReads) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	return outlast(ctx, p.Log, p.ID, func() ([]storage.Entry, error) { return p.Storage.Scan(ctx, r) })
}

// outlasts calls do as outlast calls read. These errors are none.
func (x *Execution) outlasts(do func() error, none ...error) error {
	_, err := outlast(x.Ctx, x.host.Log, x.ID, func() (any, error) {
		err := do()
		if payload.MatchSentinel(err, none) != nil {
			err = nil
		}
		return nil, err
	})
	return err
}

// outlast calls read until it succeeds, the error is permanent, or ctx ends.
func outlast[T any](ctx context.Context, log *slog.Logger, id string, read func() (T, error)) (T, error) {
	wait := time.Millisecond
	for n := 1; ; n++ {
		v, err := read()
		if err == nil || errors.Is(err, storage.ErrNotFound) || settle.Hopeless(err) || !backoff.Wait(ctx, wait) {
			return v, err
		}
		if wait = min(2*wait, time.Second); powerOfTen(n) {
			log.Warn("weft: a read keeps failing; trying again", "workflow", id, "count", n, "error", err)
		}
	}
}
