package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A killer runs engines, and stops and kills them.
type killer struct {
	options
	place  place
	store  storage.Storage
	target target
	eng    *engine.Engine // runs nothing, and only reads
	ledger *ledger
	out    io.Writer
	began  time.Time

	mu     sync.Mutex // guards what follows, and lines of out
	random *rand.Rand
	left   struct{ kills, pauses int }
	odd    bool // whether an odd number of processes was started
}

// stall is the longest time that anything may take.
const stall = time.Minute

func newKiller(ctx context.Context, o options, p place, out io.Writer) (_ *killer, err error) {
	k := &killer{options: o, place: p, ledger: newLedger(), out: out, began: time.Now(), random: rand.New(rand.NewPCG(o.seed, 1))}
	k.left.kills, k.left.pauses = o.kills, o.pauses
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if k.store, err = p.open(ctx, o.where, "killer"); err != nil {
		return nil, err
	}
	if k.target, err = p.shop(ctx, o.where, "killer"); err != nil {
		return nil, err
	}
	if err = k.target.prepare(ctx); err != nil {
		return nil, err
	}
	if k.other != "" {
		if err = k.found(ctx); err != nil {
			return nil, err
		}
	}
	k.eng, err = engine.New(engine.Config{Storage: k.store, Logger: slog.New(slog.DiscardHandler)})
	return k, err
}

// found has the other build make the store: this one understands what that one makes, and not always the reverse.
func (k *killer) found(ctx context.Context) error {
	p, err := k.spawn(ctx, "founder")
	if err != nil {
		return err
	}
	p.order("stop")
	return p.wait()
}

func (k *killer) close() {
	if k.eng != nil {
		k.eng.Close()
	}
	if k.target != nil {
		k.target.close()
	}
	if k.store != nil {
		k.store.Close()
	}
}

func (k *killer) tell(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintf(k.out, "%6.2fs  %s\n", time.Since(k.began).Seconds(), fmt.Sprintf(format, args...))
}

// torture runs the engines until all kills and stops are done and all orders have
// ended.
func (k *killer) torture(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	survivors := make(chan *process, k.engines)
	var seats sync.WaitGroup
	defer seats.Wait()
	defer cancel(nil) // kills the remaining processes
	enough := make(chan struct{})
	for i := range k.engines {
		seats.Go(func() {
			// A process is killed when the thread that started it ends. So a killed
			// killer leaves no stopped process behind.
			runtime.LockOSThread()
			p, err := k.seat(ctx, string(rune('a'+i)))
			if err != nil {
				cancel(err)
				return
			}
			survivors <- p
			<-enough
			if err := p.wait(); err != nil && context.Cause(ctx) == nil {
				cancel(err)
			}
		})
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		k.report(ctx)
	}()
	defer func() { <-reported }()
	defer cancel(nil)
	var alive []*process
	for range k.engines {
		select {
		case p := <-survivors:
			alive = append(alive, p)
		case <-ctx.Done():
			close(enough)
			return context.Cause(ctx)
		}
	}
	k.tell("enough; the engines finish what is there")
	for _, p := range alive {
		p.order("finish")
	}
	err := k.finish(ctx)
	for _, p := range alive {
		p.order("stop")
	}
	close(enough)
	if err == nil {
		seats.Wait()
		err = context.Cause(ctx)
	}
	return err
}

// seat runs one engine after the other, until no kills and stops are left, and returns
// the last.
func (k *killer) seat(ctx context.Context, seat string) (*process, error) {
	for life := 1; ; life++ {
		p, err := k.spawn(ctx, fmt.Sprint(seat, life))
		if err != nil {
			return nil, err
		}
		for killed := false; !killed; {
			if !sleep(ctx, k.upTo(3*k.ttl)+k.ttl/2) {
				return nil, context.Cause(ctx)
			}
			switch k.next() {
			case "pause":
				err = k.pause(ctx, p)
			case "kill":
				killed = true
				err = k.kill(p)
			default:
				return p, nil
			}
			if err != nil {
				return nil, err
			}
		}
		if !sleep(ctx, k.upTo(k.ttl)) {
			return nil, context.Cause(ctx)
		}
	}
}

// next is the next kill or stop; nothing if all are done.
func (k *killer) next() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch left := k.left.kills + k.left.pauses; {
	case left == 0:
		return ""
	case k.random.IntN(left) < k.left.kills:
		k.left.kills--
		return "kill"
	}
	k.left.pauses--
	return "pause"
}

func (k *killer) upTo(d time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.random.Int64N(int64(d) + 1))
}

// pause stops a process for 1.2 to 3 leases, inside a commit if requested. Two times of
// three its connections end meanwhile, or when it resumes: then it does not know the
// outcome of its commits.
func (k *killer) pause(ctx context.Context, p *process) error {
	d := k.ttl*12/10 + k.upTo(k.ttl*18/10)
	k.tell("%s is stopped for %v; it owns %d", p.name, d.Round(time.Millisecond), k.owned(ctx, p.name))
	from := time.Now()
	var err error
	if k.inside {
		err = p.freeze(ctx)
	} else {
		err = p.cmd.Process.Signal(syscall.SIGSTOP)
	}
	if err != nil {
		return err
	}
	cut := k.upTo(2)
	if cut == 1 {
		if err := k.place.cut(ctx, k.where, p.name); err != nil {
			return err
		}
	}
	slept := sleep(ctx, d)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	k.ledger.stopped(p.name, from, time.Now())
	if !slept {
		return context.Cause(ctx)
	}
	k.tell("%s goes on", p.name)
	if cut == 2 {
		return k.place.cut(ctx, k.where, p.name)
	}
	return nil
}

func (k *killer) kill(p *process) error {
	k.tell("%s is killed; it owns %d", p.name, k.owned(context.Background(), p.name))
	p.killed = true
	k.ledger.killed(p.name, time.Now())
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	return p.wait()
}

// owned is how many runs a process owns, in all of its incarnations.
func (k *killer) owned(ctx context.Context, process string) (n int) {
	infos, err := k.eng.Engines(ctx)
	if err != nil {
		return -1
	}
	for _, i := range infos {
		if i.Name == process {
			n += i.Runs
		}
	}
	return n
}

// report prints what engines have taken over, a little later, in one line.
func (k *killer) report(ctx context.Context) {
	for sleep(ctx, k.ttl/3) {
		for _, words := range k.ledger.news() {
			k.tell("%s", words)
		}
	}
}

// finish approves every order, because the process that started it may have died before
// doing so, and waits until all have ended.
func (k *killer) finish(ctx context.Context) error {
	began := time.Now()
	open := map[string]bool{}
	for sleep(ctx, 2*k.ttl) {
		for info, err := range k.eng.List(ctx, engine.Filter{}) { // clients may be starting their last orders
			if err != nil {
				return err
			}
			if info.Status.Terminal() {
				delete(open, info.ID)
				continue
			}
			if !open[info.ID] {
				if _, err := approved.Send(ctx, k.eng, info.ID, approval{"ann"}, &signal.Options{ID: approvalID}); err != nil && !errors.Is(err, engine.ErrTerminal) {
					return err
				}
			}
			open[info.ID] = true
		}
		if len(open) == 0 && time.Since(began) > 4*k.ttl {
			return nil
		}
		if time.Since(began) > k.patience {
			for id := range open {
				info, err := k.eng.Describe(ctx, id)
				k.ledger.violate("%s does not end: %+v %v", id, info, err)
			}
			return nil
		}
	}
	return context.Cause(ctx)
}

// A process hosts an engine.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Writer
	stderr *tail
	read   chan struct{} // closed at the end of its output
	killed bool
}

// program returns the build of which the next process is.
func (k *killer) program() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.odd = !k.odd; k.other != "" && k.odd {
		return k.other, nil
	}
	return os.Executable()
}

// spawn starts a process, and waits until its engine runs.
func (k *killer) spawn(ctx context.Context, name string) (*process, error) {
	program, err := k.program()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.CommandContext(ctx, program), stderr: &tail{}, read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"=1")
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin // stays open: a process that loses it ends
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	plan, err := json.Marshal(plan{k.options.store, k.where, name, k.ttl, k.clients, k.careless})
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	k.ledger.began(name)
	ready := make(chan struct{})
	go func() {
		defer close(p.read)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return // an incomplete line does not count
			}
			if line == "ready\n" {
				close(ready)
				continue
			}
			k.ledger.read(name, strings.TrimSuffix(line, "\n"))
		}
	}()
	p.order(string(plan))
	late := time.NewTimer(stall)
	defer late.Stop()
	select {
	case <-ready:
		return p, nil
	case <-p.read:
		return nil, p.wait()
	case <-late.C:
		return nil, errors.Join(fmt.Errorf("%s is not ready in %v\n%s", name, stall, p.stderr), p.cmd.Process.Kill(), p.wait())
	}
}

func (p *process) order(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

// wait waits for the end of a process, which must have been requested.
func (p *process) wait() error {
	late := time.AfterFunc(stall, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.read
	if err := p.cmd.Wait(); err != nil && !p.killed {
		return fmt.Errorf("%s ended by itself: %w\n%s", p.name, err, p.stderr)
	}
	return nil
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	end bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end.Len() > 16<<10 {
		t.end.Next(t.end.Len() - 8<<10)
	}
	return t.end.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end.String()
}

// sleep is false if the context ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// audit reads the store and the target, and compares.
func (k *killer) audit(ctx context.Context) error {
	var ids []string
	for info, err := range k.eng.List(ctx, engine.Filter{}) {
		if err != nil {
			k.ledger.violate("%s: %v", info.ID, err)
			continue
		}
		if info.Status != checkpoint.StatusCompleted {
			k.ledger.violate("%s is %s: %v", info.ID, info.Status, info.Attention)
		}
		ids = append(ids, info.ID)
	}
	work := make(chan string)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for id := range work {
				k.auditOrder(ctx, id)
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	readers.Wait()
	bookings, err := k.target.booked(ctx)
	if err != nil {
		return err
	}
	k.ledger.judge(bookings)
	for _, family := range []string{"held:", "sig:", "inbox:"} {
		for e, err := range storage.All(ctx, k.store, storage.Prefix([]byte(family))) {
			if err != nil {
				return err
			}
			k.ledger.violate("%s is left over", e.Key)
		}
	}
	return nil
}

func (k *killer) auditOrder(ctx context.Context, id string) {
	var h history
	for c, err := range k.eng.History(ctx, id) {
		if err != nil {
			k.ledger.violate("%s: %v", id, err)
			return
		}
		h.take(c)
	}
	k.ledger.kept(id, h)
}
