// Package pgtest starts PostgreSQL servers for tests, from the binaries installed on the machine.
// A server has the default durability settings. It stops with the process that started it, even
// if that process is killed.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/internal/freeport"
)

// A Server is a PostgreSQL cluster in a temporary directory.
type Server struct {
	dir      string
	port     int
	settings []string
	as       *syscall.SysProcAttr
	cmd      *exec.Cmd
	exited   chan struct{}
	orders   chan func()
	empties  []string // databases that have been emptied, guarded by shared
}

var shared struct {
	sync.Mutex
	server *Server
	main   bool
}

var databases atomic.Int64

// URL returns the address of an empty database on a server that is shared by the tests of the
// process.
//
// The database may be one that an earlier test has used, and that was emptied at its end, because PostgreSQL
// copies 300 files to create one. A test that changes settings of its database, or reads its counters,
// uses [Server.Database].
func URL(t testing.TB) string {
	t.Helper()
	s := Shared(t)
	url := s.emptied()
	if url == "" {
		url = s.Database(t)
	}
	t.Cleanup(func() { s.empty(url) })
	return url
}

// emptied returns the address of a database that empty has kept, or "".
func (s *Server) emptied() (url string) {
	shared.Lock()
	defer shared.Unlock()
	if n := len(s.empties); n > 0 {
		url, s.empties = s.empties[n-1], s.empties[:n-1]
	}
	return url
}

// empty ends the sessions of a database, removes all that is in it, and keeps it for another test. If that
// fails, nobody uses the database again.
func (s *Server) empty(url string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, `
		SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
		DO $$
		DECLARE
			s name;
		BEGIN
			FOR s IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
				EXECUTE format('DROP SCHEMA %I CASCADE', s);
			END LOOP;
		END $$;
		CREATE SCHEMA public;
		GRANT USAGE ON SCHEMA public TO PUBLIC`)
	if err != nil {
		return
	}
	shared.Lock()
	defer shared.Unlock()
	s.empties = append(s.empties, url)
}

// Pool returns a pool of connections to url, which is closed at the end of the test. It keeps
// idle connections open: in virtual time, a pool with default settings would keep closing and
// checking them.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	const forever = 100 * 365 * 24 * time.Hour
	c.MaxConnIdleTime, c.MaxConnLifetime, c.HealthCheckPeriod = forever, forever, forever
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func skipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short starts no PostgreSQL server")
	}
}

// Shared returns the server that is shared by the tests of the process. It is started for the first of
// them, and stopped by [Main].
func Shared(t testing.TB) *Server {
	t.Helper()
	skipIfShort(t)
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("TestMain of this package has to call pgtest.Main, which stops the server")
	}
	if shared.server == nil {
		s, err := start()
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	return shared.server
}

// Main runs the tests of m with one server for all of them, and returns the exit code.
func Main(m *testing.M) int {
	shared.main = true
	defer Stop()
	return m.Run()
}

// Tests is for leaks.Main: it counts goroutines when the server has stopped.
type Tests struct{ M *testing.M }

// Run is [Main].
func (t Tests) Run() int { return Main(t.M) }

// Stop stops the shared server, if there is one.
func Stop() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.stop()
		shared.server = nil
	}
}

// Start starts a server for this test only, which stops at its end. Settings are lines of
// postgresql.conf, such as "fsync=off".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	skipIfShort(t)
	s, err := start(settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// Launch starts a server outside of a test. stop stops it and removes its files.
func Launch(settings ...string) (s *Server, stop func(), err error) {
	if s, err = start(settings...); err != nil {
		return nil, nil, err
	}
	return s, s.stop, nil
}

func start(settings ...string) (*Server, error) {
	s, err := startServer(settings)
	if err != nil {
		return nil, fmt.Errorf("pgtest: start: %w", err)
	}
	return s, nil
}

func startServer(settings []string) (_ *Server, err error) {
	initdb, err := binary("initdb")
	if err != nil {
		return nil, err
	}
	as, uid, err := unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{settings: settings, as: as, orders: make(chan func())}
	if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	go s.obey()
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := errors.Join(os.Chmod(s.dir, 0o700), os.Chown(s.dir, uid, -1)); err != nil {
		return nil, err
	}
	cmd := exec.Command(initdb, "-D", s.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Dir = s.dir
	cmd.SysProcAttr = as
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	if s.port, err = freeport.Find(); err != nil {
		return nil, err
	}
	return s, s.run()
}

// obey runs orders on one OS thread, because the server is stopped when the thread that started
// it ends.
func (s *Server) obey() {
	runtime.LockOSThread()
	for order := range s.orders {
		order()
	}
}

func (s *Server) run() error {
	postgres, err := binary("postgres")
	if err != nil {
		return err
	}
	args := []string{"-D", s.Data(), "-p", strconv.Itoa(s.port), "-h", "127.0.0.1", "-k", s.dir}
	for _, setting := range slices.Concat([]string{"max_connections=200"}, s.settings) {
		args = append(args, "-c", setting)
	}
	var log bytes.Buffer
	s.cmd = exec.Command(postgres, args...)
	s.cmd.Dir = s.dir
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	attr := *s.as
	attr.Pdeathsig = syscall.SIGQUIT // an immediate shutdown
	s.cmd.SysProcAttr = &attr
	started := make(chan error)
	s.orders <- func() { started <- s.cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	exited := make(chan struct{})
	s.exited = exited
	cmd := s.cmd
	go func() {
		cmd.Wait()
		close(exited)
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if s.answers() {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server exited\n%s", log.String())
		default:
		}
		if time.Now().After(end) {
			return errors.New("the server does not answer")
		}
	}
}

func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return false
	}
	c.Close(ctx)
	return true
}

// stop stops the server and removes its files.
func (s *Server) stop() {
	s.Kill()
	close(s.orders)
	os.RemoveAll(s.dir)
}

// Kill stops the server like a crash, except that data in the operating system's cache is kept.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.exited
}

// Restart kills the server and starts it again, with new settings if any are given. The server
// recovers from its log.
func (s *Server) Restart(settings ...string) error {
	s.Kill()
	if len(settings) > 0 {
		s.settings = settings
	}
	return s.run()
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() string { return freeport.Address(s.port) }

// URL returns the address of a database.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Database creates an empty database and returns its address.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	s.Exec(t, "postgres", `CREATE DATABASE `+name)
	return s.URL(name)
}

// Exec runs statements in a database.
func (s *Server) Exec(t testing.TB, database string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, sql := range statements {
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// binary finds a program of PostgreSQL, first in Debian's directories, then in PATH.
func binary(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	slices.SortFunc(found, func(a, b string) int { return major(b) - major(a) })
	if len(found) > 0 {
		return found[0], nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("these tests need PostgreSQL, which is not installed: apt-get install postgresql (%w)", err)
	}
	return path, nil
}

func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// unprivileged returns the user that runs the server, which refuses to run as root.
func unprivileged() (*syscall.SysProcAttr, int, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, os.Getuid(), nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, 0, err
		}
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, int(uid), nil
	}
	return nil, 0, errors.New("there is no user named postgres or nobody to run PostgreSQL as")
}

// Data returns the data directory of the cluster.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Still calls f while all processes of s are stopped with SIGSTOP. It calls before immediately before it stops the first of them.
// It needs /proc.
func (s *Server) Still(t testing.TB, before, f func()) {
	t.Helper()
	if err := s.still(before, f); err != nil {
		t.Fatal(fmt.Errorf("pgtest: stop the processes: %w", err))
	}
}

// still stops the parent process first, so that no new processes appear. It looks for them before it stops any: under load, a look
// takes as long as a commit, and what is within one is to be stopped there.
func (s *Server) still(before, f func()) (err error) {
	var stopped []int
	defer func() {
		for _, pid := range stopped {
			err = errors.Join(err, ended(syscall.Kill(pid, syscall.SIGCONT)))
		}
	}()
	first := s.cmd.Process.Pid
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		all, moving, err := family(first)
		if err != nil {
			return err
		}
		if moving == 0 {
			f()
			return nil
		}
		if stopped == nil {
			before()
		}
		for _, pid := range append([]int{first}, all...) {
			if slices.Contains(stopped, pid) {
				continue
			}
			stopped = append(stopped, pid)
			if err := ended(syscall.Kill(pid, syscall.SIGSTOP)); err != nil {
				return err
			}
		}
	}
	return errors.New("the processes did not stop within a minute")
}

// Copy copies the files of s in their current state, and returns a function that starts another
// server on the copy, for this test only.
func (s *Server) Copy(t testing.TB) (start func() *Server) {
	t.Helper()
	image := &Server{settings: s.settings, as: s.as, orders: make(chan func())}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(fmt.Errorf("pgtest: copy: %w", err))
		}
	}
	var err error
	image.dir, err = os.MkdirTemp("", "pgtest")
	check(err)
	go image.obey()
	t.Cleanup(image.stop)
	if c := s.as.Credential; c != nil {
		check(os.Chown(image.dir, int(c.Uid), -1))
	}
	check(os.Chmod(image.dir, 0o700))
	if out, err := exec.Command("cp", "-a", s.Data(), image.Data()).CombinedOutput(); err != nil {
		check(fmt.Errorf("%w: %s", err, out))
	}
	check(os.Remove(filepath.Join(image.Data(), "postmaster.pid"))) // it names a process that is running
	return func() *Server {
		t.Helper()
		image.port, err = freeport.Find()
		check(err)
		check(image.run())
		return image
	}
}

// ended returns nil if the error means that the process no longer exists.
func ended(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// family returns a process and its children, and how many of them are neither stopped nor
// ended.
func family(first int) (all []int, moving int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, 0, err
	}
	for _, stat := range stats {
		raw, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}
		var pid, parent int
		var state string
		name := bytes.LastIndexByte(raw, ')')
		if _, err := fmt.Sscanf(string(raw), "%d", &pid); err != nil {
			return nil, 0, err
		}
		if _, err := fmt.Sscanf(string(raw[name+1:]), "%s %d", &state, &parent); err != nil {
			return nil, 0, err
		}
		if pid != first && parent != first {
			continue
		}
		all = append(all, pid)
		if state != "T" && state != "Z" {
			moving++
		}
	}
	return all, moving, nil
}
