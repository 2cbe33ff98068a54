package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weft-go/weft/internal/lock"
)

// Limits of what waits.
const (
	mostPolls      = 1000 // of a key; more are answered at once
	mostStreams    = 100  // of a process
	mostKeyStreams = 8    // of a key

	keyLook = 5 * time.Second // how often the key of what waits is looked at
)

// waits counts what waits in this process.
type waits struct {
	mu      lock.Mutex
	polls   map[string]int // by key
	streams map[string]int // by key
	all     int            // streams
	hooks   int            // webhooks
}

// name names a key in a process.
func (k *principal) name() string { return k.tenant() + "/" + k.id }

// poll counts a long poll until release is called. It is false if the key has too many.
func (w *waits) poll(k *principal) (release func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.polls == nil {
		w.polls = map[string]int{}
	}
	return w.take(w.polls, k.name(), mostPolls, nil)
}

// stream counts a stream until release is called. The error is a problem if there are too many.
func (w *waits) stream(k *principal) (release func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= mostStreams {
		p := newProblem(http.StatusServiceUnavailable, "busy", "This process serves as many streams as it may.").after(streamBeat)
		p.Retry = sameKey
		return nil, p
	}
	if w.streams == nil {
		w.streams = map[string]int{}
	}
	release, ok := w.take(w.streams, k.name(), mostKeyStreams, func() { w.all-- })
	if !ok {
		p := newProblem(http.StatusTooManyRequests, "rate_limited", "The key has as many streams as it may.").after(streamBeat)
		p.Retry = sameKey
		return nil, p
	}
	w.all++
	return release, nil
}

// webhook counts a webhook until release is called. It is false if there are too many.
func (w *waits) webhook() (release func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hooks >= mostWebhooks {
		return nil, false
	}
	w.hooks++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hooks--
	}, true
}

// take counts one of a key. The caller holds mu.
func (w *waits) take(of map[string]int, name string, most int, also func()) (release func(), ok bool) {
	if of[name] >= most {
		return nil, false
	}
	of[name]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if of[name]--; of[name] == 0 {
			delete(of, name)
		}
		if also != nil {
			also()
		}
	}, true
}

// Why the context of what waits has ended.
var (
	errWaited  = errors.New("control: the time to wait is up")
	errClosing = errors.New("control: the plane closes")
)

// watched returns a context for what waits: it ends after a time, when the plane closes, and soon
// after the key was revoked or has expired. A wait of 0 has no end of its own.
func (c *call) watched(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var up <-chan time.Time
		if wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			up = t.C
		}
		look := time.NewTicker(keyLook)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-up:
				cancel(errWaited)
			case <-c.closing:
				cancel(errClosing)
			case <-look.C:
				if !c.stillValid(ctx, c.who) {
					cancel(unknownKey())
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// waitEnded returns why a wait ended, if that is a problem: the key was revoked, or the client has
// gone. That the time is up, or the plane closes, is none.
func waitEnded(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errWaited), errors.Is(cause, errClosing):
		return nil
	default:
		return cause
	}
}
