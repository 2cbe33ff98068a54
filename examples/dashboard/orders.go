package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

// An Order is one of the workflows that the dashboard shows.
type Order struct {
	Number int
	Ends   string // "well", "badly", "unknown" or "later"
}

var (
	// charge has an outcome that nobody knows, so an operator is asked.
	charge = &activity.Activity[Order, string]{
		Name:            "charge",
		IdempotencyKey:  func(o Order) string { return fmt.Sprint("order ", o.Number) },
		Run:             func(context.Context, Order) (string, error) { return "", errors.New("connection reset") },
		OnIndeterminate: activity.AwaitOperator,
		Verify: func(context.Context, Order) (activity.Verification[string], error) {
			return activity.Indeterminate[string]("the bank does not answer"), nil
		},
		VerifyRetry: activity.Retry{MaxAttempts: 1},
		Settle:      time.Millisecond,
	}

	parcel = &engine.Workflow[Order, string]{Name: "parcel", Func: func(run *engine.Run, o Order) (string, error) {
		return fmt.Sprint("parcel of order ", o.Number), nil
	}}

	order = &engine.Workflow[Order, string]{Name: "order", Func: func(run *engine.Run, o Order) (string, error) {
		switch o.Ends {
		case "badly":
			return "", errors.New("sold out")
		case "unknown":
			return charge.Do(run, o)
		case "later":
			if err := run.Sleep(24 * time.Hour); err != nil {
				return "", err
			}
		}
		return parcel.Do(run, o)
	}}
)

// startOrders starts n orders. What was started before, under the same id with the same input, is not
// started again.
func startOrders(ctx context.Context, eng *engine.Engine, n int) error {
	ends := []string{"well", "later", "well", "badly", "unknown"}
	for i := range n {
		// What people search for are labels. They say nothing about a person.
		labels := map[string]string{
			"region": []string{"north", "south"}[i%2],
			"size":   []string{"small", "large", "huge"}[i%3],
		}
		o := Order{Number: i, Ends: ends[i%len(ends)]}
		if _, err := order.With(engine.StartOptions{Labels: labels}).Start(ctx, eng, fmt.Sprintf("order-%03d", i), o); err != nil {
			return err
		}
	}
	return nil
}
