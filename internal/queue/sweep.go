package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

const (
	sweepEvery  = time.Minute
	sweepLeast  = time.Minute // how long Run keeps a key at least, and everybody one of a call with a name
	sweepAfter  = 1000        // keys that a process writes before it sweeps
	sweepAtMost = 250         // keys that are removed in one batch
)

// Run removes keys whose window is over, and reports queues that nobody empties, each minute until ctx is
// done. It returns nil then, and ErrClosed after Close. What fails is told to Failed, and tried again in a minute.
func (q *Queue) Run(ctx context.Context) error {
	for {
		if q.life.Err() != nil {
			return ErrClosed
		}
		_, err := q.sweep(ctx, sweepLeast)
		if err = errors.Join(err, q.reportOverdue(ctx)); err != nil && ctx.Err() == nil {
			q.Failed(err)
		}
		if !backoff.Wait(ctx, sweepEvery) {
			return nil
		}
	}
}

// sweep removes the keys that are older than least and whose window is over. It returns how many it
// removed.
func (q *Queue) sweep(ctx context.Context, least time.Duration) (removed int, err error) {
	if !q.sweeping.CompareAndSwap(false, true) {
		return 0, nil
	}
	defer q.sweeping.Store(false)
	now := q.now()
	most := sweepAtMost
	if ops := q.Storage.Capabilities().MaxBatch.Ops; ops > 0 {
		most = max(1, min(most, ops/3)) // a condition and two operations each
	}
	var past []storage.Batch
	flush := func() error { // if it is refused, somebody has published with one of the keys since
		n, err := settle.Together(ctx, q.Storage, past)
		removed, past = removed+n, past[:0]
		return err
	}
	err = q.swept.Each(ctx, q.Storage, keys.QueueKeysPast(now), func(e storage.Entry) error {
		b, err := q.forgetting(ctx, e.Key, now, least)
		switch {
		case record.Damaged(err):
			q.Damaged(string(e.Key), err)
		case err != nil:
			return err
		case len(b.Ops) > 0:
			past = append(past, b)
		}
		if len(past) == most {
			return flush()
		}
		return nil
	})
	if failed := flush(); err == nil {
		err = failed
	}
	return removed, err
}

// forgetting returns the batch that removes what a QueueKeyPast key is about; an empty one if it is to stay.
// The record of the key decides, not its entry.
func (q *Queue) forgetting(ctx context.Context, past []byte, now time.Time, least time.Duration) (b storage.Batch, err error) {
	_, queue, key, err := keys.QueueKeyPastNames(past)
	if err != nil {
		return b, err
	}
	u, err := readUsed(ctx, q.Storage, queue, key)
	if err != nil {
		return b, err
	}
	if u == nil || string(keys.QueueKeyPast(time.UnixMicro(u.Until), queue, key)) != string(past) {
		b.Ops = append(b.Ops, storage.Delete(past)) // of no record
		return b, nil
	}
	if u.suppresses(now, max(q.Window, least)) {
		return b, nil
	}
	at := keys.QueueKey(queue, key)
	b.If = append(b.If, storage.Equal(at, u.raw))
	b.Ops = append(b.Ops, storage.Delete(at), storage.Delete(past))
	return b, nil
}

// reportOverdue calls Overdue with each queue whose first message should have been taken a minute ago. It
// skips from queue to queue, and reads one entry of each.
func (q *Queue) reportOverdue(ctx context.Context) error {
	if q.Overdue == nil {
		return nil
	}
	r := keys.QueuesDue()
	r.Limit = 1
	for {
		page, err := q.Storage.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return err
		}
		name, at, _, err := keys.QueueTime(page[0].Key)
		if err != nil {
			q.Damaged(string(page[0].Key), err)
			r.Start = append(slices.Clone(page[0].Key), 0)
			continue
		}
		if q.now().Sub(at) >= time.Minute {
			q.Overdue(name, at)
		}
		r.Start = keys.QueueDueOf(name).End
	}
}
