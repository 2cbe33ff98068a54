package idempotency

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/idempotency/internal/lease"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// An attempt claims a key, runs the effect or asks its verifier, and records what came of it.
type attempt struct {
	*Ledger
	*job
	latch  *latch        // nil in a transaction
	before *entry.Entry  // what the claim replaces; nil: nothing
	source *entry.Source // of an event with an order; as the attempt has left it
	slot   *entry.Entry  // of entry.StepEvict
	step   entry.Step

	evicted *entry.Entry  // what slot became
	former  *entry.Source // in whose slot the key is, if its order is another one now

	holder   *lease.Holder // nil in a transaction
	claim    *entry.Entry  // as it was committed
	deadline time.Time     // of Run, or when it returned if that was later; zero: it was not called
	open     time.Time     // until then, what Run of this attempt or one before has sent may take effect; zero: nothing may
}

const (
	claimPatience = 5 * time.Second // for which a caller waits for the store at least, to take its claim
	endPatience   = time.Second     // likewise, to take the end of its attempt
	verifierGrace = time.Second     // for which a verifier that is late is waited for, whatever it answers
	owed          = 64 << 20        // bytes of results that are kept in memory until the store takes them
	mostDebts     = 1000            // outcomes that wait for the store; above it nothing is claimed
)

// make makes the attempt. It is not done if the claim was refused, or its lease was lost, before
// anything was run: then the caller decides anew.
func (a *attempt) make(ctx context.Context) (o outcome, done bool) {
	if o, done, claimed := a.take(ctx); !claimed {
		return o, done
	}
	return a.act(ctx)
}

// take claims the key. If it does not, it returns what make does.
func (a *attempt) take(ctx context.Context) (o outcome, done, claimed bool) {
	if n := a.debts.Load(); n >= mostDebts {
		return outcome{err: fmt.Errorf("idempotency: claim %s: the store has not taken the outcomes of %d calls", a.hash, n)}, true, false
	}
	if err := a.reserved(ctx); err != nil {
		return outcome{err: err}, true, false
	}
	bounded, cancel := context.WithTimeout(ctx, max(a.wait, claimPatience)) // of the store alone
	defer cancel()
	h, err := a.holders.Own(bounded)
	if err != nil {
		return outcome{err: err}, true, false
	}
	a.holder = h
	if err := a.readFormer(ctx); err != nil {
		return outcome{err: err}, true, false
	}
	c, err := a.claiming(ctx)
	if err != nil {
		return outcome{err: err}, true, false
	}
	doubtful, err := a.commit(bounded, c)
	switch {
	case errors.Is(err, storage.ErrConflict):
		a.holders.Confirm(bounded, h)
		return o, false, false
	case err != nil:
		if doubtful {
			a.owe(func() { a.takeBack(c) })
		}
		return outcome{err: fmt.Errorf("idempotency: claim %s: %w", a.hash, err)}, true, false
	}
	a.claim = c.After
	if err := ctx.Err(); err != nil || h.IsLost() {
		a.record(ctx, a.givenUp())
		return outcome{err: context.Cause(ctx)}, err != nil, false
	}
	return o, false, true
}

// reserved chooses the effect's id, unless an attempt before has.
func (a *attempt) reserved(ctx context.Context) (err error) {
	a.claim = entry.Claimed(entry.Key(a.key), a.before, a.step, a.fingerprint, a.time())
	if a.claim.EffectID != "" {
		return nil
	}
	if a.reserve == nil {
		a.claim.EffectID = "eff_" + ids.ULID(a.time())
		return nil
	}
	r, err := a.callReserve(ctx)
	if err != nil {
		return err
	}
	a.claim.EffectID, a.claim.Data = r.EffectID, bytes.Clone(r.Data)
	bad := func(format string, args ...any) error {
		return &ConfigError{"Effect.Reserve", "of " + a.name + " returned " + fmt.Sprintf(format, args...)}
	}
	if r.EffectID == "" {
		return bad("no EffectID")
	}
	if err := checkText("EffectID", r.EffectID, maxID); err != nil {
		return bad("a Reservation that is not acceptable: %v", err)
	}
	if len(r.Data) > maxData {
		return bad("Data of %d bytes, at most %d are allowed", len(r.Data), maxData)
	}
	return nil
}

// callReserve calls Reserve, with a limit of its own: ctx may have none. The request was checked before, so the error is not ErrInvalid, even if Reserve says so.
func (a *attempt) callReserve(ctx context.Context) (_ Reservation, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotency: Reserve of %s: %w", a.name, panicked(p))
		}
		err = notInvalid(err)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, activity.ErrTimeout)
	defer cancel()
	c := &call{Context: ctx, ledger: a.core, job: a.job}
	defer c.over.Store(true)
	return a.reserve(c)
}

// claiming returns the change that claims the key.
func (a *attempt) claiming(ctx context.Context) (*entry.Change, error) {
	e := a.claim
	if err := a.setRequest(ctx, a.job, e); err != nil {
		return nil, err
	}
	e.Owner = make([]byte, 16)
	rand.Read(e.Owner)
	e.Holder, e.Opening, e.Keep = "", a.holders.Opening, a.retention.Microseconds()
	e.Again = a.policy == TakeOver
	if a.holder != nil {
		e.Holder = a.holder.ID
	}
	e.Epoch = max(e.Epoch+1, uint64(max(a.time().UnixMicro(), 0))) // above that of a forgotten entry, too
	e.OrderSource, e.OrderVersion = "", ""
	if a.order != nil {
		e.OrderSource, e.OrderVersion = a.order.source, a.order.version
		e.Epoch = max(e.Epoch, a.source.Epoch+1, a.source.SlotEpoch+1) // SlotEpoch is of what it evicts
	}
	c, err := entry.Changing(entry.Key(a.key), a.hash, a.before, e)
	if err != nil {
		return nil, err
	}
	if a.holder != nil {
		c.If = append(c.If, a.holder.Condition())
	}
	if a.former != nil {
		if err := a.former.Become(c, a.former.Vacated()); err != nil {
			return nil, err
		}
	}
	if a.order == nil {
		return c, nil
	}
	if a.step == entry.StepEvict {
		a.evicted = a.slot.Released(a.time())
		a.evicted.Owner = nil // so that its end is refused
		if err := c.Also(a.slot, a.evicted); err != nil {
			return nil, err
		}
	}
	return c, a.source.Advance(c, a.source.Taken(e, a.hash))
}

// readFormer reads the order of the source in whose slot the key is, if the definition gives another source now, or none.
func (a *attempt) readFormer(ctx context.Context) error {
	b := a.before
	if b == nil || b.OrderSource == "" || a.order != nil && a.order.source == b.OrderSource {
		return nil
	}
	src, err := readSource(ctx, a.on, a.key.Tenant, a.key.SourceType, b.OrderSource)
	if err == nil && src.SlotHash == a.hash {
		a.former = src
	}
	return err
}

// commit commits a change of the attempt until the outcome is certain. Then source is what is stored. doubtful says that the outcome is
// unknown: not every try was withdrawn.
func (a *attempt) commit(ctx context.Context, c *entry.Change) (doubtful bool, err error) {
	failed := func(err error) {
		_, withdrawn := errors.AsType[*storage.WithdrawnError](err)
		doubtful = doubtful || !withdrawn
		a.takes.Store(false)
	}
	err = settle.Commit(ctx, a.on, c.Batch, failed, func(ctx context.Context) (bool, error) { return a.landed(ctx, c) })
	if err == nil {
		a.source = a.source.Left(c)
	}
	if err == nil || errors.Is(err, storage.ErrConflict) {
		return false, err
	}
	failed(err)
	return doubtful, err
}

// landed says whether a refused change of the attempt was applied before: an entry with its owner
// is of this attempt. Then it is what the change has left.
func (a *attempt) landed(ctx context.Context, c *entry.Change) (bool, error) {
	e, err := a.get(ctx, a.key, a.hash)
	if err != nil || e == nil || !bytes.Equal(e.Owner, c.After.Owner) || e.State != c.After.State {
		return false, err
	}
	c.After = e
	return true, nil
}

// takeBack releases a claim of unknown outcome, whose caller has left.
func (a *attempt) takeBack(c *entry.Change) {
	for !a.takenBack(c) {
	}
}

// commitInTurn commits the claim c, for a while. As long as the store fails, one claim is tried at a time, because there may be many.
func (a *attempt) commitInTurn(c *entry.Change) error {
	select {
	case a.turn <- struct{}{}:
	case <-a.life.Done():
		return storage.ErrClosed
	}
	if a.takes.Load() {
		<-a.turn
	} else {
		defer func() { <-a.turn }()
	}
	ctx, cancel := context.WithTimeout(a.life, claimPatience)
	defer cancel()
	_, err := a.commit(ctx, c)
	if err == nil || errors.Is(err, storage.ErrConflict) {
		a.takes.Store(true)
	}
	return err
}

// takenBack tries to take a claim back. It returns false if the outcome is still unknown.
func (a *attempt) takenBack(c *entry.Change) bool {
	switch err := a.commitInTurn(c); {
	case err == nil:
		a.claim = c.After
		a.persist(a.givenUp())
	case !errors.Is(err, storage.ErrConflict) && !settle.Hopeless(err):
		return false
	}
	return true
}

// givenUp is what a claim becomes under which nothing was run.
func (a *attempt) givenUp() *entry.Entry {
	if a.before != nil && a.before.State != entry.Released {
		a.claim.Attempt = a.before.Attempt
		return a.claim.Indeterminate(a.time(), a.before.WhyUnknown())
	}
	return a.claim.Released(a.time())
}

// act runs the effect under the claim, or asks its verifier first. It is not done if the lease was lost
// before Run was called.
func (a *attempt) act(ctx context.Context) (o outcome, done bool) {
	orderly := false
	defer func() {
		if p := recover(); p != nil || !orderly { // user code panicked, or ended its goroutine: then the caller gets nothing
			o, done = a.leaveOpen(ctx, brokeOff, errBrokeOff), true
		}
	}()
	o, done = a.verifyOrRun(ctx)
	orderly = true
	return o, done
}

func (a *attempt) verifyOrRun(ctx context.Context) (o outcome, done bool) {
	if a.step == entry.StepVerify {
		if o, ended := a.verifyFirst(ctx); ended {
			return o, true
		}
		if err := ctx.Err(); err != nil || a.holder.IsLost() {
			a.record(ctx, a.claim.Released(a.time()))
			return outcome{err: context.Cause(ctx)}, err != nil
		}
	}
	r := returned{err: errBrokeOff}
	a.call(ctx, &r)
	return a.finish(ctx, r), true
}

const brokeOff = "user code panicked or ended its goroutine"

var errBrokeOff = errors.New(brokeOff)

// A returned is what a call of Run came to.
type returned struct {
	out any
	err error
	cut bool // its context had ended: what it sent may still be on its way, until the deadline and for Settle
}

// call calls Run, and sets in r what it came to.
func (a *attempt) call(ctx context.Context, r *returned) {
	a.open = a.doubted()
	a.deadline = time.Now().Add(a.timeout)
	ctx, cancel := a.within(ctx, a.claim, activity.PhaseRun, a.timeout)
	defer cancel()
	if a.holder != nil {
		var stop func()
		ctx, stop = a.holder.WhileHeld(ctx)
		defer stop()
	}
	slow := time.AfterFunc(saturate.Times(2, a.timeout), func() {
		a.config.Logger.Warn("idempotency: Run does not return, although its timeout has passed; the key stays claimed", "idempotency_key", a.hash, "effect", a.name)
	})
	defer slow.Stop()
	defer func() {
		r.cut = r.err != nil && ctx.Err() != nil
		if now := time.Now(); now.After(a.deadline) { // it may have sent something until now
			a.deadline = now
		}
		if late := a.deadline.Add(a.settle); r.cut && late.After(a.open) {
			a.open = late
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			a.config.Logger.Error("idempotency: Run panicked", "idempotency_key", a.hash, "effect", a.name, "panic", p, "stack", string(debug.Stack()))
			r.err = panicked(p)
		}
	}()
	r.out, r.err = a.run(ctx)
}

// within returns the context of a call of Run or Verify for an attempt.
func (a *attempt) within(ctx context.Context, e *entry.Entry, phase activity.Phase, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, activity.ErrTimeout)
	deadline, _ := ctx.Deadline()
	c := &call{Context: ctx, ledger: a.core, job: a.job, entry: e}
	return activity.NewContext(c, activity.Info{
		Phase: phase, Activity: a.name, IdempotencyKey: a.hash,
		Attempt: e.Attempt, FencingToken: e.Epoch, Deadline: deadline,
	}, nil), func() { c.over.Store(true); cancel() }
}

// finish records what Run came to.
func (a *attempt) finish(ctx context.Context, r returned) outcome {
	err := r.err
	none := activity.IsNoEffect(err)
	switch {
	case err == nil:
		return a.seal(ctx, r.out, DecidedNew)
	case none && a.claim.Doubt:
		return a.leaveOpen(ctx, "the last attempt had no effect, and it is unknown whether an earlier one had: "+text(err), err)
	case none && activity.IsPermanent(err):
		f := payload.FailureOf(err, "", a.errors)
		next := a.claim.Failed(a.time(), f.Message, f.Sentinel)
		return a.recorded(ctx, next, outcome{decision: DecidedFailed, err: &FailedError{
			EffectID: next.EffectID, Message: f.Message, Sentinel: payload.SentinelOf(f.Sentinel, a.errors)}})
	case none:
		return a.free(ctx, err)
	case a.verify == nil:
		return a.leaveOpen(ctx, text(err), err)
	}
	return a.findOut(ctx, r)
}

// findOut asks the verifier what Run has done.
func (a *attempt) findOut(ctx context.Context, r returned) outcome {
	asked := time.Now()
	v := a.ask(ctx, a.claim.Attempt, a.claim.Epoch+1)
	if v.State == activity.StateNotCompleted {
		switch {
		case a.fences || !asked.Before(a.open):
			return a.free(ctx, r.err)
		case r.cut:
			a.background.Go(func() { a.settleThenAsk(context.WithoutCancel(ctx), r) })
			return busy(a.claim, r.err, a.mayBeLate())
		}
		v.Reason = "the verifier does not see the effect, and that of an earlier attempt may still happen"
	}
	return a.verified(ctx, v, text(r.err)+"; "+v.Reason, r.err)
}

// settleThenAsk asks again once the request of a Run that was cut off can have no effect any more.
// Until then the key stays claimed.
func (a *attempt) settleThenAsk(ctx context.Context, r returned) {
	if !backoff.Sleep(a.life, a.mayBeLate()) {
		return // the ledger is closed, and the claim lapses
	}
	r.cut = false
	a.report(ctx, a.job, a.findOut(ctx, r))
}

// mayBeLate returns how long the effect of Run may still happen.
func (a *attempt) mayBeLate() time.Duration {
	return saturate.Add(max(time.Until(a.deadline), 0), a.settle)
}

// verifyFirst asks the verifier what became of an earlier attempt. It has not ended if the effect is to be run.
func (a *attempt) verifyFirst(ctx context.Context) (outcome, bool) {
	v := a.ask(ctx, a.before.Attempt, a.claim.Epoch)
	if v.State == activity.StateNotCompleted {
		if a.before.State == entry.InProgress || a.fences || a.trusted() {
			a.claim.Doubt = false
			return outcome{}, false
		}
		v.Reason = "the verifier does not see the effect, which may still happen"
	}
	a.claim.Attempt = a.before.Attempt
	return a.verified(ctx, v, v.Reason, nil), true
}

// verified records a verifier's answer, other than that the effect did not happen for certain.
func (a *attempt) verified(ctx context.Context, v activity.Verdict, why string, err error) outcome {
	switch v.State {
	case activity.StateCompletedWithResult:
		return a.seal(ctx, v.Result, DecidedNew)
	case activity.StateCompletedResultUnavailable:
		next := a.claim.Sealed(a.time(), "", entry.Result{Unavailable: "the verifier says that it is lost"})
		return a.recorded(ctx, next, outcome{decision: DecidedNew, sealed: true})
	}
	return a.leaveOpen(ctx, why, err)
}

// ask calls Verify for an attempt, with a fencing token that is larger than that of any attempt before. A
// verifier that does not answer in time is not waited for.
func (a *attempt) ask(ctx context.Context, number int, token uint64) activity.Verdict {
	e := *a.claim
	e.Attempt, e.Epoch = number, token
	ctx, cancel := a.within(context.WithoutCancel(ctx), &e, activity.PhaseVerify, a.verifyTimeout)
	defer cancel()
	told := make(chan activity.Verdict, 1)
	go reconcile.Ask(ctx, a.verify, func(v activity.Verdict) { told <- v })
	var v activity.Verdict
	select {
	case v = <-told:
	case <-ctx.Done():
		v = activity.Verdict{State: activity.StateIndeterminate, Reason: "the verifier timed out"}
		select { // a verifier that heeds its context has ended when Do returns
		case <-told:
		case <-time.After(verifierGrace):
		}
	}
	v.Reason = payload.Recordable(v.Reason)
	return v
}

// seal records a result. Its id is final.
func (a *attempt) seal(ctx context.Context, out any, d Decision) outcome {
	r, id := a.result(ctx, out), ""
	if a.final != nil {
		id = a.finalID(out)
	}
	return a.recorded(ctx, a.claim.Sealed(a.time(), id, r), outcome{decision: d, sealed: true})
}

// finalID returns the final id. If the definition gives none that can be stored, the reserved one is
// final: the effect has happened.
func (a *attempt) finalID(out any) (id string) {
	defer func() {
		if p := recover(); p != nil {
			a.config.Logger.Error("idempotency: EffectID panicked; the reserved id is final", "effect", a.name, "panic", p)
			id = ""
		}
	}()
	id = a.final(out)
	if err := checkText("EffectID", id, maxID); err != nil {
		a.config.Logger.Error("idempotency: the reserved id is final", "effect", a.name, "error", err)
		return ""
	}
	return id
}

// free releases the key: nothing happened. The caller gets Run's own error.
func (a *attempt) free(ctx context.Context, err error) outcome {
	return a.recorded(ctx, a.claim.Released(a.time()), outcome{decision: DecidedReleased, err: err})
}

// leaveOpen records that nobody knows what happened.
func (a *attempt) leaveOpen(ctx context.Context, why string, err error) outcome {
	a.noteAsked()
	next := a.claim.Indeterminate(a.time(), payload.Recordable(why))
	return a.recorded(ctx, next, outcome{decision: DecidedIndeterminate, err: &IndeterminateError{
		EffectID: next.EffectID, Attempt: next.Attempt, Reason: next.Failure, Err: err}})
}

// text returns the text of an error, whose methods are user code.
func text(err error) string { return payload.FailureOf(err, "", nil).Message }

// recorded records how the attempt ended, and returns o, or why it could not be recorded.
func (a *attempt) recorded(ctx context.Context, next *entry.Entry, o outcome) outcome {
	landed, err := a.record(ctx, next)
	switch {
	case err == nil:
		o.entry = landed
		if next.State != entry.Indeterminate {
			a.forgetAsked()
		}
		return o
	case errors.Is(err, ErrFenceLost):
		return a.lost(ctx, next.EffectID)
	}
	return busy(a.claim, err, time.Second)
}

// lost is the outcome if another holder has taken the key over. The outcome has the receipt that is sealed now,
// unless that is of another request: the key may have been released in between.
func (a *attempt) lost(ctx context.Context, orphan string) outcome {
	o := outcome{decision: DecidedFenceLost, err: &FenceLostError{EffectID: orphan}}
	ctx = context.WithoutCancel(ctx)
	if e, err := a.get(ctx, a.key, a.hash); err == nil && e != nil && e.State == entry.Sealed && a.same(ctx, a.job, e) {
		o.entry = e
	}
	return o
}

// record commits the end of the attempt, whatever becomes of ctx. If the store does not take it, the
// ledger tries on in the background, until it is closed; the caller waits a while, and gets the store's
// error then. ErrFenceLost means that the claim is no longer this attempt's.
func (a *attempt) record(ctx context.Context, next *entry.Entry) (*entry.Entry, error) {
	c, err := a.ending(next)
	if err != nil {
		return nil, err
	}
	a.begins(a.latch)
	err = a.on.Commit(context.WithoutCancel(ctx), c.Batch)
	if err == nil {
		a.source = a.source.Left(c)
		return next, nil
	}
	if a.tx || settle.Hopeless(err) {
		return nil, err
	}
	type ended struct {
		*entry.Entry
		error
	}
	over := make(chan ended, 1)
	kept := int64(len(next.Result))
	if a.owing.Add(kept) > owed && next.State == entry.Sealed {
		a.owing.Add(-kept)
		kept = 0
		next.Result, next.Unavailable = nil, "the store did not take it in time: "+text(err)
	}
	a.owe(func() {
		defer a.owing.Add(-kept)
		e, err := a.persist(next)
		over <- ended{e, err}
	})
	patience := time.NewTimer(max(a.wait, endPatience))
	defer patience.Stop()
	select {
	case e := <-over:
		return e.Entry, e.error
	case <-ctx.Done():
	case <-patience.C:
	}
	return nil, err
}

// ending returns the change that ends the attempt.
func (a *attempt) ending(next *entry.Entry) (*entry.Change, error) {
	c, err := entry.Changing(entry.Key(a.key), a.hash, a.claim, next)
	if err == nil && a.order != nil {
		err = a.source.Advance(c, a.source.After(next, a.hash))
	}
	return c, err
}

// persist commits the end of the attempt until it is certain.
func (a *attempt) persist(next *entry.Entry) (*entry.Entry, error) {
	for {
		c, err := a.ending(next)
		if err != nil {
			return nil, err
		}
		_, err = a.commit(a.life, c)
		if err == nil {
			return c.After, nil
		}
		if !errors.Is(err, storage.ErrConflict) {
			a.config.Logger.Error("idempotency: an outcome was not recorded; the claim lapses", "idempotency_key", a.hash, "effect_id", next.EffectID, "error", err)
			return nil, err
		}
		if err := a.renewSource(); err != nil {
			return nil, err
		}
	}
}

// renewSource reads the order of the source anew after the end of the attempt was refused, although the
// claim is still that of the attempt. Otherwise it returns ErrFenceLost.
func (a *attempt) renewSource() error {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		e, err := a.get(a.life, a.key, a.hash)
		if err == nil && (e == nil || !bytes.Equal(e.Raw, a.claim.Raw) || a.order == nil) {
			return ErrFenceLost
		}
		if err == nil {
			a.source, err = readSource(a.life, a.on, a.key.Tenant, a.key.SourceType, a.order.source)
		}
		if err == nil || settle.Hopeless(err) || !backoff.Wait(a.life, pause) {
			return err
		}
	}
}
