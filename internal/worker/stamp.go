package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
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

// SettleMode writes the stamp of a new store, and that its lists are complete. It returns an
// error for a store that was used with another ownership mode or by a newer release.
func SettleMode(ctx context.Context, s storage.Storage, mode weft.Ownership) error {
	key := keys.Meta("store")
	for range settle.MostTries {
		raw, err := s.Get(ctx, key)
		if err == nil {
			return checkStamp(key, raw, mode)
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("engine: read the store's stamp: %w", err)
		}
		mine, err := record.Seal(key, journal.Version, &stamp{format, 1, mode.String()}, nil)
		if err != nil {
			return err
		}
		_, lists, err := (&listsRecord{Done: true}).put()
		if err != nil {
			return err
		}
		err = s.Commit(ctx, storage.Batch{
			If:  []storage.Condition{storage.Absent(key)},
			Ops: []storage.Op{storage.Put(key, mine), lists},
		})
		if err != nil && !errors.Is(err, storage.ErrConflict) {
			return fmt.Errorf("engine: stamp the store: %w", err)
		}
	}
	return settle.Contradiction(key)
}

// An outgrownError stops an engine, because a newer release has upgraded the store.
type outgrownError struct{ error }

func (e *outgrownError) Unwrap() error { return e.error }

// stampCheck is the duty to stop the engine if a newer release has upgraded the store.
type stampCheck struct {
	incarnation *Incarnation
	last        time.Time
}

// look calls outgrown once per PollInterval, and less often while the engine is idle.
func (s *stampCheck) look(ctx context.Context) error {
	if s.incarnation.takeover.idle || time.Since(s.last) < s.incarnation.Worker.PollInterval {
		return nil
	}
	s.last = time.Now()
	return s.incarnation.Worker.outgrown(ctx)
}

func checkStamp(key, raw []byte, mode weft.Ownership) error {
	var s stamp
	if _, err := record.Open(key, raw, journal.Version, &s); err != nil {
		return fmt.Errorf("engine: read the store's stamp: %w", err)
	}
	if s.Format > format {
		return fmt.Errorf("engine: %w: store format %d, this release knows %d: use the newer release", storage.ErrFutureFormat, s.Format, format)
	}
	for _, stored := range []weft.Ownership{weft.OwnershipCASRequired, weft.OwnershipSingleOwner} {
		if s.Ownership == stored.String() {
			if stored != mode {
				return &weft.OwnershipModeError{Configured: mode, Stored: stored}
			}
			return nil
		}
	}
	return fmt.Errorf("engine: %w: ownership mode %q", storage.ErrFutureFormat, s.Ownership)
}

// outgrown returns an outgrownError if this release does not know the store's stamp.
func (e *Worker) outgrown(ctx context.Context) error {
	key := keys.Meta("store")
	raw, err := e.Store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("engine: read the store's stamp: %w", err)
	}
	err = checkStamp(key, raw, e.Ownership)
	if errors.Is(err, storage.ErrFutureFormat) {
		return &outgrownError{err}
	}
	return err
}
