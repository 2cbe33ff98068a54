package control

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/httpheader"
	"github.com/weft-go/weft/internal/lock"
)

// Limits of calls that wait.
const (
	mostWait   = 60 * time.Second
	maxWaiting = 1000 // long polls of a key; more are answered at once
)

// A waiters counts what waits, by key.
type waiters struct {
	mu    lock.Mutex
	total int
	byKey map[string]int
}

// enter counts one more of a key. It returns false if there are as many as may be: most of the key, or all in
// this process (0: any number).
func (w *waiters) enter(key string, most, all int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey[key] >= most || all > 0 && w.total >= all {
		return false
	}
	if w.byKey == nil {
		w.byKey = map[string]int{}
	}
	w.byKey[key]++
	w.total++
	return true
}

func (w *waiters) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.byKey[key]--; w.byKey[key] <= 0 {
		delete(w.byKey, key)
	}
}

// asked is how long a client asks the call to wait: by the parameter wait, in seconds, or by the header
// Prefer.
func (c *call) asked(wait *int) time.Duration {
	if wait != nil {
		return time.Duration(*wait) * time.Second
	}
	if c.request != nil {
		return httpheader.Wait(c.request.Header, mostWait)
	}
	return 0
}

// revoked returns an error if the key of a call that has waited was revoked meanwhile.
func (c *call) revoked(ctx context.Context) error {
	if !c.valid(context.WithoutCancel(ctx), c.who) {
		return unknownKey()
	}
	return nil
}

// waits returns a context for a long poll of at most d, and whether it may wait at all: not in a batch,
// nor if its key has as many polls as it may. Call release when it waits no longer.
func (c *call) waits(ctx context.Context, d time.Duration) (_ context.Context, release func(), ok bool) {
	d = min(d, c.wait)
	if d <= 0 || c.who == nil {
		return ctx, func() {}, false
	}
	key := c.who.tenant() + "/" + c.who.id
	if !c.polls.enter(key, maxWaiting, 0) {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	ctx, end := c.hold(ctx)
	return ctx, func() {
		end()
		cancel()
		c.polls.leave(key)
	}, true
}
