// Package crashtest is a shop that charges cards, with a test that finds what a
// crash does to it.
//
// The careless shop charges a card twice if the process dies in the wrong
// moment. Its test says when, and why:
//
//	go test -tags careless ./examples/crashtest
//
// The careful one tells the bank which charge it is, and the bank takes no second
// one of that name. Its test passes:
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
	Card  string
	Cents int
}

// A Bank is the other side.
type Bank interface {
	// Charge takes money from a card and returns the number of the charge. A key
	// that it has seen before takes none: the number is that of the first time.
	// An empty key is none.
	Charge(ctx context.Context, key, card string, cents int) (string, error)
}

// Careless returns a workflow that charges an order when its buyer has had a day
// to think it over. If the process dies between the charge and the record of it,
// the activity runs again, and so does the charge.
func Careless(bank Bank) *engine.Workflow[Order, string] {
	return checkout(func(ctx context.Context, o Order) (string, error) {
		return bank.Charge(ctx, "", o.Card, o.Cents)
	})
}

// Careful is the same with a name for the charge. Workflow and operation are the
// same in every attempt, in whatever process, and belong to no other charge.
func Careful(bank Bank) *engine.Workflow[Order, string] {
	return checkout(func(ctx context.Context, o Order) (string, error) {
		i := activity.InfoFrom(ctx)
		return bank.Charge(ctx, i.WorkflowID+"/"+i.Operation, o.Card, o.Cents)
	})
}

func checkout(run func(context.Context, Order) (string, error)) *engine.Workflow[Order, string] {
	charge := &activity.Activity[Order, string]{Name: "charge", Run: run}
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
