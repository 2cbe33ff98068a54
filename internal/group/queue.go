// Package group combines concurrent commits into one transaction, so that they share one
// sync to disk.
//
// A [Queue] has no goroutine of its own. If nobody is committing, the caller becomes the
// leader and applies its batch at once. Meanwhile, other callers queue up. When the leader
// is done, the first of them becomes the next leader, and applies its own batch together
// with those queued behind it.
package group

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/weft-go/weft/storage"
)

// The maximum size of a group. It may contain a single batch that is larger.
const (
	maxBatches = 1000
	maxBytes   = 8 << 20
)

// maxTries is how often a batch is tried whose group cannot begin.
const maxTries = 50

// An Apply applies batches in one transaction, in order. It evaluates the conditions of
// each batch against the result of those before it. If they do not hold, it leaves the
// batch out and sets its verdict, which is initially nil, to storage.ErrConflict. It
// returns nil when the transaction is as durable as the store promises. If it returns an
// error, the verdicts are ignored.
//
// An error means that the outcome of all batches is unknown, unless it was made by Undone
// or NotBegun. Apply must not keep its arguments.
type Apply func(batches []storage.Batch, verdicts []error) error

// A Queue groups batches for an Apply. It never runs two calls of Apply concurrently.
type Queue struct {
	max   storage.Size
	apply Apply

	mu      sync.Mutex
	led     bool // there is a leader, or one was appointed
	urgent  line
	waiting line
	closed  bool
	lastErr error     // of the last group or function; nil if it succeeded
	idle    sync.Cond // on mu; signalled when led becomes false

	// Tickets for reuse. Each queue has its own, because a channel made in a testing/synctest
	// bubble cannot be used outside of it.
	tickets sync.Pool

	// The leader's working memory. Only the leader uses it.
	members  []*ticket
	batches  []storage.Batch
	verdicts []error
}

// A ticket is a batch in the queue. Its fields are guarded by Queue.mu; after it has left
// the queue they belong to the leader of its group.
type ticket struct {
	batch storage.Batch
	bytes int
	alone bool         // it must not share a transaction
	do    func() error // called instead of applying a batch
	lead  bool         // its caller must lead the next group
	err   error
	woken chan struct{} // receives once, when err is the result or lead is set
}

// New returns a queue for batches of at most max, which are applied by apply.
func New(max storage.Size, apply Apply) *Queue {
	q := &Queue{max: max, apply: apply}
	q.idle.L = &q.mu
	return q
}

// Commit implements storage.Storage's Commit. A batch that fails Batch.Check is refused
// before it joins a group.
//
// When ctx is done, a batch that is still queued, or whose group cannot begin, is
// withdrawn. For a batch that is being applied, Commit waits.
func (q *Queue) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(q.max); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		return &storage.WithdrawnError{Ended: err, Last: q.lastErr}
	}
	t, _ := q.tickets.Get().(*ticket)
	if t == nil {
		t = &ticket{woken: make(chan struct{}, 1)}
	}
	t.batch, t.bytes, t.alone = b, b.Size().Bytes, b.Urgent || b.HasDeleteRange()
	err := q.enter(ctx, t)
	*t = ticket{woken: t.woken}
	q.tickets.Put(t)
	return err
}

// Do calls f in its turn, while no batch is being applied, and returns its error. When ctx
// is done it is withdrawn if it is still queued.
func (q *Queue) Do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return q.enter(ctx, &ticket{alone: true, do: f, woken: make(chan struct{}, 1)})
}

// enter queues t and returns its result. If its group cannot begin, t is queued again, and
// its caller can then withdraw it.
func (q *Queue) enter(ctx context.Context, t *ticket) error {
	for tries := 1; ; tries++ {
		err := q.enqueue(ctx, t)
		n, ok := errors.AsType[*notBegunError](err)
		switch {
		case !ok:
			return err
		case ctx.Err() != nil:
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: n.error}
		case tries == maxTries:
			return n.error
		}
		t.lead, t.err = false, nil
	}
}

// enqueue queues t once.
func (q *Queue) enqueue(ctx context.Context, t *ticket) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return storage.ErrClosed
	}
	if !q.led {
		q.led = true
		q.take(t)
		q.mu.Unlock()
		q.run()
		return t.err
	}
	q.line(t).push(t)
	q.mu.Unlock()

	select {
	case <-t.woken:
	case <-ctx.Done():
		if last, ok := q.withdraw(t); ok {
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: last}
		}
		<-t.woken
	}
	if t.lead && q.gather(t) {
		q.run()
	}
	return t.err
}

// Close makes queued batches and later commits return ErrClosed. It waits for the group
// that is being applied, if any.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, l := range []*line{&q.urgent, &q.waiting} {
		for t := l.pop(); t != nil; t = l.pop() {
			t.answer(storage.ErrClosed)
		}
	}
	for q.led {
		q.idle.Wait()
	}
}

// withdraw removes t, whose caller gives up, from the queue, and returns the error of the
// last group. It returns false if it is too late, because a leader has taken t.
func (q *Queue) withdraw(t *ticket) (last error, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.line(t).remove(t) {
		return q.lastErr, true
	}
	if t.lead { // appointed as leader but not started: appoint another
		<-t.woken // t is used again
		q.pass()
		return q.lastErr, true
	}
	return nil, false
}

// gather forms a group of t, whose caller leads, and the batches queued behind it. If the
// queue was closed meanwhile, it sets the result of t and returns false.
func (q *Queue) gather(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		t.err = storage.ErrClosed
		q.pass()
		return false
	}
	q.take(t)
	if t.alone {
		return true
	}
	bytes := t.bytes
	for next := q.waiting.first(); next != nil; next = q.waiting.first() {
		bytes += next.bytes
		if next.alone || bytes > maxBytes || len(q.members) == maxBatches {
			break
		}
		q.take(q.waiting.pop())
	}
	return true
}

// run applies the group and answers its members. If Apply panics, the members get an error,
// and their outcome is unknown.
func (q *Queue) run() {
	finished := false
	defer func() {
		if finished {
			return
		}
		err := error(&Panic{Value: recover(), Stack: debug.Stack()})
		for _, t := range q.members {
			t.err = err
		}
		q.answer(err)
	}()
	var err error
	if t := q.members[0]; t.do != nil {
		t.err = t.do()
	} else {
		err = q.applyTo(q.members, q.batches)
	}
	finished = true
	q.answer(err)
}

// applyTo applies batches, and sets the results of members, their tickets. If a group was
// undone, it applies each half, so that a failing batch ends up alone. It returns the error
// of the last group.
func (q *Queue) applyTo(members []*ticket, batches []storage.Batch) error {
	q.verdicts = append(q.verdicts[:0], make([]error, len(batches))...)
	err := q.apply(batches, q.verdicts)
	u, undone := errors.AsType[*undoneError](err)
	if half := len(members) / 2; undone && half > 0 {
		q.applyTo(members[:half], batches[:half])
		return q.applyTo(members[half:], batches[half:])
	}
	if undone {
		err = u.error
	}
	for i, t := range members {
		if t.err = err; err == nil {
			t.err = q.verdicts[i]
		}
		if err == nil && t.batch.Group != nil {
			*t.batch.Group = len(members)
		}
	}
	return err
}

// answer appoints the next leader, which comes first so that the disk is not idle, and then
// wakes the members. met is the error of this group, for callers that withdraw later.
func (q *Queue) answer(met error) {
	if n, ok := errors.AsType[*notBegunError](met); ok {
		met = n.error
	}
	members := q.members
	q.members = nil
	clear(q.batches)
	q.batches = q.batches[:0]

	q.mu.Lock()
	q.lastErr = met
	q.pass()
	q.mu.Unlock()
	for _, t := range members[1:] { // the first belongs to the leader itself
		t.woken <- struct{}{}
	}
}

// pass appoints the next leader, if anyone is queued. Its caller holds mu.
func (q *Queue) pass() {
	next := q.urgent.pop()
	if next == nil {
		next = q.waiting.pop()
	}
	if next == nil {
		q.led = false
		q.idle.Broadcast()
		return
	}
	next.lead = true
	next.woken <- struct{}{}
}

// take adds t to the group. Its caller is the leader and holds mu.
func (q *Queue) take(t *ticket) {
	q.members = append(q.members, t)
	q.batches = append(q.batches, t.batch)
}

func (q *Queue) line(t *ticket) *line {
	if t.batch.Urgent {
		return &q.urgent
	}
	return &q.waiting
}

func (t *ticket) answer(err error) {
	t.err = err
	t.woken <- struct{}{}
}
