package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

// In returns a Ledger inside tx, a transaction of the host on the Ledger's own store: its claims and
// results take effect if and only if the host commits. So what Run does on tx happens once, whatever
// crashes. If tx is on another store, the methods return ErrOtherStore. It belongs to the goroutine
// that owns tx, and need not be closed.
//
// Do does not wait for others, except that the database may have it wait for another transaction
// with the same key; in two transactions, take several keys in one order, or they deadlock. If Run
// returns an error, the claim is taken back, and Do returns that error; a failure for good is not recorded,
// and after an attempt of unknown outcome the error lacks the marks of Run. After any error, roll back.
// What needs Effect.Verify is an *IndeterminateError: ask outside a transaction.
//
// Keep the transaction short, and commit before you answer anybody. SQLite has one writer, so
// until tx ends all others wait, also this Ledger outside tx. At an isolation level above READ
// COMMITTED, PostgreSQL aborts the transaction where another one had the key.
func (l *Ledger) In(tx storage.Tx) *Ledger {
	in := &Ledger{core: l.core, on: tx, tx: true}
	if payload.IsNil(tx) || storage.Innermost(tx.Base()) != storage.Innermost(l.store) {
		in.refused = ErrOtherStore
	}
	return in
}

// refusals is how often a claim in a transaction is decided anew. Each time somebody else has changed the key meanwhile.
const refusals = 100

// staged makes one call in a transaction.
func (l *Ledger) staged(ctx context.Context, j *job) outcome {
	for range refusals {
		s, left, err := l.situation(ctx, j)
		if err != nil {
			return outcome{err: err}
		}
		switch next := entry.Decide(s); next {
		case entry.StepClaim, entry.StepTakeOver, entry.StepEvict:
			a := &attempt{Ledger: l, job: j, before: s.Entry, source: s.Source, slot: s.Order.Slot, step: next}
			if o, done := a.stage(ctx); done {
				return o
			}
		case entry.StepVerify:
			return indeterminate(s.Entry, s.Entry.WhyUnknown()+"; the verifier is not asked in a transaction", nil)
		case entry.StepWait:
			return busy(s.Entry, nil, max(left, l.goesOn(s.Entry)))
		default:
			return l.answer(ctx, j, s, next)
		}
	}
	return busy(nil, errors.New("others change the key all the time"), time.Second)
}

// stage makes the attempt in a transaction. It is not done if the claim was refused.
func (a *attempt) stage(ctx context.Context) (o outcome, done bool) {
	if err := a.reserved(ctx); err != nil {
		return outcome{err: err}, true
	}
	if err := a.readFormer(ctx); err != nil {
		return outcome{err: err}, true
	}
	c, err := a.claiming(ctx)
	if err != nil {
		return outcome{err: err}, true
	}
	before := a.source
	switch err := a.on.Commit(ctx, c.Batch); {
	case errors.Is(err, storage.ErrConflict):
		return o, false
	case err != nil:
		return outcome{err: fmt.Errorf("idempotency: claim %s in a transaction: %w", a.hash, err)}, true
	}
	a.claim = c.After
	a.source = a.source.Left(c)
	ran, cancel := a.within(ctx, a.claim, activity.PhaseRun, a.timeout)
	defer cancel()
	out, err := a.run(ran)
	if err != nil {
		if a.claim.Doubt { // of an earlier attempt, of which this one knows nothing
			err = activity.Unmarked(err)
		}
		return outcome{decision: DecidedReleased, err: errors.Join(err, a.unstage(ctx, before))}, true
	}
	return a.seal(ctx, out, DecidedNew), true
}

// unstage takes the claim back out of the transaction.
func (a *attempt) unstage(ctx context.Context, source *entry.Source) error {
	c, err := entry.Changing(entry.Key(a.key), a.hash, a.claim, a.before)
	if err == nil && a.order != nil {
		err = a.source.Advance(c, source.Sequence)
	}
	if err == nil && a.evicted != nil {
		err = c.Also(a.evicted, a.slot)
	}
	if err == nil {
		err = a.on.Commit(context.WithoutCancel(ctx), c.Batch)
	}
	if err != nil {
		return fmt.Errorf("idempotency: take the claim of %s back: %w", a.hash, err)
	}
	return nil
}
