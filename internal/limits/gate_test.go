package limits

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// While turns are late a few are under way, one more begins now and then, and people are
// told. When they are not, as many begin as there is room for.
func TestPlacesFollowTheDelay(t *testing.T) {
	const few, room = 4, 100
	g := newPlaces(few, room, 100*time.Millisecond)
	begin := func() (n int) {
		for g.take() {
			n++
		}
		return n
	}
	now := time.Now()
	expect := func(what string, late, after time.Duration, want int) {
		t.Helper()
		now = now.Add(after)
		g.measured(late, now)
		if n := begin(); n != want {
			t.Errorf("%s: %d began, want %d", what, n, want)
		}
	}
	if n := begin(); n != few {
		t.Errorf("nothing was measured: %d began, want %d", n, few)
	}
	expect("turns come at once", time.Microsecond, time.Millisecond, few)
	expect("turns come in time", 90*time.Millisecond, time.Second, few)
	expect("turns are late", 200*time.Millisecond, time.Hour, 1)
	expect("turns are late still", 200*time.Millisecond, time.Second, 0)
	expect("turns were late for long", 200*time.Millisecond, 10*time.Second, 1)
	for range 30 {
		now = now.Add(time.Millisecond)
		g.measured(0, now)
		begin()
	}
	if n := g.busy; n != room {
		t.Errorf("%d are under way in the end, want %d", n, room)
	}
}

// A counting handler counts what is logged.
type counting struct {
	slog.Handler
	n *atomic.Int32
}

func (c counting) Enabled(context.Context, slog.Level) bool  { return true }
func (c counting) Handle(context.Context, slog.Record) error { c.n.Add(1); return nil }
func (c counting) WithAttrs([]slog.Attr) slog.Handler        { return c }

// A waiting visitor, as a gate sees it.
type visits struct{ given int }

func (v *visits) PlaceGiven() { v.given++ }

// Late turns are measured again, lead to a warning and have the lease renewed soon only
// while the gate is open and has more than a few attempts under way, or some that wait.
func TestLateTurnsMatterOnlyUnderLoad(t *testing.T) {
	for name, c := range map[string]struct {
		taken       int // beyond a few
		waits, shut bool
		want        bool
	}{
		"nothing is under way":       {taken: -1},
		"a few are under way":        {},
		"one waits":                  {waits: true, want: true},
		"many are under way":         {taken: 1, want: true},
		"closed, many are under way": {taken: 1, shut: true},
		"closed, one waits":          {waits: true, shut: true},
	} {
		t.Run(name, func(t *testing.T) {
			var hurried, warned atomic.Int32 // a further measurement may follow at any time
			g := NewGate(1000, time.Minute, slog.New(counting{slog.DiscardHandler, &warned}))
			if !c.shut {
				g.Open(func() { hurried.Add(1) })
			}
			g.tooLate = -1                         // each delay is too long
			g.trickled = time.Now().Add(time.Hour) // and nothing starts for that long
			g.busy, g.probing = g.few+c.taken, true
			if c.waits {
				g.waiting = []*Visitor{{For: new(visits)}}
			}
			g.probe()
			g.mu.Lock()
			probing := g.probing
			g.mu.Unlock()
			g.Shut()
			if probing != c.want || (hurried.Load() > 0) != c.want || (warned.Load() > 0) != c.want {
				t.Errorf("measured again %t, hurried %d times, warned %d times; want %t", probing, hurried.Load(), warned.Load(), c.want)
			}
		})
	}
}

// A place that becomes free goes to the visitors that wait, in their order. Each is told once
// for each time that it asked.
func TestGateGivesPlacesInOrder(t *testing.T) {
	g := NewGate(1, time.Minute, slog.New(slog.DiscardHandler))
	var first, second visits
	a, b := Visitor{For: &first}, Visitor{For: &second}
	if !g.Enter(&a) {
		t.Fatal("the only place is not given")
	}
	if g.Enter(&a) || g.Enter(&b) || g.Enter(&a) {
		t.Fatal("a place that is taken is given")
	}
	for i, want := range [][2]int{{1, 0}, {1, 1}, {1, 1}} {
		g.Leave()
		if got := [2]int{first.given, second.given}; got != want {
			t.Errorf("after %d places became free: given %v, want %v", i+1, got, want)
		}
	}
	if g.busy != 0 {
		t.Errorf("%d places are taken in the end, want none", g.busy)
	}
}
