package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/fence"
	"github.com/weft-go/weft/signal"
)

// A shop is the workload: an order is packed, booked, approved and, after a while,
// shipped. say reports to the killer; a reported line survives the process.
type shop struct {
	say    func(format string, args ...any)
	target target
}

// An approval is the payload of the signal.
type approval struct{ By string }

var approved = &signal.Signal[approval]{Name: "approved"}

// approvalID is the signal ID of an order's approval.
const approvalID = "approval"

func (s *shop) order() *engine.Workflow[int, string] {
	pack := &activity.Activity[int, int]{
		Name: "pack",
		Run:  func(ctx context.Context, n int) (int, error) { s.effect(ctx); return n, nil },
	}
	book := &activity.Activity[int, int]{
		Name:  "book",
		Run:   s.book,
		Retry: activity.Retry{MaxAttempts: 1000, Backoff: 5 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
	}
	return &engine.Workflow[int, string]{
		Name: "order",
		Func: func(run *engine.Run, n int) (string, error) {
			if _, err := pack.Do(run, n); err != nil {
				return "", err
			}
			if _, err := book.Do(run, n); err != nil {
				return "", err
			}
			a, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			if err := run.Sleep(100 * time.Millisecond); err != nil {
				return "", err
			}
			_, err = engine.Step(run, "ship", func(ctx context.Context) (int, error) { s.effect(ctx); return n, nil })
			return "shipped, approved by " + a.By, err
		},
	}
}

// effect does something that cannot be undone: it reports to the killer. It takes some
// time and ignores its context, so a stopped process still performs it when it resumes.
func (s *shop) effect(ctx context.Context) {
	time.Sleep(rand.N(20 * time.Millisecond))
	i := activity.InfoFrom(ctx)
	s.say("effect %s %s %s %d", i.WorkflowID, i.Operation, i.Activity, i.FencingToken)
	time.Sleep(rand.N(20 * time.Millisecond))
}

// book has an effect that cannot be undone either, but at a target that compares
// tokens.
func (s *shop) book(ctx context.Context, n int) (int, error) {
	time.Sleep(rand.N(200 * time.Millisecond))
	i := activity.InfoFrom(ctx)
	err := s.target.book(context.WithoutCancel(ctx), i.WorkflowID+"/"+i.Operation, i.FencingToken)
	switch {
	case errors.Is(err, fence.ErrStale):
		s.say("stale %s %s %d", i.WorkflowID, i.Operation, i.FencingToken)
	case err == nil:
		s.say("booked %s %s %d", i.WorkflowID, i.Operation, i.FencingToken)
	}
	return n, err
}

func orderID(process string, client, n int) string {
	return fmt.Sprintf("%s.%d.%d", process, client, n)
}
