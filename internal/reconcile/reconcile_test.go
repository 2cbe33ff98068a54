package reconcile

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-go/weft/activity"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func most(n int64) int64 { return n - 1 }

// left is the record with which attempt n started, a minute before noon.
func left(n int) Record {
	r := Record{Generation: "G", WorkflowID: "o", Activity: "charge", Operation: "1", IdempotencyKey: "k"}
	for i := range n {
		r = r.Dispatched(Departure{At: noon.Add(time.Duration(i-n) * time.Minute), Epoch: 7, Token: uint64(8 + i), Timeout: 30 * time.Second, Settle: 10 * time.Second})
	}
	return r
}

// after is left with what Next made of an event.
func after(n int, p activity.Policy, h Happened) Record {
	h.Now, h.Random = noon.Add(-time.Second), most
	return Next(p, left(n), h).Record
}

var (
	busy     = &Failure{Message: "busy", Sentinel: "busy"}
	declined = &Failure{Message: "declined", Permanent: true}
	refused  = &Failure{Message: "refused", NoEffect: true}
	invalid  = &Failure{Message: "invalid", NoEffect: true, Permanent: true}

	verified   = activity.Policy{Name: "charge", Verified: true, Retry: activity.Retry{MaxAttempts: 3}, VerifyRetry: activity.Retry{MaxAttempts: 2}}
	idempotent = activity.Policy{Name: "charge", Idempotent: true, Retry: activity.Retry{MaxAttempts: 3}}
	neither    = activity.Policy{Name: "charge", Retry: activity.Retry{MaxAttempts: 3}}
)

func with(p activity.Policy, change func(*activity.Policy)) activity.Policy { change(&p); return p }

func answer(s activity.State, waited time.Duration) Happened {
	h := Happened{What: Answered, Waited: waited, Asked: 1, Verdict: activity.Verdict{State: s, Reason: "pending"}}
	if s == activity.StateCompletedWithResult {
		h.Data = []byte("5")
	}
	return h
}

const long = time.Hour // past every Settle

// Every row of the table of decisions, ACT-31 to ACT-51 where a row is one of them, and what
// is recorded then: ACT-17 to ACT-24.
func TestNext(t *testing.T) {
	park := func(p *activity.Policy) { p.OnIndeterminate = activity.AwaitOperator }
	late := after(1, verified, Happened{What: Expired})
	late.Seen = "attempt 1 returned a result after its time was up"
	completed := left(1).Resolved(noon.Add(-2*time.Second), "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5"), Codec: "cbor"})
	answeredLate := after(1, with(neither, park), Happened{What: Expired}).Resolved(noon, "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5"), Codec: "cbor"})
	misfit := Happened{What: Undecodable, Now: noon.Add(-time.Second), Verdict: activity.Verdict{Reason: "of another type"}}
	withdrawn := Next(neither, completed, misfit).Record
	for _, c := range []struct {
		name     string
		p        activity.Policy
		r        Record
		h        Happened
		do       Do
		after    time.Duration
		status   Status
		settled  bool
		category activity.Category
		message  string
	}{
		// ACT-36
		{"it returns", verified, left(1), Happened{What: Returned, Payload: Payload{Data: []byte("5")}}, Settle, 0, StatusCompleted, true, "", ""},
		{"it returns after a failure", verified, left(2), Happened{What: Returned, Payload: Payload{Data: []byte("5")}}, Settle, 0, StatusCompleted, true, "", ""},
		// AC8: the effect is not repeated if its result cannot be stored. ACT-24
		{"its result is too large", verified, left(1), Happened{What: Returned, Payload: Payload{Lost: "too large"}}, Settle, 0, StatusCompleted, true, activity.CategoryResultUnavailable, "too large"},

		// ACT-37
		{"it fails before the effect", verified, left(1), Happened{What: Erred, Failure: refused}, Dispatch, time.Second, StatusFailed, false, "", "refused"},
		{"it fails before the effect, without a verifier", neither, left(1), Happened{What: Erred, Failure: refused}, Dispatch, time.Second, StatusFailed, false, "", "refused"},
		{"it fails before the effect, for good", verified, left(1), Happened{What: Erred, Failure: invalid}, Settle, 0, StatusFailed, true, "", "invalid"},
		// ACT-46, ACT-47
		{"it fails before the effect, the last time", verified, left(3), Happened{What: Erred, Failure: refused}, Settle, 0, StatusFailed, true, "", "refused"},

		// ACT-38, ACT-39, ACT-44, ACT-45
		{"it fails", verified, left(1), Happened{What: Erred, Failure: busy}, Verify, time.Second, StatusIndeterminate, false, "", "busy"},
		{"it fails again", verified, left(2), Happened{What: Erred, Failure: busy}, Verify, 2 * time.Second, StatusIndeterminate, false, "", "busy"},
		{"it fails the last time", verified, left(3), Happened{What: Erred, Failure: busy}, Verify, 0, StatusIndeterminate, false, "", "busy"},
		{"it fails for good", verified, left(1), Happened{What: Erred, Failure: declined}, Verify, 0, StatusIndeterminate, false, "", "declined"},
		{"it fails, and a repetition does no harm", idempotent, left(1), Happened{What: Erred, Failure: busy}, Dispatch, time.Second, StatusIndeterminate, false, "", "busy"},
		{"it fails the last time, and a repetition would do no harm", idempotent, left(3), Happened{What: Erred, Failure: busy}, Settle, 0, StatusIndeterminate, true, "", "busy"},
		{"it fails for good, and a repetition would do no harm", idempotent, left(1), Happened{What: Erred, Failure: declined}, Settle, 0, StatusIndeterminate, true, "", "declined"},
		{"it fails, and nobody can tell", neither, left(1), Happened{What: Erred, Failure: busy}, Settle, 0, StatusIndeterminate, true, activity.CategoryIndeterminate, "there is no verifier; attempt 1: busy"},
		{"it fails, and a person is to tell", with(neither, park), left(1), Happened{What: Erred, Failure: busy}, Attend, 0, StatusIndeterminate, false, "", "busy"},

		// ACT-40, ACT-41
		{"it is cancelled", verified, left(1), Happened{What: Abandoned}, Settle, 0, StatusCancelled, true, "", ""},
		{"it is cancelled between attempts", verified, after(1, verified, Happened{What: Erred, Failure: busy}), Happened{What: Abandoned}, Settle, 0, StatusCancelled, true, "", "busy"},

		// ACT-42, ACT-43
		{"its time is up", verified, left(1), Happened{What: Expired}, Verify, time.Second, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"its time is up, and a repetition does no harm", idempotent, left(1), Happened{What: Expired}, Dispatch, time.Second, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"its time is up, and nobody can tell", neither, left(1), Happened{What: Expired}, Settle, 0, StatusTimedOut, true, activity.CategoryIndeterminate, "there is no verifier; attempt 1: timed out after 30s"},
		{"its time is up the last time, and a repetition would do no harm", idempotent, left(3), Happened{What: Expired}, Settle, 0, StatusTimedOut, true, activity.CategoryTimedOut, "timed out after 30s"},
		{"its time is up, and a person is to tell", with(neither, park), left(1), Happened{What: Expired}, Attend, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"it comes back late", verified, after(1, verified, Happened{What: Expired}), Happened{What: CameLate}, GoOn, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"it comes back late with an error", verified, after(1, verified, Happened{What: Expired}), Happened{What: CameLate, Failure: refused}, GoOn, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},

		// Found after a crash or a takeover. ACT-50
		{"found under way", verified, left(1), Happened{What: Found}, Verify, 0, StatusIndeterminate, false, "", ""},
		{"found under way for the last time", verified, left(3), Happened{What: Found}, Verify, 0, StatusIndeterminate, false, "", ""},
		{"found under way, and a repetition does no harm", idempotent, left(1), Happened{What: Found}, Dispatch, 0, StatusIndeterminate, false, "", ""},
		{"found under way for the last time, and a repetition would do no harm", idempotent, left(3), Happened{What: Found}, Settle, 0, StatusIndeterminate, true, activity.CategoryIndeterminate, "its process died, and there is no further attempt"},
		{"found under way, and nobody can tell", neither, left(1), Happened{What: Found}, Settle, 0, StatusIndeterminate, true, activity.CategoryIndeterminate, "there is no verifier"},
		{"found under way, and a person is to tell", with(neither, park), left(1), Happened{What: Found}, Attend, 0, StatusIndeterminate, false, "", ""},
		{"found failed, effect possible", verified, after(1, verified, Happened{What: Erred, Failure: busy}), Happened{What: Found}, Verify, 0, StatusIndeterminate, false, "", "busy"},
		{"found failed before the effect", verified, after(1, verified, Happened{What: Erred, Failure: refused}), Happened{What: Found}, Dispatch, 0, StatusFailed, false, "", "refused"},
		{"found timed out", verified, after(1, verified, Happened{What: Expired}), Happened{What: Found}, Verify, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"found completed", verified, after(1, verified, Happened{What: Returned, Payload: Payload{Data: []byte("5")}}), Happened{What: Found}, Settle, 0, StatusCompleted, true, "", ""},
		{"found failed for good", verified, after(1, verified, Happened{What: Erred, Failure: invalid}), Happened{What: Found}, Settle, 0, StatusFailed, true, "", "invalid"},

		// The verifier's four answers. ACT-31 to ACT-35
		{"not completed", verified, left(1), answer(activity.StateNotCompleted, long), Dispatch, 0, StatusIndeterminate, false, "", ""},
		{"not completed, with a failure", verified, after(1, verified, Happened{What: Erred, Failure: busy}), answer(activity.StateNotCompleted, 0), Dispatch, 0, StatusIndeterminate, false, "", "busy"},
		{"not completed, of the last attempt", verified, after(3, verified, Happened{What: Erred, Failure: busy}), answer(activity.StateNotCompleted, 0), Settle, 0, StatusFailed, true, "", "busy"},
		{"not completed, of one that failed for good", verified, after(1, verified, Happened{What: Erred, Failure: declined}), answer(activity.StateNotCompleted, 0), Settle, 0, StatusFailed, true, "", "declined"},
		{"not completed, of the last that timed out", verified, after(3, verified, Happened{What: Expired}), answer(activity.StateNotCompleted, long), Settle, 0, StatusTimedOut, true, activity.CategoryTimedOut, "timed out after 30s"},
		{"not completed, of the last that was lost", verified, left(3), answer(activity.StateNotCompleted, long), Settle, 0, StatusFailed, true, activity.CategoryLost, "its process died, and it did not complete"},
		{"completed with a result", verified, left(1), answer(activity.StateCompletedWithResult, 0), Settle, 0, StatusCompleted, true, "", ""},
		{"completed with a result, of the last that failed", verified, after(3, verified, Happened{What: Erred, Failure: declined}), answer(activity.StateCompletedWithResult, 0), Settle, 0, StatusCompleted, true, "", ""},
		{"completed, result unavailable", verified, left(1), answer(activity.StateCompletedResultUnavailable, 0), Settle, 0, StatusCompleted, true, activity.CategoryResultUnavailable, "the verifier cannot tell the result"},
		{"completed, with a result that cannot be kept", verified, left(1), Happened{What: Answered, Asked: 1, Verdict: activity.Verdict{State: activity.StateCompletedWithResult}, Payload: Payload{Lost: "too large"}}, Settle, 0, StatusCompleted, true, activity.CategoryResultUnavailable, "too large"},
		{"indeterminate", verified, left(1), answer(activity.StateIndeterminate, 0), Verify, time.Second, StatusIndeterminate, false, "", ""},
		{"indeterminate, as often as it may be asked", with(verified, func(p *activity.Policy) { p.VerifyRetry.MaxAttempts = 1 }), left(1), answer(activity.StateIndeterminate, 0), Settle, 0, StatusIndeterminate, true, activity.CategoryIndeterminate, "pending"},
		{"indeterminate, of one that timed out", with(verified, func(p *activity.Policy) { p.VerifyRetry.MaxAttempts = 1 }), after(1, verified, Happened{What: Expired}), answer(activity.StateIndeterminate, 0), Settle, 0, StatusTimedOut, true, activity.CategoryIndeterminate, "pending; attempt 1: timed out after 30s"},
		{"completed with a result, of one that timed out", verified, after(1, verified, Happened{What: Expired}), answer(activity.StateCompletedWithResult, 0), Settle, 0, StatusCompleted, true, "", ""},
		{"completed, result unavailable, of one that timed out", verified, after(1, verified, Happened{What: Expired}), answer(activity.StateCompletedResultUnavailable, 0), Settle, 0, StatusCompleted, true, activity.CategoryResultUnavailable, "the verifier cannot tell the result"},
		{"not completed, of one that timed out", verified, after(1, verified, Happened{What: Expired}), answer(activity.StateNotCompleted, long), Dispatch, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"indeterminate, asked without end", with(verified, func(p *activity.Policy) { p.VerifyRetry.MaxAttempts = -1 }), left(1), Happened{What: Answered, Asked: 50, Verdict: activity.Verdict{State: activity.StateIndeterminate}}, Verify, time.Minute, StatusIndeterminate, false, "", ""},
		{"indeterminate, and a person is to tell", with(with(verified, park), func(p *activity.Policy) { p.VerifyRetry.MaxAttempts = 1 }), left(1), answer(activity.StateIndeterminate, 0), Attend, 0, StatusIndeterminate, false, "", ""},

		// Interleaving 7: a dead sender's request may still take effect.
		{"not completed, asked too early", verified, left(1), answer(activity.StateNotCompleted, 15*time.Second), Verify, 25 * time.Second, StatusIndeterminate, false, "", ""},
		{"not completed, asked when it cannot land any more", verified, left(1), answer(activity.StateNotCompleted, 40*time.Second), Dispatch, 0, StatusIndeterminate, false, "", ""},
		{"not completed, asked too early of the last", verified, left(3), answer(activity.StateNotCompleted, 0), Verify, 40 * time.Second, StatusIndeterminate, false, "", ""},
		{"not completed, a moment after its time was up", verified, after(1, verified, Happened{What: Expired}), answer(activity.StateNotCompleted, 0), Verify, 10 * time.Second, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"not completed, and the verifier has fenced it off", with(verified, func(p *activity.Policy) { p.VerifyFences = true }), left(1), answer(activity.StateNotCompleted, 0), Dispatch, 0, StatusIndeterminate, false, "", ""},
		{"not completed, and a repetition does no harm", with(verified, func(p *activity.Policy) { p.Idempotent = true }), left(1), answer(activity.StateNotCompleted, 0), Dispatch, 0, StatusIndeterminate, false, "", ""},
		{"not completed after an error that is to settle", with(verified, func(p *activity.Policy) { p.SettleAfterError = true }), after(1, verified, Happened{What: Erred, Failure: busy}), answer(activity.StateNotCompleted, 0), Verify, 10 * time.Second, StatusIndeterminate, false, "", "busy"},
		{"completed, asked early", verified, left(1), answer(activity.StateCompletedWithResult, 0), Settle, 0, StatusCompleted, true, "", ""},
		// Interleaving 29: the wait of an owner that shut down cleanly counts.
		{"not completed, the rest waited by another", verified, left(1).Released(noon, 30*time.Second), answer(activity.StateNotCompleted, 10*time.Second), Dispatch, 0, StatusIndeterminate, false, "", ""},

		// ACT-49
		{"not completed, of one that was seen to complete", verified, late, answer(activity.StateNotCompleted, long), Settle, 0, StatusIndeterminate, true, activity.CategoryContradiction, "attempt 1 returned a result after its time was up"},
		{"not completed, of one that was seen to complete since", verified, late, Happened{What: Answered, Overtaken: true, Verdict: activity.Verdict{State: activity.StateNotCompleted}}, Verify, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"completed, of one that was seen to complete", verified, late, answer(activity.StateCompletedWithResult, 0), Settle, 0, StatusCompleted, true, "", ""},

		// The operator's answers.
		{"a person: completed", neither, left(1).Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5")}), Happened{What: Found}, Settle, 0, StatusCompleted, true, "", ""},
		{"a person: result unavailable", neither, left(1).Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateCompletedResultUnavailable}, Payload{}), Happened{What: Found}, Settle, 0, StatusCompleted, true, activity.CategoryResultUnavailable, "nobody can tell the result"},
		{"a person: not completed", neither, left(1).Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateNotCompleted}, Payload{}), Happened{What: Found}, Dispatch, 0, StatusFailed, false, activity.CategoryResolved, "somebody found that it did not complete"},
		{"a person: not completed, of the last", neither, left(3).Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateNotCompleted}, Payload{}), Happened{What: Found}, Settle, 0, StatusFailed, true, activity.CategoryResolved, "somebody found that it did not complete"},
		{"a person: failed", neither, left(1).Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateFailed, Reason: "the bank says no"}, Payload{}), Happened{What: Found}, Settle, 0, StatusFailed, true, activity.CategoryResolved, "the bank says no"},
		{"a person: not completed, though it was seen to", verified, late.Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateNotCompleted}, Payload{}), Happened{What: Found}, Dispatch, 0, StatusFailed, false, activity.CategoryResolved, "somebody found that it did not complete"},
		{"a person: completed, with a result that cannot be decoded", neither, completed, misfit, Attend, 0, StatusIndeterminate, false, "", ""},
		{"a person: the same, while the attempt is under way", neither, completed, Happened{What: Undecodable, UnderWay: true, Verdict: misfit.Verdict}, GoOn, 0, StatusIndeterminate, false, "", ""},
		{"a person: completed, of one that timed out", neither, answeredLate, Happened{What: Found}, Settle, 0, StatusCompleted, true, "", ""},
		{"a person: the same, with a result that cannot be decoded", neither, answeredLate, misfit, Attend, 0, StatusTimedOut, false, activity.CategoryTimedOut, "timed out after 30s"},
		{"withdrawn, and it returns", neither, withdrawn, Happened{What: Returned, Payload: Payload{Data: []byte("5")}}, Settle, 0, StatusCompleted, true, "", ""},
		{"withdrawn, and it fails", neither, withdrawn, Happened{What: Erred, Failure: busy}, Attend, 0, StatusIndeterminate, false, "", "busy"},
		{"withdrawn, found after a crash", neither, withdrawn, Happened{What: Found}, Attend, 0, StatusIndeterminate, false, "", ""},
		{"withdrawn, found after a crash, with a verifier", verified, withdrawn, Happened{What: Found}, Verify, 0, StatusIndeterminate, false, "", ""},
		{"withdrawn, and the verifier says not completed", verified, withdrawn, answer(activity.StateNotCompleted, long), Attend, 0, StatusIndeterminate, false, activity.CategoryContradiction, "of another type"},
		{"withdrawn, and the verifier says completed", verified, withdrawn, answer(activity.StateCompletedWithResult, 0), Settle, 0, StatusCompleted, true, "", ""},
		{"withdrawn, and the person answers again", neither, withdrawn.Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5")}), Happened{What: Found}, Settle, 0, StatusCompleted, true, "", ""},
		{"withdrawn, and the person says not completed", neither, withdrawn.Resolved(noon.Add(-time.Second), "ann", activity.Verdict{State: activity.StateNotCompleted}, Payload{}), Happened{What: Found}, Dispatch, 0, StatusFailed, false, activity.CategoryResolved, "somebody found that it did not complete"},

		// TotalTimeout bounds all attempts and pauses.
		{"it fails before the effect, with no time for another", with(verified, func(p *activity.Policy) { p.TotalTimeout = time.Minute }), left(1), Happened{What: Erred, Failure: refused}, Settle, 0, StatusFailed, true, "", "refused"},
		{"not completed, with no time for another", with(verified, func(p *activity.Policy) { p.TotalTimeout = time.Minute }), left(1), answer(activity.StateNotCompleted, long), Settle, 0, StatusFailed, true, activity.CategoryLost, "its process died, and it did not complete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.h.Now, c.h.Random = noon, most
			before := c.r
			d := Next(c.p, c.r, c.h)
			got := d.Record
			var f Failure
			if got.Error != nil {
				f = *got.Error
			}
			if d.Do != c.do || d.After.Round(time.Millisecond) != c.after || got.Status != c.status || got.Settled != c.settled || f.Category != c.category || f.Message != c.message {
				t.Errorf("got %v after %v, %s, settled %v, %q %q\nwant %v after %v, %s, settled %v, %q %q", d.Do, d.After, got.Status, got.Settled, f.Category, f.Message,
					c.do, c.after, c.status, c.settled, c.category, c.message)
			}
			if success := got.Status == StatusCompleted && c.category == ""; success && !got.HasResult || got.HasResult && string(got.Result) != "5" { // ACT-18, ACT-33, ACT-36
				t.Errorf("%s with the result %q (%v), want 5", got.Status, got.Result, got.HasResult)
			}
			if diff := cmp.Diff(c.r, before, cmpopts.IgnoreUnexported(Record{})); diff != "" {
				t.Errorf("Next changed its argument: %s", diff)
			}
			checkDecision(t, c.r, d)
		})
	}
}

// checkDecision checks the invariants of every decision.
func checkDecision(t interface{ Errorf(string, ...any) }, before Record, d Decision) {
	r := d.Record
	if r.CreatedAt != before.CreatedAt || r.UpdatedAt <= before.UpdatedAt || r.UpdatedAt < r.CreatedAt { // ACT-20, ACT-21, ACT-22
		t.Errorf("created %d, updated %d; before that %d and %d", r.CreatedAt, r.UpdatedAt, before.CreatedAt, before.UpdatedAt)
	}
	if (r.HasResult || len(r.Result) > 0) && r.Status != StatusCompleted { // ACT-18, ACT-23, ACT-41
		t.Errorf("a result of a record that is %s", r.Status)
	}
	if success := r.Settled && r.Status == StatusCompleted && r.HasResult; r.Settled && success != (r.Outcome() == nil) && r.Status != StatusCancelled { // ACT-24
		t.Errorf("outcome %+v of %+v", r.Outcome(), r)
	}
	if r.Settled != (d.Do == Settle) {
		t.Errorf("%v, and settled is %v", d.Do, r.Settled)
	}
	if d.After < 0 {
		t.Errorf("after %v", d.After)
	}
	switch r.Status { // ACT-17
	case StatusCompleted, StatusFailed, StatusCancelled, StatusTimedOut, StatusIndeterminate:
	default:
		t.Errorf("status %q", r.Status)
	}
	if r.Attempt != before.Attempt || r.Token != before.Token {
		t.Errorf("attempt %d with token %d, before that %d with %d: only Dispatched counts", r.Attempt, r.Token, before.Attempt, before.Token)
	}
}

// ACT-48: an unavailable verifier is indeterminate, whatever state it is called in, and
// its answers never make a success or another attempt.
func TestNoAnswerMakesNoSuccess(t *testing.T) {
	for n := range 4 {
		for _, r := range []Record{left(n + 1), after(n+1, verified, Happened{What: Erred, Failure: busy}), after(n+1, verified, Happened{What: Expired})} {
			for asked := 1; asked <= 3; asked++ {
				d := Next(verified, r, Happened{What: Answered, Now: noon, Asked: asked, Waited: long, Random: most, Verdict: unsure("gone")})
				if d.Do == Dispatch || d.Record.Outcome() == nil && d.Do == Settle {
					t.Errorf("%+v, asked %d times: %v %+v", r, asked, d.Do, d.Record)
				}
			}
		}
	}
}

// ACT-17, ACT-20, ACT-21, ACT-22, ACT-46, interleaving 30: what is counted and recorded when
// an attempt starts.
func TestDispatched(t *testing.T) {
	r := left(1)
	if r.Attempt != 1 || r.Token != 8 || r.Epoch != 7 || r.CreatedAt != noon.Add(-time.Minute).UnixMicro() || r.CreatedAt != r.UpdatedAt || r.Deadline != r.UpdatedAt+30_000_000 || r.Status != StatusIndeterminate {
		t.Errorf("the first: %+v", r)
	}
	failed := after(1, verified, Happened{What: Erred, Failure: busy}).Released(noon, time.Second)
	next := failed.Dispatched(Departure{At: noon, Epoch: 7, Token: 12, Timeout: time.Minute, Settle: time.Hour})
	if next.Attempt != 2 || next.Token != 12 || next.CreatedAt != r.CreatedAt || next.UpdatedAt <= r.UpdatedAt || next.Waited != 0 ||
		next.Settle != time.Hour || next.Error == nil || next.Error.Message != "busy" { // ACT-44
		t.Errorf("the second: %+v", next)
	}
	if q := Quiet(verified, next); q != time.Minute+time.Hour {
		t.Errorf("a failure of attempt 1 is taken for one of attempt 2: it is quiet after %v", q)
	}
	back := r.Dispatched(Departure{At: time.Unix(0, 0), Timeout: time.Second})
	if back.UpdatedAt <= r.UpdatedAt {
		t.Errorf("a clock that goes back takes the record along: %d, before that %d", back.UpdatedAt, r.UpdatedAt)
	}
}

// ACT-32 to ACT-51 in any order. Whatever happens, an attempt starts only after the one
// before is known to have had no effect, or where a repetition does no harm. The number
// of attempts is limited, even if each of them ends in a crash. A success comes from an
// attempt, the verifier or an operator, and nothing follows an outcome.
func TestAnythingMayHappen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := activity.Policy{
			Retry:            activity.Retry{MaxAttempts: rapid.IntRange(1, 4).Draw(t, "attempts")},
			VerifyRetry:      activity.Retry{MaxAttempts: rapid.IntRange(1, 3).Draw(t, "asks")},
			Verified:         rapid.Bool().Draw(t, "verified"),
			Idempotent:       rapid.Bool().Draw(t, "idempotent"),
			VerifyFences:     rapid.Bool().Draw(t, "fences"),
			SettleAfterError: rapid.Bool().Draw(t, "settle after error"),
			OnIndeterminate:  activity.Action(rapid.IntRange(0, 1).Draw(t, "action")),
		}
		r := left(1)
		d := Decision{Do: GoOn}
		now, token := noon, uint64(100)
		flying := true // an attempt has started and its outcome is unknown
		retries := 0   // of the run, after it had failed
		for range 40 {
			var may []Happened
			if flying {
				may = append(may, Happened{What: Returned, Payload: Payload{Data: []byte("5")}}, Happened{What: Expired},
					Happened{What: Erred, Failure: busy}, Happened{What: Erred, Failure: refused}, Happened{What: Erred, Failure: declined})
			}
			may = append(may, Happened{What: Found})
			if d.Do == Verify {
				for s := activity.StateNotCompleted; s <= activity.StateIndeterminate; s++ {
					may = append(may, answer(s, 0), answer(s, long))
				}
			}
			resolve := d.Do == Attend && rapid.Bool().Draw(t, "resolved")
			if resolve {
				r = r.Resolved(now, "ann", activity.Verdict{State: activity.StateNotCompleted}, Payload{})
				may = []Happened{{What: Found}}
			} else if rapid.IntRange(0, 9).Draw(t, "misfit") == 0 {
				r = r.Resolved(now, "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5")})
				may = []Happened{{What: Undecodable, UnderWay: flying, Verdict: activity.Verdict{Reason: "of another type"}}}
			}
			if r.Status == StatusTimedOut {
				may = append(may, Happened{What: CameLate})
			}
			h := rapid.SampledFrom(may).Draw(t, "happens")
			now = now.Add(time.Second)
			h.Now, h.Random = now, most
			was := d.Do
			next := Next(p, r, h)
			checkDecision(t, r, next)
			if next.Do != GoOn {
				d = next
			}
			r, flying = next.Record, false
			switch next.Do {
			case Settle:
				if r.Outcome() == nil && h.What != Returned && h.Verdict.State != activity.StateCompletedWithResult {
					t.Fatalf("a success after %+v", h)
				}
				if again := Next(p, r, Happened{What: Found, Now: now, Random: most}); again.Do != Settle || again.Record.Status != r.Status {
					t.Fatalf("settled, and then %v", again.Do)
				}
				if retries++; retries > 2 || !rapid.Bool().Draw(t, "retried") {
					return
				}
				if r = r.Reopened(retries, now.UnixMicro()); r.Settled != (r.Status == StatusCompleted) {
					t.Fatalf("a retry has %s settled: %v", r.Status, r.Settled)
				}
				if r.Settled {
					return
				}
				d = Decision{Do: GoOn}
			case Dispatch:
				known := h.Verdict.State == activity.StateNotCompleted || r.Error != nil && r.Error.NoEffect && r.Error.Attempt == r.Attempt
				if !known && !(p.Idempotent && !p.Verified) {
					t.Fatalf("an attempt leaves on %+v", h)
				}
				if h.What == Answered && h.Waited == 0 && Quiet(p, Next(p, r, Happened{What: Found, Now: now, Random: most}).Record) > 0 {
					t.Fatalf("an attempt leaves while another may land: %+v", r)
				}
				if r.Attempt >= p.Retry.MaxAttempts*(retries+1) {
					t.Fatalf("attempt %d leaves, of %d, after %d retries", r.Attempt+1, p.Retry.MaxAttempts, retries)
				}
				token++
				r = r.Dispatched(Departure{At: now, Token: token, Timeout: time.Second, Settle: time.Second})
				flying = true
			case GoOn:
				if flying = h.What == Undecodable; was == Dispatch && !flying {
					t.Fatal("went on to nothing")
				}
			}
		}
	})
}

// If an operator's result is withdrawn, only the reason remains. The operator sees it
// until there is another attempt or another answer.
func TestWithdrawn(t *testing.T) {
	was := left(1)
	answered := was.Resolved(noon, "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5"), Codec: "cbor"})
	d := Next(neither, answered, Happened{What: Undecodable, Now: noon, Verdict: activity.Verdict{Reason: "of another type"}})
	r := d.Record
	if d.Why != "of another type" || r.Withdrawn != d.Why {
		t.Errorf("withdrawn because %q, recorded as %q", d.Why, r.Withdrawn)
	}
	if diff := cmp.Diff(was, r, cmpopts.IgnoreUnexported(Record{}), cmpopts.IgnoreFields(Record{}, "UpdatedAt", "Withdrawn")); diff != "" {
		t.Errorf("it is not as it was: %s", diff)
	}
	if d := Next(neither, r, Happened{What: Found, Now: noon}); d.Why != "there is no verifier; of another type" {
		t.Errorf("whoever finds it asks a person because %q", d.Why)
	}
	if d := Next(verified, r, answer(activity.StateNotCompleted, long)); d.Why != "of another type; the verifier says that it did not complete" {
		t.Errorf("the verifier says otherwise: a person is asked because %q", d.Why)
	}
	if r := r.Dispatched(Departure{At: noon}); r.Withdrawn != "" {
		t.Errorf("another attempt is told of as %q", r.Withdrawn)
	}
	if r := r.Resolved(noon, "bob", activity.Verdict{State: activity.StateNotCompleted}, Payload{}); r.Withdrawn != "" || r.By != "bob" {
		t.Errorf("another answer is told of as %q by %q", r.Withdrawn, r.By)
	}
}

// An operator says that an attempt did not complete, then that it did, with a result that cannot be decoded. The last
// answer is withdrawn, and the one before does not hold again: nobody knows.
func TestWithdrawnAnswerOverAnother(t *testing.T) {
	for _, state := range []activity.State{activity.StateNotCompleted, activity.StateFailed} {
		for _, again := range []func(Record) Record{
			func(r Record) Record {
				return Next(neither, r, Happened{What: Undecodable, Now: noon, Verdict: activity.Verdict{Reason: "of another type"}}).Record
			},
			Record.Unanswered,
		} {
			first := left(1).Resolved(noon, "ann", activity.Verdict{State: state}, Payload{})
			r := again(first.Resolved(noon, "bob", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5"), Codec: "cbor"}))
			if d := Next(neither, r, Happened{What: Found, Now: noon}); d.Do == Dispatch || d.Record.Status != StatusIndeterminate {
				t.Errorf("%v, corrected by an answer that is withdrawn: %v, and the status is %s, want indeterminate", state, d.Do, d.Record.Status)
			}
		}
	}
}

// ACT-49: an attempt returns a result after an operator has said that it did not complete. Whoever finds
// the record starts no other attempt.
func TestALateResultRefutesAnAnswer(t *testing.T) {
	answered := func(p activity.Policy, state activity.State) Record {
		timedOut := after(1, p, Happened{What: Expired})
		return timedOut.Resolved(noon, "ann", activity.Verdict{State: state}, Payload{})
	}
	late := Happened{What: CameLate, Now: noon, Payload: Payload{Data: []byte("5")}}
	for _, c := range []struct {
		name       string
		p          activity.Policy
		now, later Do
	}{
		{"nobody can tell", neither, Attend, Attend},
		{"the verifier can tell", verified, GoOn, Verify},
		{"a repetition does no harm", idempotent, GoOn, Dispatch},
	} {
		d := Next(c.p, answered(c.p, activity.StateNotCompleted), late)
		checkDecision(t, answered(c.p, activity.StateNotCompleted), d)
		found := Next(c.p, d.Record, Happened{What: Found, Now: noon, Random: most})
		if d.Do != c.now || found.Do != c.later || d.Record.SeenResult == nil {
			t.Errorf("%s: %v, and then %v, want %v and %v; the record is %+v", c.name, d.Do, found.Do, c.now, c.later, d.Record)
		}
	}
	over := Next(neither, answered(neither, activity.StateFailed), Happened{What: Found, Now: noon, Random: most}).Record
	if d := Next(neither, over, late); !over.Settled || !d.Record.Settled || d.Do != GoOn {
		t.Errorf("after its outcome: %v, settled %v", d.Do, d.Record.Settled)
	}
}

// ACT-49: which answers contradict what was observed, and what the record keeps.
func TestContradictions(t *testing.T) {
	returned := func(data, codec string, digest []byte) Record {
		return Next(verified, after(1, verified, Happened{What: Expired}), Happened{What: CameLate, Now: noon, Payload: Payload{Data: []byte(data), Codec: codec, Digest: digest}}).Record
	}
	large := strings.Repeat("5", mostObserved+1)
	for _, c := range []struct {
		name     string
		r        Record
		answer   Payload
		settled  Status
		verified bool // the record has the verifier's result
	}{
		{"equal", returned("5", "", nil), Payload{Data: []byte("5")}, StatusCompleted, false},
		{"different", returned("5", "", nil), Payload{Data: []byte("6")}, StatusIndeterminate, true},
		{"equal, encoded by two codecs", returned("5", "", nil), Payload{Data: []byte{5}, Codec: "cbor", Digest: returned("5", "", nil).SeenResult.Digest}, StatusCompleted, false},
		{"different, encoded by two codecs", returned("5", "", nil), Payload{Data: []byte{6}, Codec: "cbor", Digest: []byte("6")}, StatusIndeterminate, true},
		{"equal, and encrypted", returned("x", "aes", []byte("5")), Payload{Data: []byte("y"), Codec: "aes", Digest: []byte("5")}, StatusCompleted, false},
		{"equal bytes, without a digest", returned("x", "raw", nil), Payload{Data: []byte("x"), Codec: "raw"}, StatusCompleted, false},
		{"different bytes, without a digest", returned("x", "raw", nil), Payload{Data: []byte("y"), Codec: "raw"}, StatusIndeterminate, true},
		{"equal, and large", returned(large, "", nil), Payload{Data: []byte(large)}, StatusCompleted, false},
		{"different, and large", returned(large, "", nil), Payload{Data: []byte(large + "6")}, StatusIndeterminate, true},
		{"large, without a digest", returned(large, "raw", nil), Payload{Data: []byte(large), Codec: "raw"}, StatusIndeterminate, true},
		{"lost by the verifier", returned("5", "", nil), Payload{Lost: "too large"}, StatusCompleted, false},
		{"lost by the attempt", Next(verified, after(1, verified, Happened{What: Expired}), Happened{What: CameLate, Now: noon, Payload: Payload{Lost: "too large"}}).Record, Payload{Data: []byte("5")}, StatusCompleted, false},
	} {
		h := answer(activity.StateCompletedWithResult, long)
		h.Payload, h.Now = c.answer, noon
		d := Next(verified, c.r, h)
		r := d.Record
		if d.Do != Settle || r.Status != c.settled || (r.VerifiedResult != nil) != c.verified || r.HasResult != (c.settled == StatusCompleted && c.answer.Lost == "") {
			t.Errorf("%s: %v, %s with %+v and %+v", c.name, d.Do, r.Status, r.SeenResult, r.VerifiedResult)
		}
		for _, o := range []*Observation{r.SeenResult, r.VerifiedResult} {
			if o != nil && len(o.Data) > mostObserved {
				t.Errorf("%s: the record keeps %d bytes", c.name, len(o.Data))
			}
		}
		if c.verified && (r.Error.Category != activity.CategoryContradiction || r.Error.Message != r.Seen || r.Error.Other == "") {
			t.Errorf("%s: %+v", c.name, r.Error)
		}
		checkDecision(t, c.r, d)
	}
	// An operator's answer ends it, and one that is withdrawn does not.
	h := answer(activity.StateCompletedWithResult, long)
	h.Payload.Data, h.Now = []byte("6"), noon
	r := Next(verified, returned("5", "", nil).Reopened(1, noon.UnixMicro()), h).Record.Reopened(1, noon.UnixMicro())
	answered := r.Resolved(noon, "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("7")})
	back := Next(verified, answered, Happened{What: Undecodable, Now: noon, Verdict: activity.Verdict{Reason: "of another type"}}).Record
	if back.Seen == "" || back.SeenResult == nil || back.VerifiedResult == nil || back.Error == nil || back.Error.Category != activity.CategoryContradiction {
		t.Errorf("an answer that was withdrawn has taken what was observed along: %+v", back)
	}
	for _, s := range []activity.State{activity.StateNotCompleted, activity.StateFailed, activity.StateCompletedResultUnavailable} {
		if r := r.Resolved(noon, "ann", activity.Verdict{State: s}, Payload{}); r.Seen != "" || r.SeenResult != nil || r.VerifiedResult != nil {
			t.Errorf("%v by an operator leaves %+v", s, r)
		}
	}
}

// A contradiction is no failure of the attempt: the wait for what may still happen stays
// as long.
func TestAContradictionDoesNotSayThatTheAttemptEnded(t *testing.T) {
	answered := left(1).Resolved(noon, "ann", activity.Verdict{State: activity.StateCompletedWithResult}, Payload{Data: []byte("5")})
	r := Next(verified, answered, Happened{What: Undecodable, Now: noon, Verdict: activity.Verdict{Reason: "of another type"}}).Record
	d := Next(verified, r, answer(activity.StateNotCompleted, long))
	if r := d.Record; d.Do != Attend || r.Settled || r.Error.Category != activity.CategoryContradiction || Quiet(verified, r) != r.Timeout+r.Settle {
		t.Errorf("%v, %+v, quiet after %v", d.Do, r.Error, Quiet(verified, r))
	}
}

// The effect of a run's retry on a record. A success and a lost result stay; what is
// unknown stays unknown; attempts and time are reset. ACT-34, ACT-46
func TestReopened(t *testing.T) {
	later := noon.Add(time.Hour).UnixMicro()
	failed := after(3, verified, Happened{What: Erred, Failure: invalid})
	unknown := after(1, neither, Happened{What: Erred, Failure: busy})
	for _, c := range []struct {
		name   string
		p      activity.Policy
		r      Record
		want   Do
		status Status
	}{
		{"completed", verified, after(1, verified, Happened{What: Returned, Payload: Payload{Data: []byte("5")}}), Settle, StatusCompleted},
		{"result lost", verified, after(1, verified, Happened{What: Returned, Payload: Payload{Lost: "too large"}}), Settle, StatusCompleted},
		{"failed, without an effect", verified, failed, Dispatch, StatusFailed},
		{"nobody could tell", neither, unknown, Attend, StatusIndeterminate},
		{"given up", neither, after(1, neither, Happened{What: Abandoned}), Attend, StatusIndeterminate},
		{"given up, verified", verified, after(1, verified, Happened{What: Abandoned}), Verify, StatusIndeterminate},
		{"timed out, and nobody could tell", neither, after(1, neither, Happened{What: Expired}), Attend, StatusTimedOut},
		{"timed out, and given up", verified, Next(verified, after(1, verified, Happened{What: Expired}), Happened{What: Abandoned, Now: noon}).Record, Verify, StatusTimedOut},
		{"timed out the last time", verified, Next(verified, after(3, verified, Happened{What: Expired}), func() Happened { h := answer(activity.StateNotCompleted, long); h.Now = noon; return h }()).Record, Verify, StatusTimedOut},
		{"given up, idempotent", idempotent, after(3, idempotent, Happened{What: Abandoned}), Dispatch, StatusIndeterminate},
	} {
		if !c.r.Settled {
			t.Fatalf("%s: %+v is not settled: this tests nothing", c.name, c.r)
		}
		r := c.r.Reopened(1, later)
		if d := Next(c.p, r, Happened{What: Found, Now: noon.Add(2 * time.Hour), Random: most}); d.Do != c.want || d.Record.Status != c.status {
			t.Errorf("%s: %v with %s, want %v with %s", c.name, d.Do, d.Record.Status, c.want, c.status)
		}
		if r.CreatedAt != c.r.CreatedAt || r.Attempt != c.r.Attempt { // ACT-22
			t.Errorf("%s: was created at %d in attempt %d, before %d in %d", c.name, r.CreatedAt, r.Attempt, c.r.CreatedAt, c.r.Attempt)
		}
		if !r.Settled && !r.Begun().Equal(noon.Add(time.Hour)) {
			t.Errorf("%s: its time began at %v", c.name, r.Begun())
		}
		if again := r.Reopened(1, later+1); again.Retry != r.Retry || again.RetriedAt != r.RetriedAt {
			t.Errorf("%s: one retry opens it twice", c.name)
		}
	}
	if r := unknown.Reopened(1, later); Quiet(verified, r) != r.Timeout+r.Settle {
		t.Errorf("after a retry %v is waited for, want Timeout and Settle: nobody knows that the attempt came back", Quiet(verified, r))
	}
	expired := after(1, neither, Happened{What: Expired}).Reopened(1, later)
	if d := Next(neither, expired, Happened{What: Found, Now: noon, Random: most}); d.Why != "there is no verifier; attempt 1: timed out after 30s" {
		t.Errorf("after a retry an operator is asked because %q", d.Why)
	}
	if q := Quiet(verified, expired); q != expired.Settle {
		t.Errorf("after a retry %v is waited for, want Settle: the Timeout has passed", q)
	}
	// A record of an earlier release, which recorded such an attempt as indeterminate.
	old := after(1, neither, Happened{What: Expired})
	old.Status = StatusIndeterminate
	if r := old.Reopened(1, later); r.Status != StatusIndeterminate || r.Error != nil || Quiet(verified, r) != r.Timeout+r.Settle {
		t.Errorf("an old record, retried: %+v, quiet after %v", r, Quiet(verified, r))
	}
	if unknown.Error == nil || failed.Error == nil || !failed.Error.Permanent {
		t.Error("the record before was changed")
	}
	if r := (Record{}); !r.Begun().IsZero() {
		t.Errorf("what has not left began at %v", r.Begun())
	}
}

// ACT-47: errors are the same before and after a restart, by kind.
func TestOutcomeErrors(t *testing.T) {
	for _, c := range []struct {
		f    Failure
		want error
	}{
		{Failure{Message: "busy", Attempt: 2, Stack: "s", Sentinel: "timeout"}, &activity.Error{Activity: "charge", Attempt: 2, Message: "busy", Stack: "s", Sentinel: activity.ErrTimeout}},
		{Failure{Category: activity.CategoryLost, Message: "died", Attempt: 2}, &activity.Error{Activity: "charge", Attempt: 2, Message: "died", Sentinel: activity.ErrTimeout}},
		{Failure{Category: activity.CategoryResolved, Message: "no", Attempt: 2}, &activity.Error{Activity: "charge", Attempt: 2, Message: "no", Sentinel: activity.ErrTimeout}},
		{Failure{Category: activity.CategoryIndeterminate, Message: "pending", Attempt: 2}, &activity.IndeterminateError{Activity: "charge", Operation: "1", IdempotencyKey: "k", Attempt: 2, Reason: "pending"}},
		{Failure{Category: activity.CategoryResultUnavailable, Message: "lost"}, &activity.ResultUnavailableError{Activity: "charge", Operation: "1", IdempotencyKey: "k", Reason: "lost"}},
		{Failure{Category: activity.CategoryContradiction, Message: "yes", Other: "no"}, &activity.ContradictionError{Activity: "charge", Operation: "1", IdempotencyKey: "k", First: "yes", Second: "no"}},
	} {
		got := c.f.Err("charge", "1", "k", activity.ErrTimeout)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateErrors()); fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", c.want, c.want) {
			t.Errorf("%+v is %T %v, want %T %v: %s", c.f, got, got, c.want, c.want, diff)
		}
		if !strings.HasPrefix(got.Error(), "activity charge: ") {
			t.Errorf("text %q", got)
		}
	}
}

// Sums of durations are limited to the longest duration, and do not overflow.
func TestQuietOfCenturies(t *testing.T) {
	r := left(1)
	r.Timeout, r.Settle = math.MaxInt64, math.MaxInt64
	if q := Quiet(verified, r); q != math.MaxInt64 {
		t.Errorf("%v is waited for, want the longest duration", q)
	}
	if d := Next(verified, r, answer(activity.StateNotCompleted, long)); d.Do != Verify || d.After < math.MaxInt64-long {
		t.Errorf("%v after %v, want to verify after centuries", d.Do, d.After)
	}
	r.Waited = time.Hour
	if r = r.Released(noon, math.MaxInt64); r.Waited != math.MaxInt64 {
		t.Errorf("it has waited %v, want the longest duration", r.Waited)
	}
}
