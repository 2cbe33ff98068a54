package activity_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type act = activity.Activity[int, int]

func work(context.Context, int) (int, error) { return 0, nil }

func look(context.Context, int) (activity.Verification[int], error) {
	return activity.NotCompleted[int](), nil
}

// A definition that makes no sense is refused. ACT-9: without a key there is no verifier.
func TestCheck(t *testing.T) {
	broke := errors.New("broke")
	for _, c := range []struct {
		name  string
		a     *act
		field string // "" is valid
	}{
		{"right", &act{Name: "charge", Run: work}, ""},
		{"full", &act{Name: "charge", Run: work, Errors: []error{broke}, Timeout: 1, Retry: activity.Retry{MaxAttempts: -1, Backoff: 1, MaxBackoff: 1}}, ""},
		{"nil", nil, "Activity"},
		{"no name", &act{Run: work}, "Name"},
		{"long name", &act{Name: strings.Repeat("n", 101), Run: work}, "Name"},
		{"name that is not UTF-8", &act{Name: "\xff", Run: work}, "Name"},
		{"no function", &act{Name: "charge"}, "Run"},
		{"timeout", &act{Name: "charge", Run: work, Timeout: -1}, "Timeout"},
		{"deadline", &act{Name: "charge", Run: work, TotalTimeout: -1}, "TotalTimeout"},
		{"settle", &act{Name: "charge", Run: work, Idempotent: true, Verify: look, Settle: -1}, "Settle"},
		{"verify timeout", &act{Name: "charge", Run: work, Idempotent: true, Verify: look, VerifyTimeout: -1}, "VerifyTimeout"},
		{"verify backoff", &act{Name: "charge", Run: work, Idempotent: true, Verify: look, VerifyRetry: activity.Retry{Backoff: -1}}, "VerifyRetry"},
		{"verifier without a key", &act{Name: "charge", Run: work, Verify: look}, "Verify"},
		{"action without a key", &act{Name: "charge", Run: work, OnIndeterminate: activity.AwaitOperator}, "OnIndeterminate"},
		{"unknown action", &act{Name: "charge", Run: work, Idempotent: true, OnIndeterminate: 9}, "OnIndeterminate"},
		{"settle without a verifier", &act{Name: "charge", Run: work, Idempotent: true, Settle: 1}, "Settle"},
		{"settle after an error without a verifier", &act{Name: "charge", Run: work, Idempotent: true, SettleAfterError: true}, "SettleAfterError"},
		{"fences without a verifier", &act{Name: "charge", Run: work, Idempotent: true, VerifyFences: true}, "VerifyFences"},
		{"verify retry without a verifier", &act{Name: "charge", Run: work, Idempotent: true, VerifyRetry: activity.Retry{MaxAttempts: 1}}, "VerifyRetry"},
		{"verify timeout without a verifier", &act{Name: "charge", Run: work, Idempotent: true, VerifyTimeout: 1}, "VerifyTimeout"},
		{"reconciled", &act{Name: "charge", Run: work, IdempotencyKey: strconv.Itoa, Verify: look, Settle: 1, TotalTimeout: 1, SettleAfterError: true, OnIndeterminate: activity.AwaitOperator}, ""},
		{"backoff", &act{Name: "charge", Run: work, Retry: activity.Retry{Backoff: -1}}, "Retry"},
		{"longest backoff", &act{Name: "charge", Run: work, Retry: activity.Retry{MaxBackoff: -1}}, "Retry"},
		{"limited", &act{Name: "charge", Run: work, ResourceScope: strconv.Itoa, MaxConcurrent: 1, Rate: activity.Rate{Count: 1, Per: 1}}, ""},
		{"places", &act{Name: "charge", Run: work, MaxConcurrent: -1}, "MaxConcurrent"},
		{"rate", &act{Name: "charge", Run: work, Rate: activity.Rate{Count: -1, Per: 1}}, "Rate"},
		{"span of a rate", &act{Name: "charge", Run: work, Rate: activity.Rate{Count: 1, Per: -1}}, "Rate"},
		{"rate without a count", &act{Name: "charge", Run: work, Rate: activity.Rate{Per: 1}}, "Rate"},
		{"rate without a span", &act{Name: "charge", Run: work, Rate: activity.Rate{Count: 1}}, "Rate"},
		{"nil sentinel", &act{Name: "charge", Run: work, Errors: []error{nil}}, "Errors"},
		{"two of one text", &act{Name: "charge", Run: work, Errors: []error{broke, errors.New("broke")}}, "Errors"},
	} {
		err := c.a.Check()
		var d *activity.DefinitionError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v, want nil", c.name, err)
		case c.field != "" && (!errors.As(err, &d) || d.Field != c.field):
			t.Errorf("%s: %v, want a *DefinitionError about %s", c.name, err, c.field)
		}
	}
}

func TestWith(t *testing.T) {
	a := &act{Name: "charge", Run: work, Timeout: time.Minute, Retry: activity.Retry{MaxAttempts: 3}}
	b := a.With(activity.Options{})
	if b == a || b.Timeout != a.Timeout || b.Retry != a.Retry {
		t.Errorf("without options: %+v, want a copy of %+v", b, a)
	}
	b = a.With(activity.Options{Timeout: time.Second, Retry: activity.Retry{Backoff: time.Second}})
	if b.Timeout != time.Second || b.Retry != (activity.Retry{Backoff: time.Second}) || a.Timeout != time.Minute || a.Retry.MaxAttempts != 3 {
		t.Errorf("with options: %+v, and the definition %+v", b, a)
	}
}

func TestBound(t *testing.T) {
	for attempts, want := range map[int]int{0: 5, 1: 1, 7: 7, -1: -1} {
		if got := (activity.Retry{MaxAttempts: attempts}).Bound(); got != want {
			t.Errorf("Attempts %d: bound %d, want %d", attempts, got, want)
		}
	}
}

// A pause is the doubled backoff, at most MaxBackoff. Jitter reduces it by at most a
// half. It is never negative, whatever the numbers are.
func TestPause(t *testing.T) {
	least := func(int64) int64 { return 0 }
	most := func(n int64) int64 { return n - 1 }
	for _, c := range []struct {
		r       activity.Retry
		attempt int
		want    time.Duration // the longest
	}{
		{activity.Retry{}, 1, time.Second},
		{activity.Retry{}, 2, 2 * time.Second},
		{activity.Retry{}, 6, 32 * time.Second},
		{activity.Retry{}, 7, time.Minute},
		{activity.Retry{}, 1 << 40, time.Minute},
		{activity.Retry{Backoff: time.Hour}, 1, time.Minute},
		{activity.Retry{Backoff: 3 * time.Second, MaxBackoff: 10 * time.Second}, 3, 10 * time.Second},
		{activity.Retry{Backoff: 1, MaxBackoff: math.MaxInt64}, math.MaxInt, math.MaxInt64},
	} {
		if lo, hi := c.r.Pause(c.attempt, least), c.r.Pause(c.attempt, most); lo != c.want/2 || hi < c.want-1 || hi > c.want {
			t.Errorf("%+v after attempt %d: %v to %v, want %v to %v", c.r, c.attempt, lo, hi, c.want/2, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		r := activity.Retry{Backoff: time.Duration(rapid.Int64Min(0).Draw(t, "backoff")), MaxBackoff: time.Duration(rapid.Int64Min(0).Draw(t, "longest"))}
		longest := r.MaxBackoff
		if longest == 0 {
			longest = time.Minute
		}
		n := rapid.IntMin(1).Draw(t, "attempt")
		for _, chance := range []func(int64) int64{least, most} {
			if p := r.Pause(n, chance); p < 0 || p > longest {
				t.Errorf("%+v after attempt %d: %v", r, n, p)
			}
		}
	})
}

// A kind is an error that is found by its type.
type kind struct{ error }

func (k *kind) Unwrap() error { return k.error }

func TestErrors(t *testing.T) {
	broke := errors.New("broke")
	if activity.Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	err := fmt.Errorf("outer: %w", activity.Permanent(fmt.Errorf("inner: %w", broke)))
	if !activity.IsPermanent(err) || !errors.Is(err, broke) || err.Error() != "outer: inner: broke" {
		t.Errorf("%v: permanent %v, is broke %v", err, activity.IsPermanent(err), errors.Is(err, broke))
	}
	none := fmt.Errorf("outer: %w", activity.NoEffect(activity.Permanent(broke)))
	if !activity.IsNoEffect(none) || !activity.IsPermanent(none) || !errors.Is(none, broke) || activity.IsNoEffect(err) || activity.NoEffect(nil) != nil {
		t.Errorf("%v: no effect %v, permanent %v", none, activity.IsNoEffect(none), activity.IsPermanent(none))
	}
	if activity.IsPermanent(broke) || activity.IsPermanent(nil) {
		t.Error("IsPermanent of one that is not")
	}
	unmarked := fmt.Errorf("outer: %w", activity.Unmarked(fmt.Errorf("inner: %w", activity.NoEffect(activity.Permanent(&kind{broke})))))
	if k, ok := errors.AsType[*kind](unmarked); activity.IsNoEffect(unmarked) || activity.IsPermanent(unmarked) || !errors.Is(unmarked, broke) || !ok || k.error != broke || activity.Unmarked(nil) != nil {
		t.Errorf("%v: no effect %v, permanent %v, is broke %v, of its type %v", unmarked, activity.IsNoEffect(unmarked), activity.IsPermanent(unmarked), errors.Is(unmarked, broke), ok)
	}
	if again := activity.NoEffect(unmarked); !activity.IsNoEffect(again) || activity.IsPermanent(again) || unmarked.Error() != "outer: inner: broke" {
		t.Errorf("%v, marked anew: no effect %v, permanent %v", again, activity.IsNoEffect(again), activity.IsPermanent(again))
	}
	e := &activity.Error{Activity: "charge", Attempt: 2, Message: "declined", Sentinel: broke}
	if got, want := e.Error(), "activity charge: attempt 2: declined"; got != want || !errors.Is(e, broke) {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestInfoFrom(t *testing.T) {
	if got := activity.InfoFrom(context.Background()); got != (activity.Info{}) {
		t.Errorf("of any context: %+v, want none", got)
	}
	want := activity.Info{WorkflowID: "order-42", Attempt: 3, FencingToken: 7}
	if got := activity.InfoFrom(activity.NewContext(context.Background(), want, nil)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A diary is a heart for tests.
type diary struct{ told, before any }

func (d *diary) Beat(progress any) error {
	if _, bad := progress.(chan int); bad {
		return errors.New("no progress")
	}
	d.told = progress
	return nil
}

func (d *diary) Last(progress any) bool {
	n, ok := progress.(*int)
	if ok && d.before != nil {
		*n = d.before.(int)
		return true
	}
	return false
}

// A heartbeat goes to the heart of the context, even through derived contexts, and
// returns the cause when the attempt should stop. Without a heart it reports nothing.
func TestHeartbeat(t *testing.T) {
	d := &diary{before: 7}
	ctx, cancel := context.WithCancelCause(activity.NewContext(t.Context(), activity.Info{}, d))
	if err := activity.Heartbeat(ctx, 8); err != nil || d.told != 8 {
		t.Errorf("told %v, %v", d.told, err)
	}
	if n, ok := activity.Progress[int](ctx); n != 7 || !ok {
		t.Errorf("progress %d, %v, want 7", n, ok)
	}
	if s, ok := activity.Progress[string](ctx); s != "" || ok {
		t.Errorf("progress %q, %v, want none", s, ok)
	}
	if err := activity.Heartbeat(ctx, make(chan int)); err == nil {
		t.Error("the error of the heart is lost")
	}
	cancel(activity.ErrLeaseLost)
	if err := activity.Heartbeat(ctx, 9); err != activity.ErrLeaseLost || d.told != 9 {
		t.Errorf("to be stopped: %v, and told %v", err, d.told)
	}
	if err := activity.Heartbeat(ctx, make(chan int)); err != activity.ErrLeaseLost {
		t.Errorf("to be stopped: %v, want the cause before anything else", err)
	}
	for name, ctx := range map[string]context.Context{
		"none":     t.Context(),
		"no heart": activity.NewContext(t.Context(), activity.Info{}, nil),
	} {
		if err := activity.Heartbeat(ctx, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n, ok := activity.Progress[int](ctx); n != 0 || ok {
			t.Errorf("%s: progress %d, %v", name, n, ok)
		}
	}
}

// ACT-7, ACT-10: what the engine gets from a definition. A key for one call overrides
// the one of the definition.
func TestCall(t *testing.T) {
	a := &act{Name: "charge", Run: work, IdempotencyKey: strconv.Itoa, Verify: look, Idempotent: true, Settle: time.Hour, MaxConcurrent: 3, Rate: activity.Rate{Count: 2, Per: time.Second}}
	a.ResourceScope = func(in int) string { return "account/" + strconv.Itoa(in) }
	for _, c := range []struct {
		a       *act
		key     string
		timeout time.Duration
		settle  time.Duration
	}{
		{a, "42", activity.DefaultKeyedTimeout, time.Hour},
		{a.With(activity.Options{IdempotencyKey: "mine", Timeout: time.Second, TotalTimeout: time.Hour}), "mine", time.Second, time.Hour},
		{&act{Name: "charge", Run: work, Idempotent: true}, "", activity.DefaultKeyedTimeout, activity.DefaultKeyedTimeout},
		{&act{Name: "charge", Run: work}, "", activity.DefaultTimeout, activity.DefaultTimeout},
		{&act{Name: "charge", Run: work, Timeout: time.Hour}, "", time.Hour, time.Hour},
	} {
		var got activity.Call
		c.a.Go(runner{call: &got}, 42)
		if key := got.Key; c.key == "" && key != nil || c.key != "" && (key == nil || *key != c.key) {
			t.Errorf("key %v, want %q", key, c.key)
		}
		if p := got.Policy; p.Timeout != c.timeout || p.Settle != c.settle || p.Verified != (c.a.Verify != nil) || p.Idempotent != c.a.Idempotent || p.TotalTimeout != c.a.TotalTimeout {
			t.Errorf("policy %+v of %+v", p, c.a)
		}
		if c.a.Verify == nil {
			continue
		}
		if p := got.Policy; got.Scope != "account/42" || p.MaxConcurrent != 3 || p.Rate != a.Rate {
			t.Errorf("scope %q and limits %+v of %+v", got.Scope, p, c.a)
		}
		if answer, err := got.Verify(t.Context(), 42); err != nil || answer.Verdict().State != activity.StateNotCompleted {
			t.Errorf("the verifier answers %v, %v", answer, err)
		}
	}
	if !a.Accepts(5) || a.Accepts("5") || a.Accepts(nil) || a.Title() != "charge" {
		t.Error("Accepts is wrong about what Run returns")
	}
}

// ACT-10: a compensation gets the input and the result of its call. It has the call's
// attempts, timeout and limits, but neither its key nor its deadline.
func TestUndoing(t *testing.T) {
	var got []int
	a := &act{
		Name: "charge", Run: work, Errors: []error{io.EOF}, IdempotencyKey: strconv.Itoa, Verify: look, Idempotent: true, OnIndeterminate: activity.AwaitOperator,
		Retry: activity.Retry{MaxAttempts: 7}, Timeout: time.Minute, Settle: time.Hour, TotalTimeout: time.Second,
		MaxConcurrent: 3, Rate: activity.Rate{Count: 2, Per: time.Second},
		ResourceScope: func(in int) string { return "account/" + strconv.Itoa(in) },
		Compensate: func(_ context.Context, in, out int) error {
			got = append(got, in, out)
			return io.EOF
		},
	}
	var c activity.Call
	a.Go(runner{call: &c}, 42)
	undo := c.Undoing(func(out any) error {
		*out.(*int) = 7
		return nil
	})
	if _, err := undo.Run(t.Context(), 42); err != io.EOF || !slices.Equal(got, []int{42, 7}) {
		t.Errorf("undone %v, %v", got, err)
	}
	want := activity.Policy{Name: "charge", Errors: a.Errors, Retry: a.Retry, Timeout: time.Minute, Settle: time.Hour, MaxConcurrent: 3, Rate: a.Rate}
	if !reflect.DeepEqual(undo.Policy, want) || undo.Scope != "account/42" || undo.Definition != a {
		t.Errorf("policy %+v, scope %q; want %+v", undo.Policy, undo.Scope, want)
	}
	if undo.Key != nil || undo.Verify != nil || undo.Compensate != nil {
		t.Errorf("it is reconciled, or undone itself: %+v", undo)
	}
	broke := errors.New("not a number")
	undo = c.Undoing(func(any) error { return broke })
	if _, err := undo.Run(t.Context(), 42); !errors.Is(err, broke) || !activity.IsPermanent(err) || len(got) != 2 {
		t.Errorf("of a result that cannot be read: %v, after %v", err, got)
	}
	a.Compensate = nil
	if a.Go(runner{call: &c}, 42); c.Compensate != nil {
		t.Error("without a Compensate there is one")
	}
}

// A runner records a call.
type runner struct {
	activity.Runner
	call *activity.Call
}

func (r runner) RunActivity(c activity.Call) future.Operation {
	*r.call = c
	return nil
}
