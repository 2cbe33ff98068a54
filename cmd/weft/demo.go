package main

import (
	"context"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// What weft serve -demo executes: an order that is paid, perhaps after somebody has approved it, and
// is shipped a little later.

// An order is the input of checkout.
type order struct {
	Cents int `json:"cents"`
}

// A receipt is the result of checkout.
type receipt struct {
	Receipt    string `json:"receipt"`
	Cents      int    `json:"cents"`
	ApprovedBy string `json:"approvedBy,omitempty"`
}

// needsApproval is from how many cents on an order waits for the signal approved.
const needsApproval = 10_000

var (
	approved = &signal.Signal[string]{Name: "approved"}

	checkout = &engine.Workflow[order, receipt]{Name: "checkout", Func: func(run *engine.Run, o order) (receipt, error) {
		done := receipt{Cents: o.Cents}
		if o.Cents >= needsApproval {
			by, err := approved.Receive(run)
			if err != nil {
				return receipt{}, err
			}
			done.ApprovedBy = by
		}
		id := run.ID() // a step may not use run
		paid, err := engine.Step(run, "pay", func(context.Context) (string, error) { return "receipt of " + id, nil })
		if err != nil {
			return receipt{}, err
		}
		done.Receipt = paid
		return done, run.Sleep(2 * time.Second) // until the parcel is packed
	}}
)
