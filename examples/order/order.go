package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// An Order is a customer's order.
type Order struct {
	ID, Item string
	Cents    int
}

// An Approval lets an order continue.
type Approval struct{ By string }

// A Receipt is the result of an order.
type Receipt struct{ By, Charge, Parcel string }

var approved = &signal.Signal[Approval]{Name: "approved"}

// A shop handles orders.
type shop struct {
	pace    time.Duration
	reserve *activity.Activity[Order, string]
	charge  *activity.Activity[Order, string]
	ship    *activity.Activity[Order, string]
	order   *engine.Workflow[Order, Receipt]
}

func newShop(pace time.Duration) *shop {
	s := &shop{pace: pace}
	s.reserve = &activity.Activity[Order, string]{Name: "reserve", Run: s.work("shelf", "taking %s from the shelf")}
	s.charge = &activity.Activity[Order, string]{Name: "charge", Run: s.work("charge", "charging the card for %s")}
	s.ship = &activity.Activity[Order, string]{Name: "ship", Run: s.work("parcel", "handing %s to the carrier")}
	s.order = &engine.Workflow[Order, Receipt]{Name: "order", Func: s.handle}
	return s
}

// handle is the workflow. It reads like any function, and the next process continues it
// where it stopped.
func (s *shop) handle(run *engine.Run, o Order) (Receipt, error) {
	if _, err := s.reserve.Do(run, o); err != nil {
		return Receipt{}, err
	}

	tell(run, "waiting for approval: press Enter, or wait %v", 5*s.pace)
	approval, ok, err := approved.ReceiveWithin(run, 5*s.pace)
	if err != nil {
		return Receipt{}, err
	}
	if !ok {
		approval.By = "itself"
	}
	tell(run, "approved by %s", approval.By)

	charge, err := s.charge.Do(run, o)
	if err != nil {
		return Receipt{}, err
	}

	tell(run, "giving the buyer %v to think it over", 5*s.pace)
	if err := run.Sleep(5 * s.pace); err != nil {
		return Receipt{}, err
	}

	parcel, err := s.ship.Do(run, o)
	return Receipt{approval.By, charge, parcel}, err
}

// work returns an activity's function: it prints what it does, takes a while, and
// returns a number.
func (s *shop) work(number, doing string) func(context.Context, Order) (string, error) {
	return func(ctx context.Context, o Order) (string, error) {
		i := activity.InfoFrom(ctx)
		line := fmt.Sprintf(doing, o.Item)
		if i.Attempt > 1 {
			line += fmt.Sprintf(" (attempt %d: the one before was cut off, and nobody knows how far it got)", i.Attempt)
		}
		say(time.Now(), i.Activity+": "+line)
		select {
		case <-time.After(s.pace):
			return fmt.Sprintf("%s-%d", number, i.FencingToken%1000), nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// tell logs the progress of a run, once: a replay is silent.
func tell(run *engine.Run, format string, args ...any) {
	run.Logger().Info(fmt.Sprintf(format, args...))
}
