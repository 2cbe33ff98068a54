package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/backoff"
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

// Restored must be called once after the store was restored from a backup, before the
// first engine runs on it. Make sure that none runs already. From then on every fencing
// token of this store is higher than all that it issued before, including those issued
// after the backup was made. The new tokens are higher than any that corresponds to the
// present time of the wall clock, and higher than above, the highest token known from
// elsewhere, such as a table of package fence. If none is known, above is zero.
//
// Restored waits for the end of the second in which it was called. The change is durable
// when it returns, and the log has who made it and why. It applies to every engine that
// starts to run on the store afterwards, whatever its clock says. Calling Restored again
// does no harm. The guide on operating describes everything that a restore requires.
//
// Errors: ErrInvalid, ErrNotApplicable if this engine runs, ErrClosed, the store's. After
// any error other than the first three, call it again.
func (e *Engine) Restored(ctx context.Context, above uint64, by Actor) error {
	if err := checkActor(by); err != nil {
		return err
	}
	if above >= math.MaxInt64 {
		return invalid("token", fmt.Sprint(above), "is higher than any token")
	}
	e.mu.Lock()
	running := e.incarnation != nil
	e.mu.Unlock()
	if running {
		return fmt.Errorf("%w: restored: this engine runs; call it before Run", ErrNotApplicable)
	}
	now := e.now()
	if !backoff.Sleep(ctx, now.Truncate(time.Second).Add(time.Second).Sub(now)) {
		return context.Cause(ctx)
	}
	for range mostTries {
		if err := errors.Join(e.refused(), ctx.Err()); err != nil {
			return err
		}
		again, err := e.raiseFloor(ctx, max(checkpoint.First(e.now()), checkpoint.First(now.Add(time.Second)), above+1), by)
		if err != nil {
			return fmt.Errorf("engine: restored: %w", err)
		}
		if !again {
			return nil
		}
	}
	return contradiction(floorKey)
}

// raiseFloor writes the floor, unless the stored one is as high already. It reports whether
// to try again because the record changed meanwhile. It replaces a damaged record, because
// nothing else can repair it.
func (e *Engine) raiseFloor(ctx context.Context, floor uint64, by Actor) (again bool, err error) {
	now, err := loadFloor(ctx, e.store)
	switch {
	case err != nil && (!errors.Is(err, storage.ErrCorrupt) || now.raw == nil):
		return false, err
	case now.Floor >= floor:
		return false, nil
	}
	next := &floorRecord{Floor: floor, By: by.Name, Why: by.Reason, At: checkpoint.Micro(e.now()), unknown: now.unknown}
	raw, err := record.Seal(floorKey, checkpoint.Version, next, next.unknown)
	if err != nil {
		return false, err
	}
	unchanged := storage.Absent(floorKey)
	if now.raw != nil {
		unchanged = storage.Equal(floorKey, now.raw)
	}
	b := storage.Batch{If: []storage.Condition{unchanged}, Ops: []storage.Op{storage.Put(floorKey, raw)}}
	err = checkpoint.Settle(ctx, e.store, b, nil, func(ctx context.Context) (bool, error) {
		there, err := e.store.Get(ctx, floorKey)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && bytes.Equal(there, raw), err
	})
	switch {
	case errors.Is(err, storage.ErrConflict):
		return true, nil
	case err != nil:
		return false, err
	}
	e.log.Info("weft: store restored; new fencing tokens are higher than all before", "floor", floor, "by", by.Name, "why", by.Reason)
	return false, nil
}

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
	f, err := loadFloor(ctx, retryReads{l.eng.store})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, f.Floor)
	return nil
}
