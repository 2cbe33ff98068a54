package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

const (
	mostExpired   = 2000 // maximum number of entries in one pass
	expiredAtOnce = 100  // maximum number of signals removed in one commit
)

// expiry is the duty to remove what has expired: tombstones, the accepted responses of signals, and
// the answers to updates. It also asks the children of terminated workflows to stop, if that was interrupted, and
// removes what earlier lives of runs have left. It does so in a goroutine, because there may be much of one
// workflow, and the poll must go on. Only that goroutine uses these fields while busy is set, and otherwise only
// the poll.
type expiry struct {
	incarnation *worker.Incarnation
	busy        atomic.Bool
	next        time.Time // when the next entry expires
	last        time.Time // time of the last complete pass
	swept       time.Time // everything that expires before this was removed
	place       []byte    // the entry at which the next pass continues; nil: at the beginning
	err         error     // of the last pass; the next look returns it

	dismisses  atomic.Bool   // a goroutine goes through the terminated workflows whose children are to be asked to stop
	places     chan struct{} // has an element for each whose children are being asked
	dismissing sync.Map      // their generations
}

// look removes what has expired. Until the next known expiry it looks only rarely.
func (x *expiry) look(ctx context.Context) error {
	l := x.incarnation
	if x.busy.Load() {
		return nil
	}
	err := x.err
	if x.err = nil; err != nil {
		return err
	}
	now, err := l.Passed(ctx)
	if err != nil {
		return err
	}
	if now.Before(x.next) && time.Since(x.last) < saturate.Times(run.Rarely, l.Worker.PollInterval) {
		return nil
	}
	x.busy.Store(true)
	begun := l.Go(func() {
		all, err := x.pass(ctx, now)
		x.err = err
		x.busy.Store(false)
		if !all && err == nil {
			l.PokeNow() // continue after the other duties
		}
	})
	if !begun {
		x.busy.Store(false)
	}
	return nil
}

// pass removes what has expired, and reports whether that was all: see until.
func (x *expiry) pass(ctx context.Context, now time.Time) (all bool, _ error) {
	l := x.incarnation
	all, err := x.until(ctx, now)
	if err != nil || !all {
		return false, err
	}
	x.swept = now
	next, ok, err := reads.First(ctx, l.Worker.Store, keys.ExpiresNext(now), keys.Expires, l.Unreadable)
	if err != nil {
		return false, err
	}
	if !ok {
		next = now.Add(aDay)
	}
	x.next, x.last = next, time.Now()
	return true, nil
}

// until removes what has expired, and reports whether that was all. If not, the next pass goes on where
// this one stopped, also past entries that have to stay, or that cannot be read. An entry that expires
// before x.swept was written since then by a clock that is behind. It is kept for a full
// retention from now on.
func (x *expiry) until(ctx context.Context, now time.Time) (all bool, _ error) {
	l := x.incarnation
	looked, kids := 0, false
	var signals []storage.Batch
	var failures reads.Failures
	expired := keys.ExpiredAt(now)
	if x.place != nil {
		expired.Start = x.place
	}
	x.place = nil // after an error of the store, from the beginning
	for entry, err := range storage.All(ctx, l.Worker.Store, expired) {
		if err != nil {
			return false, err
		}
		if looked == mostExpired {
			x.place = entry.Key
			return false, x.commitExpired(ctx, signals)
		}
		looked++
		kind, names, err := keys.Expiring(entry.Key)
		var at time.Time
		if err == nil {
			at, err = keys.Expires(entry.Key)
		}
		switch late := at.Before(x.swept); {
		case err != nil:
		case kind == "tomb" && late:
			err = x.putOff(ctx, entry.Key, keys.ExpiringTombstone(now.Add(l.Worker.TombstoneRetention), names[0], names[len(names)-1]))
		case kind == "tomb":
			err = x.expireTombstone(ctx, entry.Key, names[0], names[len(names)-1])
		case kind == "kids":
			if !kids {
				kids = true
				x.dismiss(ctx)
			}
		case kind == "life":
			err = x.removeFormerLives(ctx, entry.Key, names[0], names[len(names)-1])
		case kind == "upd":
			var b *storage.Batch
			if b, err = x.expireAnswer(ctx, entry.Key, now, late); b != nil && err == nil {
				signals = append(signals, *b)
			}
		case kind == "sig", kind == "hres":
			var b *storage.Batch
			if b, err = x.expireSignal(ctx, entry.Key, now, late); b != nil && err == nil {
				signals = append(signals, *b)
			}
		}
		if err != nil && ctx.Err() == nil { // it must not keep what expires later; a later pass finds it late, and keeps it longer
			x.unreadable(entry.Key, err)
		}
		if !record.Damaged(err) && failures.End(ctx, entry.Key, err) {
			x.place = append(entry.Key, 0) // these may be damaged, and nothing else
			return false, errors.Join(failures.First, x.commitExpired(ctx, signals))
		}
		if err == nil && len(signals) == expiredAtOnce {
			if err := x.commitExpired(ctx, signals); err != nil {
				return false, err
			}
			signals = nil
		}
	}
	return true, x.commitExpired(ctx, signals)
}

// unreadable logs once that what an entry names was not removed.
func (x *expiry) unreadable(entry []byte, err error) {
	switch log := x.incarnation.Worker.Log; {
	case !x.incarnation.Once("expired " + string(entry)):
	case record.Damaged(err):
		log.Error("weft: what has expired cannot be read; it is not removed", "error", err)
	default:
		log.Warn("weft: what has expired was not removed; a later look tries again", "error", err)
	}
}

// putOff replaces entry by again, which expires later.
func (x *expiry) putOff(ctx context.Context, entry, again []byte) error {
	return x.removeExpired(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(entry), storage.Put(again, nil)}})
}

func (x *expiry) expireTombstone(ctx context.Context, entry []byte, id, generation string) error {
	b := storage.Batch{Ops: []storage.Op{storage.Delete(entry)}}
	wf, err := journal.Load(ctx, x.incarnation.Worker.Store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
	case err != nil:
		return err
	case wf.Unmet() != "":
		return nil // an engine of the newer release removes it
	case wf.Tombstone() && wf.Generation == generation:
		if err := journal.Sweep(ctx, x.incarnation.Worker.Store, wf); err != nil {
			return err
		}
		b.If = []storage.Condition{wf.Unchanged()}
		b.Ops = append(b.Ops, storage.Delete(keys.Workflow(id)))
	}
	return x.removeExpired(ctx, b)
}

// expireSignal returns the batch that removes an accepted response, or keeps it longer if
// late is set or its signal still waits. It returns nil if the record is damaged.
func (x *expiry) expireSignal(ctx context.Context, entry []byte, now time.Time, late bool) (*storage.Batch, error) {
	forget := acceptance.Forget
	if late {
		forget = acceptance.Remember
	}
	b, err := forget(ctx, x.incarnation.Worker.Store, entry, now)
	if record.Damaged(err) {
		if x.incarnation.Once("expired " + string(entry)) {
			x.incarnation.Worker.Log.Error("weft: an accepted signal cannot be read; it is not removed", "error", err)
		}
		return nil, nil
	}
	return &b, err
}

// expireAnswer returns the batch that removes the answer to an update, or keeps it longer if late is
// set. It returns nil if the record is damaged.
func (x *expiry) expireAnswer(ctx context.Context, entry []byte, now time.Time, late bool) (*storage.Batch, error) {
	w := x.incarnation.Worker
	b, err := acceptance.ForgetAnswer(ctx, w.Store, entry, now, late, w.SignalIDRetention)
	if record.Damaged(err) {
		if x.incarnation.Once("expired " + string(entry)) {
			w.Log.Error("weft: the answer to an update cannot be read; it is not removed", "error", err)
		}
		return nil, nil
	}
	return &b, err
}

// commitExpired commits removals together. It ignores conflicts, because the next look decides again.
func (x *expiry) commitExpired(ctx context.Context, removals []storage.Batch) error {
	_, err := settle.Together(ctx, x.incarnation.Worker.Store, removals)
	return err
}

// removeExpired commits a removal. It ignores a conflict, because the next look decides
// again.
func (x *expiry) removeExpired(ctx context.Context, b storage.Batch) error {
	if err := x.incarnation.Worker.Store.Commit(ctx, b); err != nil && !errors.Is(err, storage.ErrConflict) {
		return fmt.Errorf("engine: remove expired records: %w", err)
	}
	return nil
}
