package worker

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A shared store cannot tell which incarnations are dead. There each incarnation renews
// its record every third of Config.LeaseTTL, with a new nonce.
//
// An incarnation that sees the same bytes for a whole TTL, by its own monotonic clock, declares the owner of the record dead
// with a compare-and-swap. The owner trusts its record for one TTL after it first sent the renewal that was stored, which is
// before anyone could read it. After that it stops by itself. No two clocks are compared. If the owner is suspended between
// this check and a write, and so does not stop, its write is refused, because every write depends on the claim.

// looksPerTTL is how many times per TTL a lease is renewed at most: on an overloaded machine a
// renewal takes long and may start late. Otherwise it is renewed run.PerTTL times.
const looksPerTTL = 15

// Shared reports whether incarnations must renew their records.
func (l *Incarnation) Shared() bool {
	return l.Worker.Opening == "" && l.Worker.Ownership == weft.OwnershipCASRequired
}

// keepLease renews the record until stopRenewals is called, after everything else of the incarnation has ended.
func (l *Incarnation) keepLease() {
	if !l.Shared() {
		l.stopRenewals = func() {}
		return
	}
	ctx, cancel := context.WithCancel(l.Worker.Base)
	over := make(chan struct{})
	l.stopRenewals = func() { cancel(); <-over }
	go func() {
		defer close(over)
		l.renewals(ctx)
	}()
}

// renewals ends the incarnation if a renewal is refused, or if none was stored in time. A timer does the latter, because a
// store may block for longer than the context of a renewal allows.
func (l *Incarnation) renewals(ctx context.Context) {
	ttl := l.Worker.LeaseTTL
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
		l.Worker.Gate.Recover()
	}
}

// restUntil waits until it is time to send the next renewal. The last one was sent at left
// and was stored after the time took. It returns false if ctx is done first.
func (l *Incarnation) restUntil(ctx context.Context, left time.Time, took time.Duration, trusted time.Time) bool {
	ttl := l.Worker.LeaseTTL
	short := ttl / looksPerTTL
	next := left.Add(ttl / run.PerTTL)
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
		case <-l.session.lost:
			t.Stop()
			return true
		case <-l.hurry:
			t.Stop()
			next = left.Add(short)
		case <-t.C:
			l.Worker.Gate.MeasureLoad()
		}
		if time.Until(next) <= 0 {
			return true
		}
	}
}

// hurryUp has the lease renewed soon: goroutines are scheduled late, so the next renewal would be late too. l may be nil.
func (l *Incarnation) hurryUp() {
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
func (l *Incarnation) depose(cause error) {
	l.Worker.Gate.SlowDown() // before the cancellation: it counts the attempts in progress
	if fatal(cause) != "" {
		l.lost = cause
	}
	l.Cancel(activity.ErrLeaseLost)
	l.Worker.Log.Error("weft: lease is lost; all runs are released", "incarnation", l.name, "error", cause)
	if f := l.Worker.Events.Deposed; f != nil {
		f(weft.DeposedEvent{Incarnation: l.name})
	}
}

// renew stores a renewal. It tries until the outcome is known. The lease counts from the first try.
func (l *Incarnation) renew(ctx context.Context) error {
	put, err := l.record(time.Time{})
	if err != nil {
		return err
	}
	b := storage.Batch{
		If:     []storage.Condition{storage.Equal(put.Key, l.lease)},
		Ops:    []storage.Op{put},
		Urgent: true,
	}
	err = settle.Commit(ctx, l.Worker.Store, b, l.Unsure("renewal", ""), settle.Stored(l.Worker.Store, put))
	if err == nil {
		l.lease = put.Value
	}
	return err
}

// record returns the incarnation's record, with a new nonce on a shared store.
func (l *Incarnation) record(stopped time.Time) (storage.Op, error) {
	r := &membership.Registration{
		Name:    l.Worker.EngineName,
		Opening: l.Worker.Opening,
		Since:   l.since,
		Stopped: journal.Micro(stopped),
		Cut:     !stopped.IsZero() && l.cut.Load(),

		Workflows:  l.Worker.Types(),
		Deployment: l.Worker.Deployment,
		Queues:     l.Worker.Queues(),
		Lists:      true,
		Versions:   l.Worker.Versions(),

		Clock:  journal.Micro(l.Worker.Now()),
		Proven: journal.Micro(l.witness.Says()),
	}
	l.Counts.Store(r)
	if l.Shared() {
		r.Nonce, r.TTL = l.Worker.NewID(), int64(l.Worker.LeaseTTL/time.Microsecond)
		r.Session = l.session.current()
	}
	key := keys.Engine(l.name)
	raw, err := record.Seal(key, journal.Version, r, nil)
	return storage.Put(key, raw), err
}

// A sighting is a lease as it was last read, and when it was first read so.
type sighting struct {
	raw   string
	since time.Time
	ended time.Time // when its session was first found ended; zero: it was not
	twice bool      // it was found so again, after secondLook
}

// observe judges the lease of another incarnation. If it has not changed for a whole TTL, or
// its session has certainly ended, observe declares the incarnation dead.
func (l *Incarnation) observe(ctx context.Context, incarnation string, raw []byte, r *membership.Registration) (membership.Vitality, error) {
	last, ok := l.sightings[incarnation]
	if !ok || last.raw != string(raw) {
		l.sightings[incarnation] = sighting{raw: string(raw), since: time.Now()}
		return membership.Alive, nil
	}
	if !last.twice && time.Since(last.since) < saturate.Times(r.TTL, time.Microsecond) {
		return membership.Alive, nil
	}
	r.Dead = true
	key := keys.Engine(incarnation)
	sealed, err := record.Seal(key, journal.Version, r, r.UnknownFields)
	if err != nil {
		return membership.Alive, err
	}
	switch err := l.Worker.Store.Commit(ctx, storage.Batch{
		If:     []storage.Condition{storage.Equal(key, raw)},
		Ops:    []storage.Op{storage.Put(key, sealed)},
		Urgent: true,
	}); {
	case errors.Is(err, storage.ErrConflict):
		return membership.Alive, nil // it was renewed, or another engine was faster
	case err != nil:
		return membership.Alive, err // unknown: the next look reads the record again
	}
	delete(l.sightings, incarnation)
	l.Worker.Log.Warn("weft: engine is dead; its runs will be taken over", "incarnation", incarnation, "proven", last.twice)
	return membership.Dead, nil
}
