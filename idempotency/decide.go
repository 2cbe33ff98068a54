package idempotency

// A step is what a call does next, decided from what it has read.
type step uint8

const (
	stepClaim     step = iota + 1 // claim the key and run: no attempt is in doubt
	stepTakeOver                  // claim the key and run: a repetition does no harm
	stepVerify                    // claim the key and ask the verifier first
	stepWait                      // somebody is at it
	stepDuplicate                 // return the receipt
	stepFailed
	stepConflict
	stepStale
	stepHold  // nobody knows, and nothing is done about it
	stepEvict // release what lapsed in the slot of the source, claim the key and run
)

// A vitality says whether the holder of a claim lives.
type vitality uint8

const (
	living  vitality = iota
	waning           // dead, but what it sent may still take effect
	settled          // dead for so long that nothing that it sent takes effect any more
)

// A situation is everything that a decision depends on.
type situation struct {
	entry   *entry // nil: nothing is known of the key
	same    bool   // the entry has this call's fingerprint
	holder  vitality
	policy  Abandoned // VerifyOrHold only with a verifier
	asked   bool      // the verifier was asked a moment ago
	ordered bool
	order   precedence
	source  *source // of an event with an order
}

// A precedence says how an event stands to the others of its source.
type precedence struct {
	against int      // compared with the newest that is sealed: negative is older; positive if none is
	named   bool     // that is this very key
	ties    bool     // equal versions are both to happen
	slot    *entry   // what else is under way; nil: nothing
	holder  vitality // of slot
	newer   bool     // than slot
}

// decide says what to do. It is the table of the package's documentation.
func decide(s situation) step {
	next := s.alone()
	if !s.ordered {
		return next
	}
	switch next {
	case stepClaim, stepTakeOver, stepVerify:
		return s.inOrder(next)
	}
	return next
}

// alone decides as if the source had no other events.
func (s situation) alone() step {
	switch {
	case s.entry == nil || s.entry.State == StateReleased:
		return stepClaim
	case !s.same:
		return stepConflict
	}
	switch s.entry.State {
	case StateSealed:
		return stepDuplicate
	case StateFailed:
		return stepFailed
	case StateInProgress:
		if s.holder == living {
			return stepWait
		}
	}
	switch s.policy {
	case TakeOver:
		return stepTakeOver
	case VerifyOrHold:
		if s.entry.State == StateInProgress && s.holder == waning {
			return stepWait
		}
		if !s.asked {
			return stepVerify
		}
	}
	return stepHold
}

// inOrder decides whether an event may be claimed now.
func (s situation) inOrder(next step) step {
	o := s.order
	switch {
	case o.against < 0:
		return stepStale
	case o.against == 0 && !o.named && !o.ties:
		return stepConflict
	case o.slot == nil:
		return next
	case o.slot.State == StateInProgress && o.holder == living:
		return stepWait
	case s.policy == TakeOver && o.newer:
		return stepEvict
	}
	return stepHold
}
