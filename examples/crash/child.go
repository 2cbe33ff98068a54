package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/childproc"
	"github.com/weft-go/weft/signal"
)

// childEnv is the variable that makes this program the child.
const childEnv = "WEFT_CRASH_CHILD"

// A plan tells a child what to do, as a line of JSON on its stdin.
type plan struct {
	Store, Dir string
	Clients    int
	Open       []task // orders in progress, as far as the parent knows
	Next       int    // the first number that is free
	Finish     bool   // start no new orders; exit when all have ended
	Updates    bool   // call an update of each order
}

// A task is an order and what was acknowledged of it.
type task struct {
	N                      int
	Started, Updated, Sent bool
}

// child is a process that hosts an engine. It ends when it is killed, when its parent
// has ended, or when the plan is done.
func child(in io.Reader, out io.Writer) int {
	var p plan
	var turn sync.Mutex // one line at a time
	say := func(format string, args ...any) {
		turn.Lock()
		defer turn.Unlock()
		fmt.Fprintf(out, format+"\n", args...) // one write, which survives the process
	}
	return childproc.Main(in, &p, func(ctx context.Context) error { return host(ctx, p, say) })
}

// host runs an engine and its clients.
func host(ctx context.Context, p plan, say func(string, ...any)) error {
	store, err := stores[p.Store](p.Dir)
	if err != nil {
		return err
	}
	defer store.Close()
	order := (&shop{say}).order()
	config := engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{order},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Events:    engine.Events{Deposed: func(engine.DeposedEvent) { say("deposed") }},
	}
	if store.Capabilities().Shared { // no other process reports that a child was killed
		config.LeaseTTL, config.PollInterval = 150*time.Millisecond, 50*time.Millisecond
	}
	eng, err := engine.New(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	say("ready")

	var clients sync.WaitGroup
	tasks := make(chan task)
	for range p.Clients {
		clients.Go(func() {
			for t := range tasks {
				c := client{eng, order, say, t, p.Updates}
				if err := c.serve(ctx); err != nil {
					say("trouble order-%d %v", t.N, err)
				}
			}
		})
	}
	for _, t := range p.Open {
		tasks <- t
	}
	for n := p.Next; !p.Finish; n++ {
		tasks <- task{N: n}
	}
	close(tasks)
	clients.Wait()
	stop()
	return <-ran
}

// A client handles one order.
type client struct {
	eng   *engine.Engine
	order *engine.Workflow[int, string]
	say   func(string, ...any)
	task
	updates bool
}

// serve starts the order, calls its update, approves it and waits for its result. What was acknowledged
// to an earlier process is repeated for even numbers, which must give the same answer,
// and not repeated for odd ones.
func (c *client) serve(ctx context.Context) error {
	id := orderID(c.N)
	c.say("open %s", id)
	repeat := c.N%2 == 0
	if !c.Started || repeat {
		if _, err := c.order.Start(ctx, c.eng, id, c.N); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	h := c.order.Handle(c.eng, id)
	info, err := h.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	c.say("started %s %d", id, info.CreatedAt.UnixMicro())
	if c.updates && (!c.Updated || repeat) {
		noted, err := note.Call(ctx, c.eng, id, c.N, &engine.UpdateOptions{ID: noteID})
		if err != nil {
			return fmt.Errorf("update: %w", err)
		}
		c.say("updated %s %s", id, noted)
	}
	if !c.Sent || repeat {
		a, err := approved.Send(ctx, c.eng, id, approval{"ann"}, &signal.Options{ID: approvalID})
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		c.say("sent %s %d", id, a.AcceptedAt.UnixMicro())
	}
	return c.result(ctx, h)
}

// result waits for the result. If the run was held because the process died too often
// during it, it calls Resume, as an operator would.
func (c *client) result(ctx context.Context, h *engine.Handle[string]) error {
	for {
		info, err := h.Describe(ctx)
		if err != nil {
			return fmt.Errorf("describe: %w", err)
		}
		for _, a := range info.Attention {
			if a.Reason != engine.ReasonNoProgress {
				return fmt.Errorf("held: %s: %s", a.Reason, a.Detail)
			}
			c.say("held %s", h.ID())
			err := c.eng.Resume(ctx, h.ID(), engine.Actor{Name: "crash", Reason: "the process is killed, and not by this run"})
			if err != nil && !errors.Is(err, engine.ErrNotApplicable) {
				return fmt.Errorf("retry: %w", err)
			}
		}
		wait, done := context.WithTimeout(ctx, time.Second)
		v, err := h.Result(wait)
		done()
		if err == nil {
			c.say("result %s %s", h.ID(), v)
			return nil
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("result: %w", err)
		}
	}
}
