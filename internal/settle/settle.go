// Package settle commits a batch until its outcome is certain.
package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/storage"
)

// Commit commits b until the outcome is certain: after an unknown outcome it commits the very
// same batch again. It returns nil if b was applied, an error that wraps storage.ErrConflict if
// it certainly was not, and any other error if the outcome is still unknown. mine reports
// whether the effect of a refused batch is in the store.
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

// Hopeless reports whether retrying is useless: the store is closed or damaged, its files were
// moved, or it cannot accept the batch.
func Hopeless(err error) bool {
	for _, e := range []error{storage.ErrInvalidBatch, storage.ErrClosed, storage.ErrMoved, storage.ErrAborted, storage.ErrCorrupt, storage.ErrFutureFormat, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
