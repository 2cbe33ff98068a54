package idempotency

import (
	"time"

	"github.com/weft-go/weft/idempotency/internal/entry"
)

// An asking says when the verifier of a key is asked again about an attempt.
type asking struct {
	firstSeen int64 // with attempt: which attempt
	attempt   int

	over  time.Time // from when on the effect can happen for no longer than Settle
	open  time.Time // as that of the attempt
	next  time.Time // not before
	pause time.Duration
}

// Pauses between two questions to the verifier of a key.
const (
	firstAsk = time.Second
	lastAsk  = time.Minute
)

func (q *asking) about(e *entry.Entry) bool {
	return q != nil && e != nil && q.firstSeen == e.FirstSeen && q.attempt == e.Attempt
}

// askedLately says whether the verifier is not to be asked yet about the last attempt of e.
func (l *Ledger) askedLately(hash string, e *entry.Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.asked[hash]
	return q.about(e) && time.Now().Before(q.next)
}

// noteAsked notes that the attempt is in doubt: the verifier was asked about it, or there is none. If it was
// made by somebody else, it may have begun just now.
func (a *attempt) noteAsked() {
	e, over, open := a.claim, a.deadline, a.open
	if over.IsZero() {
		over = time.Now().Add(a.timeout)
		open = over.Add(a.settle)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.asked[a.hash]
	if !q.about(e) {
		q = &asking{firstSeen: e.FirstSeen, attempt: e.Attempt, over: over, open: open}
		a.asked[a.hash] = q
	}
	q.pause = min(max(2*q.pause, firstAsk), lastAsk)
	q.next = time.Now().Add(q.pause)
}

// doubted returns until when what attempts before this one have sent may take effect. It is zero if nothing may.
func (a *attempt) doubted() time.Time {
	if !a.claim.Doubt {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.asked[a.hash]; q.about(a.before) {
		return q.open
	}
	return time.Now().Add(a.timeout).Add(a.settle) // it may have begun just now
}

func (a *attempt) forgetAsked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.asked, a.hash)
}

// trusted says whether the effect of the attempt before, if the verifier does not see it, can no longer happen.
func (a *attempt) trusted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.asked[a.hash]
	return q.about(a.before) && time.Since(q.over) >= a.settle
}
