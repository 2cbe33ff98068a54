package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/consumer"
	"github.com/weft-go/weft/storage/memory"
)

// A broker delivers an order three times. The carrier is away at first, so the order is to be delivered again.
// Then it is shipped, once.
func ExampleDo() {
	ledger, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	away := true
	ship := &idempotency.Effect[string, string]{
		Name: "ship",
		Run: func(_ context.Context, order string) (string, error) {
			if away {
				return "", activity.NoEffect(errors.New("the carrier is away"))
			}
			fmt.Println("shipped", order)
			return "parcel of " + order, nil
		},
	}
	for range 3 {
		o := consumer.Do(context.Background(), ledger, ship, consumer.Message{Topic: "orders", DedupeID: "msg-1"}, "order-1")
		fmt.Println(o.Next, o.After, o.Err)
		away = false
	}
	// Output:
	// retry 5s the carrier is away
	// shipped order-1
	// ack 0s <nil>
	// ack 0s <nil>
}
