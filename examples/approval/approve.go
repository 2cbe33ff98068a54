package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// An Expense is a request for reimbursement.
type Expense struct {
	ID    string
	Cents int
	Boss  string
	Wait  time.Duration // until the boss's boss is asked
}

// A Decision is the outcome of an expense.
type Decision struct {
	Approved bool
	By, Why  string
}

func (d Decision) String() string {
	switch {
	case d.Approved:
		return "approved by " + d.By
	case d.By != "":
		return fmt.Sprintf("rejected by %s: %s", d.By, d.Why)
	}
	return d.Why
}

// A Verdict is a boss's answer.
type Verdict struct{ By, Why string }

var (
	approved = &signal.Signal[Verdict]{Name: "approved"}
	rejected = &signal.Signal[Verdict]{Name: "rejected"}
)

// An office is where expenses are decided.
type office struct {
	door    signal.Sender // receives the answers
	ask     *activity.Activity[Expense, any]
	tell    *activity.Activity[Decision, any]
	approve *engine.Workflow[Expense, Decision]
}

func newOffice() *office {
	o := new(office)
	o.ask = &activity.Activity[Expense, any]{Name: "ask", Run: o.sendMail}
	o.tell = &activity.Activity[Decision, any]{Name: "tell", Run: sendDecision}
	o.approve = &engine.Workflow[Expense, Decision]{Name: "approve", Func: o.decide}
	return o
}

// decide is the workflow: it asks the boss, and then, once, the boss's boss.
func (o *office) decide(run *engine.Run, e Expense) (Decision, error) {
	for range 2 {
		if _, err := o.ask.Do(run, e); err != nil {
			return Decision{}, err
		}
		yes, no := approved.Next(run), rejected.Next(run)
		late, stop := run.After(e.Wait), run.Cancelled()

		first, err := engine.Select(run, yes, no, late, stop)
		if err != nil {
			return Decision{}, err
		}
		switch first {
		case yes:
			v, err := yes.Get(run)
			return Decision{true, v.By, v.Why}, err
		case no:
			v, err := no.Get(run)
			return Decision{false, v.By, v.Why}, err
		case late:
			e.Boss += "'s boss"
		case stop:
			c, err := stop.Get(run)
			if err != nil {
				return Decision{}, err
			}
			d := Decision{Why: "withdrawn: " + c.Reason}
			_, err = o.tell.Do(run.WithoutCancel(), d) // even if the run is cancelled
			return d, err
		}
	}
	return Decision{Why: "nobody answered"}, nil
}

// sendMail asks a boss. Some of them answer at once. An answer has an ID: if it is sent
// again after a crash, it counts once.
func (o *office) sendMail(ctx context.Context, e Expense) (any, error) {
	fmt.Printf("  asking %s about %s, %d cents\n", e.Boss, e.ID, e.Cents)
	id := &signal.Options{ID: e.Boss}
	var err error
	switch {
	case e.Boss == "ann" && e.Cents < 100000:
		_, err = approved.Send(ctx, o.door, e.ID, Verdict{By: e.Boss}, id)
	case e.Boss == "ann", e.Boss == "ben's boss":
		_, err = rejected.Send(ctx, o.door, e.ID, Verdict{e.Boss, "too dear"}, id)
	}
	return nil, err
}

func sendDecision(_ context.Context, d Decision) (any, error) {
	fmt.Printf("  telling everybody who was asked: %s\n", d)
	return nil, nil
}
