package entry

import (
	"fmt"
	"testing"
)

// model is the table of the documentation once more: the first rule whose condition holds says what
// follows. It shares no code with Decide.
func model(s Situation) Step {
	state := State("none")
	if s.Entry != nil {
		state = s.Entry.State
	}
	hold := !s.TakeOver && !s.Verify
	free := state == "none" || state == Released
	lapsed := state == InProgress && s.Holder != Living
	doubt := lapsed || state == Indeterminate
	slot := State("none")
	if s.Ordered && s.Order.Slot != nil {
		slot = s.Order.Slot.State
	}
	for _, rule := range []struct {
		when bool
		then Step
	}{
		{!free && !s.Same, StepConflict},
		{state == Sealed, StepDuplicate},
		{state == Failed, StepFailed},
		{state == InProgress && !lapsed, StepWait},
		{doubt && hold, StepHold},
		{lapsed && s.Verify && s.Holder == Waning, StepWait},
		{doubt && s.Verify && s.Asked, StepHold},

		{s.Ordered && s.Order.Against < 0, StepStale},
		{s.Ordered && s.Order.Against == 0 && !s.Order.Named && !s.Order.Ties, StepConflict},
		{slot == InProgress && s.Order.Holder == Living, StepWait},
		{slot != "none" && s.TakeOver && s.Order.Newer && s.Order.Slot.Again, StepEvict},
		{slot != "none", StepHold},

		{free, StepClaim},
		{s.TakeOver, StepTakeOver},
		{true, StepVerify},
	} {
		if rule.when {
			return rule.then
		}
	}
	panic("no rule")
}

// situations yields every situation that can be told from the others.
func situations(yield func(Situation)) {
	both := []bool{false, true}
	holders := []Vitality{Living, Waning, Settled}
	entries := []*Entry{nil}
	for _, s := range []State{InProgress, Released, Sealed, Failed, Indeterminate} {
		entries = append(entries, &Entry{State: s})
	}
	var orders []Precedence
	for _, against := range []int{-1, 0, 1} {
		for _, slot := range []*Entry{nil, {State: InProgress}, {State: InProgress, Again: true}, {State: Indeterminate}, {State: Indeterminate, Again: true}} {
			for _, holder := range holders {
				for i := range 8 {
					orders = append(orders, Precedence{Against: against, Slot: slot, Holder: holder, Named: i&1 != 0, Ties: i&2 != 0, Newer: i&4 != 0})
				}
			}
		}
	}
	for _, e := range entries {
		for _, same := range both {
			for _, holder := range holders {
				for _, s := range []Situation{{Verify: true}, {}, {TakeOver: true}} {
					for _, asked := range both {
						s.Entry, s.Same, s.Holder, s.Asked = e, same, holder, asked
						s.Ordered, s.Order = false, Precedence{}
						yield(s)
						s.Ordered = true
						for _, s.Order = range orders {
							yield(s)
						}
					}
				}
			}
		}
	}
}

func (s Situation) String() string {
	state := func(e *Entry) State {
		if e == nil {
			return "none"
		}
		return e.State
	}
	return fmt.Sprintf("entry %s, same %v, holder %d, take over %v, verify %v, asked %v, ordered %v %+v, slot %s", state(s.Entry), s.Same, s.Holder, s.TakeOver, s.Verify, s.Asked, s.Ordered, s.Order, state(s.Order.Slot))
}

// Section 3 of the specification: what follows from each record. FEN-12, FEN-16, FEN-37, FEN-38.
func TestDecideIsTheTable(t *testing.T) {
	seen := map[Step]int{}
	situations(func(s Situation) {
		got, want := Decide(s), model(s)
		if got != want {
			t.Errorf("%v: got Step %d, want %d", s, got, want)
		}
		seen[got]++
	})
	for s := StepClaim; s <= StepEvict; s++ {
		if seen[s] == 0 {
			t.Errorf("step %d follows from no situation", s)
		}
	}
}

// What no situation may lead to, whatever the table says.
func TestDecideNeverHarms(t *testing.T) {
	situations(func(s Situation) {
		got := Decide(s)
		runs := got == StepClaim || got == StepTakeOver || got == StepEvict || got == StepVerify
		if !runs {
			return
		}
		doubt := false
		if e := s.Entry; e != nil {
			doubt = e.State == InProgress || e.State == Indeterminate
			if e.State == Sealed || e.State == Failed {
				t.Errorf("FEN-12: step %d, although it has ended: %v", got, s)
			}
			if e.State == InProgress && s.Holder == Living {
				t.Errorf("FEN-11: step %d, although its holder lives: %v", got, s)
			}
			if !s.Same && e.State != Released {
				t.Errorf("FEN-16: step %d for another request: %v", got, s)
			}
		}
		if doubt && !s.TakeOver && !s.Verify {
			t.Errorf("step %d for what is held: %v", got, s)
		}
		if doubt && s.Verify && got != StepVerify {
			t.Errorf("step %d without asking the verifier: %v", got, s)
		}
		if doubt && s.Verify && s.Entry.State == InProgress && s.Holder == Waning {
			t.Errorf("step %d, although the effect may still happen: %v", got, s)
		}
		if !s.Ordered {
			return
		}
		if s.Order.Against < 0 {
			t.Errorf("FEN-37: step %d for an older event: %v", got, s)
		}
		if s.Order.Slot != nil && got != StepEvict {
			t.Errorf("FEN-38: step %d while another event of the source is under way: %v", got, s)
		}
		if got == StepEvict && !s.Order.Slot.Again {
			t.Errorf("an event is released that may not happen twice: %v", s)
		}
		if got == StepEvict && (!s.TakeOver || !s.Order.Newer || s.Order.Slot.State == InProgress && s.Order.Holder == Living) {
			t.Errorf("FEN-38: the slot is taken: %v", s)
		}
	})
}
