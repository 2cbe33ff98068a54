package idempotency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A holder has claims. On a shared store its lease is renewed, and whoever sees the same bytes of
// it for a whole Lease, by his own monotonic clock, removes it: the holder is dead. The holder
// itself trusts its lease for a Lease from when it sent the renewal that was stored, which is
// before anyone could read it. No two clocks are compared. A claim can only be committed while
// the lease of its holder is there, so whoever was found dead claims nothing more.
//
// On an exclusive store a lease is of one opening of the store, and dies with it.

// A lease is the record of a holder: idemown:{holder}.
type lease struct {
	Opening string `cbor:"1,keyasint,omitempty"` // of an exclusive store; "": it is renewed
	Nonce   string `cbor:"2,keyasint"`
	TTL     int64  `cbor:"3,keyasint,omitempty"` // how long a renewal is valid, in microseconds
	Clock   int64  `cbor:"4,keyasint"`           // the holder's wall clock when it was written

	UnknownFields record.Unknown `cbor:"-"`
}

func openLease(key, raw []byte) (*lease, error) {
	l := new(lease)
	var err error
	l.UnknownFields, err = record.Open(key, raw, version, l)
	return l, err
}

// renewals is how often a lease is renewed in its time.
const renewals = 6

// present has the holders of this process. An exclusive store is open in one process, so there a holder
// of the present opening that is not among them is dead, even if its lease could not be removed.
var present sync.Map

type holder struct {
	id   string
	raw  []byte             // the lease as it is stored; of renew
	lost context.Context    // ends when the lease is lost
	lose context.CancelFunc // ends lost

	mu   sync.Mutex // guards runs
	runs map[context.Context]context.CancelCauseFunc
}

func (h *holder) isLost() bool { return h.lost.Err() != nil }

// hold returns the present holder. It registers a new one if there is none.
func (l *Ledger) hold(ctx context.Context) (*holder, error) {
	if h := l.holder.Load(); h != nil && !h.isLost() {
		return h, nil
	}
	select {
	case l.registering <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.registering }()
	if h := l.holder.Load(); h != nil && !h.isLost() {
		return h, nil
	}
	h := &holder{id: newID(l.time()), runs: map[context.Context]context.CancelCauseFunc{}}
	h.lost, h.lose = context.WithCancel(l.life)
	context.AfterFunc(h.lost, h.cutOff)
	put, err := l.lease(h)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	present.Store(h.id, true)
	b := storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}, Urgent: true}
	if err := settle.Commit(ctx, l.store, b, nil, l.reads(put)); err != nil {
		present.Delete(h.id)
		h.lose()
		return nil, fmt.Errorf("idempotency: register a holder of claims: %w", err)
	}
	h.raw = put.Value
	l.holder.Store(h)
	if l.opening == "" {
		l.background.Go(func() { l.renew(h, sent) })
	}
	return h, nil
}

// lease returns the record of h, with a new nonce.
func (l *Ledger) lease(h *holder) (storage.Op, error) {
	key := keys.Holder(h.id)
	r := &lease{Opening: l.opening, Nonce: rand.Text(), Clock: l.time().UnixMicro()}
	if l.opening == "" {
		r.TTL = l.config.Lease.Microseconds()
	}
	raw, err := record.Seal(key, version, r, nil)
	return storage.Put(key, raw), err
}

// reads returns a function that says whether op is in the store.
func (l *Ledger) reads(op storage.Op) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		raw, err := l.store.Get(ctx, op.Key)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && string(raw) == string(op.Value), err
	}
}

// renew renews the lease of h, which was sent at a time, until the ledger is closed or the lease is
// lost. A timer ends it in time even if the store blocks.
func (l *Ledger) renew(h *holder, sent time.Time) {
	trusted := sent.Add(l.config.Lease)
	end := time.AfterFunc(time.Until(trusted), h.lose)
	defer end.Stop()
	for {
		select {
		case <-h.lost.Done():
			if l.life.Err() == nil {
				l.config.Logger.Error("idempotency: the lease is lost; claims may be taken over", "holder", h.id)
			}
			return
		case <-time.After(time.Until(sent.Add(l.config.Lease / renewals))):
		}
		sent = time.Now()
		ctx, cancel := context.WithDeadline(h.lost, trusted)
		put, err := l.lease(h)
		if err == nil {
			b := storage.Batch{If: []storage.Condition{storage.Equal(put.Key, h.raw)}, Ops: []storage.Op{put}, Urgent: true}
			err = settle.Commit(ctx, l.store, b, nil, l.reads(put))
		}
		cancel()
		if err != nil || !end.Stop() {
			h.lose()
			continue
		}
		h.raw = put.Value
		trusted = sent.Add(l.config.Lease)
		end.Reset(time.Until(trusted))
	}
}

// retire removes the lease of the present holder, which has no claims any more. If that fails,
// others find out as if it had died.
func (l *Ledger) retire(ctx context.Context) {
	h := l.holder.Load()
	if h == nil {
		return
	}
	present.Delete(h.id)
	key := keys.Holder(h.id)
	err := l.store.Commit(ctx, storage.Batch{
		If:  []storage.Condition{storage.Equal(key, h.raw)},
		Ops: []storage.Op{storage.Delete(key)},
	})
	if err != nil && !errors.Is(err, storage.ErrConflict) {
		l.config.Logger.Warn("idempotency: the lease was not removed; it will run out", "holder", h.id, "error", err)
	}
}

// A sighting is a lease as it was last read, and since when it has been so.
type sighting struct {
	raw      string
	since    time.Time
	compared bool // its holder's clock was compared with ours
}

// vitality says whether the holder of e lives. settle is how long what it sent may take effect
// after its death. left is what remains of that.
func (l *Ledger) vitality(ctx context.Context, e *entry, settle time.Duration) (v vitality, left time.Duration, err error) {
	since, err := l.death(ctx, e.Holder, e.Opening)
	switch {
	case err != nil || since.IsZero():
		return living, 0, err
	case time.Since(since) < settle:
		return waning, settle - time.Since(since), nil
	}
	return settled, 0, nil
}

// death returns when this ledger found that a holder is dead. It is zero if it lives.
func (l *Ledger) death(ctx context.Context, id, opening string) (time.Time, error) {
	if opening != l.opening {
		return l.begun, nil
	}
	if h := l.holder.Load(); h != nil && h.id == id && !h.isLost() {
		return time.Time{}, nil
	}
	l.mu.Lock()
	since, known := l.dead[id]
	l.mu.Unlock()
	if known {
		return since, nil
	}
	key := keys.Holder(id)
	raw, err := l.store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return l.died(id), nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return l.observe(ctx, id, key, raw)
}

// observe judges a lease. If it has not changed for its whole time, observe removes it.
func (l *Ledger) observe(ctx context.Context, id string, key, raw []byte) (time.Time, error) {
	r, err := openLease(key, raw)
	damaged := errors.Is(err, storage.ErrCorrupt)
	switch {
	case damaged: // its holder loses it with the next renewal
		r = &lease{Opening: l.opening, TTL: l.config.Lease.Microseconds()}
	case err != nil:
		return time.Time{}, err
	}
	switch {
	case r.Opening != l.opening:
		return l.begun, l.bury(ctx, key, raw)
	case l.opening != "":
		if _, ok := present.Load(id); ok {
			return time.Time{}, nil
		}
		return l.died(id), l.bury(ctx, key, raw)
	}
	l.mu.Lock()
	last, ok := l.sightings[id]
	if !ok || last.raw != string(raw) {
		compared := damaged
		if !damaged {
			compared = l.clock.Compare(micro(r.Clock), l.now(), ok, min(time.Since(last.since), saturate.Times(r.TTL, time.Microsecond)))
		}
		l.sightings[id] = sighting{string(raw), time.Now(), compared}
	}
	l.mu.Unlock()
	if !ok || last.raw != string(raw) || time.Since(last.since) < saturate.Times(r.TTL, time.Microsecond) {
		return time.Time{}, nil
	}
	if l.tx { // the removal would wait for the transaction, which waits for it
		l.background.Go(func() { l.removeLease(l.life, key, raw) })
		return time.Time{}, nil
	}
	switch err := l.removeLease(ctx, key, raw); {
	case errors.Is(err, storage.ErrConflict):
		return time.Time{}, nil // it was renewed, or another holder was faster
	case err != nil:
		return time.Time{}, err // unknown: the next look reads it again
	}
	l.config.Logger.Warn("idempotency: a holder is dead; its claims have lapsed", "holder", id)
	return l.died(id), nil
}

// bury removes the lease of a holder that is certainly dead. Others may have done so.
func (l *Ledger) bury(ctx context.Context, key, raw []byte) error {
	if l.tx {
		l.background.Go(func() { l.removeLease(l.life, key, raw) })
		return nil
	}
	err := l.removeLease(ctx, key, raw)
	if errors.Is(err, storage.ErrConflict) {
		return nil
	}
	return err
}

func (l *Ledger) removeLease(ctx context.Context, key, raw []byte) error {
	return l.store.Commit(ctx, storage.Batch{If: []storage.Condition{storage.Equal(key, raw)}, Ops: []storage.Op{storage.Delete(key)}, Urgent: true})
}

func (l *Ledger) died(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sightings, id)
	if _, known := l.dead[id]; !known {
		l.dead[id] = time.Now()
	}
	return l.dead[id]
}

// whileHeld returns a context that also ends, with activity.ErrLeaseLost, when h is lost.
func (h *holder) whileHeld(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isLost() {
		cancel(activity.ErrLeaseLost)
	}
	h.runs[ctx] = cancel
	return ctx, func() {
		h.mu.Lock()
		delete(h.runs, ctx)
		h.mu.Unlock()
		cancel(nil)
	}
}

// cutOff ends the Runs of h, which is lost.
func (h *holder) cutOff() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.runs {
		cancel(activity.ErrLeaseLost)
	}
}
