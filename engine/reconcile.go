package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A reconciliation is what an operation with an idempotency key has besides: what
// is known of its effect. What follows from that, package activity decides; here
// it is read, done and written.
type reconciliation struct {
	key   string
	input []byte // digest of its plaintext

	sent   bool            // the history tells that an attempt has left
	record activity.Record // as it was read or written last
	stale  bool            // it may have changed

	// What is to be recorded, and the operation is pending for it: one of these.
	happened  *activity.Happened
	leaving   bool // the next attempt is to leave
	abandoned bool // nobody waits for the outcome any more
	pending   bool // among those that have something to be recorded
	later     []activity.Happened

	next activity.Do // to be done when the operation is due; zero: nothing
	why  string      // it leaves

	since  time.Time // from when on it is certain that the attempt begins nothing new, by the monotonic clock
	asking *asking   // the verifier's goroutine, until it has returned
	asked  int       // answers of it that told nothing, in a row
	parked bool      // a person is asked
}

// A sealed record is what a commit makes of an operation's record, and what follows when
// that is durable.
type sealed struct {
	activity.Record
	op  *operation
	do  activity.Do
	why string
}

// reconciliation makes what a call with a key needs, whose input has a digest or an
// error instead. A key that is none holds the run, and so does that error: code that
// makes right ones goes on.
func (r *Run) reconciliation(c *activity.Call, operation string, input []byte, err error) *reconciliation {
	k := &reconciliation{input: input}
	if c.Key != nil {
		k.key = *c.Key
	} else {
		// Of the life, too: the other side may remember a key for longer than the id
		// is this workflow's.
		sum, _ := digest([]string{r.x.id, r.x.hold.Workflow.Generation, c.Policy.Name, operation})
		k.key = fmt.Sprintf("weft_%x", sum)
	}
	if e := checkName("idempotency key", k.key, keys.MaxIdempotencyKey); e != nil {
		err = e
	}
	if err != nil {
		r.hold(BadDefinition, fmt.Errorf("activity %s, operation %s: %w", c.Policy.Name, operation, err))
	}
	return k
}

// dispatched takes in that an attempt leaves. If that is news, it does.
func (o *operation) dispatched(e logged) error {
	k := o.keyed
	asked := describe(o.of, o.name)
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
			o.x.ops.queued = append(o.x.ops.queued, o)
		}
		return nil
	}
	return &NonDeterminismError{o.x.id, o.id, fmt.Sprintf("%s with the key %q", describe(e.Of, e.Name), e.Key), asked}
}

// abandon notes that nobody waits for o's outcome any more.
func (o *operation) abandon() {
	k := o.keyed
	k.abandoned, k.leaving, k.happened, k.later = true, false, nil, nil
	if k.record.Raw() == nil {
		o.x.ops.outdate(o)
	}
	o.x.ops.pend(o)
}

// takeUp takes back that operations are abandoned which are still open.
func (t *table) takeUp() {
	for o := range t.all() {
		if o.keyed != nil {
			o.keyed.abandoned = false
		}
	}
}

// setOut begins a reconciled operation: with its first attempt, or with what the
// record tells of the last one.
func (o *operation) setOut() {
	k := o.keyed
	if k.sent {
		o.x.ops.outdate(o)
		return
	}
	o.x.depart(o)
}

// depart has o's next attempt recorded, which then leaves: when it is permitted, and
// not before. An attempt that waits in line is none that may have had an effect.
func (x *execution) depart(o *operation) {
	k := o.keyed
	if x.permitted(o) {
		k.leaving = true
		x.ops.pend(o)
		return
	}
	k.next = activity.Dispatch
	if end, ok := o.lastDispatch(); ok {
		x.timeAt(o, end)
	}
}

// lastDispatch is when it is too late for another attempt, and false if that is
// never, or not known yet.
func (o *operation) lastDispatch() (time.Time, bool) {
	limit, begun := o.call.Policy.Deadline, o.keyed.record.Begun()
	return begun.Add(limit), limit > 0 && !begun.IsZero()
}

// reconcile does for o what is due.
func (x *execution) reconcile(o *operation) {
	k := o.keyed
	end, ends := o.lastDispatch()
	switch {
	case k.next == activity.Dispatch && ends && !x.time().Before(end):
		o.forgo()
		x.follow(o, activity.Happened{What: activity.Found}) // no time is left
	case k.next == activity.Dispatch:
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

// idle says that o does nothing when it is due: it waits for its attempt to return,
// for its answer to be recorded, or for a person.
func (o *operation) idle() bool {
	if o.keyed == nil {
		return o.working != nil || o.answer != nil || o.held()
	}
	return o.keyed.next == 0 || o.keyed.next == activity.Dispatch && o.working != nil
}

// settling says that an operation is to be verified: the wait for what might still
// land would begin anew if the run were put aside.
func (t *table) settling() bool {
	for o := t.first; o != nil; o = o.next {
		if o.keyed != nil && o.keyed.next == activity.Verify {
			return true
		}
	}
	return false
}

// reread reads the records that may have changed, and has what they tell decide.
func (x *execution) reread() error {
	x.ops.tidy()
	for ; len(x.ops.outdated) > 0; x.ops.outdated = x.ops.outdated[1:] {
		o := x.ops.outdated[0]
		if o.open || o.keyed.abandoned {
			if err := x.rereadOf(o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *execution) rereadOf(o *operation) error {
	k := o.keyed
	r, err := activity.ReadRecord(x.ctx, x.store, x.id, o.name, o.id, k.key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		r = activity.Record{}
	case err != nil:
		return err
	}
	if r.Generation != x.hold.Workflow.Generation {
		if k.sent {
			return fmt.Errorf("%w: there is no record %q of this life", storage.ErrCorrupt, keys.Activity(x.id, o.name, o.id, k.key))
		}
		k.stale, k.record = false, r.Anew()
		return nil
	}
	k.stale = false
	if k.record.Raw() != nil && string(r.Raw()) == string(k.record.Raw()) && !x.askedAgain(o) {
		return nil
	}
	if k.asked = 0; o.open {
		r = reopened(r, x.hold.Workflow)
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
		k.happened, k.later, k.leaving, k.next = nil, nil, false, 0
		x.follow(o, activity.Happened{What: activity.Found})
	}
	return nil
}

// withdraw takes back a person's answer that o's record has. What o's attempt came to
// meanwhile is decided after that.
func (x *execution) withdraw(o *operation, why string) {
	k := o.keyed
	came := k.came()
	// A late return is evidence: nothing is decided by it.
	decides := func(h activity.Happened) bool { return h.What != activity.CameLate }
	underWay := o.underWay() || slices.ContainsFunc(came, decides)
	if !underWay {
		o.forgo()
	}
	k.happened, k.later, k.leaving, k.next = nil, nil, false, 0
	x.follow(o, activity.Happened{What: activity.Undecodable, Verdict: activity.Verdict{Reason: why}, UnderWay: underWay})
	k.later = came
}

// withdrawing says that a person's answer is being withdrawn: the record has it until
// that is durable.
func (k *reconciliation) withdrawing() bool {
	return k.happened != nil && k.happened.What == activity.Undecodable
}

// unreadableAnswer says why a person's answer that was found in o's record is not taken:
// its result cannot be decoded as the call's definition has it. It is "" for any other
// record. Who resolved the operation need not know the type; the run's owner does.
func (x *execution) unreadableAnswer(o *operation, r activity.Record) (why string, err error) {
	if !r.Settled || !r.HasResult {
		return "", nil
	}
	result := o.call.Definition.NewResult()
	err = x.readable(payload{r.Codec, r.Result}, result)
	if err == nil || err == errStopped {
		return "", err
	}
	x.eng.log.Error("weft: the result that a person gave cannot be decoded; it is not taken", "workflow", x.id, "activity", o.name, "operation", o.id, "error", err)
	return recordable(fmt.Sprintf("the answer by %s is not taken, because its result is of another type: activity %s returns %s: %v", cmp.Or(r.By, "a person"), o.name, typeOf(result), err)), nil
}

// came is what o's attempt came to, and is not recorded.
func (k *reconciliation) came() (hs []activity.Happened) {
	if k.happened != nil {
		hs = append(hs, *k.happened)
	}
	return slices.DeleteFunc(append(hs, k.later...), func(h activity.Happened) bool {
		switch h.What {
		case activity.Returned, activity.Erred, activity.Expired, activity.CameLate:
			return false
		}
		return true
	})
}

// underWay says that o's attempt is, or is about to begin, and its time is not up.
func (o *operation) underWay() bool {
	return o.working != nil && !o.working.told || slices.Contains(o.x.ops.queued, o)
}

// askedAgain says that a person was asked about o and wants the verifier asked
// instead, once more.
func (x *execution) askedAgain(o *operation) bool {
	return o.keyed.parked && !slices.ContainsFunc(x.hold.Workflow.Attention, o.isAskedIn)
}

// isAskedIn says that a is the question about o to a person.
func (o *operation) isAskedIn(a checkpoint.Attention) bool {
	reason := Indeterminate
	if o.undo != nil {
		reason = Uncompensated
	}
	return a.Reason == string(reason) && a.Operation == o.id
}

// outdate has o's record read again.
func (t *table) outdate(o *operation) {
	if !o.keyed.stale {
		o.keyed.stale = true
		t.outdated = append(t.outdated, o)
	}
}

// outdateAll has all records read again: somebody else has written.
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

// follow decides what follows for o when something has happened. What must be
// durable first is put down for that, and decided then.
func (x *execution) follow(o *operation, h activity.Happened) {
	k := o.keyed
	if k.happened != nil {
		k.later = append(k.later, h)
		return
	}
	h.Now, h.Random = x.time(), drawn(rand.Int64())
	d := activity.Next(o.call.Policy, k.record, h)
	told := h.What == activity.Answered || h.What == activity.Found
	if told && (d.Do == activity.Dispatch || d.Do == activity.Verify) {
		k.next, k.why = d.Do, d.Why
		x.timeAt(o, h.Now.Add(d.After))
		return
	}
	k.happened = &h
	x.ops.pend(o)
}

// timeAt makes o due at a time, or when it is due already if that is later.
func (x *execution) timeAt(o *operation, at time.Time) {
	if o.due.Before(at) {
		o.due = at
	}
	if !o.timed {
		x.ops.time(o)
	}
}

// reconciledAnswer takes in what an attempt came to. What comes after its time was
// up is evidence, and no more.
func (x *execution) reconciledAnswer(o *operation, by *attempt, a *answer, returned bool) {
	late := by.told
	by.told = true
	if returned || !late {
		o.keyed.since = a.at // a deaf attempt may have gone on until then
	}
	switch {
	case !o.open || a.attempt != o.keyed.record.Attempt || o.keyed.record.Settled && !o.keyed.withdrawing():
	case !late:
		x.follow(o, a.happened())
	case a.failure == nil:
		x.follow(o, activity.Happened{What: activity.CameLate})
	}
}

// happened is the answer of an attempt as package activity knows it.
func (a *answer) happened() activity.Happened {
	f := a.failure
	switch {
	case f == nil:
		return activity.Happened{What: activity.Returned, Payload: activity.Payload{Codec: a.result.codec, Data: a.result.data}}
	case a.timedOut:
		return activity.Happened{What: activity.Expired}
	case a.lost:
		return activity.Happened{What: activity.Returned, Payload: activity.Payload{Lost: f.message}}
	}
	return activity.Happened{What: activity.Erred, Failure: &activity.Failure{
		Message:   f.message,
		Stack:     f.stack,
		Sentinel:  f.sentinel,
		Permanent: a.final,
		NoEffect:  a.noEffect,
	}}
}

// An asking is one call of a verifier.
type asking struct {
	cancel context.CancelCauseFunc
	told   bool // it has given its answer
}

// A verdict is a verifier's answer, with its result encoded.
type verdict struct {
	activity.Verdict
	of     *asking
	result activity.Payload
	began  time.Time // the verifier was called
}

// verify asks o's verifier, in a goroutine of its own. Its answer comes by mail: what
// it says, and before that that its time is up, if it is.
func (x *execution) verify(o *operation) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(x.ctx)
	q := &asking{cancel: cancel}
	o.keyed.asking = q
	x.ops.working++
	x.attempts.Add(1)

	timeout := o.call.Policy.VerifyTimeout
	info := x.info(o)
	info.Phase, info.FencingToken, info.Deadline = activity.PhaseVerify, x.hold.Head, x.eng.now().Add(timeout)
	tell := func(v activity.Verdict, returned bool) {
		v.Reason = recordable(v.Reason)
		answer := &verdict{Verdict: v, of: q, began: began}
		if v.State == activity.StateCompletedWithResult {
			answer.result = x.eng.payload(v.Result)
		}
		x.post(verified{o, answer, returned})
	}
	expiry := time.AfterFunc(timeout, func() {
		cancel(activity.ErrTimeout)
		tell(activity.Verdict{State: activity.StateIndeterminate, Reason: fmt.Sprintf("the verifier timed out after %v", timeout)}, false)
	})
	heart := &reader{x: x, op: o, wf: x.hold.Workflow, ctx: ctx}
	go func() {
		defer x.attempts.Done()
		verify := func(ctx context.Context) (activity.Answer, error) {
			in, err := o.given()
			if err != nil {
				return nil, err
			}
			return o.call.Verify(ctx, in)
		}
		activity.Ask(activity.NewContext(ctx, info, heart), verify, func(v activity.Verdict) {
			expiry.Stop()
			tell(v, true)
			cancel(nil)
		})
	}()
}

// payload is v as it can be recorded.
func (e *Engine) payload(v any) activity.Payload {
	p, err := e.encode(v)
	if err != nil {
		return activity.Payload{Lost: recordable("result: " + err.Error())}
	}
	return activity.Payload{Codec: p.codec, Data: p.data}
}

// readVerdict takes in a verifier's answer. Each call counts once, and only while
// there is a question.
func (x *execution) readVerdict(o *operation, v *verdict, returned bool) {
	q := v.of
	told := q.told
	q.told = true
	if returned {
		o.keyed.asking = nil
		x.ops.working--
	}
	k := o.keyed
	switch {
	case !o.open || told || k.next != activity.Verify:
	case k.happened != nil: // the attempt has come back meanwhile: it is asked again
		x.timeAt(o, x.time())
	default:
		x.answered(o, *v)
	}
}

// answered decides on a verifier's answer. While the attempt's goroutine lives, it
// may still begin something.
func (x *execution) answered(o *operation, v verdict) {
	k := o.keyed
	h := activity.Happened{What: activity.Answered, Verdict: v.Verdict, Payload: v.result}
	if v.State == activity.StateIndeterminate {
		k.asked++
	} else {
		k.asked = 0
	}
	if h.Asked = k.asked; o.working == nil {
		h.Waited = max(v.began.Sub(k.since), 0)
	}
	k.next = 0
	x.follow(o, h)
}

// tidy takes out of the pending operations those of which there is nothing to be
// recorded any more.
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

// pend notes that there is something to be recorded of o.
func (t *table) pend(o *operation) {
	if !o.keyed.pending {
		o.keyed.pending = true
		t.pending = append(t.pending, o)
	}
}

// recorded is what is to be recorded of o, and its event. It is nil if there is nothing,
// or not now.
func (x *execution) recorded(o *operation, now time.Time) (*sealed, checkpoint.Event) {
	k := o.keyed
	s, e := &sealed{op: o}, o.event("")
	switch {
	case k.abandoned:
		if k.record.Settled || k.record.Attempt == 0 {
			return nil, e
		}
		d := activity.Next(o.call.Policy, k.record, activity.Happened{What: activity.Abandoned, Now: now})
		s.Record, s.do, s.why = d.Record, d.Do, d.Why
		e.Kind, e.Attempt = checkpoint.GivenUp, d.Record.Attempt
	case !o.open:
		return nil, e
	case k.happened != nil:
		h := *k.happened
		h.Now = now
		d := activity.Next(o.call.Policy, k.record, h)
		s.Record, s.do, s.why = d.Record, d.Do, d.Why
		e = eventOf(e, d, now)
	case k.leaving && x.mayBegin():
		s.Record = x.departed(o, now)
		e.Kind, e.Attempt, e.Key, e.Input, e.Why = checkpoint.Dispatched, s.Attempt, k.key, k.input, k.why
	default:
		return nil, e
	}
	return s, e
}

// departed is the record with which o's next attempt leaves.
func (x *execution) departed(o *operation, now time.Time) activity.Record {
	k, p := o.keyed, o.call.Policy
	r := k.record
	r.Generation, r.WorkflowID, r.Activity, r.Operation, r.IdempotencyKey = x.hold.Workflow.Generation, x.id, o.name, o.id, k.key
	r.Input = k.input
	timeout := p.Timeout
	if p.Deadline > 0 {
		begun := now
		if r.CreatedAt > 0 {
			begun = r.Begun()
		}
		timeout = max(min(timeout, begun.Add(p.Deadline).Sub(now)), time.Millisecond)
	}
	return r.Dispatched(activity.Departure{
		At:      now,
		Epoch:   x.hold.Workflow.Claim,
		Token:   x.hold.Head + 1,
		Timeout: timeout,
		Settle:  p.Settle,
	})
}

// eventOf is what a decision is in the history.
func eventOf(e checkpoint.Event, d activity.Decision, now time.Time) checkpoint.Event {
	r := d.Record
	e.Attempt, e.Why = r.Attempt, d.Why
	switch d.Do {
	case activity.Settle:
		e.Kind = checkpoint.Settled
		if f := r.Outcome(); f != nil {
			return failedWith(e, f)
		}
		e.Result, e.Codec = r.Result, r.Codec
	case activity.Attend:
		e.Kind, e.Name, e.Error, e.Why = checkpoint.Held, string(Indeterminate), d.Why, ""
	case activity.GoOn:
		e.Kind, e.Why = checkpoint.Noted, cmp.Or(d.Why, r.Seen)
	default:
		e.Kind, e.Due = checkpoint.Attempted, checkpoint.Micro(now.Add(d.After))
		return failedWith(e, r.Error)
	}
	return e
}

func failedWith(e checkpoint.Event, f *activity.Failure) checkpoint.Event {
	e.Attempt, e.Error, e.Other, e.Category = f.Attempt, f.Message, f.Other, string(f.Category)
	e.Stack, e.Sentinel = f.Stack, f.Sentinel
	return e
}

// written takes in that s is durable.
func (x *execution) written(s *sealed) {
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
	case activity.GoOn:
	case activity.Dispatch, activity.Verify:
		k.next = s.do
	default:
		k.next, k.parked = 0, s.do == activity.Attend
	}
	for len(k.later) > 0 && k.happened == nil && o.open {
		h := k.later[0]
		k.later = k.later[1:]
		x.follow(o, h)
	}
}

// seal adds s to a change.
func (s *sealed) seal(c *checkpoint.Change) error {
	c.If = append(c.If, s.Unchanged())
	r, put, err := s.Seal()
	if err != nil {
		return err
	}
	s.Record = r
	c.Ops = append(c.Ops, put)
	return nil
}

// release is what an owner that goes with a word leaves: how long has been waited
// for what might still land, so that the next owner waits only for the rest.
func (x *execution) release() (c checkpoint.Change, err error) {
	now, mono := x.time(), time.Now()
	for o := range x.ops.all() {
		k := o.keyed
		if k == nil || k.next != activity.Verify || k.happened != nil || o.working != nil || len(c.Events) == mostEvents {
			continue
		}
		d := min(mono.Sub(k.since), o.call.Policy.Quiet(k.record))
		if d <= 0 {
			continue
		}
		s := &sealed{op: o, Record: k.record.Released(now, d)}
		c.Events = append(c.Events, checkpoint.Event{Kind: checkpoint.Noted, Operation: o.id, Of: o.of, Name: o.name, Why: fmt.Sprintf("waited %v for what might still land", d.Round(time.Millisecond))})
		if err := s.seal(&c); err != nil {
			return c, err
		}
		k.record, k.since = s.Record, mono
	}
	return c, nil
}

// askFor is the workflow record in which a person is asked about what the operations
// of a decision wait for, and no more about those that need nobody now, is told which
// attempts are deaf, and what could not be undone, and in which what operators did is
// taken in.
// It is nil if it stays as it is.
func (x *execution) askFor(d *decision, now time.Time) *checkpoint.Workflow {
	if len(d.reconciled)+len(d.responsiveness)+len(x.hold.Workflow.Verbs) == 0 && d.undone == nil {
		return nil
	}
	wf := *x.hold.Workflow
	changed := len(wf.Verbs)+len(d.responsiveness) > 0
	wf.Verbs = nil
	if d.undone != nil {
		d.undone.askIn(&wf, now)
		changed = true
	}
	for _, o := range d.responsiveness {
		o.tellOf(&wf, now)
	}
	for _, s := range d.reconciled {
		o := s.op
		if s.do == activity.GoOn {
			continue // a person who is asked is still needed
		}
		if slices.ContainsFunc(wf.Attention, o.isAskedIn) {
			wf.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), o.isAskedIn)
			changed = true
		}
		if s.do == activity.Attend {
			wf.Attention = append(slices.Clone(wf.Attention), checkpoint.Attention{
				Reason:    string(Indeterminate),
				Operation: o.id,
				Name:      o.name,
				Detail:    s.why,
				Since:     checkpoint.Micro(now),
			})
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return &wf
}
