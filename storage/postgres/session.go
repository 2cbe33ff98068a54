package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A session is a connection of our own, for one goroutine at a time. It connects
// when it is used and is not connected.
type session struct {
	store       *Store
	lockTimeout time.Duration
	waits       bool      // for rows that others have locked, instead of skipping them
	urgent      bool      // it is for urgent batches, which are not told: all engines would hear of each renewal of a lease
	conn        *pgx.Conn // nil: not connected
	used        time.Time // last
	stmts       [prepared]*pgconn.StatementDescription

	// Kept for their memory.
	rows  rows
	calls []call
}

func (s *Store) newSession(lockTimeout time.Duration) *session {
	return &session{store: s, lockTimeout: lockTimeout, waits: lockTimeout == laneLockTimeout}
}

// connect makes a connection as those of the pool are made.
func (c *session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	pool := c.store.pool.Config()
	config := pool.ConnConfig
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return err
		}
	}
	setUpEach(config, c.lockTimeout)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	if pool.AfterConnect != nil {
		err = pool.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = c.prepare(ctx, conn.PgConn())
	}
	if err != nil {
		conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
		return err
	}
	c.conn = conn
	return nil
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

// close ends the connection, as it should end.
func (c *session) close() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.conn.Close(ctx)
	c.discard()
}

// discard gives up a connection on which something went wrong. pgconn tells the
// server to stop what it does on it; Store.Close waits for that.
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

// A call is a statement and what is done with its rows.
type call struct {
	prepared int
	sql      string // if not "", instead of what is prepared
	args     [][]byte
	row      func(values [][]byte)
	affected int64 // rows, as the server says
}

var binaryFormat = []int16{1}

// atOnce is what the kernel surely takes in one piece.
const atOnce = 16 << 10

// do runs calls in one round trip. It returns the number of the one that failed.
//
// An error that is no *pgconn.PgError is one of the connection, which is lost.
//
// The server cuts off a transaction that is idle, but only behind a Sync: not in
// the middle of what it was sent, where it would wait for ever for the rest if we
// are stopped. So what may be sent in pieces has a Sync behind each statement.
func (c *session) do(p *pgconn.Pipeline, calls []call) (int, error) {
	c.conn.PgConn().Conn().SetDeadline(time.Now().Add(roundTripTimeout))
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
				err = errors.New("the server answered more than it was asked")
			} else {
				err = calls[at].receive(r)
			}
		case nil:
			next++
			if err == nil {
				err = errors.New("the server answered less than it was asked")
			}
		default:
			err = fmt.Errorf("the server answered %T", result)
		}
		if err == nil {
			continue
		}
		if first == nil { // what comes behind a failure fails too
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
		return fmt.Errorf("the server answered %q to COMMIT", tag)
	}
	return err
}
