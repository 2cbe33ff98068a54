// Package postgres implements a store in one table of a PostgreSQL database,
// version 13 or later. It needs no extension and no stored procedure.
//
// Many processes may have the store open at once. Within one process, concurrent
// commits share a transaction: a group of any size takes two round trips, one that
// locks and reads the rows that its batches name and one that writes and commits.
// A small batch that is alone takes one round trip if its conditions hold.
// Concurrent reads of single keys and of short pages share round trips too, unless
// the pool belongs to the host.
//
// # Connections
//
// A [Store] reads through a pool and commits on its own connections: two that commit
// groups, one for urgent batches and, when they are needed, up to four for batches
// that wait for rows locked by others, and one that listens. Each engine on it holds one more,
// by which others notice its death: see [Store.OpenSession]. These connections keep
// session settings and prepared statements, so a pooler between the store and the
// server must give each its own session: run PgBouncer in session mode, with at least
// as many server connections as it has clients. Its transaction and statement modes
// are refused with [ErrTransactionPooling].
//
// A read whose connection was cut is retried on another; it fails if the server
// accepts no connection. A commit whose outcome is unknown is not retried: its caller
// must find out whether it took place.
//
// # Caveats
//
//   - If a host writes in its own transaction and leaves it open, those who want to
//     write the same keys wait, and nobody else does. If four or more such transactions are open,
//     batches with a DeleteRange and others that meet a locked row may wait behind them too, and time out.
//   - A read or a batch that needs a page or value which the server calls corrupted (XX001, XX002)
//     gets a [storage.ErrCorrupt]. If that is a page of the index, rebuild it with REINDEX.
//   - The server closes a connection that is idle in a transaction for five seconds,
//     because its process was suspended, and so releases its rows.
//   - A batch with a DeleteRange is ordered before every batch that puts a new key into
//     its range while it commits. A concurrent reader may already see the new key
//     and not yet see that the others are deleted. The final state is correct.
//   - With asynchronous or no replication, a fail-over loses what had not reached the
//     standby.
package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/storage"
)

// Options configure a store. The zero value is the default.
type Options struct {
	// Schema and Table name the table: letters, digits and underscores, at most
	// 63 of them, case-sensitive. Default: "weft" and "store". Open creates them
	// if they do not exist; see Migrations.
	Schema, Table string

	// FsyncOff accepts a server that runs with fsync or full_page_writes off,
	// which is refused otherwise, whenever a connection is made. The store does not claim
	// Durable.
	FsyncOff bool

	// NoListen disables LISTEN and NOTIFY, which some poolers do not support.
	// Other processes are not notified of changes, and Watch never calls wake.
	NoListen bool

	// LeaseOnly has engines on this store notice the death of others by their leases only, and
	// hold no session that would prove their own: see storage.Prover. Set it in tests in virtual
	// time.
	LeaseOnly bool

	// ReadOnly opens an existing store for reading. Commit and Transact return
	// errors.ErrUnsupported. Nothing is written. The role needs SELECT on the table and
	// USAGE on the schema. The server must be a primary on which a session may write.
	ReadOnly bool
}

// A Store is a storage.Storage in a table of a PostgreSQL database.
type Store struct {
	options Options
	sql     statements
	pool    *pgxpool.Pool // for reads
	ours    bool          // the store closes the pool, and each of its connections is set up by setUp
	queue   *queue
	tickets pool
	urgent  chan *session // the session for urgent batches, while it is not in use
	notes   *notifier     // nil with NoListen
	watch   *watcher      // nil with NoListen

	reading  reads    // reads in progress
	gatherer gatherer // of reads that share round trips
	// transacts has a slot for each concurrent Transact.
	transacts chan struct{}
	running   sync.WaitGroup // the store's goroutines
	close     sync.Once
}

var _ storage.Watcher = (*Store)(nil)

// Timeouts. Every call ends by itself.
const (
	connectTimeout = 10 * time.Second

	// statementTimeout is the server's limit for a statement. Our limit for a
	// round trip is longer: if we cut the connection, we learn no error.
	statementTimeout = 10 * time.Second
	roundTripTimeout = 12 * time.Second

	// urgentTimeout is the longest limit of a round trip of an urgent batch: the connection may be dead without a sign of it, and
	// then there must be time to try again on another one before the lease ends. See commitUrgent.
	urgentTimeout = 4 * time.Second

	// groupLockTimeout is how long an insert of a group waits for another
	// transaction that inserts the same key. A single batch then waits in a lane.
	groupLockTimeout = 100 * time.Millisecond
	laneLockTimeout  = 7 * time.Second

	// idleTimeout is how long a connection may be idle in a transaction before the
	// server closes it: a third of a lease, and less than laneLockTimeout.
	idleTimeout = 5 * time.Second

	// userTimeout is when the server drops a client that does not acknowledge
	// what it sends.
	userTimeout = 10 * time.Second
)

// Connections of a store: the pool's and its own together are at most maxConns.
const (
	maxConns   = 20
	committers = 2
	maxLanes   = 4
	poolConns  = maxConns - committers - maxLanes - 3 // an urgent one, one that listens, an engine's session
	idleConn   = 20 * time.Second
)

// pingAfter is how long a pooled connection may be unused before it is pinged prior to
// use. An idle engine reads every second. A connection that does not answer within pingTimeout is closed.
const (
	pingAfter   = 2 * time.Second
	pingTimeout = 2 * time.Second
)

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Capabilities returns all capabilities, except that with FsyncOff a store is not Durable,
// and read-only it takes no batches.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: !s.options.ReadOnly,
		AtomicBatch:      !s.options.ReadOnly,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          !s.options.FsyncOff,
		Shared:           true,
		MaxBatch:         maxBatch,
	}
}

// Commit applies b, grouped with concurrent commits.
//
// If the server does not answer, for example because the connection was cut, the outcome
// is unknown; pgconn.SafeToRetry then always reports false.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	if s.options.ReadOnly {
		return wrap("commit", errOpenedReadOnly)
	}
	return wrap("commit", s.commit(ctx, b))
}

func (s *Store) commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(maxBatch); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.If)+len(b.Ops) == 0 {
		return s.queue.open()
	}
	t := s.tickets.get(b)
	defer s.tickets.put(t)
	if b.Urgent {
		return s.commitUrgent(ctx, t)
	}
	if err := s.enter(t); err != nil {
		return err
	}
	select {
	case <-t.woken:
	case <-ctx.Done():
		if last, ok := s.queue.withdraw(t); ok {
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: last}
		}
		<-t.woken
		if t.err == errWithdrawn {
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: errBusy}
		}
	}
	return t.err
}

// commitUrgent applies t on the reserved connection. Groups that begin later do not
// touch its rows; for those in progress it waits in the server.
func (s *Store) commitUrgent(ctx context.Context, t *ticket) error {
	var c *session
	select {
	case <-ctx.Done():
		return s.queue.withdrawn(ctx.Err())
	case c = <-s.urgent:
	}
	defer func() { s.urgent <- c }()
	if err := ctx.Err(); err != nil {
		return s.queue.withdrawn(err)
	}
	if err := s.queue.hold(t); err != nil {
		return err
	}
	c.limit = urgentTimeout
	if deadline, ok := ctx.Deadline(); ok {
		c.limit = min(urgentTimeout, max(time.Until(deadline)/2, time.Second))
	}
	s.settle(c, []*ticket{t})
	<-t.woken
	return t.err
}

// Close makes waiting commits return ErrClosed, waits for commits and reads in progress, and closes the store's own
// connections. It must not be called in a function of Transact, for which it would wait.
func (s *Store) Close() error {
	err := error(storage.ErrClosed)
	s.close.Do(func() {
		s.queue.shut()
		c := <-s.urgent
		s.urgent <- c
		if s.notes != nil {
			s.notes.shut()
			s.watch.shut()
		}
		s.reading.shut()
		s.running.Wait()
		c.close()
		s.running.Wait() // for the cleanup of the connection
		if s.ours {
			s.pool.Close()
		}
		err = nil
	})
	return wrap("close", err)
}
