// Package postgres keeps a store in one table of a PostgreSQL database, of
// version 13 or later. It needs no extension and no stored procedure.
//
// Many processes may have the store open at once. Within one, concurrent commits
// share a transaction: a group of any size takes two round trips, one that locks
// and reads what its batches name and one that writes and commits. Concurrent
// reads of single keys and of short pages share round trips too, unless the pool
// is the host's.
//
// # Connections
//
// A [Store] reads through a pool and commits on connections of its own: two
// that commit groups, one for urgent batches, and, once they are needed, four
// for batches that have to wait for rows which others have locked, and one that
// listens. They hold session settings and prepared statements, so what is
// between the store and the server has to keep sessions apart: PgBouncer in its
// session mode, with as many server connections as its clients have. Its transaction
// and statement modes are refused with [ErrTransactionPooling].
//
// A read whose connection was cut goes to another, and fails if the server lets nobody
// in. A commit of which nobody knows whether it took place is its caller's to look
// after.
//
// # Caveats
//
//   - A host that writes in a transaction of its own and leaves it open makes
//     those wait who want to write the same keys, and nobody else.
//   - A connection that is idle in a transaction for five seconds, because its
//     process was stopped, is cut by the server, so that others get its rows.
//   - A batch with a DeleteRange comes before every batch that puts a new key into
//     its range at the moment of its commit. Who reads at that very moment may see
//     the new key already, and not yet that the others are gone. What is there then
//     is right.
//   - With asynchronous or no replication, a fail-over loses what the standby
//     did not have yet.
package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/storage"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Schema and Table name the table: letters, digits and underscores, at most
	// 63 of them, case kept. Default: "weft" and "store". They are created if
	// they are not there; see Migrations.
	Schema, Table string

	// FsyncOff takes a server that runs with fsync or full_page_writes off,
	// which without it is refused. The store no longer claims Durable.
	FsyncOff bool

	// NoListen does without LISTEN and NOTIFY, which do not get through every
	// pooler: nobody is told of changes, and Watch never wakes.
	NoListen bool
}

// A Store is a storage.Storage in a table.
type Store struct {
	options Options
	sql     statements
	pool    *pgxpool.Pool // for reads
	ours    bool          // the pool is ours to close
	desk    *desk
	tickets pool
	urgent  chan *session // the one for urgent batches, when nobody uses it
	notes   *notifier     // nil: NoListen
	watch   *watcher      // nil: NoListen

	reading reads    // read calls that go on
	company gatherer // of reads that share round trips
	// transacts has a place for each Transact that may go on.
	transacts chan struct{}
	running   sync.WaitGroup // our goroutines
	close     sync.Once
}

var _ storage.Watcher = (*Store)(nil)

// How long things may take. Every call ends by itself.
const (
	connectTimeout = 10 * time.Second

	// statementTimeout is the server's bound of a statement. Ours of a round
	// trip is longer, as a connection that we cut says nothing.
	statementTimeout = 10 * time.Second
	roundTripTimeout = 12 * time.Second

	// groupLockTimeout is how long a group waits, in an insert, for another
	// transaction that inserts the same key. A batch alone waits in a lane.
	groupLockTimeout = 100 * time.Millisecond
	laneLockTimeout  = 7 * time.Second

	// idleTimeout is when the server cuts a connection that is idle in a
	// transaction: a third of a lease, and less than laneLockTimeout.
	idleTimeout = 5 * time.Second

	// userTimeout is when the server gives up a client that acknowledges
	// nothing.
	userTimeout = 10 * time.Second
)

// Connections of a store: our pool and our own together are maxConns.
const (
	maxConns   = 20
	committers = 2
	maxLanes   = 4
	poolConns  = maxConns - committers - maxLanes - 2
	idleConn   = 20 * time.Second
)

// pingAfter is for how long a connection was not used that is asked whether it lives
// before it is. An engine that has nothing to do looks every second.
const pingAfter = 2 * time.Second

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Capabilities of a Store: all of them. One with FsyncOff is not Durable.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: true,
		AtomicBatch:      true,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          !s.options.FsyncOff,
		Shared:           true,
		MaxBatch:         maxBatch,
	}
}

// Commit applies b together with what others commit at the same time.
//
// An error without an answer from the server, as of a connection that was cut,
// leaves the outcome unknown; pgconn.SafeToRetry never says otherwise of it.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
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
		return s.desk.open()
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
		if last, ok := s.desk.withdraw(t); ok {
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: last}
		}
		<-t.woken
		if t.err == errWithdrawn {
			return &storage.WithdrawnError{Ended: ctx.Err(), Last: errBusy}
		}
	}
	return t.err
}

// commitUrgent applies t on the reserved connection. Groups that begin later do
// not touch its rows; those in flight are waited for in the server.
func (s *Store) commitUrgent(ctx context.Context, t *ticket) error {
	var c *session
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c = <-s.urgent:
	}
	defer func() { s.urgent <- c }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.desk.hold(t); err != nil {
		return err
	}
	s.settle(c, []*ticket{t})
	<-t.woken
	return t.err
}

// Close answers ErrClosed to what waits, waits for what is being committed or
// read, and closes the connections that are the store's own.
func (s *Store) Close() error {
	err := error(storage.ErrClosed)
	s.close.Do(func() {
		s.desk.shut()
		c := <-s.urgent
		s.urgent <- c
		if s.notes != nil {
			s.notes.shut()
			s.watch.shut()
		}
		s.reading.shut()
		s.running.Wait()
		c.close()
		s.running.Wait() // for what is left of the connection
		if s.ours {
			s.pool.Close()
		}
		err = nil
	})
	return wrap("close", err)
}
