// Payment shows that no card is charged twice, no payment is invented and no refund
// forgotten, although the process that pays is killed and the bank's replies are lost.
//
//	go run ./examples/payment -kills 200 -lose 0.2 -store sqlite
//
// The bank is a server in this process. It charges whenever it is asked to, even twice
// under one key; some of its replies are lost, before or after it has charged. The
// program starts itself as a child: a shop, whose workflows pay, and refund the charge
// if the goods turn out to be sold out. The child is killed with SIGKILL at random
// moments and started again; after the last kill one may finish. Then the bank's books
// are compared with what the workflows report.
//
// shop.go is what a user of Weft writes: an activity with a key, a verifier and a
// compensation.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"time"
)

// options configure the test.
type options struct {
	kills   int
	lose    float64
	store   string
	seed    uint64
	clients int
	span    time.Duration
	dir     string
}

func main() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	var o options
	flag.IntVar(&o.kills, "kills", 50, "how often the shop is killed")
	flag.Float64Var(&o.lose, "lose", 0.2, "the part of the bank's replies that is lost")
	flag.StringVar(&o.store, "store", "sqlite", "sqlite, bolt or postgres")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "decides the moments of the kills and the losses")
	flag.IntVar(&o.clients, "clients", 8, "orders under way at once")
	flag.DurationVar(&o.span, "span", 500*time.Millisecond, "how long the shop lives at most, once it works")
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		os.Exit(1)
	}
}

// run kills, compares and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "weft-payment-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	address, stop, err := place(o.store, o.dir)
	if err != nil {
		return err
	}
	defer stop()
	random := rand.New(rand.NewPCG(o.seed, 1))
	b := newBank(o.lose, rand.New(rand.NewPCG(o.seed, 2)))
	server := httptest.NewServer(b)
	defer server.Close()

	p := &parent{options: o, address: address, bank: server.URL, random: random, outcomes: map[int]string{}}
	if err := p.torture(ctx); err != nil {
		return fmt.Errorf("%w (seed %d)", err, o.seed)
	}
	charged, declined, refunded, wrong := p.compare(b)
	for _, w := range wrong {
		fmt.Fprintln(out, w)
	}
	fmt.Fprintf(out, "-store %s -kills %d -lose %.2f -seed %d\n", o.store, p.killed, o.lose, o.seed)
	fmt.Fprintf(out, "%d orders: %d cards charged once, %d of them refunded, %d declined; %d replies lost, %d late requests refused, %d questions answered\n",
		len(p.outcomes), charged, refunded, declined, b.lost, b.refused, b.questions)
	switch {
	case len(wrong) > 0:
		return fmt.Errorf("%d orders are not as the bank's books say (seed %d)", len(wrong), o.seed)
	case charged == 0 || refunded == 0 || o.kills > 0 && o.lose > 0 && (b.lost == 0 || b.questions == 0 || o.kills > 100 && b.refused == 0):
		return fmt.Errorf("nothing was put to the test (seed %d)", o.seed)
	}
	return nil
}

// compare reports orders that do not agree with the books: paid without a charge,
// charged twice, charged and not paid, not refunded or refunded without reason, or
// ended in another way.
func (p *parent) compare(b *bank) (charged, declined, refunded int, wrong []string) {
	for n, outcome := range p.outcomes {
		charges, refunds := b.book(orderID(n))
		switch {
		case declines(n) && outcome == "declined" && len(charges) == 0:
			declined++
		case !declines(n) && soldOut(n) && outcome == "sold out" && len(charges) == 1 && refunds > 0:
			charged++
			refunded++
		case !declines(n) && !soldOut(n) && len(charges) == 1 && outcome == charges[0] && refunds == 0:
			charged++
		default:
			wrong = append(wrong, fmt.Sprintf("order %d: the workflow says %q, the bank has charged %q and was %d times to refund", n, outcome, charges, refunds))
		}
	}
	if n := b.accounts(); n != charged {
		wrong = append(wrong, fmt.Sprintf("the bank has charged %d orders, and %d know of it", n, charged))
	}
	return charged, declined, refunded, wrong
}
