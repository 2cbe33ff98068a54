package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// Restored is Engine.Restored.
func (e *Admin) Restored(ctx context.Context, above uint64, by weft.Actor) error {
	if err := CheckActor(by); err != nil {
		return err
	}
	if above >= math.MaxInt64 {
		return payload.Invalid("token", fmt.Sprint(above), "is higher than any token")
	}
	if e.IsRunning() {
		return fmt.Errorf("%w: restored: this engine runs; call it before Run", weft.ErrNotApplicable)
	}
	now := e.Now()
	if !backoff.Sleep(ctx, now.Truncate(time.Second).Add(time.Second).Sub(now)) {
		return context.Cause(ctx)
	}
	for range settle.MostTries {
		if err := errors.Join(e.Refused(), ctx.Err()); err != nil {
			return err
		}
		again, err := e.raiseFloor(ctx, max(journal.First(e.Now()), journal.First(now.Add(time.Second)), above+1), by)
		if err != nil {
			return fmt.Errorf("engine: restored: %w", err)
		}
		if !again {
			return nil
		}
	}
	return settle.Contradiction(meta.FloorKey)
}

// raiseFloor writes the floor, unless the stored one is as high already. It reports whether
// to try again because the record changed meanwhile. It replaces a damaged record, because
// nothing else can repair it.
func (e *Admin) raiseFloor(ctx context.Context, floor uint64, by weft.Actor) (again bool, err error) {
	now, err := meta.LoadFloor(ctx, e.Store)
	switch {
	case err != nil && (!errors.Is(err, storage.ErrCorrupt) || now.Raw == nil):
		return false, err
	case now.Floor >= floor:
		return false, nil
	}
	next := &meta.FloorRecord{Floor: floor, By: by.Name, Why: by.Reason, At: journal.Micro(e.Now()), UnknownFields: now.UnknownFields}
	raw, err := record.Seal(meta.FloorKey, journal.Version, next, next.UnknownFields)
	if err != nil {
		return false, err
	}
	unchanged := storage.Absent(meta.FloorKey)
	if now.Raw != nil {
		unchanged = storage.Equal(meta.FloorKey, now.Raw)
	}
	b := storage.Batch{If: []storage.Condition{unchanged}, Ops: []storage.Op{storage.Put(meta.FloorKey, raw)}}
	err = settle.Commit(ctx, e.Store, b, nil, settle.Stored(e.Store, b.Ops...))
	switch {
	case errors.Is(err, storage.ErrConflict):
		return true, nil
	case err != nil:
		return false, err
	}
	e.Log.Info("weft: store restored; new fencing tokens are higher than all before", "floor", floor, "by", by.Name, "why", by.Reason)
	return false, nil
}
