package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// childEnv is the variable that makes this program one of the engines.
const childEnv = "WEFT_CLUSTER_CHILD"

// A plan tells a process what to do, as a line of JSON on its stdin. Later lines are
// "freeze" (stop with SIGSTOP inside the next commit of a checkpoint), "finish" (start
// no new orders) and "stop".
type plan struct {
	Store, Where string
	Process      string // its unique name
	TTL          time.Duration
	Clients      int
	Careless     bool
}

// child is a process that hosts an engine. It ends when it is killed, when the killer
// has ended, or when it is told to.
func child(in io.Reader, out io.Writer) int {
	stdin := bufio.NewReader(in)
	var p plan
	line, err := stdin.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	running, stop := context.WithCancel(context.Background())
	beginning, finish := context.WithCancel(running)
	defer stop()
	defer finish()
	var turn sync.Mutex // one line at a time
	say := func(format string, args ...any) {
		turn.Lock()
		defer turn.Unlock()
		fmt.Fprintf(out, format+"\n", args...) // one write, which survives the process
	}
	f := &freezer{least: p.TTL, say: say}
	go func() {
		for {
			switch line, err := stdin.ReadString('\n'); {
			case err != nil:
				os.Exit(1) // the killer has ended
			case line == "freeze\n":
				f.armed.Store(true)
			case line == "finish\n":
				finish()
			case line == "stop\n":
				stop()
			}
		}
	}()
	if err := host(running, beginning, p, f, say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// host runs an engine, and clients that start orders until they are told to finish.
func host(running, beginning context.Context, p plan, f *freezer, say func(string, ...any)) error {
	place := stores[p.Store]
	store, err := place.open(running, p.Where, p.Process)
	if err != nil {
		return err
	}
	defer store.Close()
	target, err := place.shop(running, p.Where, p.Process)
	if err != nil {
		return err
	}
	defer target.close()
	order := (&shop{say, target}).order()
	eng, err := engine.New(engine.Config{
		Storage:      &witness{store, p.Process, say, p.Careless, f},
		Workflows:    []engine.Definition{order},
		Name:         p.Process,
		LeaseTTL:     p.TTL,
		PollInterval: p.TTL / 6,
		ParkAfter:    p.TTL / 10,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Events: engine.Events{
			Takeover: func(t engine.TakeoverEvent) { say("takeover %s %s %s", t.WorkflowID, t.From, t.To) },
			LostRace: func(l engine.LostRaceEvent) { say("lostrace %s", l.WorkflowID) },
			Fenced:   func(f engine.FencedEvent) { say("fenced %s", f.WorkflowID) },
			Unknown:  func(u engine.UnknownEvent) { say("unknown %s", u.WorkflowID) },
			Deposed:  func(d engine.DeposedEvent) { say("deposed %s", d.Incarnation) },
		},
	})
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(running) }()
	say("ready")
	var clients sync.WaitGroup
	for i := range p.Clients {
		clients.Go(func() {
			for n := 0; beginning.Err() == nil; n++ {
				if err := serve(running, eng, order, orderID(p.Process, i, n), say); err != nil && running.Err() == nil {
					say("trouble %v", err)
				}
			}
		})
	}
	err = <-ran
	clients.Wait()
	return err
}

// serve starts an order, approves it and waits for its result, whichever engine runs
// it.
func serve(ctx context.Context, eng *engine.Engine, order *engine.Workflow[int, string], id string, say func(string, ...any)) error {
	h, err := order.Start(ctx, eng, id, 1)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	say("started %s", id)
	if _, err := approved.Send(ctx, eng, id, approval{"ann"}, &signal.Options{ID: approvalID}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	v, err := h.Result(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil // another engine will complete it
	case err != nil:
		return fmt.Errorf("result: %w", err)
	}
	say("result %s %s", id, v)
	return nil
}
