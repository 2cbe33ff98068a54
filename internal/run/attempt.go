package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/limits"
	"github.com/weft-go/weft/internal/payload"
)

var errGoexit = errors.New("called runtime.Goexit")

// calling is the state of an operation that calls a function of the user: an activity, a step,
// a send, or the undoing of a call.
type calling struct {
	call       *activity.Call    // nil: it calls nothing
	input      *payload.Snapshot // nil: the input is that of the call, and shares no memory
	attempt    int               // number of the last known attempt
	ownersLost int               // owners since then that may have started an attempt
	failures   int
	lastError  string   // of the last failed attempt
	working    *attempt // the attempt in progress, until its goroutine has returned
	answer     *answer  // an attempt's answer, until it is durable

	permit      *permit         // for the next attempt; nil: none was requested
	inLine      bool            // it is in table.queued
	placed      bool            // the next attempt, which has a key, has a place of the gate
	keyed       *reconciliation // nil: without an idempotency key
	undo        *undo           // nil: it undoes nothing
	limited     time.Time       // no attempt begins at or after this; zero: no limit
	paused      pause           // its last pause that is recorded nowhere
	interrupted int             // how often the transaction of the step's function was lost
}

// A job is an attempt that is about to run, or is running.
type job struct {
	x        *Execution
	op       *operation
	attempt  attempt
	answer   answer
	ctx      context.Context
	timeout  time.Duration
	settle   time.Duration     // how long after its timeout the attempt should have returned
	permit   *limits.Permit    // nil: it needs none
	wf       *journal.Workflow // the workflow record when the attempt begins
	pulse    pulse
	writings writings
	expiry   *time.Timer                // nil: the attempt has no timeout
	patience atomic.Pointer[time.Timer] // calls overdue; nil: the attempt has not timed out
	over     atomic.Bool                // the attempt has returned
}

// attempt prepares the next attempt of o if o has a permit and a place is free. The driver
// gets the attempt's answer in a message: its result, or that it has timed out.
//
// An attempt that must wait for its permit or a place is made later. If o has a deadline,
// o becomes due then, so that it times out even if its wait has not ended.
func (x *Execution) attempt(o *operation) {
	permitted := x.permitted(o)
	if !permitted || !o.placed && !x.enter() {
		if permitted {
			x.Ops.queue(o)
		}
		if o.keyed == nil && !o.limited.IsZero() {
			o.due = o.limited
			x.Ops.time(o)
		}
		return
	}
	info := x.info(o)
	ctx, cancel := context.WithCancelCause(x.within)
	j := &job{x: x, op: o, attempt: attempt{number: info.Attempt, cancel: cancel}, timeout: o.timeout(), permit: o.takePermit(), wf: x.Hold.Workflow}
	x.host.limits.Begin(j.permit)
	o.working, o.placed = &j.attempt, false
	x.Ops.Working++
	x.attempts.Add(1)

	if j.timeout > 0 {
		if j.settle = o.call.Policy.Settle; j.settle == 0 {
			j.settle = j.timeout
		}
		info.Deadline = x.host.Now().Add(j.timeout)
		j.expiry = time.AfterFunc(j.timeout, j.expire)
	}
	j.ctx = activity.NewContext(ctx, info, j)
	x.jobs = append(x.jobs, j)
}

// setOff starts the prepared attempts, each in a goroutine of its own. If there is only one operation, the driver runs its
// attempt inline: see inline_attempt. It does not if there is something that it has to store after a moment.
func (x *Execution) setOff() error {
	jobs := x.jobs
	x.jobs = nil
	if len(jobs) == 1 && x.Ops.Working == 1 && len(x.Ops.byID) == 1 && !x.riders.waits() {
		j := jobs[0]
		jobs[0], x.jobs = nil, jobs[:0]
		if !x.lend(j) {
			return ErrRelieved
		}
		return x.read()
	}
	for _, j := range jobs {
		go j.run()
	}
	return nil
}

// expire cancels the attempt and reports that it has timed out, whether it returns or not.
func (j *job) expire() {
	answer := j.timedOut()
	answer.at = time.Now()
	j.attempt.cancel(activity.ErrTimeout)
	j.x.Post(attemptExpired{j.op, &j.attempt, answer})
	patience := time.AfterFunc(j.settle, j.overdue)
	if j.patience.Store(patience); j.over.Load() {
		patience.Stop()
	}
}

// overdue reports that the attempt is unresponsive. It may never return.
func (j *job) overdue() {
	if j.over.Load() || j.x.Owner.Context().Err() != nil {
		return
	}
	j.op.logger().Warn("weft: attempt of an activity has timed out and ignores cancellation", "attempt", j.attempt.number)
	j.x.Post(attemptOverdue{j})
}

// run makes the attempt and posts its answer.
func (j *job) run() {
	answer := &j.answer
	answer.attempt = j.attempt.number
	defer func() {
		j.endWriting(answer)
		if answer.failure != nil && !(answer.resultLost && j.op.keyed != nil) && context.Cause(j.ctx) == activity.ErrTimeout {
			*answer = *j.timedOut()
		}
		answer.at = time.Now()
		j.over.Store(true)
		if j.expiry != nil {
			j.expiry.Stop()
		}
		if patience := j.patience.Load(); patience != nil { // else it holds the run in memory
			patience.Stop()
		}
		j.attempt.cancel(nil)
		j.x.host.limits.GiveBack(j.permit)
		j.pulse.end(answer.failure != nil)
		j.x.Post(attemptReturned{j})
		j.x.host.Gate.Leave()
		j.x.attempts.Done()
	}()
	j.x.call(j.ctx, j.op, answer)
}

func (j *job) timedOut() *answer { return timedOut(j.attempt.number, j.timeout) }

func timedOut(number int, after time.Duration) *answer {
	return &answer{attempt: number, timedOut: true, failure: &payload.Failure{
		Message:  fmt.Sprintf("timed out after %v", after),
		Sentinel: activity.ErrTimeout.Error(),
	}}
}

// timeout returns the timeout of an attempt that begins now; zero means none.
func (o *operation) timeout() time.Duration {
	switch timeout := o.call.Policy.Timeout; {
	case o.keyed != nil:
		return o.keyed.record.Timeout
	case o.limited.IsZero():
		return timeout
	default:
		return max(min(timeout, o.limited.Sub(o.x.time())), time.Millisecond)
	}
}

// AwaitAttempts waits until all attempts have returned. Once the engine is stopping, it
// waits no longer than StopTimeout. It is called when x has ended.
func (x *Execution) AwaitAttempts() {
	if x.Ops.Working == 0 {
		x.attempts.Wait() // a goroutine that has posted its answer is about to end
		return
	}
	returned := make(chan struct{})
	go func() {
		x.attempts.Wait()
		close(returned)
	}()
	if _, back := await(x.Owner.Context(), x.host.StopTimeout, returned); !back {
		x.logger().Warn("weft: activity ignores cancellation; its goroutine is left running")
	}
}

// info returns what o's next attempt gets in its context.
func (x *Execution) info(o *operation) activity.Info {
	i := activity.Info{
		Phase:        activity.PhaseRun,
		WorkflowID:   x.ID,
		Workflow:     x.Definition.Name,
		Activity:     o.name,
		Operation:    o.id,
		Attempt:      o.attempt + o.ownersLost + 1,
		FencingToken: x.Hold.Head,
	}
	if k := o.keyed; k != nil {
		i.IdempotencyKey, i.Attempt, i.FencingToken = k.key, k.record.Attempt, k.record.Token
	}
	if o.undo != nil {
		i.Phase, i.Operation = activity.PhaseCompensate, o.undo.of.id
		if k := o.undo.of.keyed; k != nil {
			i.IdempotencyKey = k.key
		}
	}
	return i
}

// call calls o's function and always sets the answer. A panic and a Goexit are failures.
// A result that cannot be stored is a final failure, so that the effect is not repeated.
// Compensate has no result, and none is encoded: not every codec can encode nil.
func (x *Execution) call(ctx context.Context, o *operation, a *answer) {
	returned := false
	inner, told := x.host.tellCall(ctx, o)
	defer told.answered(ctx, a)
	defer func() {
		p := recover()
		if returned {
			return
		}
		a.failure = &payload.Failure{Message: errGoexit.Error()}
		if a.resultLost {
			a.failure.Message = "result: " + a.failure.Message
		}
		if p != nil {
			f := payload.FailureOf(payload.Panicked(p), string(debug.Stack()), nil)
			a.failure, a.panicked = &f, true
		}
	}()
	in, err := o.given()
	if cause := context.Cause(x.Ctx); cause != nil { // nothing is recorded any more, and another owner may have begun it
		err = cause
	}
	if err != nil {
		f := payload.FailureOf(err, "", []error{weft.ErrInvalid})
		a.failure, a.final, a.noEffect, returned = &f, true, true, true
		return
	}
	v, err := o.call.Run(inner, in)
	var u *noResult
	switch {
	case err != nil:
		if o.undo != nil && errors.As(err, &u) {
			a.unreadable = u.error
		}
		f := payload.FailureOf(err, "", slices.Concat(o.call.Policy.Errors, x.Definition.Errors))
		a.failure, a.final, a.noEffect = &f, activity.IsPermanent(err), activity.IsNoEffect(err)
	case o.undo == nil:
		a.final, a.resultLost = true, true // until it is encoded, which is user code
		if a.result, err = x.host.encode(v); err != nil {
			f := payload.FailureOf(fmt.Errorf("result: %w", err), "", nil)
			a.failure = &f
			break
		}
		if o.keyed != nil && o.call.Verify != nil {
			a.digest = plaintextDigest(a.result.Codec, v)
		}
		a.final, a.resultLost = false, false
	}
	returned = true
}

// encode encodes v within the engine's limits.
func (e *Env) encode(v any) (p payload.Payload, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = payload.Payload{}, fmt.Errorf("encode %T: %w", v, payload.Panicked(r))
		}
	}()
	if p, err = e.Codecs.Encode(e.Base, v); err != nil {
		return payload.Payload{}, err
	}
	if len(p.Data) > e.MaxPayload {
		return payload.Payload{}, fmt.Errorf("encode %T: %d bytes, at most %d", v, len(p.Data), e.MaxPayload)
	}
	return p, nil
}

func isCancelled(err error) (is bool) {
	defer func() { _ = recover() }() // a user's Is or Unwrap may panic
	return errors.Is(err, weft.ErrCancelled)
}

// An attempt is one call of the function of an activity or a step.
type attempt struct {
	number int
	cancel context.CancelCauseFunc
	told   bool // its answer was processed
}

// An answer is the result of an attempt.
type answer struct {
	attempt int
	at      time.Time // when the attempt returned or timed out
	result  payload.Payload
	failure *payload.Failure // nil: it succeeded
	final   bool             // no further attempt
	jitter  int64            // random number for the pause before the next attempt

	timedOut   bool
	panicked   bool
	noEffect   bool // the attempt reports that it had no effect
	resultLost bool // it succeeded, but its result cannot be stored

	digest []byte // of the result's plaintext, if it may be compared with a verifier's

	unreadable error // Compensate was not called, because the call's result cannot be decoded
}

// take makes c's input, as it is now, the input of o. If c has a key or is Idempotent, o is reconciled.
func (o *operation) take(r *Handle, c *activity.Call) {
	s, sum, err := o.x.host.snap(c.Input)
	if o.input = s; s != nil {
		c.Input = nil
	}
	switch {
	case c.Key != nil || c.Policy.Idempotent:
		o.keyed = r.reconciliation(c, o.id, bytes.Clone(sum[:]), err)
	case err == nil:
		o.digest = payload.Fingerprint(sum[:])
	}
}

// given returns o's input for its next user: a separate copy if the input can share memory. An error is final.
func (o *operation) given() (in any, err error) {
	s := o.input
	if s == nil {
		return o.call.Input, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decode %v: %w", s.Of, payload.Panicked(r))
		}
		if err != nil {
			err = fmt.Errorf("%w: input of %s: %w", weft.ErrInvalid, describe(o.kind.name, o.name), err)
		}
	}()
	if s.Err != nil {
		return nil, s.Err
	}
	if s.Copy != nil {
		return s.Copied(s.Value).Interface(), nil
	}
	v := reflect.New(s.Of)
	if err := o.x.host.Codecs.Decode(o.x.host.Base, s.Encoded, v.Interface()); err != nil {
		return nil, err
	}
	return v.Elem().Interface(), nil
}

// failed applies the event that an attempt failed. Another attempt is due at e.Due; if that
// is zero and o undoes a call, an operator decides.
func (o *operation) failed(e logged) {
	o.attempt, o.ownersLost, o.answer = e.Attempt, 0, nil
	o.failures, o.lastError = o.failures+1, e.Error
	o.due = journal.Time(e.Due)
	if o.undo != nil && e.Due == 0 {
		o.undo.held, o.undo.why = true, e.Error
		return
	}
	o.x.Ops.time(o)
}
