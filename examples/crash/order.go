package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// A shop is the workload: an order is reserved, gets a note by an update, is approved, charged and,
// after a while, shipped. say reports to the parent; a reported line survives the process.
type shop struct {
	say func(format string, args ...any)
}

// An approval is the payload of the signal.
type approval struct{ By string }

var approved = &signal.Signal[approval]{Name: "approved"}

var note = &engine.Update[int, string]{Name: "note"}

// noteID is the ID of the update of an order.
const noteID = "note-1"

// approvalID is the signal ID of an order's approval.
const approvalID = "approval"

func (s *shop) order() *engine.Workflow[int, string] {
	charge := &activity.Activity[int, string]{
		Name:  "charge",
		Run:   func(ctx context.Context, n int) (string, error) { return s.reluctantly(ctx, n) },
		Retry: activity.Retry{Backoff: 2 * time.Millisecond},
	}
	ship := &activity.Activity[int, string]{
		Name: "ship",
		Run:  func(ctx context.Context, _ int) (string, error) { return s.effect(ctx), nil },
	}
	return &engine.Workflow[int, string]{
		Name: "order",
		Func: func(run *engine.Run, n int) (string, error) {
			learnt := func(what string, value any) { s.say("learnt %s %s %v", run.ID(), what, value) }

			learnt("chance", run.Random().Uint64())
			reserved, err := engine.Step(run, "reserve", func(ctx context.Context) (string, error) { return s.effect(ctx), nil })
			if err != nil {
				return "", err
			}
			learnt("reserve", reserved)
			if err := note.Handle(run, nil, func(run *engine.Run, _ int) (string, error) {
				noted, err := engine.Step(run, "note", func(ctx context.Context) (string, error) { return s.effect(ctx), nil })
				if err == nil {
					learnt("note", noted)
				}
				return noted, err
			}); err != nil {
				return "", err
			}
			a, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			learnt("approved", a.By)
			charged, err := charge.Do(run, n)
			if err != nil {
				return "", err
			}
			learnt("charge", charged)
			if err := run.Sleep(20 * time.Millisecond); err != nil {
				return "", err
			}
			learnt("now", run.Now().UnixMicro())
			shipped, err := ship.Do(run, n)
			if err != nil {
				return "", err
			}
			learnt("ship", shipped)
			return reserved + "+" + charged + "+" + shipped, nil
		},
	}
}

// effect does something that cannot be undone: it reports to the parent. Then it takes
// a while, so that kills interrupt it.
func (s *shop) effect(ctx context.Context) string {
	i := activity.InfoFrom(ctx)
	if lost(ctx) {
		s.say("stray %s %s", i.WorkflowID, i.Activity)
	}
	s.say("effect %s %s %d %d%s", i.WorkflowID, i.Activity, i.Attempt, i.FencingToken, lease{ctx})
	time.Sleep(rand.N(4 * time.Millisecond))
	return fmt.Sprintf("%s.%d.%d", i.Activity, i.Attempt, rand.Uint32())
}

func lost(attempt context.Context) bool {
	return errors.Is(context.Cause(attempt), activity.ErrLeaseLost)
}

// A lease says whether the attempt's owner has lost its lease by the time at which a line is printed. Lines are printed one at a
// time, and attempts learn of it before "deposed" is printed. So behind "deposed", an effect of that owner says that it is late.
type lease struct{ attempt context.Context }

func (l lease) String() string {
	if lost(l.attempt) {
		return " late"
	}
	return ""
}

// reluctantly refuses the first attempt of every third order, without an effect.
func (s *shop) reluctantly(ctx context.Context, n int) (string, error) {
	if i := activity.InfoFrom(ctx); n%3 == 0 && i.Attempt == 1 {
		s.say("refused %s %s %d %d", i.WorkflowID, i.Activity, i.Attempt, i.FencingToken)
		return "", errors.New("try again")
	}
	return s.effect(ctx), nil
}

func orderID(n int) string { return "order-" + strconv.Itoa(n) }
