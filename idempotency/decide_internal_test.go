package idempotency

import (
	"fmt"
	"testing"
)

// model is the table of the documentation once more: the first rule whose condition holds says what
// follows. It shares no code with decide.
func model(s situation) step {
	state := State("none")
	if s.entry != nil {
		state = s.entry.State
	}
	free := state == "none" || state == StateReleased
	lapsed := state == StateInProgress && s.holder != living
	doubt := lapsed || state == StateIndeterminate
	slot := State("none")
	if s.ordered && s.order.slot != nil {
		slot = s.order.slot.State
	}
	for _, rule := range []struct {
		when bool
		then step
	}{
		{!free && !s.same, stepConflict},
		{state == StateSealed, stepDuplicate},
		{state == StateFailed, stepFailed},
		{state == StateInProgress && !lapsed, stepWait},
		{doubt && s.policy == Hold, stepHold},
		{lapsed && s.policy == VerifyOrHold && s.holder == waning, stepWait},
		{doubt && s.policy == VerifyOrHold && s.asked, stepHold},

		{s.ordered && s.order.against < 0, stepStale},
		{s.ordered && s.order.against == 0 && !s.order.named && !s.order.ties, stepConflict},
		{slot == StateInProgress && s.order.holder == living, stepWait},
		{slot != "none" && s.policy == TakeOver && s.order.newer, stepEvict},
		{slot != "none", stepHold},

		{free, stepClaim},
		{s.policy == TakeOver, stepTakeOver},
		{true, stepVerify},
	} {
		if rule.when {
			return rule.then
		}
	}
	panic("no rule")
}

// situations yields every situation that can be told from the others.
func situations(yield func(situation)) {
	both := []bool{false, true}
	holders := []vitality{living, waning, settled}
	entries := []*entry{nil}
	for _, s := range []State{StateInProgress, StateReleased, StateSealed, StateFailed, StateIndeterminate} {
		entries = append(entries, &entry{State: s})
	}
	var orders []precedence
	for _, against := range []int{-1, 0, 1} {
		for _, slot := range []*entry{nil, {State: StateInProgress}, {State: StateIndeterminate}} {
			for _, holder := range holders {
				for i := range 8 {
					orders = append(orders, precedence{against: against, slot: slot, holder: holder, named: i&1 != 0, ties: i&2 != 0, newer: i&4 != 0})
				}
			}
		}
	}
	for _, e := range entries {
		for _, same := range both {
			for _, holder := range holders {
				for _, policy := range []Abandoned{VerifyOrHold, Hold, TakeOver} {
					for _, asked := range both {
						s := situation{entry: e, same: same, holder: holder, policy: policy, asked: asked}
						yield(s)
						s.ordered = true
						for _, s.order = range orders {
							yield(s)
						}
					}
				}
			}
		}
	}
}

func (s situation) String() string {
	state := func(e *entry) State {
		if e == nil {
			return "none"
		}
		return e.State
	}
	return fmt.Sprintf("entry %s, same %v, holder %d, %v, asked %v, ordered %v %+v, slot %s", state(s.entry), s.same, s.holder, s.policy, s.asked, s.ordered, s.order, state(s.order.slot))
}

// Section 3 of the specification: what follows from each record. FEN-12, FEN-16, FEN-37, FEN-38.
func TestDecideIsTheTable(t *testing.T) {
	seen := map[step]int{}
	situations(func(s situation) {
		got, want := decide(s), model(s)
		if got != want {
			t.Errorf("%v: got step %d, want %d", s, got, want)
		}
		seen[got]++
	})
	for s := stepClaim; s <= stepEvict; s++ {
		if seen[s] == 0 {
			t.Errorf("step %d follows from no situation", s)
		}
	}
}

// What no situation may lead to, whatever the table says.
func TestDecideNeverHarms(t *testing.T) {
	situations(func(s situation) {
		got := decide(s)
		runs := got == stepClaim || got == stepTakeOver || got == stepEvict || got == stepVerify
		if !runs {
			return
		}
		doubt := false
		if e := s.entry; e != nil {
			doubt = e.State == StateInProgress || e.State == StateIndeterminate
			if e.State == StateSealed || e.State == StateFailed {
				t.Errorf("FEN-12: step %d, although it has ended: %v", got, s)
			}
			if e.State == StateInProgress && s.holder == living {
				t.Errorf("FEN-11: step %d, although its holder lives: %v", got, s)
			}
			if !s.same && e.State != StateReleased {
				t.Errorf("FEN-16: step %d for another request: %v", got, s)
			}
		}
		if doubt && s.policy == Hold {
			t.Errorf("step %d for what is held: %v", got, s)
		}
		if doubt && s.policy == VerifyOrHold && got != stepVerify {
			t.Errorf("step %d without asking the verifier: %v", got, s)
		}
		if doubt && s.policy == VerifyOrHold && s.entry.State == StateInProgress && s.holder == waning {
			t.Errorf("step %d, although the effect may still happen: %v", got, s)
		}
		if !s.ordered {
			return
		}
		if s.order.against < 0 {
			t.Errorf("FEN-37: step %d for an older event: %v", got, s)
		}
		if s.order.slot != nil && got != stepEvict {
			t.Errorf("FEN-38: step %d while another event of the source is under way: %v", got, s)
		}
		if got == stepEvict && (s.policy != TakeOver || !s.order.newer || s.order.slot.State == StateInProgress && s.order.holder == living) {
			t.Errorf("FEN-38: the slot is taken: %v", s)
		}
	})
}
