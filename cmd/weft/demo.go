package main

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// What weft serve -demo executes: an order that is paid, perhaps after somebody has approved it, and
// is shipped a little later. Before it is paid, it may be amended.

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
	amend    = &engine.Update[order, receipt]{Name: "amend", Errors: []error{errPaid, errFree}}
	stage    = &engine.Value[string]{Name: "stage"}
	errPaid  = errors.New("the order is paid")
	errFree  = errors.New("nothing is free")

	checkout = &engine.Workflow[order, receipt]{Name: "checkout", Func: func(run *engine.Run, o order) (receipt, error) {
		done := receipt{Cents: o.Cents}
		if err := amend.Handle(run, func(o order) error {
			switch {
			case done.Receipt != "":
				return errPaid
			case o.Cents <= 0:
				return errFree
			}
			return nil
		}, func(_ *engine.Run, o order) (receipt, error) {
			done.Cents = o.Cents
			return done, nil
		}); err != nil {
			return receipt{}, err
		}
		if err := stage.Set(run, "to be paid"); err != nil {
			return receipt{}, err
		}
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
		if err := stage.Set(run, "paid"); err != nil {
			return receipt{}, err
		}
		return done, run.Sleep(2 * time.Second) // until the parcel is packed
	}}
)
