// Cluster shows several engines at work on one store, while they are stopped and
// killed.
//
//	go run ./examples/cluster -kills 12 -pauses 12 -ttl 300ms
//
// It starts itself three times more. Each of these processes hosts an engine. They
// start orders, execute them and wait for their results, all on one PostgreSQL, or with
// -store sqlite on one SQLite file. The first process is the killer: at random moments
// it kills one of the others with SIGKILL, or stops it with SIGSTOP for 1.2 to 3 leases
// and then lets it resume. With -inside all stops are in the middle of a commit. The
// processes report everything through pipes, as it happens: which checkpoints were
// acknowledged and to whom, which effects started, what the engines took over. At the
// end the killer lets them finish, compares the store with the reports, and prints a
// table.
//
// It fails, with exit status 1,
//
//   - if a checkpoint was acknowledged to an engine that was not the owner,
//   - if an order does not complete, or an acknowledged one is missing,
//   - if an effect is repeated without a kill or a stop of its engine,
//   - if a database that compares fencing tokens has admitted one that does not rise,
//   - if too little happened for a meaningful result.
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
	engines  int
	kills    int
	pauses   int
	ttl      time.Duration
	store    string
	clients  int
	seed     uint64
	where    string        // the store; "": a new one
	patience time.Duration // time limit for orders that do not end; a minute
	inside   bool          // stop inside commits only
	other    string        // another build of this program; "": none
	careless bool          // with stores that do not compare, to show that this is detected
}

func main() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	var o options
	flag.IntVar(&o.engines, "engines", 3, "processes with an engine")
	flag.IntVar(&o.kills, "kills", 12, "how often one of them is killed")
	flag.IntVar(&o.pauses, "pauses", 12, "how often one of them is stopped for 1.2 to 3 leases")
	flag.BoolVar(&o.inside, "inside", false, "stop it inside a commit, each time")
	flag.DurationVar(&o.ttl, "ttl", 300*time.Millisecond, "how long a lease lasts")
	flag.StringVar(&o.store, "store", "postgres", "one of "+storeNames())
	flag.IntVar(&o.clients, "clients", 6, "orders that each process has under way at once")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "decides whom it hits, and when")
	flag.StringVar(&o.where, "at", "", "address of an empty PostgreSQL database, or a folder for SQLite; a private server, from Debian's packages, or a temporary folder")
	flag.StringVar(&o.other, "other", "", "another build of this program, such as one with an earlier release of Weft: every other process is of that build")
	flag.Parse()
	o.patience = stall
	err := withLongerLeases(o, func(o options) error { return run(context.Background(), o, os.Stdout) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// withLongerLeases calls try, and again with leases that last three times as long if too little
// has happened, at most twice.
func withLongerLeases(o options, try func(options) error) error {
	for more := 2; ; more-- {
		err := try(o)
		if !errors.Is(err, errTooFew) || more == 0 {
			return err
		}
		o.ttl *= 3
	}
}

// run runs the test, audits and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	s, ok := stores[o.store]
	if !ok {
		return fmt.Errorf("no store %q; there are %s", o.store, storeNames())
	}
	if o.where == "" {
		where, stop, err := s.make()
		if err != nil {
			return err
		}
		defer stop()
		o.where = where
	}
	fmt.Fprintf(out, "cluster: %d engines on %s, leases of %v; %d kills and %d pauses; seed %d\n", o.engines, o.store, o.ttl, o.kills, o.pauses, o.seed)
	began := time.Now()
	k, err := newKiller(ctx, o, s, out)
	if err != nil {
		return err
	}
	defer k.close()
	if err := k.torture(ctx); err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	if err := k.audit(ctx); err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	k.ledger.print(out, o, time.Since(began))
	if err := k.ledger.verdict(o); err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	return nil
}
