package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// setUpEach makes every new connection of config start with our settings, and refuses a
// server that cannot write or may lose what it commits, as after a fail-over; then pgx tries
// the next host.
func setUpEach(config *pgx.ConnConfig, lockTimeout time.Duration, fsyncOff bool) {
	before := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		return setUp(ctx, c, lockTimeout, fsyncOff)
	}
}

// setUp checks the server and applies the settings of a connection. It uses a statement,
// because poolers refuse unknown parameters when a connection is opened.
//
// For a small table the planner would choose a sequential scan, and keep that plan after
// the table has grown. So sequential scans are disabled.
func setUp(ctx context.Context, c *pgconn.PgConn, lockTimeout time.Duration, fsyncOff bool) error {
	sql := ""
	for _, s := range []struct{ name, value string }{
		{"statement_timeout", milliseconds(statementTimeout)},
		{"lock_timeout", milliseconds(lockTimeout)},
		{"idle_in_transaction_session_timeout", milliseconds(idleTimeout)},
		{"tcp_user_timeout", milliseconds(userTimeout)},
		{"plan_cache_mode", "force_generic_plan"},
		{"enable_seqscan", "off"},
		{"jit", "off"},
	} {
		sql += `, set_config('` + s.name + `', '` + s.value + `', false)`
	}
	// With synchronous_commit off, the store would not be durable. All other values make a commit durable on the server
	// itself. The value is kept, also if that of the server changes.
	sql += `, set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)`
	return checkServer(ctx, c, fsyncOff, sql)
}

// checkServer checks that the server can write, and the settings on which Durable depends.
// It evaluates also in the same statement.
func checkServer(ctx context.Context, c *pgconn.PgConn, fsyncOff bool, also string) error {
	results, err := c.Exec(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('server_version_num')::int < 130000,
		current_setting('server_version'), current_setting('fsync', true), current_setting('full_page_writes', true)`+also).ReadAll()
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.New("settings: the server returned no row")
	}
	switch row := results[0].Rows[0]; {
	case string(row[0]) != "f":
		return errRecovering
	case string(row[1]) != "off":
		return errReadOnly
	case string(row[2]) != "f":
		return fmt.Errorf("the server has version %s, but 13 or later is required", row[3])
	case fsyncOff:
		return nil
	case string(row[4]) == "off":
		return fmt.Errorf(mayCorrupt, "fsync")
	case string(row[5]) == "off":
		return fmt.Errorf(mayCorrupt, "full_page_writes")
	}
	return nil
}

const mayCorrupt = "the server runs with %s off, so a crash of its machine may corrupt the database; set Options.FsyncOff to accept this"

// uncancelled is where a connection keeps whether the server may be asked to cancel what it does.
const uncancelled = "weft: not cancelled"

// mayCancel prepares the configuration of one connection for cancels.
func mayCancel(config *pgx.ConnConfig) {
	var not atomic.Bool
	dial, after := config.DialFunc, config.AfterConnect
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if not.Load() {
			return nil, errors.New("the server is not asked to cancel a commit")
		}
		return dial(ctx, network, addr)
	}
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		c.CustomData()[uncancelled] = &not
		if after == nil {
			return nil
		}
		return after(ctx, c)
	}
}

// cancels sets whether pgconn asks the server to cancel what it does when the connection is lost or a context ends. A COMMIT
// must not be cancelled: if it waits for a synchronous standby, it is then visible on a server whose standby does not have it.
// What comes before it ends by the server's timeouts. It does nothing for a connection of the host's pool.
func cancels(c *pgx.Conn, may bool) {
	if not, ok := c.PgConn().CustomData()[uncancelled].(*atomic.Bool); ok {
		not.Store(!may)
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
