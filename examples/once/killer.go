package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stall is how long the last callers may wait for an answer to any of them, and a worker for a
// request that a trap waits for.
const stall = time.Minute

// A killer runs workers, and kills and stops them.
type killer struct {
	options
	place  place
	desk   *desk
	server *http.Server
	url    string
	lives  int
	seats  []*process // the present worker of each seat
}

func newKiller(ctx context.Context, o options, p place) (*killer, error) {
	store, h, err := p.open(ctx, o.where)
	if err != nil {
		return nil, err
	}
	kinds := []Kind{verified, fenced, held, repeated}
	if h != nil {
		kinds = append(kinds, inTx)
		err = h.prepare(ctx)
		h.close()
	}
	if err := errors.Join(err, store.Close()); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &killer{options: o, place: p, desk: newDesk(o, kinds), url: "http://" + listener.Addr().String()}
	k.server = &http.Server{Handler: k.desk}
	go func() { _ = k.server.Serve(listener) }()
	return k, nil
}

// close kills what is left.
func (k *killer) close() {
	for _, p := range k.seats {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	k.server.Close()
}

func (k *killer) torture(ctx context.Context) error {
	// A process is killed when the thread that started it ends. So a killed killer leaves no stopped
	// process behind.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range k.workers {
		p, err := k.spawn(ctx)
		if err != nil {
			return err
		}
		k.seats = append(k.seats, p)
	}
	for n := 0; n < k.kills || k.kills > 0 && !k.desk.enough() && n < 4*k.kills; n++ {
		if err := k.kill(ctx, n); err != nil {
			return err
		}
		if k.desk.failed() {
			return nil // more of it would not help
		}
	}
	if err := k.stops(ctx); err != nil {
		return err
	}
	return k.finish(ctx)
}

// kill kills a worker, and starts another one in its place. Every eighth one is killed while it
// starts. Of the others every second one is killed while the provider holds a request of its.
func (k *killer) kill(ctx context.Context, n int) error {
	seat := k.victim(n)
	p := k.seats[seat]
	var held *trap
	switch {
	case n%8 == 7:
		if !p.sleep(ctx, k.upTo(40*time.Millisecond)) {
			return p.failed()
		}
	case n%8 == 3 && !k.place.shared: // lives so long that what has lapsed can be verified
		if err := p.ready(ctx, k.desk); err != nil {
			return err
		}
		if !p.sleep(ctx, 2*(k.timeout+k.settle)) {
			return p.failed()
		}
	default:
		if err := p.ready(ctx, k.desk); err != nil {
			return err
		}
		if n%4 == 1 {
			if !p.sleep(ctx, k.upTo(60*time.Millisecond)) {
				return p.failed()
			}
			break
		}
		kind, s, late := k.aim(n / 2)
		held = k.desk.set(p.name, kind, s, late)
		if err := p.wait(ctx, held.sprung); err != nil {
			return fmt.Errorf("no %s request at stage %d: %w", kind, s, err)
		}
		if s == answered {
			time.Sleep(k.upTo(2 * time.Millisecond))
		} else {
			k.desk.hit(kind)
		}
	}
	k.desk.killed(p.name)
	err := p.cmd.Process.Kill()
	<-p.ended
	if held != nil {
		close(held.loose)
	}
	k.desk.bury(p.name)
	if err != nil {
		return p.failed()
	}
	k.seats[seat], err = k.spawn(ctx)
	return err
}

// victim returns the seat whose worker is killed next. On a shared store one is left alone for some
// time: it finds out who is dead.
func (k *killer) victim(n int) int {
	if len(k.seats) == 1 {
		return 0
	}
	spared := n / 25 % len(k.seats)
	return (spared + 1 + n%(len(k.seats)-1)) % len(k.seats)
}

// aim returns where the next request is held, and when it goes on after its worker's death.
func (k *killer) aim(n int) (kind Kind, s stage, late time.Duration) {
	kind = k.desk.kinds[n%len(k.desk.kinds)]
	if kind == inTx {
		return kind, inside, 0
	}
	n /= len(k.desk.kinds)
	switch n % 4 {
	case 0:
		return kind, before, -1
	case 1:
		return kind, before, timeout(kind, k.place.shared, 0, k.lease) + k.upTo(k.timeout)
	case 2:
		return kind, answered, 0
	}
	return kind, after, 0
}

func (k *killer) upTo(d time.Duration) time.Duration {
	k.desk.mu.Lock()
	defer k.desk.mu.Unlock()
	return time.Duration(k.desk.random.Int64N(int64(d) + 1))
}

// stops stops workers, two at a time.
func (k *killer) stops(ctx context.Context) error {
	errs := make([]error, 2)
	var both sync.WaitGroup
	turns := make(chan int)
	for i := range errs {
		both.Go(func() {
			for n := range turns {
				if errs[i] == nil {
					p := k.seats[(n/2%2*2+i)%len(k.seats)]
					errs[i] = k.stop(ctx, p, n)
				}
			}
		})
	}
	for n := 0; n < k.pauses || k.pauses > 0 && !k.desk.enough() && n < 3*k.pauses; n++ {
		turns <- n
	}
	close(turns)
	both.Wait()
	return errors.Join(errs...)
}

// stop stops a worker for 1.2 to 3 leases while the provider holds a request of its. The request goes
// on at once.
func (k *killer) stop(ctx context.Context, p *process, n int) error {
	if err := p.ready(ctx, k.desk); err != nil {
		return err
	}
	kind, s, _ := k.aim(n)
	if kind == inTx && k.store != "postgres" {
		kind, s = repeated, after // SQLite has one writer: nobody could take over
	}
	if s == answered {
		s = before
	}
	held := k.desk.set(p.name, kind, s, 0)
	if err := p.wait(ctx, held.sprung); err != nil {
		return fmt.Errorf("no %s request at stage %d: %w", kind, s, err)
	}
	err := p.cmd.Process.Signal(syscall.SIGSTOP)
	k.desk.hit(kind)
	close(held.loose)
	if err == nil && !p.sleep(ctx, k.lease*12/10+k.upTo(k.lease*18/10)) {
		err = p.failed()
	}
	k.desk.count("stops")
	return errors.Join(err, p.cmd.Process.Signal(syscall.SIGCONT))
}

// finish lets the workers do what is left, and waits until they have ended.
func (k *killer) finish(ctx context.Context) error {
	k.desk.finish()
	for _, p := range k.seats {
		for running := true; running; {
			select {
			case <-p.ended:
				running = false
				if !p.cmd.ProcessState.Success() {
					return p.failed()
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(100 * time.Millisecond):
				if k.desk.stuck() {
					return nil
				}
			}
		}
	}
	return nil
}

// A process is a worker.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{}
}

// spawn starts a worker.
func (k *killer) spawn(ctx context.Context) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	k.lives++
	p := &process{name: fmt.Sprint("worker-", k.lives), cmd: exec.CommandContext(ctx, program), ended: make(chan struct{})}
	plan, err := json.Marshal(plan{p.name, k.url, k.store, k.where, k.clients, k.lease, k.timeout, k.settle})
	if err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(plan))
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	k.desk.hire(p.name)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
		_ = stdin.(io.Closer).Close()
	}()
	return p, nil
}

// ready waits until a worker works.
func (p *process) ready(ctx context.Context, d *desk) error {
	d.mu.Lock()
	came := d.came[p.name]
	d.mu.Unlock()
	return p.wait(ctx, came)
}

// wait waits for c, for as long as the worker lives.
func (p *process) wait(ctx context.Context, c <-chan struct{}) error {
	late := time.NewTimer(stall)
	defer late.Stop()
	select {
	case <-c:
		return nil
	case <-p.ended:
		return p.failed()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fmt.Errorf("%s does nothing for %v", p.name, stall)
	}
}

// sleep is false if the worker ended before, or the context.
func (p *process) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ended:
		return false
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// failed is the error of a worker that was not killed.
func (p *process) failed() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %v\n%s", p.name, p.cmd.ProcessState, last(p.stderr.Bytes(), 4096))
	default:
		return fmt.Errorf("%s: given up", p.name)
	}
}

// last is the end of b.
func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
