package activity

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// asked is what the engine gets when it calls a verifier.
func asked(ctx context.Context, verify func(context.Context) (Answer, error)) Verdict {
	told := make(chan Verdict, 1)
	go Ask(ctx, verify, func(v Verdict) { told <- v })
	return <-told
}

// ACT-31, ACT-48: there are four answers; everything else is indeterminate.
func TestFourAnswersAndNothingElse(t *testing.T) {
	out, cancel := context.WithCancelCause(context.Background())
	cancel(ErrTimeout)
	for _, c := range []struct {
		name   string
		verify func(context.Context) (Answer, error)
		want   Verdict
	}{
		{"not completed", func(context.Context) (Answer, error) { return NotCompleted[int](), nil }, Verdict{State: StateNotCompleted}},
		{"completed", func(context.Context) (Answer, error) { return CompletedWithResult(5), nil }, Verdict{State: StateCompletedWithResult, Result: 5}},
		{"result unavailable", func(context.Context) (Answer, error) { return CompletedResultUnavailable[int](), nil }, Verdict{State: StateCompletedResultUnavailable}},
		{"indeterminate", func(context.Context) (Answer, error) { return Indeterminate[int]("pending"), nil }, Verdict{State: StateIndeterminate, Reason: "pending"}},
		{"zero value", func(context.Context) (Answer, error) { return Verification[int]{}, nil }, unsure("the verifier gave an answer that is none: none")},
		{"unknown state", func(context.Context) (Answer, error) { return Verdict{State: 99}, nil }, unsure("the verifier gave an answer that is none: unknown(99)")},
		{"a person's answer", func(context.Context) (Answer, error) { return Failed("no"), nil }, unsure("the verifier gave an answer that is none: failed")},
		{"nil", func(context.Context) (Answer, error) { return nil, nil }, unsure("the verifier gave no answer")},
		{"error", func(context.Context) (Answer, error) { return CompletedWithResult(5), errors.New("gone") }, unsure("the verifier failed: gone")},
		{"timeout", func(context.Context) (Answer, error) { return NotCompleted[int](), nil }, unsure("the verifier timed out")},
		{"panic", func(context.Context) (Answer, error) { panic("oh") }, unsure("the verifier panicked: oh")},
		{"goexit", func(context.Context) (Answer, error) { runtime.Goexit(); return nil, nil }, unsure("the verifier called runtime.Goexit")},
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
