package engine

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// A shared store cannot tell which incarnations are dead. There each incarnation renews
// its record every third of Config.LeaseTTL, with a new nonce.
//
// An incarnation that sees the same bytes for a whole TTL, by its own monotonic clock,
// declares the owner of the record dead with a compare-and-swap. The owner trusts its
// record for one TTL after it first sent the renewal that was stored, which is before
// anyone could read it. After that it stops by itself. No two clocks are compared. If the
// owner is suspended between this check and a write, and so does not stop, its write is
// refused, because every write depends on the claim.

// looksPerTTL is how many times per TTL a lease is renewed at most: on an overloaded machine a
// renewal takes long and may start late. Otherwise it is renewed perTTL times.
const looksPerTTL = 15

// Shared reports whether incarnations must renew their records.
func (l *incarnation) Shared() bool {
	return l.opening == "" && l.eng.ownership == OwnershipCASRequired
}

// keepLease renews the record until stopRenewals is called, after everything else of the
// incarnation has ended.
func (l *incarnation) keepLease() {
	if !l.Shared() {
		l.stopRenewals = func() {}
		return
	}
	ctx, cancel := context.WithCancel(l.eng.base)
	over := make(chan struct{})
	l.stopRenewals = func() { cancel(); <-over }
	go func() {
		defer close(over)
		l.renewals(ctx)
	}()
}

// renewals ends the incarnation if a renewal is refused, or if none was stored in time. A
// timer does the latter, because a store may block for longer than the context of a
// renewal allows.
func (l *incarnation) renewals(ctx context.Context) {
	ttl := l.eng.leaseTTL
	left, took := l.registered, time.Duration(0)
	trusted := left.Add(ttl)
	end := time.AfterFunc(time.Until(trusted), func() { l.depose(errUnanswered) })
	defer end.Stop()
	for {
		if !l.restUntil(ctx, left, took, trusted) {
			return
		}
		left = time.Now()
		bounded, cancel := context.WithDeadline(ctx, trusted)
		err := l.renew(bounded)
		cancel()
		switch {
		case ctx.Err() != nil || !end.Stop():
			return
		case err != nil:
			l.depose(err)
			return
		}
		trusted = left.Add(ttl)
		end.Reset(time.Until(trusted))
		took = time.Since(left)
		l.eng.gate.Recover()
	}
}

// restUntil waits until it is time to send the next renewal. The last one was sent at left
// and was stored after the time took. It returns false if ctx is done first.
func (l *incarnation) restUntil(ctx context.Context, left time.Time, took time.Duration, trusted time.Time) bool {
	ttl := l.eng.leaseTTL
	short := ttl / looksPerTTL
	next := left.Add(ttl / perTTL)
	if took > short {
		next = left.Add(short)
	}
	for {
		if next.After(trusted) {
			next = trusted
		}
		t := time.NewTimer(min(short, time.Until(next)))
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-l.hurry:
			t.Stop()
			next = left.Add(short)
		case <-t.C:
			l.eng.gate.MeasureLoad()
		}
		if time.Until(next) <= 0 {
			return true
		}
	}
}

// hurryUp has the lease renewed soon: goroutines are scheduled late, so the next renewal
// would be late too. l may be nil.
func (l *incarnation) hurryUp() {
	if l == nil {
		return
	}
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

var errUnanswered = errors.New("engine: no renewal was stored in time")

// depose stops the execution of all runs, because the lease is lost.
func (l *incarnation) depose(cause error) {
	l.eng.log.Error("weft: lease is lost; all runs are released", "incarnation", l.name, "error", cause)
	l.eng.gate.SlowDown() // before the cancellation: it counts the attempts in progress
	l.cancel(activity.ErrLeaseLost)
	if f := l.eng.events.Deposed; f != nil {
		f(DeposedEvent{Incarnation: l.name})
	}
}

// renew stores a renewal. It tries until the outcome is known. The lease counts from the
// first try.
func (l *incarnation) renew(ctx context.Context) error {
	put, err := l.record(time.Time{})
	if err != nil {
		return err
	}
	b := storage.Batch{
		If:     []storage.Condition{storage.Equal(put.Key, l.lease)},
		Ops:    []storage.Op{put},
		Urgent: true,
	}
	err = checkpoint.Settle(ctx, l.eng.store, b, l.Unsure("renewal", ""), func(ctx context.Context) (bool, error) {
		raw, err := l.eng.store.Get(ctx, put.Key)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && string(raw) == string(put.Value), err
	})
	if err == nil {
		l.lease = put.Value
	}
	return err
}

// record returns the incarnation's record, with a new nonce on a shared store.
func (l *incarnation) record(stopped time.Time) (storage.Op, error) {
	r := &registration{
		Name:    l.eng.engineName,
		Opening: l.opening,
		Since:   l.since,
		Stopped: checkpoint.Micro(stopped),
		Cut:     !stopped.IsZero() && l.cut.Load(),

		Workflows:  l.eng.types(),
		Deployment: l.eng.deployment,
		Queues:     l.eng.queues(),

		Clock:  checkpoint.Micro(l.eng.now()),
		Proven: checkpoint.Micro(l.witness.says()),
	}
	l.counts.store(r)
	if l.Shared() {
		r.Nonce, r.TTL = l.eng.newID(), int64(l.eng.leaseTTL/time.Microsecond)
	}
	key := keys.Engine(l.name)
	raw, err := record.Seal(key, checkpoint.Version, r, nil)
	return storage.Put(key, raw), err
}

// A sighting is a lease as it was last read, and when it was first read so.
type sighting struct {
	raw   string
	since time.Time
}

// observe judges the lease of another incarnation. If it has not changed for a whole TTL,
// observe declares the incarnation dead.
func (l *incarnation) observe(ctx context.Context, incarnation string, raw []byte, r *registration) (vitality, error) {
	last, ok := l.sightings[incarnation]
	if !ok || last.raw != string(raw) {
		l.sightings[incarnation] = sighting{string(raw), time.Now()}
		return alive, nil
	}
	if time.Since(last.since) < saturate.Times(r.TTL, time.Microsecond) {
		return alive, nil
	}
	r.Dead = true
	key := keys.Engine(incarnation)
	sealed, err := record.Seal(key, checkpoint.Version, r, r.unknown)
	if err != nil {
		return alive, err
	}
	switch err := l.eng.store.Commit(ctx, storage.Batch{
		If:     []storage.Condition{storage.Equal(key, raw)},
		Ops:    []storage.Op{storage.Put(key, sealed)},
		Urgent: true,
	}); {
	case errors.Is(err, storage.ErrConflict):
		return alive, nil // it was renewed, or another engine was faster
	case err != nil:
		return alive, err // unknown: the next look reads the record again
	}
	delete(l.sightings, incarnation)
	l.eng.log.Warn("weft: engine is dead; its runs will be taken over", "incarnation", incarnation)
	return dead, nil
}
