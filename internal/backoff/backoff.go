// Package backoff is the pause between two tries at a store. Many loops meet one
// fault at the same moment; they are not to come back at the same moment too.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Wait waits for about d: from half of it up to half as much again, as chance has
// it. It is false if ctx is done before.
func Wait(ctx context.Context, d time.Duration) bool {
	if ctx.Value(evenKey{}) == nil {
		d = jitter(d)
	}
	return Sleep(ctx, d)
}

type evenKey struct{}

// Even returns a context under which nothing is left to chance: Wait waits for just d.
// It is for tests that play the same twice.
func Even(ctx context.Context) context.Context { return context.WithValue(ctx, evenKey{}, true) }

// Sleep waits for d and no longer. It is false if ctx is done before.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d)
}
