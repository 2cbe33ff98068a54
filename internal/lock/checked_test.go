//go:build weftlocks

package lock

import "testing"

func TestOrder(t *testing.T) {
	for held, row := range map[Rank]map[Rank]bool{
		Leaf:   {Leaf: false, Inner: false, Outer: false, Stripe: false},
		Inner:  {Leaf: false, Inner: false, Outer: false, Stripe: false},
		Outer:  {Leaf: false, Inner: true, Outer: false, Stripe: false},
		Stripe: {Leaf: true, Inner: true, Outer: true, Stripe: true},
	} {
		for taken, want := range row {
			var a, b Mutex
			a.SetRank(held)
			b.SetRank(taken)
			func() {
				defer func() {
					if ok := recover() == nil; ok != want {
						t.Errorf("taking a lock of rank %s while one of rank %s is held: allowed %t, want %t", taken, held, ok, want)
					}
				}()
				a.Lock()
				defer a.Unlock()
				b.Lock()
				b.Unlock()
			}()
			if Met(held, taken) != want {
				t.Errorf("%s, then %s: met %t, want %t", held, taken, !want, want)
			}
		}
	}
}

func TestNoneHeld(t *testing.T) {
	refused := func() (refused bool) {
		defer func() { refused = recover() != nil }()
		NoneHeld("a test")
		return false
	}
	for _, r := range []Rank{Leaf, Inner, Outer, Stripe} {
		var m Mutex
		m.SetRank(r)
		m.Lock()
		if got, want := refused(), r != Stripe; got != want {
			t.Errorf("under a lock of rank %s: refused %t, want %t", r, got, want)
		}
		m.Unlock()
	}
	if refused() {
		t.Error("refused under no lock")
	}
}

func TestUnlockOfAnothersLock(t *testing.T) {
	var m Mutex
	m.Lock()
	defer m.Unlock()
	refused := make(chan bool)
	go func() {
		defer func() { refused <- recover() != nil }()
		m.Unlock()
	}()
	if !<-refused {
		t.Error("another goroutine unlocked it")
	}
}
