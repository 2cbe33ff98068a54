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

// A store that several processes share cannot tell who is dead. There each
// incarnation renews its record every third of Config.LeaseTTL, with a nonce.
//
// Who sees the same bytes for a whole TTL of his own monotonic clock declares
// the incarnation dead, by compare-and-swap. The holder trusts its record for a
// TTL from the moment at which the stored renewal first left, which is earlier
// than any look at it; then it stops by itself. No two clocks are compared. And
// should it not stop, suspended between this check and a write, its writes carry
// the claim and are refused.

// perTTL is how often a lease is renewed in its TTL. On a machine that is overloaded, a
// renewal takes long and may begin late, so it is renewed as often as looksPerTTL.
const (
	perTTL      = 3
	looksPerTTL = 15
)

// shared says that lives must renew their records.
func (l *life) shared() bool {
	return l.opening == "" && l.eng.config.Ownership == CASRequired
}

// keepLease renews the record until letGo is called, which is after all else of
// the life has ended.
func (l *life) keepLease() {
	if !l.shared() {
		l.letGo = func() {}
		return
	}
	ctx, cancel := context.WithCancel(l.eng.base)
	over := make(chan struct{})
	l.letGo = func() { cancel(); <-over }
	go func() {
		defer close(over)
		l.renewals(ctx)
	}()
}

// renewals ends the life if a renewal is refused, or none was stored in time. A
// store may wait for its server longer than the context of a renewal lasts: the end
// of the trust does not wait for the store.
func (l *life) renewals(ctx context.Context) {
	ttl := l.eng.config.LeaseTTL
	left, took := l.registered, time.Duration(0)
	trusted := left.Add(ttl)
	end := time.AfterFunc(time.Until(trusted), func() { l.depose(errUnanswered) })
	defer end.Stop()
	for {
		// Not a moment longer: a lease does not bear it.
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
		l.eng.recover()
	}
}

// restUntil waits until the next renewal is to leave, after one that left at a time and
// took so long. It is false if ctx is done before.
func (l *life) restUntil(ctx context.Context, left time.Time, took time.Duration, trusted time.Time) bool {
	ttl := l.eng.config.LeaseTTL
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
			l.eng.measureLoad()
		}
		if time.Until(next) <= 0 {
			return true
		}
	}
}

// hurryUp has the lease renewed soon: turns are late, and the next renewal will be. A life
// of nil has none.
func (l *life) hurryUp() {
	if l == nil {
		return
	}
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

var errUnanswered = errors.New("engine: no renewal was stored in time")

// depose puts down all that the life drives.
func (l *life) depose(cause error) {
	l.eng.log.Error("weft: lease is lost; all runs are put down", "incarnation", l.incarnation, "error", cause)
	l.eng.slowDown() // by what is under way now
	l.cancel(activity.ErrLeaseLost)
	if f := l.eng.config.Events.Deposed; f != nil {
		f(l.incarnation)
	}
}

// renew stores a renewal, however often that takes: the first sending counts.
func (l *life) renew(ctx context.Context) error {
	put, err := l.record(time.Time{})
	if err != nil {
		return err
	}
	b := storage.Batch{
		If:     []storage.Condition{storage.Equal(put.Key, l.lease)},
		Ops:    []storage.Op{put},
		Urgent: true,
	}
	err = checkpoint.Settle(ctx, l.eng.store, b, l.unsure("renewal", ""), func(ctx context.Context) (bool, error) {
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

// record is the incarnation's record, with a fresh nonce.
func (l *life) record(stopped time.Time) (storage.Op, error) {
	r := &registration{
		Name:    l.eng.config.Name,
		Opening: l.opening,
		Since:   l.since,
		Stopped: checkpoint.Micro(stopped),
		Cut:     !stopped.IsZero() && l.cut.Load(),

		Workflows:  l.eng.types(),
		Deployment: l.eng.config.Deployment,
		Queues:     l.eng.queues(),

		Clock:  checkpoint.Micro(l.eng.now()),
		Proven: checkpoint.Micro(l.witness.says()),
	}
	r.count(&l.counts)
	if l.shared() {
		r.Nonce, r.TTL = l.eng.newID(), int64(l.eng.config.LeaseTTL/time.Microsecond)
	}
	key := keys.Engine(l.incarnation)
	raw, err := record.Seal(key, checkpoint.Version, r, nil)
	return storage.Put(key, raw), err
}

// A sighting is the first time that a lease was seen as it still is.
type sighting struct {
	raw   string
	since time.Time
}

// observe judges a lease that another incarnation holds.
func (l *life) observe(ctx context.Context, incarnation string, raw []byte, r *registration) (vitality, error) {
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
		return alive, nil // it renewed, or somebody else was quicker
	case err != nil:
		return alive, err // unknown: the next look tells
	}
	delete(l.sightings, incarnation)
	l.eng.log.Warn("weft: engine is dead; its runs are taken over", "incarnation", incarnation)
	return dead, nil
}
