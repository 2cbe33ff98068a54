package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/freeport"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/postgres"
)

// pooled starts a PgBouncer in the given mode, and with more settings, in front of the server of
// direct, and returns the address of the same database through it.
func pooled(t *testing.T, direct, mode string, settings ...string) string {
	t.Helper()
	bin, err := osexec.LookPath("/usr/sbin/pgbouncer")
	if err != nil {
		if bin, err = osexec.LookPath("pgbouncer"); err != nil {
			t.Skip("there is no PgBouncer here: apt-get install pgbouncer")
		}
	}
	u, err := url.Parse(direct)
	must(t, err)
	port, err := freeport.Find()
	must(t, err)
	dir, err := os.MkdirTemp("", "pooler")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ini := filepath.Join(dir, "pgbouncer.ini")
	must(t, os.Chmod(dir, 0o755))
	must(t, os.WriteFile(ini, fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 60
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
%s
`, u.Port(), port, mode, strings.Join(settings, "\n")), 0o644))
	c := osexec.Command(bin, "-q", ini)
	c.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 { // PgBouncer refuses to run as root
		nobody, err := user.Lookup("nobody")
		must(t, err)
		uid, _ := strconv.Atoi(nobody.Uid)
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	must(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	u.Host = freeport.Address(port)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", u.Host)
		if err == nil {
			conn.Close()
			return u.String()
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Through a pooler that does not share sessions everything works, including LISTEN and NOTIFY.
func TestSessionPooling(t *testing.T) {
	s := open(t, pooled(t, pgtest.URL(t), "session"), nil)
	word := &signal.Signal[int]{Name: "word"}
	hears := &engine.Workflow[int, int]{Name: "hears", Func: func(run *engine.Run, n int) (int, error) { return word.Receive(run) }}
	e := running(t, engine.Config{Storage: s, Workflows: []engine.Definition{hears}})
	rounds := 20
	if os.Getenv("WEFT_TORTURE") != "" {
		rounds = 1000
	}
	var all sync.WaitGroup
	for n := range rounds {
		all.Go(func() {
			id := fmt.Sprint(n)
			h, err := hears.Start(t.Context(), e, id, n)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := word.Send(t.Context(), e, id, n, nil); err != nil {
				t.Error(err)
			}
			if got, err := h.Result(t.Context()); got != n || err != nil {
				t.Errorf("got %d and error %v, want %d", got, err, n)
			}
		})
	}
	all.Wait()
}

// A pooler that shares sessions by transaction or by statement is refused every time, with
// ErrTransactionPooling.
func TestTransactionPoolingIsRefused(t *testing.T) {
	rounds := 5
	if os.Getenv("WEFT_TORTURE") != "" {
		rounds = 100
	}
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			direct := pgtest.URL(t)
			url := pooled(t, direct, mode)
			for n := range rounds { // the first round gets a new server session, later ones a used one
				if n == rounds/2 {
					open(t, direct, nil) // from now on the table exists
				}
				s, err := postgres.Open(t.Context(), url, nil)
				if err == nil {
					s.Close()
				}
				if !errors.Is(err, postgres.ErrTransactionPooling) {
					t.Errorf("open %d: got %v, want ErrTransactionPooling", n, err)
				}
			}
		})
	}
}

// A pooler that shares sessions by transaction is also refused if it gives each transaction the session that was unused for longest.
func TestTransactionPoolingInTurnIsRefused(t *testing.T) {
	ctx := t.Context()
	for idle := range 5 {
		t.Run(fmt.Sprint(idle, " idle sessions"), func(t *testing.T) {
			direct := pgtest.URL(t)
			must(t, open(t, direct, nil).Close()) // from now on the table exists
			url := pooled(t, direct, "transaction", "server_round_robin = 1")
			var used []pgx.Tx
			for range idle {
				used = append(used, host(t, url))
			}
			for _, tx := range used {
				must(t, tx.Rollback(ctx))
			}
			config, err := pgxpool.ParseConfig(url)
			must(t, err)
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // it prepares no statements, which would be missed
			pool, err := pgxpool.NewWithConfig(ctx, config)
			must(t, err)
			defer pool.Close()
			s, err := postgres.New(ctx, pool, nil)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, postgres.ErrTransactionPooling) {
				t.Errorf("New: got %v, want ErrTransactionPooling", err)
			}
			if s, err = postgres.Open(ctx, url, nil); err == nil {
				s.Close()
			}
			if !errors.Is(err, postgres.ErrTransactionPooling) {
				t.Errorf("Open: got %v, want ErrTransactionPooling", err)
			}
		})
	}
}
