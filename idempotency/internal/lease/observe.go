package lease

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// A sighting is a lease as it was last read, and since when it has been so.
type sighting struct {
	raw      string
	since    time.Time
	compared bool // its holder's clock was compared with ours
}

// Death returns when this ledger found that a holder is dead. It is zero if it lives. opening is that of the store
// when the holder claimed. In a transaction, Death commits nothing itself: that would wait for the transaction, which waits
// for Death.
func (hs *Holders) Death(ctx context.Context, id, opening string, tx bool) (time.Time, error) {
	if opening != hs.Opening {
		return hs.begun, nil
	}
	if h := hs.Current(); h != nil && h.ID == id && !h.IsLost() {
		return time.Time{}, nil
	}
	hs.mu.Lock()
	since, known := hs.dead[id]
	hs.mu.Unlock()
	if known {
		return since, nil
	}
	key := keys.Holder(id)
	raw, err := hs.Store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return hs.died(id), nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return hs.observe(ctx, id, key, raw, tx)
}

// observe judges a lease. If it has not changed for its whole time, observe removes it.
func (hs *Holders) observe(ctx context.Context, id string, key, raw []byte, tx bool) (time.Time, error) {
	r, err := Open(key, raw)
	damaged := errors.Is(err, storage.ErrCorrupt)
	switch {
	case damaged: // its holder loses it with the next renewal
		r = &Lease{Opening: hs.Opening, TTL: hs.TTL.Microseconds()}
	case err != nil:
		return time.Time{}, err
	}
	switch {
	case r.Opening != hs.Opening:
		return hs.begun, hs.bury(ctx, key, raw, tx)
	case hs.Opening != "":
		if _, ok := present.Load(id); ok {
			return time.Time{}, nil
		}
		return hs.died(id), hs.bury(ctx, key, raw, tx)
	}
	hs.mu.Lock()
	last, ok := hs.sightings[id]
	if !ok || last.raw != string(raw) {
		compared := damaged
		if !damaged {
			compared = hs.Clock.Compare(time.UnixMicro(r.Clock), ok, min(time.Since(last.since), saturate.Times(r.TTL, time.Microsecond)))
		}
		hs.sightings[id] = sighting{string(raw), time.Now(), compared}
	}
	hs.mu.Unlock()
	if !ok || last.raw != string(raw) || time.Since(last.since) < saturate.Times(r.TTL, time.Microsecond) {
		return time.Time{}, nil
	}
	if tx {
		hs.Go(func() { hs.removeLease(hs.Life, key, raw) })
		return time.Time{}, nil
	}
	switch err := hs.removeLease(ctx, key, raw); {
	case errors.Is(err, storage.ErrConflict):
		return time.Time{}, nil // it was renewed, or another holder was faster
	case err != nil:
		return time.Time{}, err // unknown: the next look reads it again
	}
	hs.Logger.Warn("idempotency: a holder is dead; its claims have lapsed", "holder", id)
	return hs.died(id), nil
}

// bury removes the lease of a holder that is certainly dead. Others may have done so.
func (hs *Holders) bury(ctx context.Context, key, raw []byte, tx bool) error {
	if tx {
		hs.Go(func() { hs.removeLease(hs.Life, key, raw) })
		return nil
	}
	err := hs.removeLease(ctx, key, raw)
	if errors.Is(err, storage.ErrConflict) {
		return nil
	}
	return err
}

func (hs *Holders) removeLease(ctx context.Context, key, raw []byte) error {
	return hs.Store.Commit(ctx, storage.Batch{If: []storage.Condition{storage.Equal(key, raw)}, Ops: []storage.Op{storage.Delete(key)}, Urgent: true})
}

func (hs *Holders) died(id string) time.Time {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.sightings, id)
	if _, known := hs.dead[id]; !known {
		hs.dead[id] = time.Now()
	}
	return hs.dead[id]
}

// ObserveAll judges all leases, so that those of dead holders are removed even if nobody asks for their
// keys. It says whether the clocks of all others that may live were compared with ours. Some that cannot be judged keep it from no others;
// it returns the error of the first.
func (hs *Holders) ObserveAll(ctx context.Context) (compared bool, err error) {
	there, failures := map[string]bool{}, reads.Failures{}
	for e, err := range storage.All(ctx, hs.Store, keys.Holders()) {
		if err != nil {
			return false, err
		}
		id, err := keys.Last(e.Key)
		if err == nil {
			if h := hs.Current(); h != nil && h.ID == id && !h.IsLost() {
				continue
			}
			there[id] = true
			_, err = hs.observe(ctx, id, e.Key, e.Value, false)
		}
		switch {
		case record.Damaged(err):
			hs.Logger.Error("idempotency: a holder's lease cannot be judged", "key", string(e.Key), "error", err)
		case failures.End(ctx, e.Key, err):
			return false, failures.First
		}
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	compared = true
	for id, s := range hs.sightings {
		if !there[id] {
			delete(hs.sightings, id)
		}
		compared = compared && (s.compared || !there[id])
	}
	for id, since := range hs.dead {
		if time.Since(since) > rememberDead {
			delete(hs.dead, id)
		}
	}
	return compared, failures.First
}

// rememberDead is how long a ledger remembers when it found a holder dead. If its claims are asked for
// later, it finds that again.
const rememberDead = 24 * time.Hour
