package etcd

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/storage"
)

// committers is how many transactions of groups are in flight at most.
const committers = 4

// A queue holds batches that wait to be sent. A committer takes those that share no key and fit
// in one transaction.
type queue struct {
	store *Store

	mu      sync.Mutex
	waiting []*ticket
	work    sync.Cond // on mu; signalled when a ticket waits
	closed  bool
	lastErr error // of the last group; nil if it had none
}

// A ticket is a batch in the queue.
type ticket struct {
	batch storage.Batch
	size  storage.Size
	names []mention
	err   error
	over  chan struct{} // closed when err is the result
}

// A mention is a key that a batch names. It is hashed: a collision only keeps two batches from
// sharing a transaction.
type mention struct {
	hash   uint64
	writes bool
}

var seed = maphash.MakeSeed()

func newQueue(s *Store) *queue {
	q := &queue{store: s}
	q.work.L = &q.mu
	return q
}

// commit waits until b was sent and answered. If ctx ends before b is sent, it is withdrawn.
func (q *queue) commit(ctx context.Context, b storage.Batch) error {
	t := &ticket{batch: b, size: b.Size(), over: make(chan struct{})}
	t.names = make([]mention, 0, len(b.If)+len(b.Ops))
	for _, c := range b.If {
		t.names = append(t.names, mention{maphash.Bytes(seed, c.Key), false})
	}
	for _, o := range b.Ops {
		t.names = append(t.names, mention{maphash.Bytes(seed, o.Key), true})
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return storage.ErrClosed
	}
	q.waiting = append(q.waiting, t)
	q.work.Signal()
	q.mu.Unlock()
	select {
	case <-t.over:
	case <-ctx.Done():
		if last, ok := q.withdraw(t); ok {
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: last}
		}
		<-t.over
	}
	return t.err
}

// withdraw removes t, unless a committer has taken it. It returns the error of the last group.
func (q *queue) withdraw(t *ticket) (last error, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, t)
	if i < 0 {
		return nil, false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return q.lastErr, true
}

// shut answers ErrClosed to all waiting batches and to later ones.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, t := range q.waiting {
		t.err = storage.ErrClosed
		close(t.over)
	}
	q.waiting = nil
	q.work.Broadcast()
}

// run sends groups until the queue is shut.
func (q *queue) run() {
	for {
		// Let callers that were just answered run first and join the group.
		runtime.Gosched()
		g := q.next()
		if g == nil {
			return
		}
		q.store.settle(g)
	}
}

// next waits for a group. It returns nil after shut.
func (q *queue) next() []*ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if len(q.waiting) > 0 {
			return q.gather()
		}
		q.work.Wait()
	}
	return nil
}

// gather takes the first batch that waits, and of the others those that fit. A batch that writes
// a key which another of the group names does not: which of them comes first would not be
// defined.
func (q *queue) gather() []*ticket {
	var g []*ticket
	most := q.store.options.MaxTxnOps
	widest, bytes := 0, 0
	taken := map[uint64]bool{} // whether the key is written
	q.waiting = slices.DeleteFunc(q.waiting, func(t *ticket) bool {
		wide := max(widest, len(t.batch.If), len(t.batch.Ops))
		// The group has a transaction for each batch, and a note of what changes. Each of them
		// may have as many operations as that leaves.
		fits := len(g)+2+wide <= most && bytes+t.size.Bytes <= q.store.max.Bytes
		for _, m := range t.names {
			written, named := taken[m.hash]
			fits = fits && !(named && (m.writes || written))
		}
		if len(g) > 0 && !fits {
			return false
		}
		for _, m := range t.names {
			taken[m.hash] = taken[m.hash] || m.writes
		}
		g, widest, bytes = append(g, t), wide, bytes+t.size.Bytes
		return true
	})
	if len(q.waiting) > 0 {
		q.work.Signal()
	}
	return g
}

// settle sends a group and answers it. If the servers or the client refuse a group because it is
// too large for them, it sends each half.
func (s *Store) settle(g []*ticket) {
	batches := make([]storage.Batch, len(g))
	for i, t := range g {
		batches[i] = t.batch
	}
	applied, err := s.send(s.requestOf(batches), len(g), commitTimeout)
	if half := len(g) / 2; refused(err) && half > 0 {
		s.settle(g[:half])
		s.settle(g[half:])
		return
	}
	s.queue.mu.Lock()
	s.queue.lastErr = err
	s.queue.mu.Unlock()
	for i, t := range g {
		t.err = verdict(applied, i, err)
		if err == nil && t.batch.Group != nil {
			*t.batch.Group = len(g)
		}
		close(t.over)
	}
}

// alone sends a batch by itself.
func (s *Store) alone(b storage.Batch, limit time.Duration) error {
	applied, err := s.send(s.request(b), 1, limit)
	if refused(err) && b.HasDeleteRange() {
		return fmt.Errorf("%w; each key that the batch puts in a range that it deletes is sent three times: if it has such keys, put shorter ones, or fewer", verdict(applied, 0, err))
	}
	if err == nil && b.Group != nil {
		*b.Group = 1
	}
	return verdict(applied, 0, err)
}

// verdict is the result of a batch of a group.
func verdict(applied []bool, i int, err error) error {
	switch {
	case refused(err):
		return fmt.Errorf("%w: the servers, or the client with its MaxCallSendMsgSize, accept less than Options.MaxTxnOps and MaxRequestBytes say: set these to the servers' flags: %w", storage.ErrInvalidBatch, err)
	case err != nil:
		return &unknownError{err}
	case !applied[i]:
		return storage.ErrConflict
	}
	return nil
}

// send sends the transaction of n batches, and returns which were applied.
func (s *Store) send(txn clientv3.Op, n int, limit time.Duration) ([]bool, error) {
	answer, err := s.transact(limit, txn)
	if err != nil {
		return nil, err
	}
	if n == 1 {
		return []bool{answer.Succeeded}, nil
	}
	applied := make([]bool, n)
	for i := range applied {
		applied[i] = answer.Responses[i].GetResponseTxn().Succeeded
	}
	return applied, nil
}

// transact sends a transaction. It sends it again only if a server refused the client's token or
// is a learner, because then it has done nothing.
func (s *Store) transact(limit time.Duration, txn clientv3.Op) (*clientv3.TxnResponse, error) {
	for tries := 1; ; tries++ {
		var answer clientv3.OpResponse
		err := s.ask(context.Background(), limit, func(ctx context.Context) (err error) {
			answer, err = s.client.Do(ctx, txn)
			return err
		})
		if err == nil {
			return answer.Txn(), nil
		}
		if !renewed(err) && !learner(err) || tries == 3 {
			return nil, err
		}
	}
}
