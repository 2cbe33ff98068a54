// Package group gathers concurrent commits into one transaction, so that they
// share its sync to disk.
//
// A [Queue] has no goroutine of its own. A caller who finds nobody committing
// leads: it runs its batch at once. While it does, others queue up; when it is
// done it passes the lead to the first of them, who takes along those that
// queued behind it.
package group

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/weft-go/weft/storage"
)

// A group is at most this large. It may have one batch that is larger.
const (
	maxBatches = 1000
	maxBytes   = 8 << 20
)

// maxTries is how often a batch is tried whose group does not begin.
const maxTries = 50

// An Apply runs batches in one transaction, in their order. It judges the
// conditions of each on what the ones before it did, leaves out one whose
// conditions do not hold, and then sets its verdict, which comes in nil, to
// storage.ErrConflict. It returns nil when the transaction is as durable as the
// store promises; else the verdicts do not count.
//
// An error means that the outcome of all of them is unknown, unless it was made
// by Undone or NotBegun. Apply does not keep what it is passed.
type Apply func(batches []storage.Batch, verdicts []error) error

// A Queue puts batches before an Apply, which it never calls twice at once.
type Queue struct {
	max   storage.Size
	apply Apply

	mu      sync.Mutex
	led     bool // somebody leads, or was told to
	urgent  line
	waiting line
	closed  bool
	trouble error     // of the last group or function; nil: it was done
	idle    sync.Cond // on mu; signalled when led becomes false

	// What the leader works on. Only the leader touches it.
	members  []*ticket
	batches  []storage.Batch
	verdicts []error
}

// A ticket is a batch in the queue. Its fields are guarded by Queue.mu, and
// belong to the leader of its group once it has left the line.
type ticket struct {
	batch storage.Batch
	bytes int
	alone bool         // it must not share a transaction
	do    func() error // instead of a batch
	lead  bool         // its caller has to lead the next group
	err   error
	woken chan struct{} // receives once: err is the answer, or lead is set
}

// New returns a queue of batches of at most max, which are given to apply.
func New(max storage.Size, apply Apply) *Queue {
	q := &Queue{max: max, apply: apply}
	q.idle.L = &q.mu
	return q
}

// Commit answers as storage.Storage says of its Commit. A batch that does not
// pass Batch.Check is refused before it joins a group.
//
// Once ctx is done a batch that is still in line, or whose group does not begin, is
// withdrawn; one that is being applied is waited for.
func (q *Queue) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(q.max); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		return &storage.WithdrawnError{Ended: err, Last: q.trouble}
	}
	return q.enter(ctx, &ticket{batch: b, bytes: b.Size().Bytes, alone: b.Urgent || b.HasDeleteRange()})
}

// Do calls f when its turn has come, while nothing is applied, and returns its
// answer. A context that is done withdraws it as long as it is in line.
func (q *Queue) Do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return q.enter(ctx, &ticket{alone: true, do: f})
}

// enter puts t in line and returns its answer. While its group does not begin t goes
// back in line, where its caller can withdraw it.
func (q *Queue) enter(ctx context.Context, t *ticket) error {
	for tries := 1; ; tries++ {
		err := q.stand(ctx, t)
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

// stand puts t in line once.
func (q *Queue) stand(ctx context.Context, t *ticket) error {
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
	t.woken = make(chan struct{}, 1)
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

// Close answers ErrClosed to all that are in line, and returns when the group
// that is being applied, if any, was answered. Later commits answer ErrClosed.
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

// withdraw takes t, whose caller gives up, out of the line. It is too late, and
// withdraw says no, when a leader took t along. Else it returns what the last of those
// before t met.
func (q *Queue) withdraw(t *ticket) (last error, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.line(t).remove(t) {
		return q.trouble, true
	}
	if t.lead { // told to lead and not begun: somebody else shall
		q.pass()
		return q.trouble, true
	}
	return nil, false
}

// gather makes a group of t, whose caller leads, and of what is in line behind
// it. It says no if the queue was closed meanwhile, which answers t.
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

// run applies the group and answers its members. The answers do not depend on
// how Apply ended: a panic in it is an error, and an unknown outcome.
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

// applyTo sets the answers of members, whose batches are given beside them. A
// group that was undone is halved, so that the batch to blame ends up alone. It returns
// the error of the last group.
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
	}
	return err
}

// answer passes the lead on, which comes first so that the disk does not wait,
// and wakes the members. Those who wait may be told what this group met.
func (q *Queue) answer(met error) {
	if n, ok := errors.AsType[*notBegunError](met); ok {
		met = n.error
	}
	members := q.members
	q.members = nil
	clear(q.batches)
	q.batches = q.batches[:0]

	q.mu.Lock()
	q.trouble = met
	q.pass()
	q.mu.Unlock()
	for _, t := range members[1:] { // the first is the leader's own
		t.woken <- struct{}{}
	}
}

// pass tells the next in line to lead, if there is one. Its caller holds mu.
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

// take makes t a member of the group. Its caller leads and holds mu.
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
