// Subscription shows a workflow that lives for years: it charges a card each month, and continues as new
// each year. Customers change their plans, send new cards and cancel. A new release of the service makes
// loyal customers pay less, and is deployed while subscriptions are in progress. What has ended is removed
// after a while.
//
//	go run ./examples/subscription -kills 20 -store sqlite
//
// A month takes 50 milliseconds here. The program builds both releases of the service, starts the first one,
// and kills it with SIGKILL again and again. In the middle it asks the second release whether it could
// execute what is in the store, and goes on with that one. At the end it compares what the customers were
// told with the books of the bank, which is a server in this process.
//
// subscription.go is what a user of Weft writes. The test plays ten years, in virtual time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
)

// release is the release of the service that this program is. The linker sets it.
var release = "1"

// options configure the program.
type options struct {
	kills     int
	store     string
	customers int
	month     time.Duration
	span      time.Duration
	seed      uint64
}

func main() {
	if os.Getenv(serviceEnv) != "" {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	var o options
	flag.IntVar(&o.kills, "kills", 20, "how often the service is killed")
	flag.StringVar(&o.store, "store", "sqlite", "sqlite, bolt or postgres")
	flag.IntVar(&o.customers, "customers", 8, "subscriptions in progress at once")
	flag.DurationVar(&o.month, "month", 50*time.Millisecond, "how long a month takes")
	flag.DurationVar(&o.span, "span", 500*time.Millisecond, "how long the service lives at most, once it works")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "decides the moments of the kills")
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "subscription: %v (-seed %d)\n", err, o.seed)
		os.Exit(1)
	}
}

// run kills, compares and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "weft-subscription-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	address := filepath.Join(dir, "subscriptions")
	if o.store == "postgres" {
		o.span *= 3 // it takes the next process longer to know that the one before is dead
		server, stop, err := pgtest.Launch()
		if err != nil {
			return err
		}
		defer stop()
		address = server.URL("postgres")
	}
	books := newBook()
	bank := httptest.NewServer(books)
	defer bank.Close()
	p := &parent{options: o, address: address, bank: bank.URL, random: rand.New(rand.NewPCG(o.seed, 0)), outcomes: map[int]outcome{}}
	for n := 1; n <= 2; n++ {
		if err := p.build(ctx, dir, n); err != nil {
			return err
		}
	}

	fmt.Fprintf(out, "-store %s -kills %d -seed %d\n", o.store, o.kills, o.seed)
	if err := p.torture(ctx, 1, o.kills/2); err != nil {
		return err
	}
	open, err := p.rehearse(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "release 2 can execute the %d subscriptions that are in progress\n", open)
	if err := p.torture(ctx, 2, o.kills); err != nil {
		return err
	}
	if err := p.life(ctx, 2, finish); err != nil {
		return err
	}
	cheaper := 0
	for n, outcome := range p.outcomes {
		months, err := books.check(p.plan(finish).customer(n), outcome)
		if err != nil {
			return err
		}
		cheaper += months
	}
	if err := p.life(ctx, 2, forget); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d subscriptions, each month charged once; %d months cost less by the new release; all were removed at the end\n", len(p.outcomes), cheaper)
	if o.kills > 0 && (open == 0 || cheaper == 0 || len(p.outcomes) == 0) {
		return errors.New("nothing was put to the test")
	}
	return nil
}

// rehearse asks the second release which of the runs in the store it could not execute. It returns how
// many runs there are.
func (p *parent) rehearse(ctx context.Context) (runs int, err error) {
	store, err := open(p.store, p.address)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{define(2, nil, 0)}, Logger: quiet})
	if err != nil {
		return 0, err
	}
	defer eng.Close()
	for r, err := range eng.Rehearse(ctx, engine.Filter{}) {
		if err == nil {
			err = r.Err
		}
		if err != nil {
			return 0, fmt.Errorf("release 2 cannot execute what is in the store: %s: %w", r.ID, err)
		}
		runs++
	}
	return runs, nil
}
