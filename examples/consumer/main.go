// Consumer is a warehouse that ships the orders of a queue.
//
//	go run ./examples/consumer
//
// The broker delivers as real ones do: again if an acknowledgement was lost, and to several
// workers at once. Its producer publishes some orders twice. The carrier is away now and then, and
// one address does not exist. Each order is shipped once nevertheless, and the one that cannot be is
// put aside. At the end the program counts the parcels.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/consumer"
	"github.com/weft-go/weft/storage/sqlite"
)

// An Order is to be shipped.
type Order struct{ ID, Address string }

const orders = 20

var (
	errAway      = errors.New("the carrier is away")
	errNoAddress = errors.New("there is no such address")
)

// A carrier is the external system. It sends a parcel whenever it is asked to.
type carrier struct {
	mu      sync.Mutex
	asked   int
	parcels map[string]int // by order
}

func (c *carrier) ship(_ context.Context, o Order) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Address == "" {
		return "", activity.NoEffect(activity.Permanent(errNoAddress))
	}
	if c.asked++; c.asked%5 == 0 {
		return "", activity.NoEffect(errAway)
	}
	c.parcels[o.ID]++
	return "parcel of " + o.ID, nil
}

func main() {
	dir, err := os.MkdirTemp("", "weft-consumer-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), filepath.Join(dir, "warehouse.db")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	store, err := sqlite.Open(path, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	ledger, err := idempotency.New(idempotency.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer ledger.Close()

	post := &carrier{parcels: map[string]int{}}
	ship := &idempotency.Effect[Order, string]{Name: "ship", Run: post.ship}
	b := newBroker("orders")
	for n := 1; n <= orders; n++ {
		o := Order{ID: fmt.Sprint("order-", n), Address: "1 Mill Lane"}
		if n == 7 {
			o.Address = ""
		}
		b.publish(o)
		if n%4 == 0 {
			b.publish(o) // the producer did not get an answer
		}
	}
	b.deliver(4, func(m *message) {
		o := consumer.Do(ctx, ledger, ship, consumer.Message{Topic: m.topic, Key: m.order.ID, DedupeID: m.id}, m.order)
		switch o.Next {
		case consumer.Ack:
			m.ack()
		case consumer.Retry:
			m.nack(o.After)
		case consumer.DeadLetter:
			m.reject(o.Err)
		}
	})

	for order, n := range post.parcels {
		if n != 1 {
			return fmt.Errorf("%s: %d parcels", order, n)
		}
	}
	for _, m := range b.dead {
		fmt.Printf("put aside: %s: %v\n", m.order.ID, m.why)
	}
	fmt.Printf("%d deliveries of %d messages, %d acknowledgements lost; %d orders, %d parcels\n",
		b.deliveries, b.published, b.lost, orders, len(post.parcels))
	if len(b.dead) != 1 || len(post.parcels) != orders-1 {
		return errors.New("an order is missing")
	}
	return nil
}
