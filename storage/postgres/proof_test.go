package postgres_test

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// holderEnv has the URL of the store on which a process holds a session until it is killed.
const holderEnv = "WEFT_TEST_HOLDER"

// holdSession is that process. It writes its proof.
func holdSession(url string) error {
	s, err := postgres.Open(context.Background(), url, nil)
	if err != nil {
		return err
	}
	p, err := s.OpenSession(context.Background(), "holder", time.Minute)
	if err == nil {
		fmt.Println(p.Proof())
		select {}
	}
	return err
}

// session opens a session that is closed at the end of the test.
func session(t *testing.T, s *postgres.Store) storage.Session {
	t.Helper()
	p, err := s.OpenSession(t.Context(), "test", time.Minute)
	must(t, err)
	if p == nil {
		t.Fatal("got no session, want one")
	}
	t.Cleanup(p.Close)
	return p
}

// ended reports whether the store says that a session has ended.
func ended(t *testing.T, s *postgres.Store, proof string) bool {
	t.Helper()
	all, err := s.SessionsEnded(t.Context(), []string{proof})
	must(t, err)
	return all[0]
}

// isLost waits until a session is lost.
func isLost(t *testing.T, p storage.Session) {
	t.Helper()
	select {
	case <-p.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the session is not lost after a minute, want it lost")
	}
}

// A process that is stopped keeps its session, and one that is killed does not.
func TestSessionOfAProcess(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, nil)
	c := osexec.Command(os.Args[0])
	c.Env = append(os.Environ(), holderEnv+"="+url)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	defer func() { c.Process.Kill(); c.Wait() }()
	var life, reset, number string
	_, err = fmt.Fscanln(out, &life, &reset, &number)
	must(t, err)
	proof := strings.Join([]string{life, reset, number}, " ")
	must(t, c.Process.Signal(syscall.SIGSTOP))
	for range 10 {
		if ended(t, s, proof) {
			t.Fatal("the session of a stopped process has ended, want it to last")
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(t, c.Process.Kill())
	eventually(t, func() bool { return ended(t, s, proof) })
}

// A session whose connection is cut is lost to its process, and has ended for others. It ends for
// itself alone.
func TestSessionThatIsCut(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, nil)
	cut, other := session(t, s), session(t, s)
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(context.Background())
	var name string
	var pid int
	must(t, conn.QueryRow(t.Context(), `
		SELECT a.application_name, pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE locktype = 'advisory' AND granted AND classid::bigint << 32 | objid::bigint = $1::text::bigint`,
		cut.Proof()[strings.LastIndexByte(cut.Proof(), ' ')+1:]).Scan(&name, &pid))
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid)
	must(t, err)
	if name != "weft engine test" {
		t.Errorf("the session has the name %q", name)
	}
	isLost(t, cut)
	eventually(t, func() bool { return ended(t, s, cut.Proof()) })
	select {
	case <-other.Lost():
		t.Error("another session is lost too")
	default:
	}
	if ended(t, s, other.Proof()) {
		t.Error("another session has ended too")
	}
}

// A server that does not answer for a while does not lose the session: its process counts it as lost, and opens another, but
// others count it as alive until that process closes it.
func TestSessionOutlivesASilence(t *testing.T) {
	torture.Slow(t)
	url := pgtest.URL(t)
	s := open(t, url, nil)
	p, err := s.OpenSession(t.Context(), "test", 10*time.Second) // the least
	must(t, err)
	defer p.Close()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(context.Background())
	var pid int
	must(t, conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name = 'weft engine test' AND datname = current_database()`).Scan(&pid))
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer syscall.Kill(pid, syscall.SIGCONT)
	isLost(t, p)
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	for range 20 {
		if ended(t, s, p.Proof()) {
			t.Fatal("the session has ended, want it to last until it is closed")
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.Close()
	eventually(t, func() bool { return ended(t, s, p.Proof()) })
}

// When the server restarts, or one of its processes crashes, all sessions end. That says nothing
// about the processes that held them.
func TestSessionsOfAnEarlierLifeProveNothing(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *pgtest.Server){
		"restart": func(t *testing.T, s *pgtest.Server) { must(t, s.Restart()) },
		"crash of a process": func(t *testing.T, s *pgtest.Server) {
			conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
			must(t, err)
			defer conn.Close(context.Background())
			must(t, syscall.Kill(int(conn.PgConn().PID()), syscall.SIGKILL))
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Start(t)
			s := open(t, server.URL("postgres"), nil)
			p := session(t, s)
			end(t, server)
			isLost(t, p)
			var got []bool
			eventually(t, func() bool {
				var err error
				got, err = s.SessionsEnded(t.Context(), []string{p.Proof()})
				return err == nil
			})
			if !slices.Equal(got, []bool{false}) {
				t.Errorf("got %v for a session of the server's life before, want false", got)
			}
			var next storage.Session
			eventually(t, func() bool { // after a crash the server may still recover
				var err error
				next, err = s.OpenSession(t.Context(), "test", time.Minute)
				return err == nil && next != nil
			})
			if ended(t, s, next.Proof()) {
				t.Error("a new session has ended, want it to last")
			}
			next.Close()
			eventually(t, func() bool { return ended(t, s, next.Proof()) })
		})
	}
}

// There are no sessions where their end would prove nothing, or where they are switched off.
func TestNoSession(t *testing.T) {
	direct := pgtest.URL(t)
	straight := open(t, direct, nil)
	_, through := proxied(t, direct)
	proxied := open(t, through, nil)
	for name, s := range map[string]*postgres.Store{
		"through PgBouncer": open(t, pooled(t, direct, "session"), nil),
		"through a proxy":   proxied,
		"LeaseOnly":         open(t, direct, &postgres.Options{LeaseOnly: true}),
		"ReadOnly":          open(t, direct, &postgres.Options{ReadOnly: true}),
	} {
		if p, err := s.OpenSession(t.Context(), "none", time.Minute); p != nil || err != nil {
			t.Errorf("%s: got session %v and error %v, want neither", name, p, err)
		}
	}
	p := session(t, straight)
	p.Close()
	if ended(t, open(t, direct, &postgres.Options{LeaseOnly: true}), p.Proof()) {
		t.Error("LeaseOnly: a session has ended, want no answer")
	}
	eventually(t, func() bool { return ended(t, proxied, p.Proof()) }) // whoever asks may be anywhere
}

// A server that closes idle connections lets sessions be.
func TestSessionMayBeIdle(t *testing.T) {
	server := pgtest.Start(t)
	s := open(t, server.URL("postgres"), nil)
	server.Exec(t, "postgres", `ALTER DATABASE postgres SET idle_session_timeout = '2s'`)
	var p storage.Session
	eventually(t, func() bool { // on a busy machine the server may close the connection before it is a session
		var err error
		p, err = s.OpenSession(t.Context(), "test", time.Minute)
		return err == nil && p != nil
	})
	defer p.Close()
	for range 2 {
		conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
		must(t, err)
		if _, err := conn.WaitForNotification(t.Context()); err == nil {
			t.Fatal("an idle connection of others is not closed, so this proves nothing")
		}
		conn.Close(context.Background())
	}
	if ended(t, s, p.Proof()) {
		t.Error("the idle session has ended, want it to last")
	}
}

// The session of a closed store lasts until it is closed itself: its process may have attempts in
// progress.
func TestSessionOutlivesItsStore(t *testing.T) {
	url := pgtest.URL(t)
	s, asks := open(t, url, nil), open(t, url, nil)
	p := session(t, s)
	must(t, s.Close())
	if ended(t, asks, p.Proof()) {
		t.Error("the session has ended with its store, want it to last")
	}
	p.Close()
	eventually(t, func() bool { return ended(t, asks, p.Proof()) })
	if _, err := s.OpenSession(t.Context(), "late", time.Minute); !strings.Contains(fmt.Sprint(err), storage.ErrClosed.Error()) {
		t.Errorf("a session of a closed store: got error %v, want ErrClosed", err)
	}
}
