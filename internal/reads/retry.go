package reads

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/told"
	"github.com/weft-go/weft/storage"
)

// A Retrying store retries reads until they succeed or fail permanently, because a run in memory can only wait for a
// transient fault to pass. It logs reads that keep failing. It does not retry commits; see journal.Settle.
type Retrying struct {
	storage.Storage
	Log *slog.Logger
	ID  string // of the workflow that they are for; "": of none
}

func (s Retrying) Unwrap() storage.Storage { return s.Storage }

func (s Retrying) Get(ctx context.Context, key []byte) ([]byte, error) {
	return Outlast(ctx, s.Log, s.ID, func() ([]byte, error) { return s.Storage.Get(ctx, key) })
}

func (s Retrying) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	return Outlast(ctx, s.Log, s.ID, func() ([]storage.Entry, error) { return s.Storage.Scan(ctx, r) })
}

// Outlast calls read, which is for the workflow id, until it succeeds, the error is permanent, or ctx ends.
func Outlast[T any](ctx context.Context, log *slog.Logger, id string, read func() (T, error)) (T, error) {
	wait := time.Millisecond
	for n := 1; ; n++ {
		v, err := read()
		if err == nil || errors.Is(err, storage.ErrNotFound) || settle.Hopeless(err) || !backoff.Wait(ctx, wait) {
			return v, err
		}
		if wait = min(2*wait, time.Second); told.PowerOfTen(n) {
			log.Warn("weft: a read keeps failing; trying again", "workflow", id, "count", n, "error", err)
		}
	}
}
