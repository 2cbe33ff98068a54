// Once shows that each refund happens once, although the processes that make refunds are killed
// with kill -9 and stopped with SIGSTOP.
//
//	go run ./examples/once -kills 200 -store sqlite
//	go run ./examples/once -kills 200 -store postgres
//	go run ./examples/once -pauses 12 -store postgres
//
// It starts itself several times more, or once on an exclusive store. Each of these processes is a
// worker: it makes refunds through a Ledger, for 16 callers at once. Several callers, in several
// workers, ask for each refund. There is one kind of refund for each way to deal with an unknown
// outcome: a verifier, a verifier that fences, an operator, a repetition that does no harm, and the
// host's own transaction.
//
// The first process is the provider: it makes refunds when it is asked to, loses some requests and
// some replies, and is neither killed nor stopped. It kills the workers, half of them exactly while
// it holds a request of theirs, and starts them again. At the end it lets the workers finish, and
// compares what the callers were told with its own books and with the store.
//
// It fails, with exit status 1, if a refund happens twice or not at all, if two callers are told
// different things of one refund, if a seal replaces another or comes from a claim that was taken
// over, if a key is never answered, or if too little happened for a meaningful result.
package main

import (
	"context"
	"errors"
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
	pauses  int
	store   string
	workers int // on a shared store
	clients int
	lease   time.Duration
	timeout time.Duration // of an attempt
	settle  time.Duration
	lose    float64
	seed    uint64
	where   string
}

func main() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	var o options
	flag.IntVar(&o.kills, "kills", 0, "how often a worker is killed")
	flag.IntVar(&o.pauses, "pauses", 0, "how often a worker is stopped for 1.2 to 3 leases; on a shared store")
	flag.StringVar(&o.store, "store", "sqlite", "one of "+storeNames())
	flag.IntVar(&o.workers, "workers", 4, "processes, on a shared store")
	flag.IntVar(&o.clients, "clients", 16, "callers in each process")
	flag.DurationVar(&o.lease, "lease", time.Second, "how long a lease lasts; at least 1 s")
	flag.DurationVar(&o.timeout, "timeout", 150*time.Millisecond, "how long an attempt may last")
	flag.DurationVar(&o.settle, "settle", 50*time.Millisecond, "how much later it may have its effect")
	flag.Float64Var(&o.lose, "lose", 0.06, "the part of the requests and replies that is lost")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "decides whom it hits, and when")
	flag.StringVar(&o.where, "at", "", "address of an empty PostgreSQL database, or a folder for the other stores; a private server, from Debian's packages, or a temporary folder")
	flag.Parse()
	if o.kills == 0 && o.pauses == 0 {
		o.kills = 50
	}
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "once:", err)
		os.Exit(1)
	}
}

// run kills and stops, audits and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	s, ok := stores[o.store]
	if !ok {
		return fmt.Errorf("no store %q; there are %s", o.store, storeNames())
	}
	if !s.shared {
		o.workers = 1
		if o.pauses > 0 {
			return errors.New("nobody takes over from a process that is stopped on an exclusive store")
		}
	}
	if o.where == "" {
		where, stop, err := s.make()
		if err != nil {
			return err
		}
		defer stop()
		o.where = where
	}
	fmt.Fprintf(out, "once: -store %s -kills %d -pauses %d -seed %d\n", o.store, o.kills, o.pauses, o.seed)
	began := time.Now()
	k, err := newKiller(ctx, o, s)
	if err != nil {
		return err
	}
	err = k.torture(ctx)
	k.close()
	if err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	if !k.desk.failed() { // else callers were not answered
		err = k.desk.audit(ctx, s, o)
	}
	if err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	k.desk.print(out, time.Since(began))
	if err := k.desk.verdict(o); err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	return nil
}
