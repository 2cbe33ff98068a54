package idempotency

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

const (
	sweepEvery  = time.Minute
	sweepAtMost = 100     // entries that are removed in one commit
	sweepBytes  = 1 << 20 // of one commit
	sweepReads  = 16      // entries that are read at once
)

// sweeps forgets what may be forgotten, again and again, until the ledger is closed.
func (l *Ledger) sweeps() {
	for backoff.Wait(l.life, sweepEvery) {
		if _, err := l.sweep(l.life); err != nil && l.life.Err() == nil {
			l.config.Logger.Warn("idempotency: sweep failed; it is tried again", "error", err)
		}
	}
}

// sweep removes leases of dead holders, and entries that are due. It returns how many entries it removed.
func (l *Ledger) sweep(ctx context.Context) (removed int, err error) {
	l.dropAsked()
	compared, err := l.holders.ObserveAll(ctx)
	if ctx.Err() != nil {
		return 0, err
	}
	now := l.time()
	if why := l.clock.Doubt(); why != "" {
		l.config.Logger.Error("idempotency: nothing is forgotten, because the wall clock cannot be trusted", "reason", why)
		return 0, err
	}
	if !compared && !l.clock.ComparedLately() {
		return 0, err // the next sweep knows more
	}
	due, size := []storage.Batch(nil), storage.Size{}
	flush := func() error {
		n, err := settle.Together(ctx, l.store, due)
		removed, due, size = removed+n, due[:0], storage.Size{}
		return err
	}
	most := l.store.Capabilities().MaxBatch
	mostBytes := cmp.Or(min(sweepBytes, most.Bytes), sweepBytes)
	add := func(c *entry.Change) error {
		s := c.Size()
		if len(due) >= sweepAtMost || len(due) > 0 && (size.Bytes+s.Bytes > mostBytes || most.Ops > 0 && size.Ops+s.Ops > most.Ops) {
			if err := flush(); err != nil {
				return err
			}
		}
		due, size = append(due, c.Batch), storage.Size{Ops: size.Ops + s.Ops, Bytes: size.Bytes + s.Bytes}
		return nil
	}
	past := keys.ClaimsExpiredAt(now)
	expiring, failures := [][]byte(nil), reads.Failures{First: err}
	judge := func() error {
		for i, f := range l.forgettingAll(ctx, expiring) {
			switch {
			case record.Damaged(f.err):
				l.config.Logger.Error("idempotency: a key that is due cannot be forgotten", "key", string(expiring[i]), "error", f.err)
				continue
			case failures.End(ctx, expiring[i], f.err):
				l.swept.Leave(past, expiring[i])
				return failures.First
			case f.err != nil || f.change == nil:
				continue
			}
			if err := add(f.change); err != nil {
				return err
			}
		}
		expiring = expiring[:0]
		return nil
	}
	scan := func() error {
		for e, err := range storage.All(ctx, l.store, l.swept.GoOn(past)) {
			if err != nil {
				return err
			}
			if expiring = append(expiring, e.Key); len(expiring) == sweepReads {
				if err := judge(); err != nil {
					return err
				}
			}
		}
		return judge()
	}
	err = cmp.Or(scan(), flush(), failures.First)
	return removed, err
}

// A forgetting is the change that forgets a key, or nil, or why that is not known.
type forgetting struct {
	change *entry.Change
	err    error
}

// forgettingAll returns what forgetting does for each of several keys. It reads many at once: on a server
// that takes hardly longer than one.
func (l *Ledger) forgettingAll(ctx context.Context, expiring [][]byte) []forgetting {
	all := make([]forgetting, len(expiring))
	one := func(i int) { all[i].change, all[i].err = l.forgetting(ctx, expiring[i]) }
	if len(expiring) < sweepReads {
		for i := range expiring {
			one(i)
		}
		return all
	}
	var calls sync.WaitGroup
	for i := range expiring {
		calls.Go(func() { one(i) })
	}
	calls.Wait()
	return all
}

// forgetting returns the change that forgets what an ExpiringClaim key names; nil if it is to stay. The
// entry itself says whether it is due.
func (l *Ledger) forgetting(ctx context.Context, expiring []byte) (*entry.Change, error) {
	at, tenant, sourceType, sourceID, hash, err := keys.ExpiringClaimNames(expiring)
	if err != nil {
		return nil, err
	}
	e, err := l.find(ctx, keys.Claim(tenant, sourceType, sourceID, hash), hash)
	if err != nil {
		return nil, err
	}
	if e == nil || e.Expires != at.UnixMicro() {
		return &entry.Change{Batch: storage.Batch{Ops: []storage.Op{storage.Delete(expiring)}}}, nil // of an entry that is no more
	}
	c, err := entry.Changing(e.Key, hash, e, nil)
	if err != nil || e.OrderSource == "" {
		return c, err
	}
	src, err := readSource(ctx, l.store, tenant, sourceType, e.OrderSource)
	if err != nil || src.Hash != hash {
		return c, err
	}
	if slot, err := l.inSlot(ctx, tenant, sourceType, src); err != nil || slot != nil {
		return nil, err // its version still decides about what is under way
	}
	return c, src.Become(c, entry.Sequence{})
}

// dropAsked forgets keys about whose doubt nobody has asked for a week. That is longer than senders wait before they try again.
func (l *Ledger) dropAsked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := 7 * 24 * time.Hour
	if len(l.asked) > 100_000 { // they take memory
		keep = time.Hour
	}
	for hash, a := range l.asked {
		if time.Since(a.next) > keep {
			delete(l.asked, hash)
		}
	}
}

// time returns the time by the wall clock, as far as it is to be believed.
func (l *core) time() time.Time { return l.clock.Now() }
