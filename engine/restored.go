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
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Restored is Engine.Restored.
func (e *admin) Restored(ctx context.Context, above uint64, by Actor) error {
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
func (e *admin) raiseFloor(ctx context.Context, floor uint64, by Actor) (again bool, err error) {
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
