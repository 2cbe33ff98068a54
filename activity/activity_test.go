package activity_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weft-go/weft/activity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type act = activity.Activity[int, int]

func work(context.Context, int) (int, error) { return 0, nil }

func TestCheck(t *testing.T) {
	broke := errors.New("broke")
	for _, c := range []struct {
		name  string
		a     *act
		field string // "" is right
	}{
		{"right", &act{Name: "charge", Run: work}, ""},
		{"full", &act{Name: "charge", Run: work, Errors: []error{broke}, Timeout: 1, Retry: activity.Retry{Attempts: -1, Backoff: 1, MaxBackoff: 1}}, ""},
		{"nil", nil, "Activity"},
		{"no name", &act{Run: work}, "Name"},
		{"long name", &act{Name: strings.Repeat("n", 101), Run: work}, "Name"},
		{"name that is not UTF-8", &act{Name: "\xff", Run: work}, "Name"},
		{"no function", &act{Name: "charge"}, "Run"},
		{"timeout", &act{Name: "charge", Run: work, Timeout: -1}, "Timeout"},
		{"backoff", &act{Name: "charge", Run: work, Retry: activity.Retry{Backoff: -1}}, "Retry"},
		{"longest backoff", &act{Name: "charge", Run: work, Retry: activity.Retry{MaxBackoff: -1}}, "Retry"},
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
	a := &act{Name: "charge", Run: work, Timeout: time.Minute, Retry: activity.Retry{Attempts: 3}}
	b := a.With(activity.Options{})
	if b == a || b.Timeout != a.Timeout || b.Retry != a.Retry {
		t.Errorf("without options: %+v, want a copy of %+v", b, a)
	}
	b = a.With(activity.Options{Timeout: time.Second, Retry: activity.Retry{Backoff: time.Second}})
	if b.Timeout != time.Second || b.Retry != (activity.Retry{Backoff: time.Second}) || a.Timeout != time.Minute || a.Retry.Attempts != 3 {
		t.Errorf("with options: %+v, and the definition %+v", b, a)
	}
}

func TestBound(t *testing.T) {
	for attempts, want := range map[int]int{0: 5, 1: 1, 7: 7, -1: -1} {
		if got := (activity.Retry{Attempts: attempts}).Bound(); got != want {
			t.Errorf("Attempts %d: bound %d, want %d", attempts, got, want)
		}
	}
}

// A pause is the doubled backoff, at most MaxBackoff, of which chance takes no
// more than a half; never negative, whatever the numbers are.
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

func TestErrors(t *testing.T) {
	broke := errors.New("broke")
	if activity.Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	err := fmt.Errorf("outer: %w", activity.Permanent(fmt.Errorf("inner: %w", broke)))
	if !activity.IsPermanent(err) || !errors.Is(err, broke) || err.Error() != "outer: inner: broke" {
		t.Errorf("%v: permanent %v, is broke %v", err, activity.IsPermanent(err), errors.Is(err, broke))
	}
	if activity.IsPermanent(broke) || activity.IsPermanent(nil) {
		t.Error("IsPermanent of one that is not")
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
	if got := activity.InfoFrom(activity.NewContext(context.Background(), want)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
