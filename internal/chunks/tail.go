package chunks

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// leastPause is how long a tail waits before it looks by itself. The pause doubles while nothing comes, up to four times
// as much.
const leastPause = 250 * time.Millisecond

// A State is what a look at a log has found.
type State struct {
	Generation string
	Count      uint64
	Over       bool // no more chunks were added after Count was read, unless somebody has opened the log again
}

// Tails are the tails of the logs that somebody in this process reads: one for each log.
type Tails struct {
	Hub   *follow.Hub
	Store storage.Storage
	Pause time.Duration // instead of leastPause; for tests

	mu   lock.Mutex
	open map[string]*tail
}

// A Source is what a tail reads.
type Source struct {
	Name string   // different for each log
	Keys [][]byte // that are written whenever the state changes
	Look func(context.Context) (State, error)

	// Head is the one of Keys at which the Head of the log is. What Stores of the Hub append is learned from the Head that
	// they have put there, then. nil: everything takes a look.
	Head []byte
}

// A tail looks at a log again and again, for all who read it.
type tail struct {
	Source
	tails   *Tails
	readers int // guarded by Tails.mu
	stop    context.CancelFunc
	ended   chan struct{}
	bell    chan struct{}

	mu      lock.Mutex // guards what follows
	looks   int        // that have begun
	fresh   bool       // somebody waits for the next look
	of      int        // which look has found state and err
	state   State
	err     error
	changed chan struct{} // closed when there is something new
}

// A Tail tells one reader what there is in a log. It has one user.
type Tail struct {
	*tail
	since int // looks that had begun when the reader came
}

// Follow begins to follow a log. Call Close at the end.
func (ts *Tails) Follow(s Source) *Tail {
	ts.mu.Lock()
	t := ts.open[s.Name]
	if t == nil {
		if ts.open == nil {
			ts.open = map[string]*tail{}
		}
		t = &tail{Source: s, tails: ts, ended: make(chan struct{}), bell: make(chan struct{}, 1), changed: make(chan struct{})}
		ts.open[s.Name] = t
		ctx, stop := context.WithCancel(context.Background())
		t.stop = stop
		go t.run(ctx)
	}
	t.readers++
	ts.mu.Unlock()
	r := &Tail{tail: t}
	r.Refresh()
	return r
}

// Close ends r. The last reader waits for the tail to end.
func (r *Tail) Close() {
	r.tails.mu.Lock()
	r.readers--
	last := r.readers == 0
	if last {
		delete(r.tails.open, r.Name)
	}
	r.tails.mu.Unlock()
	if last {
		r.stop()
		<-r.ended
	}
}

// Refresh has Next use only what is read from now on.
func (r *Tail) Refresh() {
	r.mu.Lock()
	r.since, r.fresh = r.looks, true
	r.mu.Unlock()
	r.nudge()
}

// Next waits until the log has more than past chunks, or is over, or could not be read. If now is true, it
// waits until the log was read once since Follow or Refresh.
func (r *Tail) Next(ctx context.Context, closing <-chan struct{}, past uint64, now bool) (State, error) {
	for {
		r.mu.Lock()
		state, err, changed, known := r.state, r.err, r.changed, r.of > r.since
		r.mu.Unlock()
		if known && (now || err != nil || state.Count > past || state.Over) {
			return state, err
		}
		select {
		case <-changed:
		case <-closing:
			return state, storage.ErrClosed
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

func (t *tail) nudge() {
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (t *tail) run(ctx context.Context) {
	defer close(t.ended)
	written := t.tails.Hub.Hear(t.Keys...) // before the first look
	defer written.Close()
	var watching sync.WaitGroup
	defer watching.Wait()
	if w, ok := storage.As[storage.Watcher](t.tails.Store); ok {
		for _, k := range t.Keys {
			watching.Go(func() { _ = w.Watch(ctx, k, t.nudge) })
		}
	}
	least := cmp.Or(t.tails.Pause, leastPause)
	for pause := least; ; {
		if t.look(ctx) {
			pause = least
		}
		learned := t.rest(ctx, written, pause, least)
		if pause = min(2*pause, 4*least); learned {
			pause = least
		}
		if ctx.Err() != nil {
			return
		}
		for _, told := range []<-chan struct{}{written.Some(), t.bell} { // one look is enough for both
			select {
			case <-told:
			default:
			}
		}
	}
}

// rest waits until it is time for a look: for pause, or for least since something was learned, if that is earlier.
func (t *tail) rest(ctx context.Context, written *follow.Follower, pause, least time.Duration) (learned bool) {
	again, next := time.NewTimer(pause), time.Now().Add(pause)
	defer again.Stop()
	for look := false; !look; {
		select {
		case <-written.Some():
		case <-t.bell:
			look = true
		case <-again.C:
			look = true
		case <-ctx.Done():
			return learned
		}
		more, known := t.learn(written.Heard()) // before the look, so that readers do not wait for it
		look = look || !known
		if more {
			learned = true
			if soon := time.Now().Add(least); soon.Before(next) {
				again.Reset(least)
				next = soon
			}
		}
	}
	return learned
}

// learn takes from what was put under Keys how many chunks there are now, and reports whether there are more of them. known
// is false if a look must tell, because more than that may have changed. See follow.Follower.Heard.
func (t *tail) learn(written map[string][]byte, all bool) (more, known bool) {
	value, ok := written[string(t.Head)]
	switch {
	case t.Head == nil, !all, len(written) > 1, !ok && len(written) > 0:
		return false, false
	case !ok:
		return false, true
	}
	h, err := OpenHead(storage.Entry{Key: t.Head, Value: value})
	if err != nil || h.Closed != "" {
		return false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || t.state.Over || h.Generation != t.state.Generation {
		return false, false
	}
	if h.Count <= t.state.Count {
		return false, true
	}
	t.state.Count = h.Count
	t.tell()
	return true, true
}

// tell wakes those who wait for something new. The caller holds the mutex.
func (t *tail) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// look looks once, and reports whether the log has changed.
func (t *tail) look(ctx context.Context) bool {
	t.mu.Lock()
	t.looks++
	n, fresh := t.looks, t.fresh
	t.fresh = false
	t.mu.Unlock()
	state, err := t.Look(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := err == nil && state != t.state
	if changed || err != nil || fresh {
		t.tell()
	}
	t.state, t.err, t.of = state, err, n
	return changed
}
