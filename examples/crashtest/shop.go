// Package crashtest is a shop that charges cards, with a test that finds the effects of
// a crash.
//
// The careless shop charges a card twice if the process dies at the wrong moment. Its
// test reports when, and why:
//
//	go test -tags careless ./examples/crashtest
//
// The careful one, before it charges again, asks the bank what became of the first
// charge. Its test passes:
//
//	go test ./examples/crashtest
package crashtest

import (
	"context"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

// An Order is to be paid by card.
type Order struct {
	ID, Card string
	Cents    int
}

// A Bank is the external system. It charges whenever it is asked to, and finds each
// charge by its reference.
type Bank interface {
	Charge(ctx context.Context, reference, card string, cents int) (number string, err error)
	Find(ctx context.Context, reference string) (number string, found bool, err error)
}

// Careless returns a workflow that charges an order when its buyer has had a day
// to think it over. If the process dies between the charge and the record of it,
// the activity runs again, and so does the charge.
func Careless(bank Bank) *engine.Workflow[Order, string] {
	return checkout(&activity.Activity[Order, string]{
		Name: "charge",
		Run: func(ctx context.Context, o Order) (string, error) {
			return bank.Charge(ctx, "order/"+o.ID, o.Card, o.Cents)
		},
	})
}

// Careful is the same with a key, which names the charge, and a verifier, which
// finds it.
func Careful(bank Bank) *engine.Workflow[Order, string] {
	return checkout(&activity.Activity[Order, string]{
		Name:           "charge",
		IdempotencyKey: func(o Order) string { return "order/" + o.ID },
		Run: func(ctx context.Context, o Order) (string, error) {
			return bank.Charge(ctx, activity.InfoFrom(ctx).IdempotencyKey, o.Card, o.Cents)
		},
		Verify: func(ctx context.Context, o Order) (activity.Verification[string], error) {
			number, found, err := bank.Find(ctx, activity.InfoFrom(ctx).IdempotencyKey)
			switch {
			case err != nil:
				return activity.Indeterminate[string](err.Error()), nil
			case !found:
				return activity.NotCompleted[string](), nil
			}
			return activity.CompletedWithResult(number), nil
		},
	})
}

func checkout(charge *activity.Activity[Order, string]) *engine.Workflow[Order, string] {
	return &engine.Workflow[Order, string]{
		Name: "checkout",
		Func: func(run *engine.Run, o Order) (string, error) {
			if err := run.Sleep(24 * time.Hour); err != nil {
				return "", err
			}
			return charge.Do(run, o)
		},
	}
}
