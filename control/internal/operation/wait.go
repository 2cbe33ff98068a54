package operation

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/httpheader"
	"github.com/weft-go/weft/internal/lock"
)

// Limits of calls that wait.
const (
	MostWait   = 60 * time.Second
	MaxWaiting = 1000 // long polls of a key; more are answered at once
)

// A Waiters counts what waits, by key.
type Waiters struct {
	mu    lock.Mutex
	total int
	byKey map[string]int
}

// Enter counts one more of a key. It returns false if there are as many as may be: most of the key, or all in
// this process (0: any number).
func (w *Waiters) Enter(key string, most, all int) bool {
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

// Leave counts one less of a key.
func (w *Waiters) Leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.byKey[key]--; w.byKey[key] <= 0 {
		delete(w.byKey, key)
	}
}

// Count is how many wait.
func (w *Waiters) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Asked is how long a client asks the call to wait: by the parameter wait, in seconds, or by the header
// Prefer.
func (c *Call) Asked(wait *int) time.Duration {
	if wait != nil {
		return time.Duration(*wait) * time.Second
	}
	if c.Request != nil {
		return httpheader.Wait(c.Request.Header, MostWait)
	}
	return 0
}

// Revoked returns an error if the key of a call that has waited was revoked meanwhile.
func (c *Call) Revoked(ctx context.Context) error {
	if !c.Holds.Valid(context.WithoutCancel(ctx), c.Who) {
		return UnknownKey()
	}
	return nil
}

// Waits returns a context for a long poll of at most d, and whether it may wait at all: not in a batch,
// nor if its key has as many polls as it may. Call release when it waits no longer.
func (c *Call) Waits(ctx context.Context, d time.Duration) (_ context.Context, release func(), ok bool) {
	d = min(d, c.Wait)
	if d <= 0 || c.Who == nil {
		return ctx, func() {}, false
	}
	leave, ok := c.EnterPoll()
	if !ok {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	ctx, end := c.Hold(ctx)
	return ctx, func() {
		end()
		cancel()
		leave()
	}, true
}

// EnterPoll counts a call that waits. It returns false if as many calls of its key wait as may.
func (c *Call) EnterPoll() (leave func(), ok bool) {
	key := c.Who.Tenant() + "/" + c.Who.ID
	if !c.Polls.Enter(key, MaxWaiting, 0) {
		return nil, false
	}
	return func() { c.Polls.Leave(key) }, true
}
