package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// A Subscription is what a customer has agreed to, and how far it is. Each life of the workflow
// passes it to the next one.
type Subscription struct {
	Plan  Plan
	Next  *Change // that the customer has asked for
	Card  string
	Month time.Duration // 30 days; the program has shorter ones, so that you can watch it
	Grace time.Duration // how long a customer has to send a new card
	Since time.Time     // zero: now
	Paid  int           // months
	Cents int           // that were paid
}

// A Plan is what the customer gets for a price.
type Plan struct {
	Name  string
	Cents int // a month
}

// A Change puts a subscription on another plan.
type Change struct {
	Plan Plan
	From int // the first month with the plan; the first month of a subscription is 0
}

// A Status is what the service shows its customers.
type Status struct {
	Plan    Plan
	Paid    int // months
	Cents   int
	Card    string
	Overdue bool // the bank has declined the card
}

var (
	renewed = &signal.Signal[string]{Name: "card-renewed"} // with the number of the new card
	change  = &engine.Update[Change, Status]{Name: "change-plan", Errors: []error{ErrTooLate}}
	status  = &engine.Value[Status]{Name: "status"}

	// ErrTooLate refuses a change that begins with a month that is paid, or is being paid.
	ErrTooLate = errors.New("the month is paid")

	// ErrDeclined is the answer of a bank that does not charge a card.
	ErrDeclined = errors.New("card declined")
)

// A Bank charges cards. It charges once for a reference, however often it is asked to.
type Bank interface {
	Charge(ctx context.Context, c Charge) error // ErrDeclined
}

// A Charge is for one month.
type Charge struct {
	Reference string // of the customer, the month and the card
	Card      string
	Cents     int
}

// monthsOfALife is how many months a life of the workflow has. Its history stays short.
const monthsOfALife = 12

// loyalty is the change of the workflow by which customers pay less after two years. The first release of
// the service does not have it.
const loyalty = "loyalty"

// define returns the workflow as a release of the service has it. In a service of your own, there is
// one release in the code at a time: see docs/guides/changing-workflows.md. A subscription that has ended
// is kept for some time.
func define(release int, bank Bank, kept time.Duration) *engine.Workflow[Subscription, Status] {
	s := service{release: release, charge: &activity.Activity[Charge, struct{}]{
		Name:           "charge",
		IdempotencyKey: func(c Charge) string { return c.Reference },
		Idempotent:     true, // so says the bank
		Errors:         []error{ErrDeclined},
		Run: func(ctx context.Context, c Charge) (struct{}, error) {
			err := bank.Charge(ctx, c)
			if errors.Is(err, ErrDeclined) {
				err = activity.Permanent(activity.NoEffect(err))
			}
			return struct{}{}, err
		},
		Retry: activity.Retry{MaxAttempts: -1, Backoff: 10 * time.Millisecond},
	}}
	w := &engine.Workflow[Subscription, Status]{
		Name:      "subscription",
		Errors:    []error{ErrDeclined},
		Func:      s.subscribe,
		Retention: engine.Retention{Completed: kept},
	}
	if release >= 2 {
		w.Versions = map[string]int{loyalty: 1}
	}
	return w
}

type service struct {
	release int
	charge  *activity.Activity[Charge, struct{}]
}

// subscribe charges the card each month until the customer cancels. The result is what was paid. It
// fails with ErrDeclined if the bank has declined the card, and no new one came in time.
func (s service) subscribe(run *engine.Run, c Subscription) (Status, error) {
	if c.Since.IsZero() {
		c.Since = run.Now()
	}
	if err := change.Handle(run, c.mayChange, c.change); err != nil {
		return c.status(), err
	}
	for range monthsOfALife {
		cancelled, err := c.wait(run, c.Since.Add(time.Duration(c.Paid)*c.Month))
		if cancelled || err != nil {
			return c.status(), err
		}
		cancelled, err = s.pay(run, &c)
		if cancelled || err != nil {
			return c.status(), err
		}
		if err := status.Set(run, c.status()); err != nil {
			return c.status(), err
		}
	}
	return Status{}, engine.ContinueAsNew(run, c)
}

// mayChange refuses a change that comes too late.
func (c *Subscription) mayChange(to Change) error {
	if to.From <= c.Paid {
		return ErrTooLate
	}
	return nil
}

// change notes a change, which a later life may find.
func (c *Subscription) change(_ *engine.Run, to Change) (Status, error) {
	c.Next = &to
	return c.status(), nil
}

// wait waits until the next charge is due. Meanwhile the customer may have a new card, or cancel.
func (c *Subscription) wait(run *engine.Run, due time.Time) (cancelled bool, err error) {
	for {
		card, came, err := renewed.ReceiveWithin(run, due.Sub(run.Now()))
		switch {
		case errors.Is(err, engine.ErrCancelled):
			return true, nil // what was paid is the result
		case err != nil || !came:
			return false, err
		}
		c.Card = card
	}
}

// pay pays the next month. A customer who cancels meanwhile has paid it.
func (s service) pay(run *engine.Run, c *Subscription) (cancelled bool, err error) {
	if c.Next != nil && c.Paid >= c.Next.From {
		c.Plan, c.Next = c.Next.Plan, nil
	}
	cents := c.Plan.Cents
	if s.release >= 2 && run.Version(loyalty) >= 1 && c.Paid >= 24 {
		cents -= cents / 10
	}
	for {
		_, err := s.charge.Do(run.WithoutCancel(), Charge{fmt.Sprintf("%s/%d/%s", run.ID(), c.Paid, c.Card), c.Card, cents})
		if err == nil {
			c.Paid++
			c.Cents += cents
			return false, nil
		}
		if !errors.Is(err, ErrDeclined) {
			return false, err
		}
		overdue := c.status()
		overdue.Overdue = true
		if err := status.Set(run, overdue); err != nil {
			return false, err
		}
		card, came, late := renewed.ReceiveWithin(run, c.Grace)
		switch {
		case errors.Is(late, engine.ErrCancelled):
			return true, nil
		case late != nil:
			return false, late
		case !came:
			return false, err
		}
		c.Card = card
	}
}

func (c *Subscription) status() Status {
	return Status{Plan: c.Plan, Paid: c.Paid, Cents: c.Cents, Card: c.Card}
}
