package natstest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/consumer"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage/sqlite"
)

// planEnv is the variable that makes the test program a consumer, with its plan.
const planEnv = "WEFT_NATS_PLAN"

// A plan tells a consumer what to do.
type plan struct {
	URL, Store string
	Workers    int
	DieAt      string // the step at which it kills itself; empty: at none
}

// steps are those of one delivery.
var steps = []string{"received", "claimed", "shipped", "sealed", "acknowledged"}

// TestMain makes the test program its own child.
func TestMain(m *testing.M) {
	text := os.Getenv(planEnv)
	if text == "" {
		leaks.Main(m)
		return
	}
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = consume(context.Background(), p, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// die kills the process if this is the step at which it is to die.
func (p plan) die(step string) {
	if step == p.DieAt {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {}
	}
}

// consume handles messages until stdin ends. It prints a line for each delivery.
func consume(ctx context.Context, p plan, stdin io.Reader, stdout io.Writer) (err error) {
	store, err := sqlite.Open(p.Store, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ledger, err := idempotency.New(idempotency.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	nc, err := nats.Connect(p.URL, nats.Timeout(safetyNet))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := js.Consumer(ctx, topic, topic)
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(2 * p.Workers))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		messages.Stop()
	}()
	ship := shipping(nc, p.die)
	deliveries := make(chan jetstream.Msg)
	var workers sync.WaitGroup
	for range p.Workers {
		workers.Go(func() {
			for m := range deliveries {
				handle(ctx, p, ledger, ship, m, stdout)
			}
		})
	}
	defer workers.Wait()
	defer close(deliveries)
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		} else if err != nil {
			return err
		}
		deliveries <- m
	}
}

// handle handles one delivery.
func handle(ctx context.Context, p plan, l *idempotency.Ledger, ship *idempotency.Effect[Order, string], m jetstream.Msg, out io.Writer) {
	p.die("received")
	var o Order
	err := json.Unmarshal(m.Data(), &o)
	if err == nil {
		did := consumer.Do(ctx, l, ship, consumer.Message{Topic: topic, DedupeID: m.Headers().Get(dedupeID)}, o)
		p.die("sealed")
		switch did.Next {
		case consumer.Ack:
			err = m.DoubleAck(ctx)
			p.die("acknowledged")
		case consumer.Retry:
			err = m.NakWithDelay(did.After)
		case consumer.DeadLetter:
			err = m.Term()
		}
		fmt.Fprintf(out, "%s %v %s\n", o.ID, did.Next, did.Decision) // one write
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // it is delivered again
	}
}

// A life is one process of the consumer.
type life struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan error // has the error of the process when it has ended
	lines []string   // what it printed, when it has ended
	said  bytes.Buffer
}

func start(t *testing.T, p plan) *life {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, cmd: exec.Command(self), ended: make(chan error, 1)}
	l.cmd.Env = append(os.Environ(), planEnv+"="+string(text))
	l.cmd.Stderr = &l.said
	if l.stdin, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			l.lines = append(l.lines, s.Text())
		}
		l.ended <- l.cmd.Wait()
	}()
	return l
}

// killed waits until the process was killed. It fails if the process ended in another way.
func (l *life) killed() {
	l.t.Helper()
	if err := <-l.ended; err == nil || l.cmd.ProcessState.ExitCode() != -1 {
		l.t.Fatalf("the consumer was not killed: %v\n%s", err, l.said.Bytes())
	}
}

// end has the process end by itself, and returns what it printed.
func (l *life) end() []string {
	l.t.Helper()
	_ = l.stdin.Close()
	if err := <-l.ended; err != nil {
		l.t.Fatalf("the consumer: %v\n%s", err, l.said.Bytes())
	}
	return l.lines
}
