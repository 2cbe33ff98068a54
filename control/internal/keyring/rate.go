package keyring

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/httpheader"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// rateWindow is the length of a window. Windows begin at whole minutes.
const rateWindow = time.Minute

// A rateRecord is how many permits of a window processes have taken: ctl:rate:{ns}:{key id}. They
// serve requests with them from memory, so a permit that is taken may not have been used.
type rateRecord struct {
	Window int64 `cbor:"1,keyasint"` // minutes since 1970
	Taken  int   `cbor:"2,keyasint"`
}

// A taking is what a process does to get permits.
type taking struct {
	window    int64 // whose permits these are
	granted   int   // 0: the limit is reached
	next      rateRecord
	remaining int  // permits that nobody has taken, after this
	replaced  bool // the stored window was so far ahead that its writer's clock was wrong
}

// take decides how many permits of those that are stored a process takes at a time. A stored window
// that is one ahead is the one that counts: clocks differ. One further ahead was written by a wrong clock.
func take(stored *rateRecord, now time.Time, limit int) taking {
	window := windowOf(now)
	t := taking{window: window}
	taken := 0
	switch {
	case stored == nil || stored.Window < window:
	case stored.Window <= window+1:
		t.window, taken = stored.Window, stored.Taken
	default:
		t.replaced = true
	}
	t.granted = max(min(max(1, limit/1000), limit-taken), 0)
	t.next = rateRecord{Window: t.window, Taken: taken + t.granted}
	t.remaining = max(limit-t.next.Taken, 0)
	return t
}

func windowOf(t time.Time) int64 { return t.Unix() / int64(rateWindow/time.Second) }

// rates limits how many requests each key may make in a window, over all processes on the store.
type rates struct {
	store storage.Storage
	log   *slog.Logger
	limit int

	mu   lock.Mutex
	keys map[string]*rate // by namespace and key id
}

// A rate is what this process holds of a key's permits.
type rate struct {
	taking chan struct{} // has one element while somebody takes permits

	mu        lock.Mutex
	window    int64
	left      int  // permits in memory
	exhausted bool // nobody gets more in this window
	remaining int  // that nobody has taken, when it was last seen
}

// maxRates is for how many keys permits are remembered.
const maxRates = 10_000

// An Allowance is what a key may do in the rest of its window.
type Allowance struct {
	limit, remaining int
	reset            time.Time // when the next window begins
}

// ratePatience is how long a request waits for a permit.
const ratePatience = 10 * time.Second

// Permit takes a permit of a key for one request.
func (r *Keyring) Permit(ctx context.Context, who *operation.Principal) (Allowance, *operation.Problem) {
	return r.rates.permit(ctx, who)
}

func (r *rates) permit(ctx context.Context, who *operation.Principal) (Allowance, *operation.Problem) {
	ctx, cancel := context.WithTimeout(ctx, ratePatience)
	defer cancel()
	k := r.of(who)
	for {
		if a, done, bad := k.use(time.Now(), r.limit); done {
			return a, bad
		}
		select {
		case k.taking <- struct{}{}:
		case <-ctx.Done():
			return Allowance{}, operation.StoreUnavailable(context.Cause(ctx))
		}
		if err := r.refillOnce(ctx, k, who); err != nil {
			return Allowance{}, operation.Explain(err, false)
		}
	}
}

func (r *rates) of(who *operation.Principal) *rate {
	name := who.Tenant() + "/" + who.ID
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[name]
	if k == nil {
		if r.keys == nil || len(r.keys) >= maxRates {
			r.keys = map[string]*rate{} // what was in memory stays taken
		}
		k = &rate{taking: make(chan struct{}, 1), window: -1}
		r.keys[name] = k
	}
	return k
}

// use takes a permit from memory. It is not done if the store must be asked.
func (k *rate) use(now time.Time, limit int) (a Allowance, done bool, _ *operation.Problem) {
	k.mu.Lock()
	defer k.mu.Unlock()
	window := max(windowOf(now), k.window)
	if window > windowOf(now)+1 {
		window = windowOf(now) // this clock was wrong, and is set back
	}
	a = Allowance{limit: limit, reset: time.Unix((window+1)*int64(rateWindow/time.Second), 0)}
	switch {
	case k.window != window:
		return a, false, nil
	case k.left > 0:
		k.left--
		a.remaining = k.left + k.remaining
		return a, true, nil
	case k.exhausted:
		return a, true, rateLimited(a.reset.Sub(now))
	}
	return a, false, nil
}

// peek reports whether use would be done.
func (k *rate) peek(now time.Time) (window int64, done bool, _ *operation.Problem) {
	k.mu.Lock()
	defer k.mu.Unlock()
	current := k.window >= windowOf(now) && k.window <= windowOf(now)+1
	return k.window, current && (k.left > 0 || k.exhausted), nil
}

// refillOnce takes permits from the store, unless another request has meanwhile. It ends the caller's taking, also if the store panics.
func (r *rates) refillOnce(ctx context.Context, k *rate, who *operation.Principal) error {
	defer func() { <-k.taking }()
	if _, done, _ := k.peek(time.Now()); done {
		return nil
	}
	return r.refill(ctx, k, who)
}

// refill takes permits from the store.
func (r *rates) refill(ctx context.Context, k *rate, who *operation.Principal) error {
	at := keys.ControlRate(who.Tenant(), who.ID)
	s := r.store
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		stored := &rateRecord{}
		raw, unknown, err := records.Read(ctx, s, at, stored)
		if err != nil {
			return err
		}
		if raw == nil {
			stored = nil
		}
		t := take(stored, time.Now(), r.limit)
		if t.granted == 0 {
			k.refilled(t)
			return nil
		}
		c := &records.Change{}
		c.Put(at, raw, &t.next, unknown)
		if c.Err != nil {
			return c.Err
		}
		err = s.Commit(ctx, c.Batch)
		if err == nil {
			if t.replaced {
				r.log.Error("the rate of a key was in a window of the future: a process's clock is wrong", "key", who.ID, "project", who.Project, "environment", who.Environment)
			}
			k.refilled(t)
			return nil
		}
		// After an unknown outcome the permits may be taken, by nobody: fewer pass, never more.
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
		if !backoff.Wait(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

func (k *rate) refilled(t taking) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.window, k.left, k.exhausted, k.remaining = t.window, t.granted, t.remaining == 0, t.remaining
}

// rateLimited is the problem of a request too many: of a window that goes on for rest.
func rateLimited(rest time.Duration) *operation.Problem {
	p := operation.NewProblem(http.StatusTooManyRequests, "rate_limited", "Rate limit exceeded")
	p.Retry = operation.SameKey
	p.Recovery = "Send the request again after the time that Retry-After says."
	return p.After(rest)
}

// Header sets the fields that say what a key may still do.
func (a Allowance) Header(h http.Header) {
	if a.limit == 0 {
		return
	}
	httpheader.Set(h, "X-Ratelimit-Limit", strconv.Itoa(a.limit), "X-Ratelimit-Remaining", strconv.Itoa(a.remaining),
		"X-Ratelimit-Reset", strconv.FormatInt(a.reset.Unix(), 10))
}
