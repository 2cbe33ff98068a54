package reconcile

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/weft-go/weft/activity"
)

// asked is what the engine gets when it calls a verifier.
func asked(ctx context.Context, verify func(context.Context) (activity.Answer, error)) activity.Verdict {
	told := make(chan activity.Verdict, 1)
	go Ask(ctx, verify, func(v activity.Verdict) { told <- v })
	return <-told
}

// ACT-31, ACT-48: there are four answers; everything else is indeterminate.
func TestFourAnswersAndNothingElse(t *testing.T) {
	out, cancel := context.WithCancelCause(context.Background())
	cancel(activity.ErrTimeout)
	for _, c := range []struct {
		name   string
		verify func(context.Context) (activity.Answer, error)
		want   activity.Verdict
	}{
		{"not completed", func(context.Context) (activity.Answer, error) { return activity.NotCompleted[int](), nil }, activity.Verdict{State: activity.StateNotCompleted}},
		{"completed", func(context.Context) (activity.Answer, error) { return activity.CompletedWithResult(5), nil }, activity.Verdict{State: activity.StateCompletedWithResult, Result: 5}},
		{"result unavailable", func(context.Context) (activity.Answer, error) { return activity.CompletedResultUnavailable[int](), nil }, activity.Verdict{State: activity.StateCompletedResultUnavailable}},
		{"indeterminate", func(context.Context) (activity.Answer, error) { return activity.Indeterminate[int]("pending"), nil }, activity.Verdict{State: activity.StateIndeterminate, Reason: "pending"}},
		{"zero value", func(context.Context) (activity.Answer, error) { return activity.Verification[int]{}, nil }, unsure("the verifier gave an answer that is none: none")},
		{"unknown state", func(context.Context) (activity.Answer, error) { return activity.Verdict{State: 99}, nil }, unsure("the verifier gave an answer that is none: unknown(99)")},
		{"a person's answer", func(context.Context) (activity.Answer, error) { return activity.Failed("no"), nil }, unsure("the verifier gave an answer that is none: failed")},
		{"nil", func(context.Context) (activity.Answer, error) { return nil, nil }, unsure("the verifier gave no answer")},
		{"error", func(context.Context) (activity.Answer, error) {
			return activity.CompletedWithResult(5), errors.New("gone")
		}, unsure("the verifier failed: gone")},
		{"timeout", func(context.Context) (activity.Answer, error) { return activity.NotCompleted[int](), nil }, unsure("the verifier timed out")},
		{"panic", func(context.Context) (activity.Answer, error) { panic("oh") }, unsure("the verifier panicked: oh")},
		{"goexit", func(context.Context) (activity.Answer, error) { runtime.Goexit(); return nil, nil }, unsure("the verifier called runtime.Goexit")},
	} {
		ctx := context.Background()
		if c.name == "timeout" {
			ctx = out
		}
		if got := asked(ctx, c.verify); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
