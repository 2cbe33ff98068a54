package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A session is a connection of the store's own, for one goroutine at a time. It connects
// when it is used and not connected.
type session struct {
	store       *Store
	lockTimeout time.Duration
	waits       bool          // it waits for rows locked by others instead of skipping them
	urgent      bool          // it applies urgent batches, for which no notifications are sent: lease renewals would wake all engines
	limit       time.Duration // of a round trip; zero: roundTripTimeout
	conn        *pgx.Conn     // nil: not connected
	used        time.Time     // time of the last use
	stmts       [prepared]*pgconn.StatementDescription

	// Reused to save allocations.
	rows  rows
	calls []call
}

func (s *Store) newSession(lockTimeout time.Duration) *session {
	return &session{store: s, lockTimeout: lockTimeout, waits: lockTimeout == laneLockTimeout}
}

// connect connects, and prepares the statements.
func (c *session) connect(ctx context.Context) error {
	conn, err := c.store.connect(ctx, c.lockTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return c.prepare(ctx, conn.PgConn())
	})
	if err == nil {
		c.conn = conn
	}
	return err
}

// connect makes a connection with the configuration of the pool, and calls then with it.
func (s *Store) connect(ctx context.Context, lockTimeout time.Duration, then func(context.Context, *pgx.Conn) error) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	pool := s.pool.Config()
	config := pool.ConnConfig
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	setUpEach(config, lockTimeout, s.options.FsyncOff)
	mayCancel(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	cancels(conn, false)
	if pool.AfterConnect != nil {
		err = pool.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = then(ctx, conn)
	}
	if err != nil {
		conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
		return nil, err
	}
	return conn, nil
}

// prepare prepares the statements in one round trip.
func (c *session) prepare(ctx context.Context, conn *pgconn.PgConn) error {
	p := conn.StartPipeline(ctx)
	for i, sql := range c.store.sql.prepared {
		p.SendPrepare(names[i], sql, nil)
	}
	err := p.Sync()
	for i := 0; err == nil && i < prepared; i++ {
		var result any
		result, err = p.GetResults()
		if d, ok := result.(*pgconn.StatementDescription); ok {
			d.Name = names[i]
			c.stmts[i] = d
		} else if err == nil {
			err = fmt.Errorf("prepare: got %T", result)
		}
	}
	return errors.Join(err, p.Close())
}

// close closes the connection gracefully.
func (c *session) close() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.conn.Close(ctx)
	c.discard()
}

// discard drops a connection on which something went wrong. pgconn ends it in the background; Store.Close waits for that.
func (c *session) discard() {
	conn := c.conn.PgConn()
	c.conn = nil
	if !conn.IsClosed() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		conn.Close(ctx)
	}
	c.store.running.Go(func() { <-conn.CleanupDone() })
}

// A call is a statement and a function for its rows.
type call struct {
	prepared int
	sql      string // if not "", used instead of prepared
	args     [][]byte
	row      func(values [][]byte)
	affected int64 // number of rows, as reported by the server
}

var binaryFormat = []int16{1}

// atOnce is a size that the kernel certainly accepts in one piece.
const atOnce = 16 << 10

// do runs calls in one round trip. It returns the index of the call that failed.
//
// An error that is not a *pgconn.PgError means that the connection is lost.
//
// The server closes a connection that is idle in a transaction only after a Sync. In the
// middle of a message sequence it would wait forever for the rest if this process were
// suspended. So if the calls may be sent in several pieces, each is followed by a Sync.
func (c *session) do(p *pgconn.Pipeline, calls []call) (int, error) {
	c.conn.PgConn().Conn().SetDeadline(time.Now().Add(cmp.Or(c.limit, roundTripTimeout)))
	size := 0
	for i := range calls {
		for _, a := range calls[i].args {
			size += len(a)
		}
	}
	syncs := 1
	for i := range calls {
		if i > 0 && size > atOnce {
			p.SendPipelineSync()
			syncs++
		}
		if sql := calls[i].sql; sql != "" {
			p.SendQueryParams(sql, calls[i].args, nil, binaryFormat, binaryFormat)
		} else {
			p.SendQueryStatement(c.stmts[calls[i].prepared], calls[i].args, binaryFormat, binaryFormat)
		}
	}
	if err := p.Sync(); err != nil {
		return 0, err
	}
	failed, first := 0, error(nil)
	for next := 0; syncs > 0; {
		result, err := p.GetResults()
		at := next
		switch r := result.(type) {
		case *pgconn.PipelineSync:
			syncs--
			continue
		case *pgconn.ResultReader:
			next++
			if at >= len(calls) {
				err = errors.New("the server returned too many results")
			} else {
				err = calls[at].receive(r)
			}
		case nil:
			next++
			if err == nil {
				err = errors.New("the server returned too few results")
			}
		default:
			err = fmt.Errorf("unexpected result %T from the server", result)
		}
		if err == nil {
			continue
		}
		if first == nil { // everything after a failure fails too
			failed, first = at, err
		}
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok || c.conn.IsClosed() {
			return failed, first
		}
	}
	return failed, first
}

func (c *call) receive(r *pgconn.ResultReader) error {
	for r.NextRow() {
		if c.row != nil {
			c.row(r.Values())
		}
	}
	tag, err := r.Close()
	c.affected = tag.RowsAffected()
	if err == nil && c.sql == "" && c.prepared == commit && tag.String() != "COMMIT" {
		return fmt.Errorf("the server answered COMMIT with %q", tag)
	}
	return err
}
