package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// On a store that is a storage.Prover, an incarnation holds a session and publishes its proof in
// its record. If the session has ended, others need not wait for the lease to run out.
//
// The end of a session proves the end of a connection, not of a process. So an incarnation whose session is lost renews its
// record without the proof at once. Others believe a proof if the session has ended at two looks, secondLook apart, and if
// the record is the same at both and when they declare its owner dead, which is a compare-and-swap. What is left is an owner
// that lives, has lost its session, and cannot reach the store for so long. Its commits are refused, as always, and its next
// renewal too; but until then its attempts may run beside those of its successor.

const (
	// secondLook is the time between two looks at a session.
	secondLook = 300 * time.Millisecond

	// firstLooks is how long an incarnation that has just started looks that often: the store may
	// not have noticed yet that the process before is gone.
	firstLooks = time.Second
)

// A session is what an incarnation publishes of its own session.
type session struct {
	proof atomic.Pointer[string]
	lost  chan struct{} // asks for a renewal at once, because the proof has been withdrawn
}

// current returns the proof, or "" if there is none.
func (s *session) current() string {
	if p := s.proof.Load(); p != nil {
		return *p
	}
	return ""
}

// withdraw has the record renewed without the proof.
func (s *session) withdraw() {
	s.proof.Store(nil)
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// prover returns the store as a Prover, if incarnations have leases.
func (l *Incarnation) prover() (storage.Prover, bool) {
	p, ok := storage.As[storage.Prover](l.Worker.Store)
	return p, ok && l.Shared()
}

// holdSession opens a session and holds it until end is called, which is after everything else of the incarnation has ended.
func (l *Incarnation) holdSession(ctx context.Context) (end func()) {
	p, ok := l.prover()
	if !ok {
		return func() {}
	}
	ctx, cancel := merged(ctx, l.ctx)
	s, again := l.openSession(ctx, p)
	cancel()
	if s == nil && !again {
		return func() {}
	}
	ctx, cancel = context.WithCancel(l.Worker.Base)
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.keepSession(ctx, p, s)
	}()
	return func() { cancel(); <-over }
}

// openSession opens a session and publishes its proof with the next renewal. If it returns nil,
// again says whether to try again later.
func (l *Incarnation) openSession(ctx context.Context, p storage.Prover) (s storage.Session, again bool) {
	s, err := p.OpenSession(ctx, l.name, saturate.Times(2, l.Worker.LeaseTTL))
	if err != nil {
		if ctx.Err() == nil && l.Once("session") {
			l.Worker.Log.Warn("weft: engine has no session; others notice its death by its lease", "incarnation", l.name, "error", err)
		}
		return nil, true
	}
	if s == nil {
		return nil, false
	}
	proof := s.Proof()
	l.session.proof.Store(&proof)
	return s, true
}

// keepSession opens another session when one is lost. It closes the lost one only a LeaseTTL
// later: by then the proof has been withdrawn, or the lease is lost.
func (l *Incarnation) keepSession(ctx context.Context, p storage.Prover, s storage.Session) {
	for again := true; again; s, again = l.openSession(ctx, p) {
		if s != nil {
			select {
			case <-ctx.Done():
			case <-s.Lost():
				l.session.withdraw()
			}
		}
		more := backoff.Sleep(ctx, l.Worker.LeaseTTL)
		if s != nil {
			s.Close()
		}
		if !more {
			return
		}
	}
}

// lookAtSessions asks the store for the sessions of other engines, and notes in sightings which
// have ended. It returns how long the next look may wait. On an error the leases decide.
func (l *Incarnation) lookAtSessions(ctx context.Context, others []engine) (next time.Duration, _ error) {
	next = l.Worker.PollInterval
	p, ok := l.prover()
	if !ok {
		return next, nil
	}
	var asked []engine
	var proofs []string
	for _, o := range others {
		if r := o.registration; r.Session != "" && r.Stopped == 0 && !r.Dead {
			asked, proofs = append(asked, o), append(proofs, r.Session)
		}
	}
	if len(asked) == 0 {
		return next, nil
	}
	if time.Since(l.registered) < firstLooks {
		next = min(next, secondLook)
	}
	ended, err := p.SessionsEnded(ctx, proofs)
	if err != nil {
		return next, err
	}
	now := time.Now()
	for i, o := range asked {
		seen := l.sightings[o.incarnation]
		if seen.raw != string(o.raw) {
			seen = sighting{raw: string(o.raw), since: now}
		}
		switch {
		case !ended[i]:
			seen.ended, seen.twice = time.Time{}, false
		case seen.ended.IsZero():
			seen.ended = now
			next = min(next, secondLook)
		default:
			seen.twice = now.Sub(seen.ended) >= secondLook
			next = min(next, secondLook)
		}
		l.sightings[o.incarnation] = seen
	}
	return next, nil
}
