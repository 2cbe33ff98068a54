package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Open opens the store in the database of url, and creates it if it is not
// there. A nil o is the default.
//
// The url is one of libpq's, or a list of keywords and values. Of several hosts
// the first is taken that is neither read-only nor recovering. The store has at
// most 20 connections.
func Open(ctx context.Context, url string, o *Options) (*Store, error) {
	full := withDefaults(o)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, wrap("open", err)
	}
	config.MaxConns = poolConns
	config.MaxConnIdleTime = idleConn
	config.HealthCheckPeriod = idleConn
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > pingAfter
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	setUpEach(config.ConnConfig, laneLockTimeout)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap("open", err)
	}
	s, err := open(ctx, pool, full)
	if err != nil {
		pool.Close()
		return nil, wrap("open", err)
	}
	s.ours = true
	return s, nil
}

// New opens the store in the database of a pool that the host has, and creates
// it if it is not there. Reads go through the pool. Commits have connections of
// their own, at most nine, which are made as those of the pool are. Close leaves
// the pool open.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Store, error) {
	s, err := open(ctx, pool, withDefaults(o))
	if err != nil {
		return nil, wrap("open", err)
	}
	return s, nil
}

func open(ctx context.Context, pool *pgxpool.Pool, o Options) (_ *Store, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	defer func() {
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && sharesSessions(e) {
			err = fmt.Errorf("%w (%w)", ErrTransactionPooling, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+statementTimeout)
	defer cancel()
	if err := check(ctx, pool, o); err != nil {
		return nil, err
	}
	s := &Store{
		options: o,
		sql:     newStatements(o),
		pool:    pool,
		desk:    newDesk(),
		urgent:  make(chan *session, 1),

		transacts: make(chan struct{}, max(1, pool.Config().MaxConns/2)),
	}
	s.company.store = s
	urgent := s.newSession(laneLockTimeout)
	urgent.urgent = true

	if err := urgent.connect(ctx); err != nil { // shows now what would fail later
		return nil, err
	}
	if err := checkSessions(ctx, pool, urgent); err != nil {
		urgent.close()
		s.running.Wait()
		return nil, err
	}
	s.urgent <- urgent
	if !o.NoListen {
		s.notes = newNotifier(s)
		s.watch = newWatcher(s)
		s.running.Go(s.notes.run)
	}
	for range committers {
		s.running.Go(s.commitGroups)
	}
	return s, nil
}

// check refuses what the server of the pool cannot promise, and brings the table
// about.
func check(ctx context.Context, pool *pgxpool.Pool, o Options) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	if err := checkServer(ctx, c.Conn(), o); err != nil {
		return err
	}
	return migrate(ctx, c.Conn(), o)
}

// checkServer reads the settings on which Durable rests.
func checkServer(ctx context.Context, c *pgx.Conn, o Options) error {
	var version int
	var recovering bool
	var readOnly, fsync, fullPages string
	err := c.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('transaction_read_only'),
			coalesce(current_setting('fsync', true), 'on'), coalesce(current_setting('full_page_writes', true), 'on')`,
	).Scan(&version, &recovering, &readOnly, &fsync, &fullPages)
	if err != nil {
		return err
	}
	switch {
	case recovering:
		return errRecovering
	case readOnly != "off":
		return errReadOnly
	case version < 130000:
		return fmt.Errorf("the server has version %d.%d, and 13 is needed", version/10000, version%10000)
	case o.FsyncOff:
		return nil
	case fsync == "off":
		return errors.New("the server runs with fsync off, so a crash of its machine may damage everything; FsyncOff takes it nevertheless")
	case fullPages == "off":
		return errors.New("the server runs with full_page_writes off, so a crash of its machine may damage everything; FsyncOff takes it nevertheless")
	}
	return nil
}

var (
	errRecovering = errors.New("the server is recovering, as a standby does: it cannot write")
	errReadOnly   = errors.New("the server is read-only (transaction_read_only is on)")
)

// ErrTransactionPooling is Open's answer where a pooler, such as PgBouncer in its
// transaction mode, gives each transaction a session of the server of its own. The
// settings and the prepared statements of a connection would be those of anybody. It is
// also the answer where PgBouncer gives each statement one, in its statement mode.
var ErrTransactionPooling = errors.New("a pooler between the store and the server shares sessions by transaction or by statement: have it keep them apart (PgBouncer: pool_mode = session), or connect to the server itself")

// sharesSessions says that only a pooler that shares sessions answers so. A session of its
// own has no prepared statement at first. PgBouncer's statement mode refuses transactions,
// with a code that it has for other errors too.
func sharesSessions(e *pgconn.PgError) bool {
	return e.Code == duplicatePrepared || e.Code == protocolViolation && strings.Contains(e.Message, "statement pooling")
}

// checkSessions finds out whether a connection keeps its session while another is in a
// transaction. A pooler that shares them gives the other the session that was used last.
func checkSessions(ctx context.Context, pool *pgxpool.Pool, other *session) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	before, err := backend(ctx, c.Conn().PgConn())
	if err != nil {
		return err
	}
	tx, err := other.conn.Begin(ctx)
	if err != nil {
		return err
	}
	after, err := backend(ctx, c.Conn().PgConn())
	if err := errors.Join(err, tx.Rollback(ctx)); err != nil {
		return err
	}
	if before != after {
		return ErrTransactionPooling
	}
	return nil
}

// backend is the process of the server that answers.
func backend(ctx context.Context, c *pgconn.PgConn) (string, error) {
	results, err := c.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return "", errors.New("the server answered nothing")
	}
	return string(results[0].Rows[0][0]), nil
}
