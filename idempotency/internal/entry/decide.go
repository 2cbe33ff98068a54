package entry

// A Step is what a call does next, decided from what it has read.
type Step uint8

const (
	StepClaim     Step = iota + 1 // claim the key and run: no attempt is in doubt
	StepTakeOver                  // claim the key and run: a repetition does no harm
	StepVerify                    // claim the key and ask the verifier first
	StepWait                      // somebody is at it
	StepDuplicate                 // return the receipt
	StepFailed
	StepConflict
	StepStale
	StepHold  // nobody knows, and nothing is done about it
	StepEvict // release what lapsed in the slot of the source, claim the key and run
)

// A Vitality says whether the holder of a claim lives.
type Vitality uint8

const (
	Living  Vitality = iota
	Waning           // dead, but what it sent may still take effect
	Settled          // dead for so long that nothing that it sent takes effect any more
)

// A Situation is everything that a decision depends on.
type Situation struct {
	Entry  *Entry // nil: nothing is known of the key
	Same   bool   // Entry has this call's fingerprint
	Holder Vitality

	// What follows if nobody knows what became of the effect. Without either, it is left to a person.
	TakeOver bool // run again: a repetition does no harm
	Verify   bool // ask the verifier, which there is; not with TakeOver

	Asked   bool // the verifier was asked a moment ago
	Ordered bool
	Order   Precedence
	Source  *Source // of an event with an order
}

// A Precedence says how an event stands to the others of its source.
type Precedence struct {
	Against int      // compared with the newest that is sealed: negative is older; positive if none is
	Named   bool     // that is this very key
	Ties    bool     // equal versions are both to happen
	Slot    *Entry   // what else is under way; nil: nothing
	Holder  Vitality // of Slot
	Newer   bool     // than Slot
}

// Decide says what to do. It is the table of the documentation of package idempotency.
func Decide(s Situation) Step {
	next := s.alone()
	if !s.Ordered {
		return next
	}
	switch next {
	case StepClaim, StepTakeOver, StepVerify:
		return s.inOrder(next)
	}
	return next
}

// alone decides as if the source had no other events.
func (s Situation) alone() Step {
	switch {
	case s.Entry == nil || s.Entry.State == Released:
		return StepClaim
	case !s.Same:
		return StepConflict
	}
	switch s.Entry.State {
	case Sealed:
		return StepDuplicate
	case Failed:
		return StepFailed
	case InProgress:
		if s.Holder == Living {
			return StepWait
		}
	}
	switch {
	case s.TakeOver:
		return StepTakeOver
	case s.Verify && s.Entry.State == InProgress && s.Holder == Waning:
		return StepWait
	case s.Verify && !s.Asked:
		return StepVerify
	}
	return StepHold
}

// inOrder decides whether an event may be claimed now.
func (s Situation) inOrder(next Step) Step {
	o := s.Order
	switch {
	case o.Against < 0:
		return StepStale
	case o.Against == 0 && !o.Named && !o.Ties:
		return StepConflict
	case o.Slot == nil:
		return next
	case o.Slot.State == InProgress && o.Holder == Living:
		return StepWait
	case s.TakeOver && o.Newer && o.Slot.Again: // neither effect does harm if it happens twice
		return StepEvict
	}
	return StepHold
}
