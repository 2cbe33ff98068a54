package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
)

// An outcome is what became of a call.
type outcome struct {
	entry    *entry.Entry // as far as it is known; nil: nothing is
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
	entry  *entry.Entry // of the attempt in question; nil: Reserve is called
	over   atomic.Bool  // it has returned
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
// what it comes to, in memory. What the store says may be out of date when its answer arrives. So it
// holds only for those who came before that call of the store had begun; the others read.
type latch struct {
	fingerprint string
	begun       int           // how many calls of the store the leader has begun that may tell an outcome; guarded by core.mu
	done        chan struct{} // made by the first of the others; guarded by core.mu

	// Set before done is closed.
	entry *entry.Entry // nil: the others decide for themselves
	last  int          // begun of the call that told it
}

// latch returns the latch of a key, and whether the caller leads. came is begun at that time.
func (l *Ledger) latch(j *job) (lt *latch, came int, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lt = l.latches[j.hash]; lt != nil {
		if lt.done == nil {
			lt.done = make(chan struct{})
		}
		return lt, lt.begun, false
	}
	lt = &latch{fingerprint: j.fingerprint}
	l.latches[j.hash] = lt
	return lt, 0, true
}

// begins says that the leader begins a call of the store that may tell an outcome. There is no latch in a transaction.
func (l *core) begins(lt *latch) {
	if lt != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		lt.begun++
	}
}

func (l *Ledger) unlatch(j *job, lt *latch, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isOver(o.entry) && o.decision != DecidedConflict {
		lt.entry, lt.last = o.entry, lt.begun
	}
	delete(l.latches, j.hash)
	if lt.done != nil {
		close(lt.done)
	}
}

// once makes one call outside transactions.
func (l *Ledger) once(ctx context.Context, j *job) outcome {
	until := time.Now().Add(max(j.wait, 0))
	for {
		lt, came, leads := l.latch(j)
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
		if lt.entry == nil || lt.fingerprint != j.fingerprint {
			continue
		}
		e := lt.entry
		if came == lt.last {
			var err error
			e, err = l.late.Get(ctx, j.hash, func(ctx context.Context) (*entry.Entry, error) { return l.get(ctx, j.key, j.hash) })
			if err != nil {
				return outcome{err: err}
			}
		}
		if isOver(e) && l.same(ctx, j, e) {
			return l.answer(ctx, j, entry.Situation{Entry: e, Same: true}, alreadyEnded(e))
		}
	}
}

func isOver(e *entry.Entry) bool {
	return e != nil && (e.State == entry.Sealed || e.State == entry.Failed)
}

func alreadyEnded(e *entry.Entry) entry.Step {
	if e.State == entry.Failed {
		return entry.StepFailed
	}
	return entry.StepDuplicate
}

// look answers without claiming anything.
func (l *Ledger) look(ctx context.Context, j *job) outcome {
	s, _, err := l.situation(ctx, j)
	if err != nil {
		return outcome{err: err}
	}
	switch next := entry.Decide(s); next {
	case entry.StepClaim, entry.StepTakeOver, entry.StepVerify, entry.StepEvict, entry.StepWait:
		return busy(s.Entry, nil, l.goesOn(s.Entry))
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
		l.begins(lt)
		s, left, err := l.situation(ctx, j)
		if err != nil {
			return outcome{err: err}
		}
		switch next := entry.Decide(s); next {
		case entry.StepClaim, entry.StepTakeOver, entry.StepVerify, entry.StepEvict:
			a := &attempt{Ledger: l, job: j, latch: lt, before: s.Entry, source: s.Source, slot: s.Order.Slot, step: next}
			o, done := a.make(ctx)
			if done {
				return o
			}
		case entry.StepWait:
			wait, cancel := context.WithDeadline(ctx, until)
			waited := backoff.Wait(wait, pause)
			cancel()
			if !waited {
				return busy(s.Entry, context.Cause(ctx), max(left, l.goesOn(s.Entry)))
			}
			pause = min(2*pause, lastPause)
		default:
			return l.answer(ctx, j, s, next)
		}
	}
}

// situation reads everything that the decision depends on. left is how long the effect of a dead holder may still happen.
func (l *Ledger) situation(ctx context.Context, j *job) (s entry.Situation, left time.Duration, err error) {
	s = entry.Situation{TakeOver: j.policy == TakeOver, Verify: j.policy == VerifyOrHold, Ordered: j.order != nil}
	if s.Entry, err = l.get(ctx, j.key, j.hash); err != nil {
		return s, 0, err
	}
	s.Asked = l.askedLately(j.hash, s.Entry)
	if e := s.Entry; e != nil {
		s.Same = l.same(ctx, j, e)
		if e.State == entry.InProgress {
			if s.Holder, left, err = l.vitality(ctx, e, j.abated()); err != nil {
				return s, 0, fmt.Errorf("idempotency: judge the holder of %s: %w", j.hash, err)
			}
		}
	}
	if j.order != nil {
		if s.Source, err = readSource(ctx, l.on, j.key.Tenant, j.key.SourceType, j.order.source); err != nil {
			return s, 0, fmt.Errorf("idempotency: read the order of %q: %w", j.order.source, err)
		}
		if s.Order, err = l.precedence(ctx, j, s.Source); err != nil {
			return s, 0, fmt.Errorf("idempotency: read the order of %q: %w", j.order.source, err)
		}
	}
	return s, left, nil
}

// vitality says whether the holder of e lives. settle is how long what it sent may take effect
// after its death. left is what remains of that.
func (l *Ledger) vitality(ctx context.Context, e *entry.Entry, settle time.Duration) (v entry.Vitality, left time.Duration, err error) {
	since, err := l.holders.Death(ctx, e.Holder, e.Opening, l.tx)
	switch {
	case err != nil || since.IsZero():
		return entry.Living, 0, err
	case time.Since(since) < settle:
		return entry.Waning, settle - time.Since(since), nil
	}
	return entry.Settled, 0, nil
}

// answer returns the outcome of a call that neither acts nor waits.
func (l *Ledger) answer(ctx context.Context, j *job, s entry.Situation, next entry.Step) outcome {
	e := s.Entry
	switch next {
	case entry.StepDuplicate:
		return outcome{entry: e, decision: DecidedDuplicate}
	case entry.StepFailed:
		return outcome{entry: e, decision: DecidedFailed, err: &FailedError{
			EffectID: e.EffectID, Message: e.Failure, Sentinel: payload.SentinelOf(e.Sentinel, j.errors)}}
	case entry.StepStale:
		return outcome{decision: DecidedStale, effectID: l.newest(ctx, j, s), err: &StaleError{Version: j.order.version, Sealed: s.Source.Version}}
	case entry.StepConflict:
		if e == nil || e.State == entry.Released { // another event has this version
			id := l.newest(ctx, j, s)
			return outcome{decision: DecidedConflict, effectID: id, err: &ConflictError{EffectID: id}}
		}
		return l.conflict(ctx, j, e)
	case entry.StepHold:
		if e == nil || e.State == entry.Released {
			return indeterminate(s.Order.Slot, "another event of the same source is in doubt: "+s.Order.Slot.WhyUnknown(), nil)
		}
		return indeterminate(e, e.WhyUnknown(), nil)
	}
	panic(fmt.Sprintf("idempotency: no answer for step %d", next))
}

func indeterminate(e *entry.Entry, reason string, cause error) outcome {
	return outcome{entry: e, decision: DecidedIndeterminate, err: &IndeterminateError{EffectID: e.EffectID, Attempt: e.Attempt, Reason: reason, Err: cause}}
}

// newest returns the effect's id of the newest event of the source of j, if it is known.
func (l *Ledger) newest(ctx context.Context, j *job, s entry.Situation) string {
	e, err := l.find(ctx, keys.Claim(j.key.Tenant, j.key.SourceType, s.Source.SourceID, s.Source.Hash), s.Source.Hash)
	if err != nil || e == nil {
		return ""
	}
	return e.EffectID
}

// conflict says where the request of j differs from that of e.
func (l *Ledger) conflict(ctx context.Context, j *job, e *entry.Entry) outcome {
	c := &ConflictError{EffectID: e.EffectID}
	if first := l.request(ctx, e); first != nil {
		d := canon.Compare(first, j.canonical, j.diffValues)
		c.Diff, c.DiffBytes, c.Truncated = d.Changes, d.Bytes, d.Truncated
	}
	return outcome{entry: e, decision: DecidedConflict, err: c, diff: c.DiffBytes}
}

// busy is the outcome of a call that found somebody at it.
func busy(e *entry.Entry, cause error, after time.Duration) outcome {
	err := &InProgressError{RetryAfter: after, Err: cause}
	if e != nil {
		err.EffectID = e.EffectID
	}
	return outcome{entry: e, decision: DecidedInProgress, err: err}
}

// goesOn returns when to ask again for a claim: after as long as it has gone on, 1 s to 30 s.
func (l *Ledger) goesOn(e *entry.Entry) time.Duration {
	if e == nil {
		return time.Second
	}
	return min(max(l.time().Sub(entry.Time(e.Updated)), time.Second), 30*time.Second)
}
