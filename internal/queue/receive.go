package queue

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

const (
	mostTaken  = 100             // messages that are taken in one batch
	takeBytes  = 512 << 10       // of their records
	readFirst  = 8               // messages that are read while it is not known how large they are
	readAtOnce = 32              // the most: large ones may be behind small ones
	mostLines  = 1000            // that are kept while nobody receives
	afield     = 16              // how many times as many are read after a refusal, and how often
	firstPoll  = time.Second / 4 // between looks at a queue that is empty; doubles to lastPoll
	lastPoll   = time.Second
	heldPage   = 1000   // entries of messages that are read at once
	mostHeld   = 20_000 // messages whose consumers are gone that a process has seen
)

// A Delivery is a message that a consumer holds until a time.
type Delivery struct {
	ID      string // the same in each delivery of the message
	Name    string
	Body    []byte
	Headers map[string]string
	Attempt int    // how often the message has been delivered; deliveries that were given back uncounted are left out
	Receipt string // of this delivery
	Until   time.Time
}

// Receive takes at most n messages of a queue. If there is none, it waits for one for that long, and returns
// none then. Whoever is gone when a message comes gets none: ctx says so.
//
// The caller holds the messages for the Visibility. Then others get them, unless Settle was called.
// An error is one of the store, ErrInvalid, ErrClosed, or that of ctx.
func (q *Queue) Receive(ctx context.Context, queue string, n int, wait time.Duration) ([]Delivery, error) {
	if queue == "" || len(queue) > keys.MaxName || n < 1 || wait < 0 {
		return nil, fmt.Errorf("%w: receive %d messages of %q, waiting for %v", ErrInvalid, n, queue, wait)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{ctx: ctx, n: min(n, mostTaken), got: make(chan received, 1), looked: make(chan struct{})}
	l, err := q.join(queue, w)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var r received
	select {
	case r = <-w.got:
	case <-ctx.Done():
	case <-timer.C:
		select { // it waits for one look at the queue in any case
		case r = <-w.got:
		case <-ctx.Done():
		case <-w.looked:
		}
	}
	l.leave(w)
	select {
	case r = <-w.got: // it came just now
	default:
	}
	if ctx.Err() != nil {
		q.giveBack(queue, r.deliveries)
		return nil, context.Cause(ctx)
	}
	return r.deliveries, r.err
}

// A waiter is a call of Receive.
type waiter struct {
	ctx    context.Context
	n      int
	got    chan received // gets one at most
	seen   bool          // looked is closed; guarded by line.mu
	looked chan struct{} // closed when a look at the queue has ended that was begun for it
}

type received struct {
	deliveries []Delivery
	err        error
}

// A line has those who wait for messages of one queue in this process. One goroutine takes messages for all of
// them, while there are any.
type line struct {
	q    *Queue
	name string
	wake chan struct{}

	mu      sync.Mutex // guards the fields below
	waiters []*waiter
	serving bool // the goroutine lives

	// Of the goroutine alone.
	sightings map[string]time.Time // when overdue entries were first seen as they are, by the monotonic clock
	looked    time.Time            // when held messages were looked at
}

// join adds a waiter to the line of a queue.
func (q *Queue) join(queue string, w *waiter) (*line, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	l := q.lines[queue]
	if l == nil {
		l = &line{q: q, name: queue, wake: make(chan struct{}, 1)}
		q.lines[queue] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = append(l.waiters, w)
	if !l.serving {
		l.serving = true
		q.work.Go(l.serve)
	}
	l.nudge()
	return l, nil
}

// nudge has those who wait for a queue in this process look at it.
func (q *Queue) nudge(queue string) {
	q.mu.Lock()
	l := q.lines[queue]
	q.mu.Unlock()
	if l != nil {
		l.nudge()
	}
}

func (l *line) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// leave removes a waiter that gives up.
func (l *line) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
}

// wanted returns how many messages are waited for, and by whom. If by nobody, the goroutine ends, and of many lines this one is
// forgotten, unless it knows something.
func (l *line) wanted() (n int, by []*waiter) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool { return w.ctx.Err() != nil })
	for _, w := range l.waiters {
		n += w.n
	}
	if n == 0 {
		l.serving = false
		if len(l.q.lines) > mostLines && len(l.sightings) == 0 {
			delete(l.q.lines, l.name)
		}
	}
	return min(n, mostTaken), slices.Clone(l.waiters)
}

// serve takes messages for those who wait, until nobody does.
func (l *line) serve() {
	watching, stop := context.WithCancel(l.q.life)
	defer stop()
	if s, ok := storage.As[storage.Watcher](l.q.Storage); ok {
		l.q.work.Go(func() { _ = s.Watch(watching, keys.QueueDueOf(l.name).Start, l.nudge) }) // a hint: the poll finds all
	}
	poll := firstPoll
	for {
		n, by := l.wanted()
		if n == 0 {
			return
		}
		if l.q.life.Err() != nil {
			l.deal(nil, ErrClosed)
			continue
		}
		taken, next, err := l.take(n)
		if err != nil && l.q.life.Err() != nil {
			err = ErrClosed // which is why the store failed
		}
		l.deal(taken, err)
		if len(taken) > 0 || err != nil {
			poll = firstPoll
			continue
		}
		l.saw(by)
		pause := poll
		if next > 0 {
			pause = min(pause, next)
		}
		poll = min(2*poll, lastPoll)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.wake:
			poll = firstPoll
		case <-l.q.life.Done():
		}
		timer.Stop()
	}
}

// saw records that a look for these waiters has ended.
func (l *line) saw(by []*waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range by {
		if !w.seen {
			w.seen = true
			close(w.looked)
		}
	}
}

// deal gives what was taken to those who wait, in the order in which they came, or all of them an error. What
// nobody waits for any more is given back.
func (l *line) deal(taken []Delivery, err error) {
	l.mu.Lock()
	var rest []*waiter
	for _, w := range l.waiters {
		switch {
		case w.ctx.Err() != nil:
		case err != nil:
			w.got <- received{err: err}
		case len(taken) > 0:
			n := min(w.n, len(taken))
			w.got <- received{deliveries: taken[:n:n]}
			taken = taken[n:]
		default:
			rest = append(rest, w)
		}
	}
	l.waiters = rest
	l.mu.Unlock()
	l.q.giveBack(l.name, taken)
}

// giveBack returns deliveries that nobody wants. If that fails, their time ends.
func (q *Queue) giveBack(queue string, some []Delivery) {
	var all []Settlement
	for _, d := range some {
		all = append(all, Settlement{ID: d.ID, Receipt: d.Receipt, As: Retry, Uncounted: true})
	}
	q.Settle(q.life, queue, all...)
}

// take takes at most n messages that are due. next is how long it is until another one is, if that is
// known.
func (l *line) take(n int) (taken []Delivery, next time.Duration, err error) {
	q := l.q
	if ops := q.Storage.Capabilities().MaxBatch.Ops; ops > 0 {
		n = max(1, min(n, ops/4)) // a condition and three operations each
	}
	waiting := keys.QueueDueOf(l.name)
	prefix := waiting.Start
	waiting.Limit = n
	for refused, window := 0, n; ; {
		now := q.now()
		due, next, err := l.due(now, waiting)
		if err != nil || len(due) == 0 {
			return nil, next, err
		}
		from := 0
		if refused > 0 { // another process takes at the front
			from = mathrand.IntN(max(1, len(due)-n+1))
			due = due[from:]
		}
		due = due[:min(window, len(due))]
		found, looked, err := l.read(due)
		if err != nil {
			return nil, next, err
		}
		if len(found) == 0 && from == 0 {
			// The front is damaged, or was taken meanwhile: what is behind it must not wait for that.
			if last := due[looked-1]; bytes.HasPrefix(last, prefix) {
				waiting.Start = append(slices.Clone(last), 0)
			}
			window = min(2*window, mostTaken)
			waiting.Limit = max(waiting.Limit, window)
			continue
		}
		found = found[:min(n, len(found))]
		b, taken, err := taking(found, now, q.Visibility, rand.Text(), q.Storage.Capabilities().MaxBatch.Bytes)
		if err != nil {
			return nil, next, err
		}
		if len(taken) > 0 {
			err = settle.New(q.life, q.Storage, b, func(ctx context.Context) (bool, error) { return l.holds(ctx, taken) })
		}
		if err == nil && len(taken) > 0 {
			for _, m := range found[:len(taken)] {
				delete(l.sightings, string(m.entry()))
			}
			return taken, 0, nil
		}
		if err != nil && !errors.Is(err, storage.ErrConflict) {
			return nil, next, err
		}
		if refused++; refused > afield { // all of it is contended
			return nil, next, nil
		}
		waiting.Limit = max(waiting.Limit, afield*n)
	}
}

// due returns the entries of messages that are to be delivered, at most as many as the limit of waiting, and how long it is until
// another one is. Those that wait, in the range waiting, may be taken when it is their time. Those that somebody held when it ended
// may be taken if the same entry was seen for half of the Visibility: whoever lives has extended it by
// then, so a clock that is ahead takes nothing from him.
func (l *line) due(now time.Time, waiting storage.Range) (due [][]byte, next time.Duration, err error) {
	q := l.q
	if looked := time.Now(); looked.Sub(l.looked) >= q.Visibility/8 {
		r := keys.QueueHeldUntil(l.name, now)
		r.Limit = heldPage
		seen := map[string]time.Time{}
		for e, err := range storage.All(q.life, q.Storage, r) {
			if err != nil {
				return nil, 0, err
			}
			if len(seen) == mostHeld {
				break
			}
			since, ok := l.sightings[string(e.Key)]
			if !ok {
				since = looked
			}
			seen[string(e.Key)] = since
		}
		l.sightings, l.looked = seen, looked
	}
	for k, since := range l.sightings {
		if time.Since(since) >= q.Visibility/2 && len(due) < waiting.Limit {
			due = append(due, []byte(k))
		}
	}
	for {
		entries, err := q.Storage.Scan(q.life, waiting)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range entries {
			_, at, _, err := keys.QueueTime(e.Key)
			switch {
			case err != nil:
				q.Damaged(string(e.Key), err)
			case at.After(now):
				return due, max(at.Sub(now), time.Millisecond), nil
			case len(due) < waiting.Limit:
				due = append(due, e.Key)
			}
		}
		if len(due) > 0 || len(entries) < waiting.Limit {
			return due, 0, nil
		}
		waiting.Start = append(slices.Clone(entries[len(entries)-1].Key), 0) // no key of the page can be read
		waiting.Limit = min(2*waiting.Limit, heldPage)
	}
}

// read returns the messages of entries, and how many of those it has looked at: as many as one batch should have. It leaves out
// messages that have changed since the entries were read, and what is damaged.
func (l *line) read(entries [][]byte) (found []*message, looked int, err error) {
	ids := make([]string, len(entries))
	for i, e := range entries {
		if _, _, ids[i], err = keys.QueueTime(e); err != nil {
			l.q.Damaged(string(e), err)
		}
	}
	raws, err := l.q.stored(l.q.life, l.name, ids)
	if err != nil {
		return nil, 0, err
	}
	for i, raw := range raws {
		var m *message
		if raw != nil {
			m, err = openMessage(l.name, ids[i], raw)
		}
		switch {
		case m == nil:
		case record.Damaged(err):
			l.q.Damaged(string(m.key()), err)
		case err != nil:
			return nil, 0, err
		case !m.fits(l.q.Storage.Capabilities().MaxBatch.Bytes): // the store had a higher limit
			l.q.Damaged(string(m.key()), errors.New("queue: the message is too large for the store to be delivered"))
		case string(m.entry()) == string(entries[i]):
			found = append(found, m)
			continue
		}
		delete(l.sightings, string(entries[i]))
	}
	return found, len(raws), nil
}

// taking returns the batch by which receipt takes messages, and their deliveries. It takes the first ones, as
// many as one batch should have, and may have: limit bytes, if that is not 0.
func taking(found []*message, now time.Time, visibility time.Duration, receipt string, limit int) (b storage.Batch, taken []Delivery, err error) {
	records, changes := 0, 0
	for _, m := range found {
		records, changes = records+len(m.raw), changes+m.change()
		if len(taken) > 0 && (records > takeBytes || limit > 0 && changes > limit) {
			break
		}
		after := *m
		after.Receipt, after.Attempt = receipt, m.Attempt+1
		after.At = now.Add(visibility).UnixMicro()
		if err := m.become(&b, &after); err != nil {
			return b, nil, err
		}
		taken = append(taken, Delivery{ID: m.id, Name: m.Name, Body: m.Body, Headers: m.Headers, Attempt: after.Attempt, Receipt: receipt, Until: time.UnixMicro(after.At)})
	}
	return b, taken, nil
}

// holds reports whether the batch that took messages was applied: one of them has its receipt.
func (l *line) holds(ctx context.Context, taken []Delivery) (bool, error) {
	for _, d := range taken {
		raw, err := l.q.Storage.Get(ctx, keys.QueueMessage(l.name, d.ID))
		if err == nil {
			var m *message
			if m, err = openMessage(l.name, d.ID, raw); err == nil && (m.Receipt == d.Receipt || m.Returned == d.Receipt) {
				return true, nil
			}
		}
		if err = absent(err); err != nil && !record.Damaged(err) {
			return false, err
		}
	}
	return false, nil
}
