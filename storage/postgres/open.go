package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/storage/postgres/internal/pooled"
)

// Open opens the store in the database at url and creates it if it does not exist. A nil
// o means the defaults.
//
// url is a libpq connection string, either a URL or a list of keywords and values. Of
// several hosts it uses the first that is neither read-only nor in recovery. The store has at most 20 connections if one engine
// runs on it, and one more for each other engine. Eleven of them are the pool for reads and [Transact]: pool_max_conns in url is another number.
// Errors: ErrTransactionPooling, storage.ErrFutureFormat. Others say what is wrong with url, the server or the table.
func Open(ctx context.Context, url string, o *Options) (*Store, error) {
	full := withDefaults(o)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, wrap("open", err)
	}
	if c, err := pgx.ParseConfig(url); err != nil || c.RuntimeParams["pool_max_conns"] == "" { // pgxpool has a default of its own
		config.MaxConns = poolConns
	}
	config.MaxConnIdleTime = idleConn
	config.HealthCheckPeriod = idleConn
	config.PingTimeout = pingTimeout
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > pingAfter
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	setUpEach(config.ConnConfig, laneLockTimeout, full.FsyncOff)
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { // of one connection
		mayCancel(c)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap("open", err)
	}
	s, err := open(ctx, pool, full, true)
	if err != nil {
		pool.Close()
	}
	return s, err
}

// New opens the store in the database of the host's pool, and creates it if it does not
// exist. Reads go through the pool. Commits use at most eight other connections, and
// each engine one, made with the configuration of the pool. Close leaves the pool open.
//
// The pool must connect to the primary, as commits do: if its configuration names several
// hosts, give target_session_attrs=primary. A read that comes to a standby closes that
// connection and tries another. If all are to standbys, it fails.
//
// If a connection of the pool is lost while the COMMIT of a [Transact] waits for a synchronous standby, pgx asks the server to
// cancel it, and the server then shows what the standby may not have. On the connections of Open, and on those of commits,
// nothing is cancelled.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Store, error) {
	return open(ctx, pool, withDefaults(o), false)
}

func open(ctx context.Context, pool *pgxpool.Pool, o Options, ours bool) (_ *Store, err error) {
	defer func() {
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && pooled.Tells(e) {
			err = fmt.Errorf("%w (%w)", ErrTransactionPooling, err)
		}
		err = wrap("open", err)
	}()
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+statementTimeout)
	defer cancel()
	s := &Store{
		options: o,
		sql:     newStatements(o, ours),
		pool:    pool,
		ours:    ours,
		queue:   newQueue(),
		urgent:  make(chan *session, 1),

		transacts: make(chan struct{}, max(1, pool.Config().MaxConns/2)),
	}
	s.gatherer.store = s
	urgent := s.newSession(laneLockTimeout)
	urgent.urgent = true

	// Fail now rather than at the first urgent batch.
	urgent.conn, err = s.connect(ctx, laneLockTimeout, func(context.Context, *pgx.Conn) error { return nil })
	if err == nil {
		err = check(ctx, urgent.conn, o)
	}
	if err == nil {
		err = urgent.prepare(ctx, urgent.conn.PgConn())
	}
	if err == nil {
		err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			if err := checkServer(ctx, c.Conn().PgConn(), o.FsyncOff, ""); err != nil { // the host's pool may lead elsewhere
				return err
			}
			shared, err := pooled.Shared(ctx, c.Conn(), urgent.conn)
			if shared {
				err = ErrTransactionPooling
			}
			return err
		})
	}
	if err != nil {
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

// check creates the table if it does not exist. In a store that is read-only it must exist.
func check(ctx context.Context, c *pgx.Conn, o Options) error {
	if !o.ReadOnly {
		return migrate(ctx, c, o)
	}
	there, err := checkTable(ctx, c, o)
	if err == nil && !there {
		err = fmt.Errorf("there is no table %s", o.quoted())
	}
	return err
}

var (
	errRecovering = errors.New("the server is recovering, like a standby, and cannot write")
	errReadOnly   = errors.New("the server is read-only (transaction_read_only is on)")

	errOpenedReadOnly = fmt.Errorf("opened read-only: %w", errors.ErrUnsupported)
)

// ErrTransactionPooling is returned by Open if there is a pooler, such as PgBouncer in
// transaction mode, that assigns a server session for one transaction at a time: clients
// would share session settings and prepared statements. It is also returned for
// PgBouncer's statement mode, which assigns one for each statement.
var ErrTransactionPooling = errors.New("a pooler between the store and the server shares sessions by transaction or by statement: configure it to pool sessions (PgBouncer: pool_mode = session), or connect directly to the server")
