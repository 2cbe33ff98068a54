package operation

import (
	"context"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/lock"
)

const (
	revokeCheck = 5 * time.Second // how often the keys of the calls that wait are looked at, and for how long at each
	looksAtOnce = 100             // so that thousands of keys are looked at within revokeCheck
)

// Hold returns a context for a call that waits or streams: it ends when ctx does, when the plane closes,
// and within 10 s of the revocation of the caller's key. Call release when the call waits no longer.
func (c *Call) Hold(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	h := &held{c.Who, cancel}
	c.Holds.add(h)
	return ctx, func() {
		cancel()
		c.Holds.remove(h)
	}
}

// A held is a call that waits or streams.
type held struct {
	who *Principal // nil: the operation needs no key
	end context.CancelFunc
}

// Holds are the calls that wait or stream. While there are any, a goroutine looks at their keys every revokeCheck:
// once for all calls of a key, so that a thousand polls of one key cost no more than one.
type Holds struct {
	// Valid reports whether the secret that a principal came with is still accepted.
	Valid func(ctx context.Context, who *Principal) bool

	mu      lock.Mutex // guards the fields below
	all     map[*held]bool
	rest    context.CancelFunc // ends the goroutine; nil: there is none
	closed  bool               // what is added ends at once
	looking sync.WaitGroup     // the goroutine; Add only while closed is false
}

func (s *Holds) add(h *held) {
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

func (s *Holds) remove(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, h)
	if len(s.all) == 0 && s.rest != nil {
		s.rest()
		s.rest = nil
	}
}

// watch looks at the keys until ctx ends.
func (s *Holds) watch(ctx context.Context) {
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
func (s *Holds) look(ctx context.Context) {
	byKey := map[string][]*held{} // by the hash of the secret
	for _, h := range s.list() {
		if h.who != nil {
			byKey[string(h.who.Hash)] = append(byKey[string(h.who.Hash)], h)
		}
	}
	var looks sync.WaitGroup
	free := make(chan struct{}, looksAtOnce)
	for _, calls := range byKey {
		free <- struct{}{}
		looks.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, revokeCheck)
			defer cancel()
			if s.Valid(ctx, calls[0].who) {
				return
			}
			for _, h := range calls {
				h.end()
			}
		})
	}
	looks.Wait()
}

// list returns the calls that wait now.
func (s *Holds) list() (all []*held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.all {
		all = append(all, h)
	}
	return all
}

// Close ends all calls that wait, and all that would wait.
func (s *Holds) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, h := range s.list() {
		h.end()
	}
}

// Wait returns when the goroutine has ended. No call waits any more.
func (s *Holds) Wait() { s.looking.Wait() }
