package limits_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/limits"
)

// A bench asks for permits under names, and records which were granted, in order.
type bench struct {
	limits limits.Limits
	all    map[string]*limits.Permit

	mu      sync.Mutex // guards the fields below
	granted []string
}

func (b *bench) grant(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted = append(b.granted, name)
}

func (b *bench) ask(name string, needs ...limits.Need) {
	if b.all == nil {
		b.all = map[string]*limits.Permit{}
	}
	p := limits.New(needs, func() { b.grant(name) })
	b.all[name] = p
	if b.limits.Ask(p) {
		b.grant(name)
	}
}

func (b *bench) want(t *testing.T, names ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.granted, names) {
		t.Errorf("granted %q, want %q", b.granted, names)
	}
}

// Permits are granted in the order of their arrival, without those that left the line.
func TestFirstComeFirstServed(t *testing.T) {
	var b bench
	place := limits.Need{Of: "places", Name: "charge", Most: 2}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b.ask(name, place)
	}
	b.want(t, "a", "b")
	b.limits.GiveBack(b.all["d"])
	b.limits.GiveBack(b.all["b"])
	b.want(t, "a", "b", "c")
	b.limits.GiveBack(b.all["a"])
	b.want(t, "a", "b", "c", "e")
	b.limits.GiveBack(b.all["a"]) // a second call has no effect
	b.ask("f", place)
	b.want(t, "a", "b", "c", "e")
}

// A call that waits for its scope does not occupy a place of its activity.
func TestScopesComeBeforePlaces(t *testing.T) {
	var b bench
	place := limits.Need{Of: "places", Name: "charge", Most: 2}
	scope := func(name string) limits.Need { return limits.Need{Of: "scope", Name: name, Most: 1} }
	b.ask("a", scope("ann"), place)
	b.ask("b", scope("ann"), place)
	b.ask("c", scope("bob"), place)
	b.want(t, "a", "c")
	b.limits.GiveBack(b.all["a"])
	b.want(t, "a", "c", "b")
}

// At most Most attempts start within any period of length Per. A permit that is granted but has
// not begun counts too.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		rate := limits.Need{Of: "rate", Name: "charge", Most: 2, Per: time.Minute}
		for _, name := range []string{"a", "b", "c", "d"} {
			b.ask(name, rate)
		}
		b.want(t, "a", "b")
		time.Sleep(time.Hour)
		synctest.Wait()
		b.want(t, "a", "b") // they have not begun
		b.limits.Begin(b.all["a"])
		time.Sleep(30 * time.Second)
		b.limits.Begin(b.all["b"])
		time.Sleep(30*time.Second - time.Millisecond)
		synctest.Wait()
		b.want(t, "a", "b")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		b.want(t, "a", "b", "c")
		b.limits.GiveBack(b.all["c"]) // without having begun
		synctest.Wait()
		b.want(t, "a", "b", "c", "d")
	})
}
