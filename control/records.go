package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// recordVersion is that of all records of the plane.
const recordVersion = 1

// readRecord reads the record at a key into v. Its bytes are nil if there is none.
func readRecord(ctx context.Context, s storage.Storage, at []byte, v any) ([]byte, record.Unknown, error) {
	raw, err := s.Get(ctx, at)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("control: read %q: %w", at, err)
	}
	unknown, err := record.Open(at, raw, recordVersion, v)
	if err != nil {
		return nil, nil, fmt.Errorf("control: %w", err)
	}
	return raw, unknown, nil
}

// A change replaces records: the batch that does it, and why there is none.
type change struct {
	storage.Batch
	err error
}

// put adds a record that replaces raw, or is new if raw is nil.
func (c *change) put(at, raw []byte, v any, keep record.Unknown) {
	if raw == nil {
		c.If = append(c.If, storage.Absent(at))
	} else {
		c.If = append(c.If, storage.Equal(at, raw))
	}
	data, err := record.Seal(at, recordVersion, v, keep)
	c.err = errors.Join(c.err, err)
	c.Ops = append(c.Ops, storage.Put(at, data))
}

// holdsAll reports whether the store has what ops put.
func holdsAll(ctx context.Context, s storage.Storage, ops []storage.Op) (bool, error) {
	for _, o := range ops {
		now, err := s.Get(ctx, o.Key)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		if err != nil || !slices.Equal(now, o.Value) {
			return false, err
		}
	}
	return true, nil
}

// micro returns the time of a record; 0 is the zero time.
func micro(t int64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(t).UTC()
}
