package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// stamp is the record meta:store: the format and the ownership mode of the store. It is
// written once.
type stamp struct {
	Format    uint64 `cbor:"1,keyasint"`
	Shards    int    `cbor:"2,keyasint"`
	Ownership string `cbor:"3,keyasint"`
}

// format is the version of the layout of keys and records.
const format = 1

// settleMode writes the stamp of a new store. It returns an error for a store that was
// used with another ownership mode or by a newer release.
func settleMode(ctx context.Context, s storage.Storage, mode Ownership) error {
	key := keys.Meta("store")
	for range mostTries {
		raw, err := s.Get(ctx, key)
		if err == nil {
			return checkStamp(key, raw, mode)
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("engine: read the store's stamp: %w", err)
		}
		mine, err := record.Seal(key, checkpoint.Version, &stamp{format, 1, mode.String()}, nil)
		if err != nil {
			return err
		}
		err = s.Commit(ctx, storage.Batch{
			If:  []storage.Condition{storage.Absent(key)},
			Ops: []storage.Op{storage.Put(key, mine)},
		})
		if err != nil && !errors.Is(err, storage.ErrConflict) {
			return fmt.Errorf("engine: stamp the store: %w", err)
		}
	}
	return contradiction(key)
}

// mostTries is the maximum number of tries if commits conflict and the reads after them show
// no reason. Either others change the record each time, or the store is damaged.
const mostTries = 100

// contradiction returns the error after mostTries.
func contradiction(key []byte) error {
	return fmt.Errorf("engine: %w: commits and reads of record %q contradict each other", storage.ErrCorrupt, key)
}

// An outgrownError stops an engine, because a newer release has upgraded the store.
type outgrownError struct{ error }

func (e *outgrownError) Unwrap() error { return e.error }

// stampCheck is the duty to stop the engine if a newer release has upgraded the store.
type stampCheck struct {
	incarnation *incarnation
	last        time.Time
}

// look calls outgrown once per PollInterval, and less often while the engine is idle.
func (s *stampCheck) look(ctx context.Context) error {
	if s.incarnation.takeover.idle || time.Since(s.last) < s.incarnation.eng.pollInterval {
		return nil
	}
	s.last = time.Now()
	return s.incarnation.eng.outgrown(ctx)
}

func checkStamp(key, raw []byte, mode Ownership) error {
	var s stamp
	if _, err := record.Open(key, raw, checkpoint.Version, &s); err != nil {
		return fmt.Errorf("engine: read the store's stamp: %w", err)
	}
	if s.Format > format {
		return fmt.Errorf("engine: %w: store format %d, this release knows %d", storage.ErrFutureFormat, s.Format, format)
	}
	for _, stored := range []Ownership{OwnershipCASRequired, OwnershipSingleOwner} {
		if s.Ownership == stored.String() {
			if stored != mode {
				return &OwnershipModeError{Configured: mode, Stored: stored}
			}
			return nil
		}
	}
	return fmt.Errorf("engine: %w: ownership mode %q", storage.ErrFutureFormat, s.Ownership)
}

// outgrown returns an outgrownError if this release does not know the store's stamp.
func (e *worker) outgrown(ctx context.Context) error {
	key := keys.Meta("store")
	raw, err := e.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("engine: read the store's stamp: %w", err)
	}
	err = checkStamp(key, raw, e.ownership)
	if errors.Is(err, storage.ErrFutureFormat) {
		return &outgrownError{err}
	}
	return err
}
