package reconcile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/saturate"
)

// Next decides what follows for a reconciled operation. It is a pure function of the
// definition, of what is recorded, and of what has happened since. Act on its decision
// only after the record that it returns is durable.
//
// The basic rule: an attempt that has started may have had its effect. Another may
// start only after a reliable source has said that it did not, or if a repetition does
// no harm.
func Next(p activity.Policy, r Record, h Happened) Decision {
	r = r.touched(h.Now)
	switch h.What {
	case Returned:
		return complete(r, h.Payload, "")
	case Erred:
		return erred(p, r, h)
	case Expired:
		r.Status, r.Error = StatusTimedOut, r.timeout()
		return doubt(p, r, h)
	case CameLate:
		if h.Failure == nil {
			r.Seen = fmt.Sprintf("attempt %d returned a result after its time was up", r.Attempt)
			if h.Lost != "" {
				r.Seen += ": " + h.Lost
			} else {
				r.SeenResult = h.observation()
			}
			if !r.Settled && r.ended() && r.Error.NoEffect && (p.Verified || !p.Idempotent) {
				return refuted(p, r)
			}
		}
		return Decision{Do: GoOn, Record: r}
	case Abandoned:
		r.Status, r.Settled = StatusCancelled, true
		return Decision{Do: Settle, Record: r, Why: "cancelled"}
	case Answered:
		return answered(p, r, h)
	case Found:
		return found(p, r, h)
	case Undecodable:
		r = r.withdrawn(h.Verdict.Reason)
		if h.UnderWay {
			return Decision{Do: GoOn, Record: r, Why: r.Withdrawn}
		}
		return Decision{Do: Attend, Record: r, Why: r.Withdrawn}
	}
	panic(fmt.Sprintf("activity: Next after %d", h.What))
}

// Happened is what has happened since a record was written.
type Happened struct {
	What What
	Now  time.Time

	// Waited is for how long the attempt is known to start nothing new: since its end,
	// or since the claim of the engine that found it. Of Answered: when the verifier
	// was called.
	Waited time.Duration

	Asked   int              // how often the verifier was called, since then
	Payload                  // of Returned, and of an answer that has a result
	Failure *Failure         // of Erred, and of CameLate
	Verdict activity.Verdict // of Answered, and of Undecodable: its Reason

	UnderWay bool // of Undecodable: the attempt is in progress, or its outcome is not recorded

	Began     time.Time // of Answered: when the verifier was called
	Overtaken bool      // of Answered: the attempt has returned since

	Random func(n int64) int64 // from 0 to before n
}

// A Payload is an encoded result. Lost says why there is none.
type Payload struct {
	Codec  string
	Data   []byte
	Lost   string
	Digest []byte // of the plaintext, if Codec is not JSON and the value has one
}

// mostObserved is how many bytes of a result an Observation has at most.
const mostObserved = 64 << 10

// observation returns p as a result that is kept beside the outcome.
func (p Payload) observation() *Observation {
	o := &Observation{Codec: p.Codec, Data: p.Data, Digest: p.Digest}
	if p.Codec == "" {
		sum := sha256.Sum256(p.Data)
		o.Digest = sum[:]
	}
	if len(o.Data) > mostObserved {
		o.Data = nil
	}
	return o
}

// is says that p is the result that was observed. Two codecs, and one that encrypts, encode
// equal values differently, so digests are compared. Without digests, results are taken to
// be equal only if their bytes are.
func (o *Observation) is(p Payload) bool {
	other := p.observation()
	if o.Digest != nil && other.Digest != nil {
		return bytes.Equal(o.Digest, other.Digest)
	}
	return o.Codec == other.Codec && o.Data != nil && bytes.Equal(o.Data, other.Data)
}

// What has happened.
type What uint8

const (
	_           What = iota
	Returned         // the attempt returned a result
	Erred            // the attempt returned an error, or panicked
	Expired          // the attempt has timed out
	CameLate         // an attempt that had timed out has returned after all
	Abandoned        // the workflow no longer waits for it
	Found            // the record was read: after a crash, a takeover, or a change by another process
	Answered         // the verifier answered
	Undecodable      // the result of an operator's answer cannot be decoded
)

// A Decision is what to do, once Record is durable, and after the time After.
type Decision struct {
	Do     Do
	After  time.Duration
	Record Record
	Why    string // for the history
}

// Do is what is to be done.
type Do uint8

const (
	_        Do = iota
	GoOn        // nothing new
	Dispatch    // the next attempt
	Verify      // call the verifier
	Settle      // the operation has its outcome: Record
	Attend      // an operator must decide
)

func (d Do) String() string {
	return [...]string{"none", "go on", "dispatch", "verify", "settle", "attend"}[d]
}

// Dispatched is the record with which the next attempt starts.
func (r Record) Dispatched(d Departure) Record {
	r = r.touched(d.At)
	if r.CreatedAt == 0 {
		r.CreatedAt = r.UpdatedAt
	}
	r.Status, r.Withdrawn, r.By = StatusIndeterminate, "", ""
	r.Attempt++
	r.Epoch, r.Token, r.Deadline = d.Epoch, d.Token, d.At.Add(d.Timeout).UnixMicro()
	r.Timeout, r.Settle, r.Waited = d.Timeout, d.Settle, 0
	return r
}

// A Departure is when an attempt starts, for which owner, and with which limits.
type Departure struct {
	At              time.Time
	Epoch, Token    uint64
	Timeout, Settle time.Duration
}

// Released is the record of an operation whose owner shuts down cleanly, having waited
// for this long.
func (r Record) Released(now time.Time, waited time.Duration) Record {
	r = r.touched(now)
	r.Waited = saturate.Add(r.Waited, waited)
	return r
}

// touched is r with a later time of its last change.
func (r Record) touched(now time.Time) Record {
	r.UpdatedAt = max(now.UnixMicro(), r.UpdatedAt+1)
	return r
}

// ended says that the last attempt is known to have returned, or to have been given up. A
// contradiction does not say that.
func (r *Record) ended() bool {
	return r.Error != nil && r.Error.Attempt == r.Attempt && r.Error.Category != activity.CategoryContradiction
}

// timeout is the failure of the last attempt, which timed out.
func (r *Record) timeout() *Failure {
	return &Failure{
		Category: activity.CategoryTimedOut,
		Message:  fmt.Sprintf("timed out after %v", r.Timeout),
		Sentinel: activity.ErrTimeout.Error(),
		Attempt:  r.Attempt,
	}
}

// undecided is the status of a record while the outcome of its last attempt is unknown.
func (r *Record) undecided() Status {
	if r.ended() && r.Error.Category == activity.CategoryTimedOut {
		return StatusTimedOut
	}
	return StatusIndeterminate
}

// erred handles an error of the attempt.
func erred(p activity.Policy, r Record, h Happened) Decision {
	f := *h.Failure
	f.Attempt = r.Attempt
	r.Error = &f
	if f.NoEffect {
		r.Status = StatusFailed
		return again(p, r, h, p.Retry.Pause(r.Attempt, h.Random), "")
	}
	r.Status = StatusIndeterminate
	return doubt(p, r, h)
}

// doubt decides what follows an attempt that may have had its effect.
func doubt(p activity.Policy, r Record, h Happened) Decision {
	var pause time.Duration
	if h.What != Found && !spent(p, r, h.Now) {
		pause = p.Retry.Pause(r.Attempt, h.Random)
	}
	switch {
	case p.Verified:
		return Decision{Do: Verify, After: pause, Record: r}
	case !p.Idempotent:
		return giveUp(p, r, "there is no verifier")
	case !spent(p, r, h.Now.Add(pause)):
		return Decision{Do: Dispatch, After: pause, Record: r, Why: "a repetition does no harm"}
	case r.ended():
		r.Settled = true
		return Decision{Do: Settle, Record: r}
	}
	return giveUp(p, r, "its process died, and there is no further attempt")
}

// again dispatches the next attempt, if there is one, after one that is known to
// have had no effect.
func again(p activity.Policy, r Record, h Happened, pause time.Duration, why string) Decision {
	if !spent(p, r, h.Now.Add(pause)) {
		return Decision{Do: Dispatch, After: pause, Record: r, Why: why}
	}
	if r.Status != StatusTimedOut {
		r.Status = StatusFailed
	}
	if !r.ended() {
		r.Error = &Failure{Category: activity.CategoryLost, Message: "its process died, and it did not complete", Attempt: r.Attempt}
	}
	r.Settled = true
	return Decision{Do: Settle, Record: r, Why: why}
}

// spent says that at a given time no further attempt is allowed.
func spent(p activity.Policy, r Record, at time.Time) bool {
	bound := p.Retry.Bound()
	late := p.TotalTimeout > 0 && r.CreatedAt > 0 && !at.Before(r.Begun().Add(p.TotalTimeout))
	return late || bound > 0 && r.Attempt-r.Spent >= bound || r.ended() && r.Error.Permanent
}

// Quiet is for how long an effect may still happen, counted from when the attempt is
// known to start nothing new. A not-completed from before that does not count.
func Quiet(p activity.Policy, r Record) time.Duration {
	var quiet time.Duration
	switch {
	case p.Idempotent || p.VerifyFences:
	case r.Status == StatusTimedOut:
		quiet = r.Settle
	case !r.ended():
		quiet = saturate.Add(r.Timeout, r.Settle)
	case p.SettleAfterError:
		quiet = r.Settle
	}
	return max(quiet-r.Waited, 0)
}

// found decides on a record that another owner left.
func found(p activity.Policy, r Record, h Happened) Decision {
	switch {
	case r.Settled:
		if r.HasResult {
			r.Error = nil // see Resolved
		}
		return Decision{Do: Settle, Record: r}
	case r.ended() && r.Error.NoEffect:
		return again(p, r, h, 0, "")
	}
	return doubt(p, r, h)
}

// answered decides on a verifier's answer.
func answered(p activity.Policy, r Record, h Happened) Decision {
	why := "verified: " + h.Verdict.State.String()
	switch h.Verdict.State {
	case activity.StateCompletedWithResult:
		if seen := r.other(h.Payload); seen != "" {
			if r.VerifiedResult == nil {
				r.VerifiedResult = h.observation()
			}
			return contradict(p, r, seen, "the verifier says that it completed, with another result")
		}
		return complete(r, h.Payload, why)
	case activity.StateCompletedResultUnavailable:
		return complete(r, Payload{Lost: "the verifier cannot tell the result"}, why)
	case activity.StateNotCompleted:
		if seen := r.evidence(); seen != "" {
			if h.Overtaken {
				return Decision{Do: Verify, Record: r}
			}
			return contradict(p, r, seen, "the verifier says that it did not complete")
		}
		if left := Quiet(p, r) - h.Waited; left > 0 {
			return Decision{Do: Verify, After: left, Record: r}
		}
		return again(p, r, h, 0, why)
	}
	if bound := p.VerifyRetry.Bound(); bound > 0 && h.Asked >= bound {
		return giveUp(p, r, h.Verdict.Reason)
	}
	return Decision{Do: Verify, After: p.VerifyRetry.Pause(h.Asked, h.Random), Record: r}
}

// Resolved is the record with an operator's answer, for its owner to find. It ignores
// earlier answers: an operator is asked because they were inconclusive. Beside a result,
// the failure of the attempt stays until the owner has accepted the result, and so does what
// was observed: if the owner withdraws the result, that is what is known.
func (r Record) Resolved(now time.Time, by string, v activity.Verdict, result Payload) Record {
	r = r.touched(now)
	r.Withdrawn, r.By = "", by
	switch v.State {
	case activity.StateCompletedWithResult:
		failure := r.Error
		r = complete(r, result, "").Record
		r.Error = failure
		return r
	}
	r.Seen, r.SeenResult, r.VerifiedResult = "", nil, nil
	switch v.State {
	case activity.StateCompletedResultUnavailable:
		return complete(r, Payload{Lost: "nobody can tell the result"}, "").Record
	}
	message := v.Reason
	if message == "" {
		message = "somebody found that it did not complete"
	}
	r.Status, r.Settled = StatusFailed, false
	r.Error = &Failure{Category: activity.CategoryResolved, Message: message, Attempt: r.Attempt, NoEffect: true, Permanent: v.State == activity.StateFailed}
	return r
}

// withdrawn is the record without the result of an operator, which was not accepted for
// this reason. The outcome of the attempt is unknown, as before.
func (r Record) withdrawn(why string) Record {
	if r.ended() && r.Error.Category == activity.CategoryResolved {
		r.Error = nil // it is an answer, which the one that is withdrawn has replaced
	}
	r.Status, r.Settled = r.undecided(), false
	r.HasResult, r.Result, r.Codec, r.By = false, nil, "", ""
	r.Withdrawn = why
	return r
}

// refuted rejects an operator's answer that the attempt did not complete: it has returned a result
// since. The attempt is known to have timed out, as before.
func refuted(p activity.Policy, r Record) Decision {
	r.Error = r.timeout()
	r = r.withdrawn(fmt.Sprintf("the answer by %s that it did not complete is rejected: %s", cmp.Or(r.By, "a person"), r.Seen))
	if p.Verified {
		return Decision{Do: GoOn, Record: r, Why: r.Withdrawn}
	}
	return giveUp(p, r, "there is no verifier")
}

// Unanswered is the record without the answer of an operator.
func (r Record) Unanswered() Record { return r.withdrawn("") }

// complete settles an operation whose effect has happened.
func complete(r Record, result Payload, why string) Decision {
	r.Status, r.Settled = StatusCompleted, true
	if result.Lost != "" {
		r.Error = &Failure{Category: activity.CategoryResultUnavailable, Message: result.Lost, Attempt: r.Attempt}
		return Decision{Do: Settle, Record: r, Why: why}
	}
	r.HasResult, r.Result, r.Codec, r.Error = true, result.Data, result.Codec, nil
	return Decision{Do: Settle, Record: r, Why: why}
}

// Reopened is the record of an operation without success, in a run that failed and is
// retried, for the nth time: all its attempts and its time are available again. What is
// unknown stays unknown. An operator is present now, and decides what cannot be
// determined otherwise.
func (r Record) Reopened(n int, at int64) Record {
	if !r.Settled || r.Status == StatusCompleted || r.Retry >= n {
		return r
	}
	r.Settled, r.Retry, r.RetriedAt, r.Spent = false, n, at, r.Attempt
	if r.Status == StatusCancelled {
		r.Status = r.undecided()
	}
	if r.Error == nil {
		return r
	}
	f := *r.Error
	f.Permanent = false
	r.Error = &f
	switch f.Category {
	case activity.CategoryIndeterminate:
		r.Error = nil // it says nothing of the attempt
		if r.Status == StatusTimedOut {
			r.Error = r.timeout()
		}
	}
	return r
}

// Uncancelled is the record of an operation that a reset of its run has begun again, if it had been
// cancelled: what is known of its last attempt stays, and decides what follows.
func (r Record) Uncancelled() Record {
	if !r.Settled || r.Status != StatusCancelled {
		return r
	}
	r.Settled, r.Status = false, r.undecided()
	return r
}

// evidence says why the effect probably happened, or is empty.
func (r *Record) evidence() string {
	seen := cmp.Or(r.Seen, r.Withdrawn)
	if r.VerifiedResult == nil {
		return seen
	}
	return strings.TrimPrefix(seen+"; the verifier had said that it completed, with another result", "; ")
}

// other says which observation has another result than p, or is empty.
func (r *Record) other(p Payload) string {
	switch {
	case p.Lost != "":
	case r.SeenResult != nil && !r.SeenResult.is(p):
		return r.Seen
	case r.VerifiedResult != nil && !r.VerifiedResult.is(p):
		return "the verifier had said that it completed"
	}
	return ""
}

// contradict gives up when two sources contradict each other. The record has both
// observations, also while it waits for an operator.
func contradict(p activity.Policy, r Record, first, second string) Decision {
	r.Status, r.Settled = StatusIndeterminate, !r.attended()
	r.Error = &Failure{Category: activity.CategoryContradiction, Message: first, Other: second, Attempt: r.Attempt}
	if !r.Settled {
		return Decision{Do: Attend, Record: r, Why: first + "; " + second}
	}
	return Decision{Do: Settle, Record: r}
}

// giveUp handles an outcome that cannot be determined: it ends the operation, or leaves
// it to an operator. In the latter case the record stays open: the next owner calls the
// verifier again. An attempt that timed out stays recorded as that: nothing more specific
// is known.
func giveUp(p activity.Policy, r Record, reason string) Decision {
	if r.Error != nil {
		reason += fmt.Sprintf("; attempt %d: %s", r.Error.Attempt, r.Error.Message)
		if r.Error.Other != "" {
			reason += "; " + r.Error.Other
		}
	}
	if r.Withdrawn != "" {
		reason += "; " + r.Withdrawn
	}
	if p.OnIndeterminate == activity.AwaitOperator || r.attended() {
		return Decision{Do: Attend, Record: r, Why: reason}
	}
	r.Settled = true
	if r.Status != StatusTimedOut {
		r.Status = StatusIndeterminate
	}
	r.Error = &Failure{Category: activity.CategoryIndeterminate, Message: reason, Attempt: r.Attempt}
	return Decision{Do: Settle, Record: r}
}

// attended says that an operator is present: one has retried the run, or has given an
// answer that was not accepted.
func (r *Record) attended() bool { return r.Retry > 0 || r.Withdrawn != "" }

// Outcome is the failure of a settled operation, nil if it has a result. An effect
// without a result is not a success.
func (r *Record) Outcome() *Failure {
	switch {
	case r.Status == StatusCompleted && r.HasResult:
		return nil
	case r.Error != nil:
		return r.Error
	case r.Status == StatusCompleted:
		return &Failure{Category: activity.CategoryResultUnavailable, Message: "there is no result in the record", Attempt: r.Attempt}
	}
	return &Failure{Category: activity.CategoryIndeterminate, Message: "the record has no reason", Attempt: r.Attempt}
}
