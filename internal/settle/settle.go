// Package settle commits a batch until its outcome is certain, and limits how often a decision is repeated.
package settle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/storage"
)

// Commit commits b until the outcome is certain: after an unknown outcome it commits the very
// same batch again. It returns nil if b was applied, an error that wraps storage.ErrConflict if
// it certainly was not, and any other error if the outcome is still unknown. mine reports
// whether the effect of a refused batch is in the store.
//
// mine is called after each refusal, also if no outcome was unknown before, because some callers need that. Who removes
// something has succeeded if another process has removed it, such as a schedule. And journal.Commit takes its verdict from
// what mine has read. Who needs nothing of the kind uses New.
func Commit(ctx context.Context, s storage.Storage, b storage.Batch, unknown func(error), mine func(context.Context) (bool, error)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.Commit(ctx, b)
		if err == nil {
			return nil
		}
		if errors.Is(err, storage.ErrConflict) {
			landed, e := mine(ctx)
			if e == nil && landed {
				return nil
			}
			if e == nil {
				return err
			}
			err = e
		}
		if Hopeless(err) || ctx.Err() != nil {
			return fmt.Errorf("weft: commit: %w", err)
		}
		if unknown != nil {
			unknown(err)
		}
		if !backoff.Wait(ctx, pause) {
			return fmt.Errorf("weft: commit: outcome unknown: %w (%w)", err, context.Cause(ctx))
		}
	}
}

// Stored returns a mine for Commit: whether the store has what all of ops put.
func Stored(s storage.Storage, ops ...storage.Op) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		for _, o := range ops {
			now, err := s.Get(ctx, o.Key)
			if errors.Is(err, storage.ErrNotFound) {
				return false, nil
			}
			if err != nil || !bytes.Equal(now, o.Value) {
				return false, err
			}
		}
		return true, nil
	}
}

// New is Commit for a batch that was never committed before, and that nobody else commits. If it is refused while no outcome
// was unknown, it certainly was not applied, so mine is not called.
func New(ctx context.Context, s storage.Storage, b storage.Batch, mine func(context.Context) (bool, error)) error {
	doubtful := false // it may have been applied
	return Commit(ctx, s, b, func(error) { doubtful = true }, func(ctx context.Context) (bool, error) {
		if !doubtful {
			return false, nil
		}
		return mine(ctx)
	})
}

// Together commits batches that do not depend on each other, as one batch, or one by one if that is refused. It
// returns how many were certainly applied. A batch that is refused is passed over; any other error ends it, and an
// unknown outcome is not settled, so it is for what is looked at again later.
func Together(ctx context.Context, s storage.Storage, batches []storage.Batch) (n int, err error) {
	if len(batches) == 0 {
		return 0, nil
	}
	var all storage.Batch
	for _, b := range batches {
		all.If, all.Ops = append(all.If, b.If...), append(all.Ops, b.Ops...)
	}
	err = s.Commit(ctx, all)
	if err == nil {
		return len(batches), nil
	}
	if !isAny(err, storage.ErrConflict, storage.ErrInvalidBatch) { // they may be too large together
		return 0, err
	}
	for _, b := range batches {
		switch err := s.Commit(ctx, b); {
		case err == nil:
			n++
		case !errors.Is(err, storage.ErrConflict):
			return n, err
		}
	}
	return n, nil
}

// Hopeless reports whether retrying is useless: the store is gone or damaged, or it cannot accept the batch.
func Hopeless(err error) bool {
	return Gone(err) || isAny(err, storage.ErrInvalidBatch, storage.ErrCorrupt, storage.ErrFutureFormat, errors.ErrUnsupported)
}

// Gone reports whether the store, or the transaction of the host, does nothing any more: it is closed, it has failed,
// its files were moved, or a call in the transaction failed.
func Gone(err error) bool {
	return isAny(err, storage.ErrClosed, storage.ErrMoved, storage.ErrFailed, storage.ErrAborted)
}

func isAny(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
}

// MostTries is the maximum number of tries if commits conflict and the reads after them show
// no reason. Either others change the record each time, or the store is damaged.
const MostTries = 100

// Contradiction returns the error after MostTries.
func Contradiction(key []byte) error {
	return fmt.Errorf("engine: %w: commits and reads of record %q contradict each other", storage.ErrCorrupt, key)
}
