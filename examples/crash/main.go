// Crash shows that workflows survive kill -9.
//
//	go run ./examples/crash -kills 200 -store sqlite
//
// It starts itself as a child. The child starts orders, approves them by a signal,
// executes them and waits for their results, 16 at a time. It reports everything to its
// parent through a pipe, as it happens: what was acknowledged to it, which effects it
// starts, what its workflows have learnt. The parent kills it with SIGKILL at random
// moments and starts it again. After the last kill a child may finish. Then the parent
// opens the store, compares it with the reports, and prints a table.
//
// It fails, with exit status 1, if an acknowledged start, signal or result is lost, if
// an order does not complete, if a replay sees something else than the run did, or if
// an effect is repeated that was not in flight at a kill. An effect is in flight from
// its start until its workflow has seen its outcome.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// Options configure the test.
type options struct {
	kills   int
	store   string
	seed    uint64
	clients int
	span    time.Duration
	dir     string
	pg      string
	other   string
}

func main() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	var o options
	flag.IntVar(&o.kills, "kills", 200, "how often the child is killed")
	flag.StringVar(&o.store, "store", "sqlite", "one of "+storeNames())
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "decides the moments of the kills")
	flag.IntVar(&o.clients, "clients", 16, "orders under way at once")
	flag.DurationVar(&o.span, "span", 200*time.Millisecond, "how long the child lives at most, once it works; twice its start-up if that is longer, and up to thirty times as long if too few kills find an effect in flight")
	flag.StringVar(&o.dir, "dir", "", "where the store is kept; a new temporary directory")
	flag.StringVar(&o.pg, "pg", "", "address of a PostgreSQL server; a private one, from Debian's packages")
	flag.StringVar(&o.other, "other", "", "another build of this program, such as one with an earlier release of Weft: every other child is of that build")
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

// run kills, audits and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	s, ok := stores[o.store]
	if !ok {
		return fmt.Errorf("no store %q; there are %s", o.store, storeNames())
	}
	kept := o.dir != ""
	if !kept {
		dir, err := os.MkdirTemp("", "weft-crash-")
		if err != nil {
			return err
		}
		o.dir = dir
	}
	stop, err := serve(o.store, o.dir, o.pg)
	if err != nil {
		return err
	}
	defer stop()
	if _, shared := servers[o.store]; shared {
		o.span = max(o.span, 500*time.Millisecond) // leases must expire during a child's life
	}
	fmt.Fprintf(out, "crash: -store %s -kills %d -seed %d, in %s\n", o.store, o.kills, o.seed, o.dir)
	p := newParent(o)
	began := time.Now()
	err = p.torture(ctx)
	if err == nil {
		err = p.ledger.audit(ctx, s, o.dir)
	}
	p.ledger.print(out, time.Since(began))
	if err == nil {
		err = p.ledger.verdict(o.kills)
	}
	if err != nil {
		return fmt.Errorf("%w (seed %d, store kept in %s)", err, o.seed, o.dir)
	}
	if !kept {
		return os.RemoveAll(o.dir)
	}
	return nil
}
