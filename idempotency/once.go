package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
)

// An outcome is what became of a call.
type outcome struct {
	entry    *entry // as far as it is known; nil: nothing is
	decision Decision
	err      error
	effectID string // if there is no entry: of the event that stands in the way
	sealed   bool   // by this call
	diff     int    // bytes, of a conflict
}

// do makes one call.
func (l *Ledger) do(ctx context.Context, j *job) (o outcome) {
	if err := l.enter(ctx); err != nil {
		return outcome{err: err}
	}
	defer l.leave()
	switch {
	case l.within(ctx, j.hash):
		o = busy(nil, errWithin, time.Second)
	case l.tx:
		o = l.staged(ctx, j)
	default:
		o = l.once(ctx, j)
	}
	l.report(ctx, j, o)
	return o
}

var errWithin = errors.New("this call is made by the Run of the same key")

// A call is the context of user code that is called for a key. within finds those around it.
type call struct {
	context.Context
	ledger *core
	job    *job
	entry  *entry      // of the attempt in question; nil: Reserve is called
	over   atomic.Bool // it has returned
}

type callKey struct{}

func (c *call) Value(key any) any {
	switch key.(type) {
	case callKey:
		return c
	case attemptKey:
		if c.entry != nil {
			return c
		}
	}
	return c.Context.Value(key)
}

func (c *call) attempt() Attempt {
	return Attempt{c.job.key, c.job.hash, Reservation{c.entry.EffectID, bytes.Clone(c.entry.Data)}}
}

// within says whether ctx belongs to user code that is called for a key and has not returned.
func (l *Ledger) within(ctx context.Context, hash string) bool {
	c, _ := ctx.Value(callKey{}).(*call)
	for c != nil {
		if c.job.hash == hash && c.ledger == l.core && !c.over.Load() {
			return true
		}
		c, _ = c.Context.Value(callKey{}).(*call)
	}
	return false
}

// A latch is what the calls of one key in one process share: one of them leads, the others wait for
// what it comes to, in memory.
type latch struct {
	fingerprint string
	done        chan struct{} // made by the first of the others; guarded by core.mu
	entry       *entry        // set before done is closed; nil: the others decide for themselves
}

// latch returns the latch of a key, and whether the caller leads.
func (l *Ledger) latch(j *job) (lt *latch, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lt = l.latches[j.hash]; lt != nil {
		if lt.done == nil {
			lt.done = make(chan struct{})
		}
		return lt, false
	}
	lt = &latch{fingerprint: j.fingerprint}
	l.latches[j.hash] = lt
	return lt, true
}

func (l *Ledger) unlatch(j *job, lt *latch, o outcome) {
	if o.entry != nil && (o.entry.State == StateSealed || o.entry.State == StateFailed) && o.decision != DecidedConflict {
		lt.entry = o.entry
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.latches, j.hash)
	if lt.done != nil {
		close(lt.done)
	}
}

// once makes one call outside transactions.
func (l *Ledger) once(ctx context.Context, j *job) outcome {
	until := time.Now().Add(max(j.wait, 0))
	for {
		lt, leads := l.latch(j)
		if leads {
			return l.lead(ctx, until, j, lt)
		}
		if j.wait < 0 || lt.fingerprint != j.fingerprint {
			if o := l.look(ctx, j); j.wait < 0 || o.decision != DecidedInProgress {
				return o
			}
		}
		patience := time.NewTimer(time.Until(until))
		select {
		case <-lt.done:
			patience.Stop()
		case <-ctx.Done():
			patience.Stop()
			return busy(nil, context.Cause(ctx), time.Second)
		case <-patience.C:
			return l.look(ctx, j)
		}
		if lt.entry != nil && lt.fingerprint == j.fingerprint {
			return l.answer(ctx, j, situation{entry: lt.entry, same: true}, alreadyEnded(lt.entry))
		}
	}
}

func alreadyEnded(e *entry) step {
	if e.State == StateFailed {
		return stepFailed
	}
	return stepDuplicate
}

// look answers without claiming anything.
func (l *Ledger) look(ctx context.Context, j *job) outcome {
	s, _, _, err := l.situation(ctx, j)
	if err != nil {
		return outcome{err: err}
	}
	switch next := decide(s); next {
	case stepClaim, stepTakeOver, stepVerify, stepEvict, stepWait:
		return busy(s.entry, nil, l.goesOn(s.entry))
	default:
		return l.answer(ctx, j, s, next)
	}
}

// Pauses between two looks at a claim of another process.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// lead decides and acts until there is an outcome. It waits for others until a time.
func (l *Ledger) lead(ctx context.Context, until time.Time, j *job, lt *latch) (o outcome) {
	defer func() { l.unlatch(j, lt, o) }()
	for pause := firstPause; ; {
		s, src, left, err := l.situation(ctx, j)
		if err != nil {
			return outcome{err: err}
		}
		switch next := decide(s); next {
		case stepClaim, stepTakeOver, stepVerify, stepEvict:
			a := &attempt{Ledger: l, job: j, before: s.entry, source: src, slot: s.order.slot, step: next}
			o, done := a.make(ctx)
			if done {
				return o
			}
		case stepWait:
			wait, cancel := context.WithDeadline(ctx, until)
			waited := backoff.Wait(wait, pause)
			cancel()
			if !waited {
				return busy(s.entry, context.Cause(ctx), max(left, l.goesOn(s.entry)))
			}
			pause = min(2*pause, lastPause)
		default:
			return l.answer(ctx, j, s, next)
		}
	}
}

// situation reads everything that the decision depends on. left is how long the effect of a dead
// holder may still happen.
func (l *Ledger) situation(ctx context.Context, j *job) (s situation, src *source, left time.Duration, err error) {
	s = situation{policy: j.policy, ordered: j.order != nil}
	if s.entry, err = l.get(ctx, j.key, j.hash); err != nil {
		return s, nil, 0, err
	}
	s.asked = l.askedLately(j.hash, s.entry)
	if e := s.entry; e != nil {
		s.same = l.same(ctx, j, e)
		if e.State == StateInProgress {
			if s.holder, left, err = l.vitality(ctx, e, j.abated()); err != nil {
				return s, nil, 0, fmt.Errorf("idempotency: judge the holder of %s: %w", j.hash, err)
			}
		}
	}
	if j.order != nil {
		if src, err = readSource(ctx, l.on, j.key.Tenant, j.key.SourceType, j.order.source); err != nil {
			return s, nil, 0, fmt.Errorf("idempotency: read the order of %q: %w", j.order.source, err)
		}
		s.source = src
		if s.order, err = l.precedence(ctx, j, src); err != nil {
			return s, nil, 0, fmt.Errorf("idempotency: read the order of %q: %w", j.order.source, err)
		}
	}
	return s, src, left, nil
}

// vitality says whether the holder of e lives. settle is how long what it sent may take effect
// after its death. left is what remains of that.
func (l *Ledger) vitality(ctx context.Context, e *entry, settle time.Duration) (v vitality, left time.Duration, err error) {
	since, err := l.holders.Death(ctx, e.Holder, e.Opening, l.tx)
	switch {
	case err != nil || since.IsZero():
		return living, 0, err
	case time.Since(since) < settle:
		return waning, settle - time.Since(since), nil
	}
	return settled, 0, nil
}

// answer returns the outcome of a call that neither acts nor waits.
func (l *Ledger) answer(ctx context.Context, j *job, s situation, next step) outcome {
	e := s.entry
	switch next {
	case stepDuplicate:
		return outcome{entry: e, decision: DecidedDuplicate}
	case stepFailed:
		return outcome{entry: e, decision: DecidedFailed, err: &FailedError{
			EffectID: e.EffectID, Message: e.Failure, Sentinel: payload.SentinelOf(e.Sentinel, j.errors)}}
	case stepStale:
		return outcome{decision: DecidedStale, effectID: l.newest(ctx, j, s), err: &StaleError{Version: j.order.version, Sealed: s.source.Version}}
	case stepConflict:
		if e == nil || e.State == StateReleased { // another event has this version
			id := l.newest(ctx, j, s)
			return outcome{decision: DecidedConflict, effectID: id, err: &ConflictError{EffectID: id}}
		}
		return l.conflict(ctx, j, e)
	case stepHold:
		if e == nil || e.State == StateReleased {
			return indeterminate(s.order.slot, "another event of the same source is in doubt: "+s.order.slot.why(), nil)
		}
		return indeterminate(e, e.why(), nil)
	}
	panic(fmt.Sprintf("idempotency: no answer for step %d", next))
}

// why says why nobody knows what became of e.
func (e *entry) why() string {
	if e.State == StateInProgress {
		return "its holder died, or lost its lease, before the outcome was recorded"
	}
	return e.Failure
}

func indeterminate(e *entry, reason string, cause error) outcome {
	return outcome{entry: e, decision: DecidedIndeterminate, err: &IndeterminateError{EffectID: e.EffectID, Attempt: e.Attempt, Reason: reason, Err: cause}}
}

// newest returns the effect's id of the newest event of the source of j, if it is known.
func (l *Ledger) newest(ctx context.Context, j *job, s situation) string {
	e, err := l.find(ctx, keys.Claim(j.key.Tenant, j.key.SourceType, s.source.SourceID, s.source.Hash), s.source.Hash)
	if err != nil || e == nil {
		return ""
	}
	return e.EffectID
}

// conflict says where the request of j differs from that of e.
func (l *Ledger) conflict(ctx context.Context, j *job, e *entry) outcome {
	c := &ConflictError{EffectID: e.EffectID}
	if first := l.request(ctx, e); first != nil {
		d := canon.Compare(first, j.canonical, j.diffValues)
		c.Diff, c.DiffBytes, c.Truncated = d.Changes, d.Bytes, d.Truncated
	}
	return outcome{entry: e, decision: DecidedConflict, err: c, diff: c.DiffBytes}
}

// busy is the outcome of a call that found somebody at it.
func busy(e *entry, cause error, after time.Duration) outcome {
	err := &InProgressError{RetryAfter: after, Err: cause}
	if e != nil {
		err.EffectID = e.EffectID
	}
	return outcome{entry: e, decision: DecidedInProgress, err: err}
}

// goesOn returns when to ask again for a claim: after as long as it has gone on, 1 s to 30 s.
func (l *Ledger) goesOn(e *entry) time.Duration {
	if e == nil {
		return time.Second
	}
	return min(max(l.time().Sub(micro(e.Updated)), time.Second), 30*time.Second)
}
