package meta

import (
	"context"
	"errors"
	"fmt"

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

// Formats of stores: versions of the layout of keys and records. A store keeps the format in which it was made, so
// that the release that made it can still use it. In format 1 the checkpoints of a workflow are stored under its id.
const (
	LogsByGeneration = 2 // they are stored under the generation of the workflow

	latest = LogsByGeneration
)

// SettleMode writes the stamp of a new store, and that its lists are complete. It returns the format of the store, or an
// error for a store that was used with another ownership mode or by a newer release.
func SettleMode(ctx context.Context, s storage.Storage, mode weft.Ownership) (format uint64, err error) {
	key := keys.Meta("store")
	for range settle.MostTries {
		raw, err := s.Get(ctx, key)
		if err == nil {
			return checkStamp(key, raw, mode)
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return 0, fmt.Errorf("engine: read the store's stamp: %w", err)
		}
		mine, err := record.Seal(key, journal.Version, &stamp{latest, 1, mode.String()}, nil)
		if err != nil {
			return 0, err
		}
		_, lists, err := (&ListsRecord{Done: true}).Put()
		if err != nil {
			return 0, err
		}
		err = s.Commit(ctx, storage.Batch{
			If:  []storage.Condition{storage.Absent(key)},
			Ops: []storage.Op{storage.Put(key, mine), lists},
		})
		if err != nil && !errors.Is(err, storage.ErrConflict) {
			return 0, fmt.Errorf("engine: stamp the store: %w", err)
		}
	}
	return 0, settle.Contradiction(key)
}

// An OutgrownError stops an engine, because a newer release has upgraded the store.
type OutgrownError struct{ error }

func (e *OutgrownError) Unwrap() error { return e.error }

// checkStamp returns the format of a store.
func checkStamp(key, raw []byte, mode weft.Ownership) (format uint64, err error) {
	var s stamp
	if _, err := record.Open(key, raw, journal.Version, &s); err != nil {
		return 0, fmt.Errorf("engine: read the store's stamp: %w", err)
	}
	if s.Format > latest {
		return 0, fmt.Errorf("engine: %w: store format %d, this release knows %d: use the newer release", storage.ErrFutureFormat, s.Format, latest)
	}
	for _, stored := range []weft.Ownership{weft.OwnershipCASRequired, weft.OwnershipSingleOwner} {
		if s.Ownership == stored.String() {
			if stored != mode {
				return 0, &weft.OwnershipModeError{Configured: mode, Stored: stored}
			}
			return s.Format, nil
		}
	}
	return 0, fmt.Errorf("engine: %w: ownership mode %q", storage.ErrFutureFormat, s.Ownership)
}

// Outgrown returns an OutgrownError if this release does not know the stamp of a store.
func Outgrown(ctx context.Context, s storage.Storage, mode weft.Ownership) error {
	key := keys.Meta("store")
	raw, err := s.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("engine: read the store's stamp: %w", err)
	}
	_, err = checkStamp(key, raw, mode)
	if errors.Is(err, storage.ErrFutureFormat) {
		return &OutgrownError{err}
	}
	return err
}
