package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/storage"
)

// A session of an engine is a connection that holds an advisory lock with a random number. Its
// proof is the number, and the life of the server in which the lock was taken. If the server still
// lives this life and the lock is free, the connection has ended.

var _ storage.Prover = (*Store)(nil)

// life identifies a life of the server: from a start, or from the crash of one of its processes, to
// the next. Such a crash ends all connections. Then the time of the start stays the same, but the
// statistics are reset. An engine that lives may need longer than others until it is connected
// again, so a proof of an earlier life proves nothing.
const life = `concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, ' ',
	(SELECT (extract(epoch FROM stats_reset) * 1000000)::bigint FROM pg_stat_bgwriter))`

// Limits of the silence after which the server ends a session. Linux probes a connection after
// nine hours at the latest.
const (
	leastSilence = 10 * time.Second
	mostSilence  = 8 * time.Hour
)

// A proving is a session of an engine.
type proving struct {
	conn   *pgx.Conn
	proof  string
	direct bool          // nothing is between this process and the server
	check  time.Duration // silence after which the connection is pinged
	lost   chan struct{}
	stop   context.CancelFunc
	over   chan struct{} // closed when the connection is closed
}

// OpenSession makes a connection that holds an advisory lock. The session is nil with LeaseOnly and
// ReadOnly. It is also nil if a pooler, a proxy or a translation of addresses is between the store
// and the server: the connection of such a one may end while the process lives, or outlast it.
func (s *Store) OpenSession(ctx context.Context, name string, silence time.Duration) (storage.Session, error) {
	if s.options.LeaseOnly || s.options.ReadOnly {
		return nil, nil
	}
	if err := s.queue.open(); err != nil {
		return nil, wrap("open session", err)
	}
	silence = min(max(silence, leastSilence), mostSilence)
	p := &proving{check: silence / 2, lost: make(chan struct{}), over: make(chan struct{})}
	var err error
	p.conn, err = s.connect(ctx, laneLockTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return p.begin(ctx, conn, name, silence)
	})
	if err != nil {
		return nil, wrap("open session", err)
	}
	if !p.direct {
		p.shut()
		return nil, nil
	}
	ctx, p.stop = context.WithCancel(context.Background())
	go p.hold(ctx)
	return p, nil
}

// begin takes the lock.
func (p *proving) begin(ctx context.Context, conn *pgx.Conn, name string, silence time.Duration) error {
	number := int64(rand.Uint64())
	var pid uint32
	var host *string
	var port *int
	var alive string
	var locked bool
	// Servers before version 14 have no idle_session_timeout.
	err := conn.QueryRow(ctx, `
		SELECT pg_backend_pid(), host(inet_client_addr()), inet_client_port(), `+life+`, pg_try_advisory_lock($1),
			set_config('application_name', $2, false),
			set_config('tcp_user_timeout', $3, false),
			set_config('tcp_keepalives_idle', $4, false),
			CASE WHEN current_setting('idle_session_timeout', true) IS NOT NULL THEN set_config('idle_session_timeout', '0', false) END`,
		pgx.QueryExecModeExec, number, "weft engine "+name, milliseconds(silence), strconv.Itoa(int(silence/time.Second)),
	).Scan(&pid, &host, &port, &alive, &locked, nil, nil, nil, nil)
	if err == nil && !locked {
		err = errors.New("the random advisory lock is taken")
	}
	p.proof = fmt.Sprint(alive, " ", number)
	p.direct = direct(conn.PgConn().Conn().LocalAddr(), host, port) && pid == conn.PgConn().PID() // poolers give their clients other numbers
	return err
}

// direct reports whether the server sees the client where it is. A translation of addresses often keeps the port.
func direct(local net.Addr, host *string, port *int) bool {
	at, ok := local.(*net.TCPAddr)
	if !ok {
		return local != nil && local.Network() == "unix" && host == nil && port == nil
	}
	if host == nil || port == nil {
		return false
	}
	seen, err := netip.ParseAddr(*host)
	return err == nil && seen.Unmap() == at.AddrPort().Addr().Unmap().WithZone("") && *port == at.Port
}

// hold keeps the session until it is closed. If the connection is lost, it is closed only with the
// session, because closing it frees the lock.
func (p *proving) hold(ctx context.Context) {
	defer close(p.over)
	defer p.shut()
	lose := sync.OnceFunc(func() { close(p.lost) })
	var err error
	for err == nil && ctx.Err() == nil {
		quiet, cancel := context.WithTimeout(ctx, p.check)
		_, err = p.conn.WaitForNotification(quiet) // of none: this notices the end of the connection
		if quiet.Err() != nil {
			err = nil
		}
		cancel()
		if err == nil && ctx.Err() == nil {
			late := time.AfterFunc(connectTimeout, lose)
			err = p.conn.Ping(ctx) // to give it up would be to close the connection
			if err != nil && ctx.Err() != nil {
				p.conn.PgConn().Conn().Close() // else pgconn still waits for the answer
			}
			if !late.Stop() {
				break
			}
		}
	}
	if ctx.Err() == nil {
		lose()
		<-ctx.Done()
	}
}

func (p *proving) shut() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.conn.Close(ctx)
	<-p.conn.PgConn().CleanupDone()
}

func (p *proving) Proof() string         { return p.proof }
func (p *proving) Lost() <-chan struct{} { return p.lost }

// Close ends the session.
func (p *proving) Close() {
	p.stop()
	<-p.over
}

// SessionsEnded asks the server for the locks of the sessions. It is false for all with LeaseOnly.
func (s *Store) SessionsEnded(ctx context.Context, proofs []string) ([]bool, error) {
	ended := make([]bool, len(proofs))
	if s.options.LeaseOnly || len(proofs) == 0 {
		return ended, nil
	}
	lives, numbers := make([]string, len(proofs)), make([]int64, len(proofs))
	for i, proof := range proofs {
		at := max(strings.LastIndexByte(proof, ' '), 0)
		if n, err := strconv.ParseInt(strings.TrimPrefix(proof[at:], " "), 10, 64); err == nil {
			lives[i], numbers[i] = proof[:at], n
		}
	}
	long := &reading{page: new(storage.Range)} // it shares no round trip
	err := s.read(ctx, long, func(ctx context.Context, q querier) error {
		// Several engines may ask at a time, so they ask for shared locks.
		return q.QueryRow(ctx, `
			SELECT array_agg(CASE WHEN p.life = now.life THEN pg_try_advisory_xact_lock_shared(p.number) ELSE false END ORDER BY p.n)
			FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY p (life, number, n), (SELECT `+life+` AS life) now`,
			s.mode(), lives, numbers).Scan(&ended)
	})
	if err != nil {
		return nil, wrap("look at sessions", err)
	}
	return ended, nil
}
