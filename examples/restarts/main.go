// Restarts shows that what a control plane has answered stays so, although its process is killed
// with kill -9 again and again.
//
//	go run ./examples/restarts -kills 200 -store sqlite
//	go run ./examples/restarts -kills 200 -store postgres
//
// It builds the command weft and runs "weft serve -demo" as a process of its own. Customers start
// orders and approve some of them, through package client, which asks again for answers that were
// lost. They also repeat what was answered. New orders begin on another deployment again and again. Meanwhile the process is killed and started again, some
// of the times while it starts.
//
// At the end it compares what the customers were told with the runs, the signals and the audit trail
// of the control plane. It fails, with exit status 1, if an order was started twice or is lost, if
// an answer to a repetition differs from the first, if an approval arrived twice, or if an
// acknowledged write has no audit row.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"
)

// Options configure the test.
type options struct {
	kills   int
	store   string
	clients int
	span    time.Duration // a process lives up to so long after it listens
	pause   time.Duration // of a customer between two orders
	seed    uint64
	weft    string // the command; "": it is built
}

func main() {
	var o options
	flag.IntVar(&o.kills, "kills", 20, "how often the process is killed")
	flag.StringVar(&o.store, "store", "sqlite", "sqlite, or postgres, of which it starts a private server")
	flag.IntVar(&o.clients, "clients", 8, "customers at a time")
	flag.DurationVar(&o.span, "span", 400*time.Millisecond, "how long a process lives at most after it listens")
	flag.DurationVar(&o.pause, "pause", 10*time.Millisecond, "how long a customer waits between two orders")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "decides when the process is killed")
	flag.StringVar(&o.weft, "weft", "", "the command weft; by default it is built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "restarts:", err)
		os.Exit(1)
	}
}

// run kills, compares and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintf(out, "restarts: -store %s -kills %d -seed %d\n", o.store, o.kills, o.seed)
	began := time.Now()
	s, err := newServer(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.start(ctx); err != nil {
		return err
	}
	books := newBooks()
	c, err := s.client(books)
	if err != nil {
		return err
	}
	shopping := shop(ctx, c, books, o)
	killed := s.torture(ctx, rand.New(rand.NewPCG(o.seed, 0)), shopping.failed())
	err = shopping.stop()
	if killed != nil {
		err = killed
	}
	if err == nil {
		err = books.compare(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	fmt.Fprintf(out, "%d kills in %v: %s\n", o.kills, time.Since(began).Round(time.Second), books)
	if err := books.verdict(); err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	return nil
}
