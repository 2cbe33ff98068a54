package engine

import (
	"context"
	"iter"
)

// StartBulk puts a bulk operation into the store: an engine that runs on the store does b.Do to every
// workflow that b.Filter selects now, one after the other. It goes on after any crash, and needs neither
// this call nor this engine any more. Workflows that are started, or that come to fit, after StartBulk was called
// are left alone: a workflow that a bulk has reset, and that fails again, is not reset again by it.
//
// Each operation is done as by the call of the engine's method with the same name, by the Actor by. Its
// Reason is that of by, with the id and the time of the bulk. An operation is done to a workflow once, whatever
// crashes, but for BulkProtect: after a crash, a workflow that had ended, or has continued as new, may be protected
// again although somebody has taken that back meanwhile. A workflow that is purged, and started again, before its turn is left alone. What cannot be done is
// counted and listed, see Bulks, and the bulk goes on with the others. While the store fails, the bulk
// waits. One bulk does one operation after the other, and several bulks go on side by side.
//
// The id has 1 to 200 bytes of UTF-8. Starting the same bulk again with the same id does nothing, also after
// the bulk has ended or was stopped. Ended ones are forgotten after Config.TombstoneRetention. An
// engine finds what another process has started within ten PollIntervals, or within a minute if that is sooner,
// and at once after Poke.
//
// The bulk is durable when StartBulk returns nil. Errors: ErrInvalid for a bulk that is not valid, such as one
// with an empty Filter; ErrMismatch if another bulk has the id; ErrClosed; storage.ErrCorrupt if the record of the
// bulk is damaged; storage.ErrFutureFormat if only a newer release understands it; the store's.
func (e *Engine) StartBulk(ctx context.Context, id string, b Bulk, by Actor) error {
	return e.bulks.Start(ctx, id, b, by)
}

// StopBulk ends a bulk operation. After it has returned, the operation is begun for no other workflow; one
// may be in progress. What was done stays. A deletion in progress may have terminated its workflow and not
// removed it. If the engine that carries out the bulk dies at that moment, up to
// 100 operations that it has done last are not counted. Stopping one that has ended changes nothing. Errors:
// ErrNotFound, ErrInvalid, ErrClosed, the store's.
func (e *Engine) StopBulk(ctx context.Context, id string, by Actor) error {
	return e.bulks.Stop(ctx, id, by)
}

// Bulk returns the state of a bulk operation. Errors: ErrNotFound; storage.ErrCorrupt if its record is damaged;
// storage.ErrFutureFormat if only a newer release understands it; ErrClosed; the store's.
func (e *Engine) Bulk(ctx context.Context, id string) (BulkInfo, error) {
	return e.bulks.Info(ctx, id)
}

// Bulks yields all bulk operations, also those that ended less than Config.TombstoneRetention ago, in the
// order of their ids. One whose record is damaged, or was written by a newer release, is yielded as its ID
// and that error, and the others follow. Any other error ends the sequence: ErrClosed, the store's.
func (e *Engine) Bulks(ctx context.Context) iter.Seq2[BulkInfo, error] {
	return e.bulks.All(ctx)
}
