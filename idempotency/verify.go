package idempotency

import "time"

// An asking says when the verifier of a key is asked again.
type asking struct {
	first time.Time // when this ledger first found the key in doubt
	next  time.Time // not before
	pause time.Duration
}

// Pauses between two questions to the verifier of a key.
const (
	firstAsk = time.Second
	lastAsk  = time.Minute
)

// askedLately says whether the verifier of a key is not to be asked yet.
func (l *Ledger) askedLately(hash string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asked[hash]
	return a != nil && time.Now().Before(a.next)
}

// noteAsked notes that the key of the attempt is in doubt: the verifier was asked, or there is none.
func (a *attempt) noteAsked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.asked[a.hash]
	if q == nil {
		q = &asking{first: time.Now()}
		a.asked[a.hash] = q
	}
	q.pause = min(max(2*q.pause, firstAsk), lastAsk)
	q.next = time.Now().Add(q.pause)
}

func (a *attempt) forgetAsked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.asked, a.hash)
}

// trusted says whether an effect that the verifier does not see can no longer happen: this ledger has
// known for the time of Settle that the key is in doubt.
func (a *attempt) trusted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.asked[a.hash]
	return q != nil && time.Since(q.first) >= a.settle
}
