package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// floorRecord is the record meta:floor: the lowest number that a claim may have. A store
// that was never restored has none.
type floorRecord struct {
	Floor uint64 `cbor:"1,keyasint"`

	// Who raised it last, why, and when.
	By  string `cbor:"2,keyasint"`
	Why string `cbor:"3,keyasint"`
	At  int64  `cbor:"4,keyasint"`

	raw     []byte // as stored; nil if it is not stored
	unknown record.Unknown
}

var floorKey = keys.Meta("floor")

// loadFloor reads the floor of a store. If the record is damaged it returns its bytes with
// the error.
func loadFloor(ctx context.Context, s storage.Storage) (*floorRecord, error) {
	raw, err := s.Get(ctx, floorKey)
	if errors.Is(err, storage.ErrNotFound) {
		return &floorRecord{}, nil
	}
	f := &floorRecord{raw: raw}
	if err == nil {
		f.unknown, err = record.Open(floorKey, raw, checkpoint.Version, f)
	}
	if err != nil {
		return &floorRecord{raw: raw}, fmt.Errorf("engine: read the floor of claims: %w", err)
	}
	return f, nil
}

// readFloor raises the floor of l to that of the store. It is called after l is registered and
// before it claims anything.
func (l *incarnation) readFloor(ctx context.Context) error {
	ctx, cancel := merged(ctx, l.ctx)
	defer cancel()
	f, err := loadFloor(ctx, retryReads{Storage: l.eng.store})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, f.Floor)
	return nil
}
