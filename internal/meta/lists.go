package meta

import (
	"context"
	"errors"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A ListsRecord is the record meta:lists: whether each workflow has its entries in lists.
// Releases before it wrote only those of the list of all workflows. A pass over that list adds
// the others.
type ListsRecord struct {
	// Done: a pass has come to its end, or the store began with this record.
	Done bool `cbor:"1,keyasint,omitempty"`

	// Begun is when the last pass began, and Place the generation that it has come to; "" means
	// that it has ended.
	Begun int64  `cbor:"2,keyasint,omitempty"`
	Place string `cbor:"3,keyasint,omitempty"`

	Raw     []byte `cbor:"-"` // as stored; nil if it is not stored
	unknown record.Unknown
}

// ReadLists reads the record. If it is damaged, nothing is known: the next pass writes it anew.
func ReadLists(ctx context.Context, s storage.Storage) (*ListsRecord, error) {
	r, key := new(ListsRecord), keys.Meta("lists")
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return r, nil
	}
	if err == nil {
		r.unknown, err = record.Open(key, raw, journal.Version, r)
	}
	if errors.Is(err, storage.ErrCorrupt) {
		r, err = new(ListsRecord), nil
	}
	r.Raw = raw
	return r, err
}

// Put returns the operation that stores r, and the condition that it is still as it was read.
func (r *ListsRecord) Put() (storage.Condition, storage.Op, error) {
	key := keys.Meta("lists")
	raw, err := record.Seal(key, journal.Version, r, r.unknown)
	unchanged := storage.Absent(key)
	if r.Raw != nil {
		unchanged = storage.Equal(key, r.Raw)
	}
	return unchanged, storage.Put(key, raw), err
}
