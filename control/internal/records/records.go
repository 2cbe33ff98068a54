package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Version is that of all records of the plane.
const Version = 1

// Read reads the record at a key into v. Its bytes are nil if there is none.
func Read(ctx context.Context, s storage.Storage, at []byte, v any) ([]byte, record.Unknown, error) {
	raw, err := s.Get(ctx, at)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("control: read %q: %w", at, err)
	}
	unknown, err := record.Open(at, raw, Version, v)
	if err != nil {
		return nil, nil, fmt.Errorf("control: %w", err)
	}
	return raw, unknown, nil
}

// A Change replaces records: the batch that does it, and why there is none.
type Change struct {
	storage.Batch
	Err error
}

// Put adds a record that replaces raw, or is new if raw is nil.
func (c *Change) Put(at, raw []byte, v any, keep record.Unknown) {
	if raw == nil {
		c.If = append(c.If, storage.Absent(at))
	} else {
		c.If = append(c.If, storage.Equal(at, raw))
	}
	data, err := record.Seal(at, Version, v, keep)
	c.Err = errors.Join(c.Err, err)
	c.Ops = append(c.Ops, storage.Put(at, data))
}

// Time returns the time of a record; 0 is the zero time.
func Time(t int64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(t).UTC()
}
