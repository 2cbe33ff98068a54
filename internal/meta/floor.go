package meta

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// FloorRecord is the record meta:floor: the lowest number that a claim may have. A store
// that was never restored has none.
type FloorRecord struct {
	Floor uint64 `cbor:"1,keyasint"`

	// Who raised it last, why, and when.
	By  string `cbor:"2,keyasint"`
	Why string `cbor:"3,keyasint"`
	At  int64  `cbor:"4,keyasint"`

	Raw           []byte         `cbor:"-"` // as stored; nil if it is not stored
	UnknownFields record.Unknown `cbor:"-"`
}

// FloorKey is the key of the FloorRecord.
var FloorKey = keys.Meta("floor")

// LoadFloor reads the floor of a store. If the record is damaged it returns its bytes with
// the error.
func LoadFloor(ctx context.Context, s storage.Storage) (*FloorRecord, error) {
	raw, err := s.Get(ctx, FloorKey)
	if errors.Is(err, storage.ErrNotFound) {
		return &FloorRecord{}, nil
	}
	f := &FloorRecord{Raw: raw}
	if err == nil {
		f.UnknownFields, err = record.Open(FloorKey, raw, journal.Version, f)
	}
	if err != nil {
		return &FloorRecord{Raw: raw}, fmt.Errorf("engine: read the floor of claims: %w", err)
	}
	return f, nil
}
