// Package backoff pauses between attempts. If many loops meet the same fault at the same
// moment, random pauses prevent them from retrying at the same moment.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Wait waits for a random time between 0.5 d and 1.5 d. It returns false if ctx is done
// earlier.
func Wait(ctx context.Context, d time.Duration) bool {
	if ctx.Value(evenKey{}) == nil {
		d = jitter(d)
	}
	return Sleep(ctx, d)
}

type evenKey struct{}

// Even returns a context under which Wait waits for exactly d. It is for tests that must be
// reproducible.
func Even(ctx context.Context) context.Context { return context.WithValue(ctx, evenKey{}, true) }

// Sleep waits for d. It returns false if ctx is done earlier.
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
