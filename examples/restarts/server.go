package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/internal/freeport"
	"github.com/weft-go/weft/internal/pgtest"
)

// A server is "weft serve", and where it keeps what it must not forget.
type server struct {
	options
	dir     string
	place   string // of the store
	secret  string
	address string
	stops   []func()

	process *exec.Cmd
	ended   chan struct{}
	said    *strings.Builder // what the process has printed; read it after ended
}

// newServer builds the command, and makes the place of the store.
func newServer(ctx context.Context, o options) (s *server, err error) {
	s = &server{options: o, secret: "weft_sk_" + fmt.Sprintf("%032x", rand.Uint64())}
	if s.dir, err = os.MkdirTemp("", "weft-restarts-"); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func() { os.RemoveAll(s.dir) })
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.weft == "" {
		s.weft = filepath.Join(s.dir, "weft")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", s.weft, "github.com/weft-go/weft/cmd/weft").CombinedOutput(); err != nil {
			return s, fmt.Errorf("build weft: %w\n%s", err, out)
		}
	}
	switch o.store {
	case "sqlite":
		s.place = "sqlite:" + filepath.Join(s.dir, "weft.db")
	case "postgres":
		database, stop, err := pgtest.Launch()
		if err != nil {
			return s, err
		}
		s.stops = append(s.stops, stop)
		s.place = database.URL("postgres")
	default:
		return s, fmt.Errorf("no store %q; there are sqlite and postgres", o.store)
	}
	keys := fmt.Sprintf(`[{"id": "customer", "secret": %q, "scopes": ["admin"]}]`, s.secret)
	if err := os.WriteFile(s.keys(), []byte(keys), 0o600); err != nil {
		return s, err
	}
	port, err := freeport.Find() // which stays the same
	s.address = freeport.Address(port)
	return s, err
}

func (s *server) keys() string { return filepath.Join(s.dir, "keys.json") }

// close ends all that newServer and start have begun.
func (s *server) close() {
	s.kill()
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

// client returns a client of the server, all of whose answers are told to b.
func (s *server) client(b *books) (*client.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = s.clients
	s.stops = append(s.stops, t.CloseIdleConnections)
	return client.New("http://"+s.address, s.secret, &client.Options{Transport: witness{t, b}})
}

// spawn starts the process. It does not wait until it listens.
func (s *server) spawn() (listens <-chan struct{}, err error) {
	p := exec.Command(s.weft, "serve", "--demo", "--keys", s.keys(), "--listen", s.address, "--rate-limit", "1000000")
	p.Env = append(os.Environ(), "WEFT_STORE="+s.place)
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said := new(strings.Builder)
	p.Stderr = said
	if err := p.Start(); err != nil {
		return nil, err
	}
	s.process, s.ended, s.said = p, make(chan struct{}), said
	ended, line := s.ended, make(chan struct{})
	go func() {
		defer close(ended)
		for lines, first := bufio.NewScanner(out), true; lines.Scan(); first = false {
			if first {
				close(line)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = p.Wait()
	}()
	return line, nil
}

// start starts the process, and waits until it listens.
func (s *server) start(ctx context.Context) error {
	listens, err := s.spawn()
	if err != nil {
		return err
	}
	select {
	case <-listens:
		return nil
	case <-s.ended:
		return fmt.Errorf("weft serve has ended: %s", s.said)
	case <-time.After(time.Minute):
		return errors.New("weft serve does not listen after a minute")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill kills the process, as kill -9 does.
func (s *server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		<-s.ended
		s.process = nil
	}
}

// torture kills the process and starts it again. Every eighth time it is killed while it starts. At
// the end it runs. failed ends it early.
func (s *server) torture(ctx context.Context, random *rand.Rand, failed <-chan struct{}) error {
	// A child is killed when the thread that started it ends, so none is left behind.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n := range s.kills {
		if !sleep(ctx, time.Duration(random.Int64N(int64(s.span))), failed) {
			return ctx.Err()
		}
		s.kill()
		if n%8 == 7 {
			if _, err := s.spawn(); err != nil {
				return err
			}
			if !sleep(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond))), failed) {
				return ctx.Err()
			}
			s.kill()
		}
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sleep returns false if ctx ends earlier, or failed is closed.
func sleep(ctx context.Context, d time.Duration, failed <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-failed:
	case <-ctx.Done():
	}
	return false
}
