package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/storage"
)

// A reconciliation is the additional state of an operation with an idempotency key: what is known of its effect. Package
// reconcile decides what follows from that. The code here reads the record, carries out the decisions and writes them.
type reconciliation struct {
	key   string
	input []byte // digest of the input's plaintext

	sent   bool             // an attempt was dispatched, according to the history
	kept   bool             // it had its outcome before a reset, and no retry has taken that back
	record reconcile.Record // as it was read or written last
	stale  bool             // record may have changed in the store

	// What is to be recorded next: one of these.
	happened  *reconcile.Happened
	leaving   bool                 // the next attempt is to be dispatched
	abandoned bool                 // the run does not wait for the outcome any more
	pending   bool                 // in table.pending
	later     []reconcile.Happened // to be handled after happened

	next reconcile.Do // to be done when the operation is due; zero: nothing
	why  string       // reason for the next dispatch

	since  time.Time // since when the attempt certainly starts nothing new, by the monotonic clock
	asking *asking   // the call of the verifier, until it has returned
	asked  int       // consecutive indeterminate answers of the verifier
	parked bool      // it waits for an operator
}

// A sealed record is an operation's record as a commit writes it, and what to do when that is durable.
type sealed struct {
	reconcile.Record
	op  *operation
	do  reconcile.Do
	why string
}

// reconciliation makes the reconciliation of a call with a key. input is the digest of the call's input, or err says why
// there is none. That error, or an invalid key, holds the run: it continues with corrected code.
func (r *Handle) reconciliation(c *activity.Call, operation string, input []byte, err error) *reconciliation {
	k := &reconciliation{input: input}
	if c.Key != nil {
		k.key = *c.Key
	} else {
		// The generation is part of the key: the external system may remember the key
		// after the workflow was purged and its id was used again.
		sum, _ := payload.Digest([]string{r.x.ID, r.x.Hold.Workflow.Generation, c.Policy.Name, operation})
		k.key = fmt.Sprintf("weft_%x", sum)
	}
	if e := payload.CheckName("idempotency key", k.key, keys.MaxIdempotencyKey); e != nil {
		r.hold(weft.ReasonBadDefinition, fmt.Errorf("activity %s, operation %s: %w", c.Policy.Name, operation, e))
	}
	if err != nil {
		r.hold(weft.ReasonBadInput, fmt.Errorf("input of activity %s, operation %s: %w", c.Policy.Name, operation, err))
	}
	return k
}

// dispatched applies the event that an attempt is dispatched. If this execution recorded the event, it makes the attempt.
func (o *operation) dispatched(e logged) error {
	k := o.keyed
	asked := describe(o.kind.name, o.name)
	switch {
	case k == nil:
		asked += " without a key"
	case e.Key != k.key:
		asked += fmt.Sprintf(" with the key %q", k.key)
	default:
		if e.old && string(e.Input) != string(k.input) {
			o.x.anotherInput(o)
		}
		k.sent, k.asked, o.due = true, 0, time.Time{}
		switch {
		case !o.open:
			o.abandon()
		case !e.old:
			o.x.Ops.departing = append(o.x.Ops.departing, o)
		}
		return nil
	}
	return &weft.NonDeterminismError{WorkflowID: o.x.ID, Operation: o.id, Recorded: fmt.Sprintf("%s with the key %q", describe(e.Of, e.Name), e.Key), Asked: asked, Line: o.line()}
}

// abandon notes that the run does not wait for o's outcome any more.
func (o *operation) abandon() {
	k := o.keyed
	k.abandoned, k.leaving, k.happened, k.later = true, false, nil, nil
	if k.record.Raw() == nil {
		o.x.Ops.outdate(o)
	}
	o.x.Ops.pend(o)
}

// takeUp reverts abandon for the operations that are still open.
func (t *table) takeUp() {
	for o := range t.all() {
		if o.keyed != nil {
			o.keyed.abandoned = false
		}
	}
}

// setOut begins a reconciled operation: with its first attempt, or by reading the record of the last one.
func (o *operation) setOut() {
	k := o.keyed
	if k.sent {
		o.x.Ops.outdate(o)
		return
	}
	o.x.depart(o)
}

// depart has the dispatch of o's next attempt recorded. It does so only once o has a permit and a place:
// an attempt that still waits for one must not count as one that may have had an effect.
func (x *Execution) depart(o *operation) {
	k := o.keyed
	if x.permitted(o) {
		if o.placed = o.placed || x.enter(); o.placed {
			k.leaving = true
			x.Ops.pend(o)
			return
		}
		x.Ops.queue(o)
	}
	k.next = reconcile.Dispatch
	if end, ok := o.lastDispatch(); ok {
		x.timeAt(o, end)
	}
}

// lastDispatch returns the time from which no further attempt may begin. It returns false if
// there is no such time, or it is not known yet.
func (o *operation) lastDispatch() (time.Time, bool) {
	limit, begun := o.call.Policy.TotalTimeout, o.keyed.record.Begun()
	return begun.Add(limit), limit > 0 && !begun.IsZero()
}

// reconcile does what is due for o.
func (x *Execution) reconcile(o *operation) {
	k := o.keyed
	end, ends := o.lastDispatch()
	switch {
	case k.next == reconcile.Dispatch && ends && !x.time().Before(end):
		o.forgo()
		x.follow(o, reconcile.Happened{What: reconcile.Found}) // too late for another attempt
	case k.next == reconcile.Dispatch:
		x.depart(o)
	case k.asking != nil:
		x.answered(o, verdict{Verdict: activity.Verdict{
			State:  activity.StateIndeterminate,
			Reason: "an earlier call of the verifier has not returned",
		}, began: k.since})
	default:
		x.verify(o)
	}
}

// idle reports whether o does nothing even when it is due, because it waits for its attempt
// to return, for its answer to be recorded, or for an operator.
func (o *operation) idle() bool {
	if o.keyed == nil {
		return o.working != nil || o.answer != nil || o.held()
	}
	k := o.keyed // what the attempt has returned late may rule the next one out
	return k.next == 0 || k.next == reconcile.Dispatch && (o.working != nil || k.happened != nil)
}

// settling reports whether an operation is still to be verified. Parking the run then would
// restart the wait for effects that may still happen.
func (t *table) settling() bool {
	for o := t.first; o != nil; o = o.next {
		if o.keyed != nil && o.keyed.next == reconcile.Verify {
			return true
		}
	}
	return false
}

// reread reads the records that may have changed, and decides what follows from them.
func (x *Execution) reread() error {
	x.Ops.tidy()
	for ; len(x.Ops.outdated) > 0; x.Ops.outdated = x.Ops.outdated[1:] {
		o := x.Ops.outdated[0]
		if o.open || o.keyed.abandoned {
			if err := x.rereadOf(o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *Execution) rereadOf(o *operation) error {
	k := o.keyed
	r, err := reconcile.ReadRecord(x.Ctx, x.store, x.ID, o.name, o.id, k.key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		r = reconcile.Record{}
	case err != nil:
		return err
	}
	if r.Generation != x.Hold.Workflow.Generation {
		if k.sent {
			return fmt.Errorf("%w: there is no record %q of this generation", storage.ErrCorrupt, keys.Activity(x.ID, o.name, o.id, k.key))
		}
		k.stale, k.record = false, r.Anew()
		return nil
	}
	k.stale = false
	if k.record.Raw() != nil && string(r.Raw()) == string(k.record.Raw()) && !x.askedAgain(o) {
		return nil
	}
	if k.asked = 0; o.open && !k.kept {
		r = Reopened(r, x.Hold.Workflow).Uncancelled() // a reset passes over the end that it had by a cancellation
	}
	k.record = r
	if k.since.IsZero() {
		k.since = x.began
	}
	if !o.open {
		return nil
	}
	why, err := x.unreadableAnswer(o, r)
	switch {
	case err != nil:
		return err
	case why != "":
		x.withdraw(o, why)
	default:
		o.forgo()
		came := k.came()
		k.happened, k.later, k.leaving, k.next = nil, nil, false, 0
		for _, h := range came {
			if h.What == reconcile.CameLate { // first: it may refute the answer that was found
				x.follow(o, h)
			}
		}
		x.follow(o, reconcile.Happened{What: reconcile.Found})
	}
	return nil
}

// withdraw takes an operator's answer out of o's record. What has happened to o's attempt meanwhile is handled after that.
func (x *Execution) withdraw(o *operation, why string) {
	k := o.keyed
	came := k.came()
	// A late return is evidence only: it decides nothing.
	decides := func(h reconcile.Happened) bool { return h.What != reconcile.CameLate }
	underWay := o.underWay() || slices.ContainsFunc(came, decides)
	if !underWay {
		o.forgo()
	}
	k.happened, k.later, k.leaving, k.next = nil, nil, false, 0
	x.follow(o, reconcile.Happened{What: reconcile.Undecodable, Verdict: activity.Verdict{Reason: why}, UnderWay: underWay})
	k.later = came
}

// withdrawing reports whether an operator's answer is being withdrawn. The record still has
// the answer until the withdrawal is durable.
func (k *reconciliation) withdrawing() bool {
	return k.happened != nil && k.happened.What == reconcile.Undecodable
}

// unreadableAnswer returns why an operator's answer in o's record is rejected: its result cannot be decoded into the result
// type of the activity. It returns "" for any other record. Only the run's owner checks this, because the engine that
// resolved the operation may not know the type.
func (x *Execution) unreadableAnswer(o *operation, r reconcile.Record) (why string, err error) {
	if !r.Settled || !r.HasResult {
		return "", nil
	}
	result := o.call.Definition.NewResult()
	err = x.readable(payload.Payload{Codec: r.Codec, Data: r.Result}, result)
	if err == nil || err == errStopped {
		return "", err
	}
	o.logger().Warn("weft: the result that an operator gave cannot be decoded; it is rejected", "error", err)
	return payload.Recordable(fmt.Sprintf("the answer by %s is rejected, because its result is of another type: activity %s returns %s: %v", cmp.Or(r.By, "a person"), o.name, payload.TypeOf(result), err)), nil
}

// came returns what has happened to o's attempt and is not recorded yet.
func (k *reconciliation) came() (hs []reconcile.Happened) {
	if k.happened != nil {
		hs = append(hs, *k.happened)
	}
	return slices.DeleteFunc(append(hs, k.later...), func(h reconcile.Happened) bool {
		switch h.What {
		case reconcile.Returned, reconcile.Erred, reconcile.Expired, reconcile.CameLate:
			return false
		}
		return true
	})
}

// underWay reports whether o has an attempt that is in progress and has not timed out, or is about to begin.
func (o *operation) underWay() bool {
	return o.working != nil && !o.working.told || o.departs()
}

// departs reports whether the dispatch of o's next attempt is recorded, and the attempt has not begun.
func (o *operation) departs() bool { return o.placed && !o.keyed.leaving }

// askedAgain reports whether o waited for an operator, who has now had the verifier called
// again instead of giving the outcome.
func (x *Execution) askedAgain(o *operation) bool {
	return o.keyed.parked && !slices.ContainsFunc(x.Hold.Workflow.Attention, o.isAskedIn)
}

// isAskedIn reports whether a is the reason why o needs an operator.
func (o *operation) isAskedIn(a journal.Attention) bool {
	reason := weft.ReasonIndeterminate
	if o.undo != nil {
		reason = weft.ReasonUncompensated
	}
	return a.Reason == string(reason) && a.Operation == o.id
}

// outdate marks o's record to be read again.
func (t *table) outdate(o *operation) {
	if !o.keyed.stale {
		o.keyed.stale = true
		t.outdated = append(t.outdated, o)
	}
}

// outdateAll marks all records to be read again, because another writer may have changed them.
func (t *table) outdateAll() {
	for o := range t.all() {
		if o.keyed != nil {
			t.outdate(o)
		}
	}
	for _, o := range t.pending {
		t.outdate(o)
	}
}

// follow decides what to do for o after h has happened. If h must be durable first, o
// becomes pending, and the next checkpoint decides.
//
// A result that came late is recorded before an answer of the verifier is decided on: the two are compared.
func (x *Execution) follow(o *operation, h reconcile.Happened) {
	k := o.keyed
	if k.happened != nil {
		if h.What == reconcile.CameLate && k.happened.What == reconcile.Answered {
			*k.happened, h = h, *k.happened
			k.later = slices.Insert(k.later, 0, h)
			return
		}
		k.later = append(k.later, h)
		return
	}
	h.Now, h.Random, h.Overtaken = x.time(), drawn(rand.Int64()), h.Began.Before(k.since)
	d := reconcile.Next(o.call.Policy, k.record, h)
	told := h.What == reconcile.Answered || h.What == reconcile.Found
	if told && (d.Do == reconcile.Dispatch || d.Do == reconcile.Verify) {
		k.next, k.why = d.Do, d.Why
		x.dueAfter(o, h.Now, d.After)
		return
	}
	k.happened = &h
	x.Ops.pend(o)
}

// timeAt makes o due at the given time, or leaves its due time if that is later.
func (x *Execution) timeAt(o *operation, at time.Time) {
	if o.due.Before(at) {
		o.due = at
	}
	if !o.timed {
		x.Ops.time(o)
	}
}

// reconciledAnswer processes an attempt's answer. An answer that comes after the attempt has timed out is evidence only.
func (x *Execution) reconciledAnswer(o *operation, by *attempt, a *answer, returned bool) {
	late := by.told
	by.told = true
	if returned || !late {
		o.keyed.since = a.at // an attempt that ignores cancellation may have continued until then
	}
	switch {
	case !o.open || a.attempt != o.keyed.record.Attempt || o.keyed.record.Settled && !o.keyed.withdrawing():
	case !late:
		x.follow(o, a.happened())
	case a.failure == nil || a.resultLost:
		x.cameLate(o, a)
	}
}

// cameLate notes the result of an attempt that had timed out. If the verifier has said since that the attempt did not
// complete, and the next one waits for this one to return, the verifier is called again.
func (x *Execution) cameLate(o *operation, a *answer) {
	k := o.keyed
	h := a.happened()
	h.What = reconcile.CameLate
	x.follow(o, h)
	if k.next == reconcile.Dispatch && o.call.Policy.Verified {
		k.next = reconcile.Verify
		x.timeAt(o, x.time())
	}
}

// happened converts the answer for package activity.
func (a *answer) happened() reconcile.Happened {
	f := a.failure
	switch {
	case f == nil:
		return reconcile.Happened{What: reconcile.Returned, Payload: reconcile.Payload{Codec: a.result.Codec, Data: a.result.Data, Digest: a.digest}}
	case a.timedOut:
		return reconcile.Happened{What: reconcile.Expired}
	case a.resultLost:
		return reconcile.Happened{What: reconcile.Returned, Payload: reconcile.Payload{Lost: f.Message}}
	}
	return reconcile.Happened{What: reconcile.Erred, Failure: &reconcile.Failure{
		Message:   f.Message,
		Stack:     f.Stack,
		Sentinel:  f.Sentinel,
		Permanent: a.final,
		NoEffect:  a.noEffect,
	}}
}

// An asking is one call of a verifier.
type asking struct {
	cancel context.CancelCauseFunc
	told   bool // its answer was processed
}

// A verdict is a verifier's answer, with its result encoded.
type verdict struct {
	activity.Verdict
	of     *asking
	result reconcile.Payload
	began  time.Time // when the verifier was called
}

// verify calls o's verifier in a goroutine of its own. The driver gets its answer in a
// message. If the verifier times out, a message says so first.
func (x *Execution) verify(o *operation) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(x.within)
	q := &asking{cancel: cancel}
	o.keyed.asking = q
	x.Ops.Working++
	x.attempts.Add(1)

	timeout := o.call.Policy.VerifyTimeout
	info := x.info(o)
	info.Phase, info.FencingToken, info.Deadline = activity.PhaseVerify, x.Hold.Head, x.host.Now().Add(timeout)
	tell := func(v activity.Verdict, result reconcile.Payload, returned bool) {
		v.Reason = payload.Recordable(v.Reason)
		x.Post(verified{o, &verdict{Verdict: v, of: q, result: result, began: began}, returned})
	}
	expiry := time.AfterFunc(timeout, func() {
		cancel(activity.ErrTimeout)
		why := fmt.Sprintf("the verifier timed out after %v", timeout)
		tell(activity.Verdict{State: activity.StateIndeterminate, Reason: why}, reconcile.Payload{}, false)
	})
	heart := &reader{x: x, op: o, wf: x.Hold.Workflow, ctx: ctx}
	go func() {
		defer x.attempts.Done()
		var result reconcile.Payload // encoded as part of the call: a codec is user code, too
		verify := func(ctx context.Context) (a activity.Answer, err error) {
			in, err := o.given()
			if err != nil {
				return nil, err
			}
			returned := false
			inner, told := x.host.tellCall(ctx, o)
			defer func() { told.verified(ctx, !returned, err) }()
			if err = context.Cause(x.Ctx); err == nil { // as for an attempt: see Execution.call
				a, err = o.call.Verify(inner, in)
			}
			if err == nil && a != nil {
				if v := a.Verdict(); v.State == activity.StateCompletedWithResult {
					result = x.host.Payload(v.Result)
					result.Digest = plaintextDigest(result.Codec, v.Result)
				}
			}
			returned = true
			return a, err
		}
		reconcile.Ask(activity.NewContext(ctx, info, heart), verify, func(v activity.Verdict) {
			expiry.Stop()
			tell(v, result, true)
			cancel(nil)
		})
	}()
}

// Payload encodes v to be recorded. If that fails, the payload says why.
func (e *Env) Payload(v any) reconcile.Payload {
	p, err := e.encode(v)
	if err != nil {
		return reconcile.Payload{Lost: payload.Recordable("result: " + err.Error())}
	}
	return reconcile.Payload{Codec: p.Codec, Data: p.Data}
}

// plaintextDigest returns the digest by which a result that was encoded by codec is compared with another. It returns nil
// for JSON, whose digest is that of the encoded bytes, and for a value that has none.
func plaintextDigest(codec string, v any) []byte {
	if codec == "" {
		return nil
	}
	sum, _ := payload.Digest(v)
	return sum
}

// readVerdict processes a verifier's answer. Each call counts once, and only while o is still to be verified.
func (x *Execution) readVerdict(o *operation, v *verdict, returned bool) {
	q := v.of
	told := q.told
	q.told = true
	if returned {
		o.keyed.asking = nil
		x.Ops.Working--
	}
	k := o.keyed
	if o.open && !told && k.next == reconcile.Verify {
		x.answered(o, *v)
	}
}

// answered decides on a verifier's answer. As long as the attempt's goroutine has not
// returned, the attempt may still start something, and no waiting time counts.
func (x *Execution) answered(o *operation, v verdict) {
	k := o.keyed
	h := reconcile.Happened{What: reconcile.Answered, Verdict: v.Verdict, Payload: v.result, Began: v.began}
	if v.State == activity.StateIndeterminate {
		k.asked++
		o.logUnverified(v.Verdict)
	} else {
		k.asked = 0
	}
	if h.Asked = k.asked; o.working == nil {
		h.Waited = max(v.began.Sub(k.since), 0)
	}
	k.next = 0
	x.follow(o, h)
}

// tidy removes pending operations that have nothing left to be recorded.
func (t *table) tidy() {
	if len(t.pending) == 0 {
		return
	}
	t.pending = slices.DeleteFunc(t.pending, func(o *operation) bool {
		k := o.keyed
		k.pending = o.open && (k.happened != nil || k.leaving) ||
			k.abandoned && (k.stale || !k.record.Settled && k.record.Attempt > 0)
		return !k.pending
	})
}

// pend marks o as having something to be recorded.
func (t *table) pend(o *operation) {
	if !o.keyed.pending {
		o.keyed.pending = true
		t.pending = append(t.pending, o)
	}
}

// recorded returns the record to be written for o, and its event. The record is nil if there is nothing to be recorded now.
func (x *Execution) recorded(o *operation, now time.Time) (*sealed, checkpoint.Event) {
	k := o.keyed
	s, e := &sealed{op: o}, o.event("")
	switch {
	case k.abandoned:
		if k.record.Settled || k.record.Attempt == 0 {
			return nil, e
		}
		d := reconcile.Next(o.call.Policy, k.record, reconcile.Happened{What: reconcile.Abandoned, Now: now})
		s.Record, s.do, s.why = d.Record, d.Do, d.Why
		e.Kind, e.Attempt = checkpoint.KindGivenUp, d.Record.Attempt
	case !o.open:
		return nil, e
	case k.happened != nil:
		h := *k.happened
		h.Now = now
		d := reconcile.Next(o.call.Policy, k.record, h)
		s.Record, s.do, s.why = d.Record, d.Do, d.Why
		e = eventOf(e, d, now)
	case k.leaving && x.mayBegin():
		s.Record = x.departed(o, now)
		e.Kind, e.Attempt, e.Key, e.Input, e.Why = checkpoint.KindDispatched, s.Attempt, k.key, k.input, k.why
	default:
		return nil, e
	}
	return s, e
}

// departed returns the record of the dispatch of o's next attempt.
func (x *Execution) departed(o *operation, now time.Time) reconcile.Record {
	k, p := o.keyed, o.call.Policy
	r := k.record
	r.Generation, r.WorkflowID, r.Activity, r.Operation, r.IdempotencyKey = x.Hold.Workflow.Generation, x.ID, o.name, o.id, k.key
	r.Input = k.input
	timeout := p.Timeout
	if p.TotalTimeout > 0 {
		begun := now
		if r.CreatedAt > 0 {
			begun = r.Begun()
		}
		timeout = max(min(timeout, begun.Add(p.TotalTimeout).Sub(now)), time.Millisecond)
	}
	return r.Dispatched(reconcile.Departure{
		At:      now,
		Epoch:   x.Hold.Workflow.Claim,
		Token:   x.Hold.Head + 1,
		Timeout: timeout,
		Settle:  p.Settle,
	})
}

// eventOf returns e completed as the event for a decision.
func eventOf(e checkpoint.Event, d reconcile.Decision, now time.Time) checkpoint.Event {
	r := d.Record
	e.Attempt, e.Why = r.Attempt, d.Why
	switch d.Do {
	case reconcile.Settle:
		e.Kind = checkpoint.KindSettled
		if f := r.Outcome(); f != nil {
			return failedWith(e, f)
		}
		e.Result, e.Codec = r.Result, r.Codec
	case reconcile.Attend:
		e.Kind, e.Name, e.Error, e.Why = checkpoint.KindHeld, string(weft.ReasonIndeterminate), d.Why, ""
	case reconcile.GoOn:
		e.Kind, e.Why = checkpoint.KindNoted, cmp.Or(d.Why, r.Seen)
	default:
		e.Kind, e.Due = checkpoint.KindAttempted, journal.Micro(now.Add(d.After))
		return failedWith(e, r.Error)
	}
	return e
}

func failedWith(e checkpoint.Event, f *reconcile.Failure) checkpoint.Event {
	e.Attempt, e.Error, e.Other, e.Category = f.Attempt, f.Message, f.Other, string(f.Category)
	e.Stack, e.Sentinel = f.Stack, f.Sentinel
	return e
}

// written applies s, which is durable now.
func (x *Execution) written(s *sealed) {
	o := s.op
	k := o.keyed
	k.record = s.Record
	if k.abandoned {
		k.abandoned = false
		return
	}
	if k.happened == nil {
		k.leaving, k.next, k.why, k.parked = false, 0, "", false
		return
	}
	k.happened = nil
	switch s.do {
	case reconcile.GoOn:
	case reconcile.Dispatch, reconcile.Verify:
		k.next = s.do
	default:
		k.next, k.parked = 0, s.do == reconcile.Attend
	}
	for len(k.later) > 0 && k.happened == nil && o.open {
		h := k.later[0]
		k.later = k.later[1:]
		x.follow(o, h)
	}
}

// seal adds s to a change.
func (s *sealed) seal(c *journal.Change) error {
	c.If = append(c.If, s.Unchanged())
	r, put, err := s.Seal()
	if err != nil {
		return err
	}
	s.Record = r
	c.Ops = append(c.Ops, put)
	return nil
}

// release returns a change that records, on a clean shutdown, how long this owner has waited for effects that may still
// happen. The next owner then waits only for the rest. It also updates the reconciliations to the records that it returns.
func (x *Execution) release() (c journal.Change, err error) {
	now, mono := x.time(), time.Now()
	for o := range x.Ops.all() {
		k := o.keyed
		if k == nil || k.next != reconcile.Verify || k.happened != nil || o.working != nil || len(c.Events) == mostEvents {
			continue
		}
		d := min(mono.Sub(k.since), reconcile.Quiet(o.call.Policy, k.record))
		if d <= 0 {
			continue
		}
		s := &sealed{op: o, Record: k.record.Released(now, d)}
		c.Events = append(c.Events, checkpoint.Event{Kind: checkpoint.KindNoted, Operation: o.id, Of: o.kind.name, Name: o.name, Why: fmt.Sprintf("waited %v for what might still land", d.Round(time.Millisecond))})
		if err := s.seal(&c); err != nil {
			return c, err
		}
		k.record, k.since = s.Record, mono
	}
	return c, nil
}

// askFor returns the workflow record with its attention brought up to date by a decision:
//
//   - operations that need an operator are added, and those that no longer do are removed;
//   - unresponsive attempts, and those that have returned after all;
//   - a call that could not be undone.
//
// The actions of operators that the decision records are removed from it. It returns nil if nothing changes.
func (x *Execution) askFor(d *decision, now time.Time) *journal.Workflow {
	if len(d.reconciled)+len(d.responsiveness)+len(x.Hold.Workflow.Verbs) == 0 && d.undone == nil {
		return nil
	}
	wf := *x.Hold.Workflow
	changed := len(wf.Verbs)+len(d.responsiveness) > 0
	wf.Verbs = nil
	if d.undone != nil {
		d.undone.askIn(&wf, now)
		changed = true
	}
	for _, o := range d.responsiveness {
		o.tellOf(&wf, now)
	}
	left := slices.DeleteFunc(slices.Clone(wf.Attention), func(a journal.Attention) bool {
		o := x.Ops.byID[a.Operation]
		return a.Reason == string(weft.ReasonIndeterminate) && (o == nil || !o.open) ||
			slices.ContainsFunc(d.reconciled, func(s *sealed) bool {
				return s.do != reconcile.GoOn && s.op.isAskedIn(a) // after GoOn, an operator is still needed
			})
	})
	if len(left) < len(wf.Attention) {
		wf.Attention, changed = left, true
	}
	for _, s := range d.reconciled {
		if s.do == reconcile.Attend {
			wf.Attention = append(slices.Clone(wf.Attention), journal.Attention{
				Reason:    string(weft.ReasonIndeterminate),
				Operation: s.op.id,
				Name:      s.op.name,
				Detail:    s.why,
				Since:     journal.Micro(now),
			})
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return &wf
}
