package control

import (
	"context"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/lock"
)

// revokeCheck is how often the keys of the calls that wait are looked at.
const revokeCheck = 5 * time.Second

// hold returns a context for a call that waits or streams: it ends when ctx does, when the plane closes,
// and within 10 s of the revocation of the caller's key. Call release when the call waits no longer.
func (c *call) hold(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	h := &held{c.who, cancel}
	c.holds.add(h)
	return ctx, func() {
		cancel()
		c.holds.remove(h)
	}
}

// A held is a call that waits or streams.
type held struct {
	who *principal // nil: the operation needs no key
	end context.CancelFunc
}

// holds are the calls that wait or stream. While there are any, a goroutine looks at their keys every revokeCheck:
// once for all calls of a key, so that a thousand polls of one key cost no more than one.
type holds struct {
	valid func(ctx context.Context, who *principal) bool

	mu      lock.Mutex // guards the fields below
	all     map[*held]bool
	rest    context.CancelFunc // ends the goroutine; nil: there is none
	closed  bool               // what is added ends at once
	looking sync.WaitGroup     // the goroutine; Add only while closed is false
}

func (s *holds) add(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		h.end()
		return
	}
	if s.all == nil {
		s.all = map[*held]bool{}
	}
	s.all[h] = true
	if s.rest == nil {
		ctx, rest := context.WithCancel(context.Background())
		s.rest = rest
		s.looking.Go(func() { s.watch(ctx) })
	}
}

func (s *holds) remove(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, h)
	if len(s.all) == 0 && s.rest != nil {
		s.rest()
		s.rest = nil
	}
}

// watch looks at the keys until ctx ends.
func (s *holds) watch(ctx context.Context) {
	t := time.NewTicker(revokeCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.look(ctx)
		}
	}
}

// look ends the calls whose key is not valid any more.
func (s *holds) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, revokeCheck)
	defer cancel()
	byKey := map[string][]*held{} // by the hash of the secret
	for _, h := range s.list() {
		if h.who != nil {
			byKey[string(h.who.hash)] = append(byKey[string(h.who.hash)], h)
		}
	}
	for _, calls := range byKey {
		if s.valid(ctx, calls[0].who) {
			continue
		}
		for _, h := range calls {
			h.end()
		}
	}
}

// list returns the calls that wait now.
func (s *holds) list() (all []*held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.all {
		all = append(all, h)
	}
	return all
}

// close ends all calls that wait, and all that would wait.
func (s *holds) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, h := range s.list() {
		h.end()
	}
}

// wait returns when the goroutine has ended. No call waits any more.
func (s *holds) wait() { s.looking.Wait() }
