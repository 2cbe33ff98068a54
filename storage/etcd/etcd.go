// Package etcd implements a store in an etcd cluster. It is tested with version 3.7.3 of etcd. It
// is a module of its own, so that only those who import it depend on etcd's client.
//
// Many processes may have the store open at once. A batch is one etcd transaction: its
// conditions are comparisons and its operations are puts and deletes. Within one process,
// concurrent batches that share no key are sent together. Each of them is a transaction within
// the transaction that is sent, and is judged by itself.
//
// # Members
//
// A [Store] sends all its calls to one member of the cluster. If that member is gone, has lost
// its leader, is a learner or does not answer for two seconds, the store turns to the next. Reads
// are linearizable; a read without an answer is repeated on another member. A commit is sent to
// another member only if the first refused it as a learner: if its answer is lost, its outcome is
// unknown, and its caller must find out whether it took place.
//
// # What the cluster needs
//
//   - Automatic compaction: the servers' --auto-compaction-mode and --auto-compaction-retention.
//     etcd keeps every earlier version of a key until it is compacted.
//   - Room: a cluster whose database has reached --quota-backend-bytes accepts only batches
//     that delete until an operator has compacted and defragmented it and disarmed its alarm. [Store.Space] returns
//     how full it is.
//   - Its own disk: a commit takes as long as a majority of the members needs to sync it.
//
// # Caveats
//
//   - The store claims to be Durable, and cannot see whether the servers run with
//     --unsafe-no-fsync.
//   - A cluster with the alarm CORRUPT refuses to write, with etcd's error "corrupt cluster". It
//     is not a [storage.ErrCorrupt], after which a single record is taken to be damaged: all
//     workflows wait until an operator has repaired the cluster and disarmed the alarm.
//   - A page in reverse order makes the server read its whole range: the history of a
//     workflow, or a list whose newest element comes first.
package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/storage"
)

// Options configure a store. The zero value is the default.
type Options struct {
	// Prefix begins every key of the store: a namespace, so that several stores and other
	// programs can share a cluster. No store's Prefix may be the beginning of another's. With
	// etcd's authentication, the user needs a role with the permission readwrite for it. At
	// most 256 bytes. Default: "weft/".
	Prefix string

	// MaxTxnOps and MaxRequestBytes are the limits of the servers, as in their flags
	// --max-txn-ops and --max-request-bytes. Capabilities.MaxBatch follows from them: one
	// operation less, and two thirds of the bytes. Default: 128, and 1.5 MiB.
	//
	// One batch of that size may be refused: one that puts long keys in a range that it deletes.
	// Each of them is sent three times. With the defaults, such keys may have 200 KiB together.
	MaxTxnOps, MaxRequestBytes int
}

// A Store is a storage.Storage in an etcd cluster.
type Store struct {
	options Options
	id      string // in notes of changes, so that it ignores its own
	max     storage.Size
	layout  layout
	client  *clientv3.Client
	members members
	queue   *queue
	watch   *watcher

	ctx     context.Context // until Close; of reads
	cancel  context.CancelFunc
	mu      sync.Mutex // guards closed, and calls.Add
	closed  bool
	calls   sync.WaitGroup // in progress
	running sync.WaitGroup // the store's goroutines
	close   sync.Once
}

var _ storage.Watcher = (*Store)(nil)

// Timeouts. Every call ends by itself.
const (
	// silence is how long a member may take to answer before other calls turn to the next.
	silence = 2 * time.Second

	// commitTimeout is shorter than a server waits for a transaction that was lost with a leader,
	// which is seven seconds by default. When it gives up it knows no more than we do.
	commitTimeout = 5 * time.Second

	// urgentTimeout is shorter: a lease whose renewal has an unknown outcome is read and
	// renewed again while it lasts.
	urgentTimeout = 3 * time.Second

	readTimeout = 12 * time.Second

	// keepAlive is when the client asks a silent connection for a sign of life, and how long
	// it waits for that. gRPC permits no shorter time.
	keepAlive        = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Capabilities returns all capabilities.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: true,
		AtomicBatch:      true,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          true,
		Shared:           true,
		MaxBatch:         s.max,
	}
}

// Commit applies b, grouped with concurrent commits.
//
// It returns storage.ErrInvalidBatch if the servers, or the client with its MaxCallSendMsgSize, accept
// less than Options say, or if b puts too many long keys in a range that it deletes: see Options.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	return wrap("commit", s.commit(ctx, b))
}

func (s *Store) commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.max); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	switch {
	case len(b.If)+len(b.Ops) == 0:
		return nil
	case b.Urgent:
		return s.alone(b, urgentTimeout)
	case !puts(b) || b.HasDeleteRange():
		return s.alone(b, commitTimeout)
	}
	return s.queue.commit(ctx, b)
}

// puts reports whether b puts anything. If not, a cluster without room accepts it, unless it is
// sent with puts.
func puts(b storage.Batch) bool {
	return slices.ContainsFunc(b.Ops, func(o storage.Op) bool { return o.Kind == storage.PutOp })
}

// begin counts a call that Close waits for. It fails after Close.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return storage.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Close makes waiting commits and reads return ErrClosed, waits for the commits in progress, and
// closes the connections.
func (s *Store) Close() error {
	err := error(storage.ErrClosed)
	s.close.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.cancel()
		s.queue.shut()
		s.calls.Wait()
		s.running.Wait()
		err = s.client.Close()
	})
	return wrap("close", err)
}
