package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

var (
	single = Plan{"single", 900}
	family = Plan{"family", 1500}
)

// A customer subscribes, has a family some time later, gets a new card each time that the bank declines
// one, and cancels after some months. What a customer does can be repeated: it is done once.
type customer struct {
	id     string
	month  time.Duration
	grace  time.Duration
	months int // until the customer cancels
	family int // the first month of the other plan
}

// An outcome is what a customer has seen at the end.
type outcome struct {
	Status   Status
	Accepted bool // the change of the plan, by the last answer
}

// act does everything that the customer does.
func (c customer) act(ctx context.Context, eng *engine.Engine, subscription *engine.Workflow[Subscription, Status]) (o outcome, err error) {
	h, err := subscription.Start(ctx, eng, c.id, Subscription{Plan: single, Card: c.card(1), Month: c.month, Grace: c.grace})
	if err != nil {
		return o, err
	}
	_, err = change.Call(ctx, eng, c.id, Change{family, c.family}, &engine.UpdateOptions{ID: "family"})
	if err != nil && !errors.Is(err, ErrTooLate) && !errors.Is(err, engine.ErrTerminal) { // asked again after the end
		return o, err
	}
	o.Accepted = err == nil
	for {
		s, err := status.Read(ctx, eng, c.id)
		if err != nil && !errors.Is(err, engine.ErrNotFound) { // nothing is paid yet
			return o, err
		}
		switch {
		case s.Paid >= c.months:
			err := h.Cancel(ctx, engine.Actor{Name: c.id, Reason: "moves to the sea"})
			if err != nil && !errors.Is(err, engine.ErrTerminal) { // cancelled before
				return o, err
			}
			o.Status, err = h.Result(ctx)
			return o, err
		case s.Overdue: // whoever asks twice gets the same card twice
			card := c.card(1 + number(s.Card))
			if _, err := renewed.Send(ctx, eng, c.id, card, &signal.Options{ID: card}); err != nil {
				return o, err
			}
		}
		select {
		case <-time.After(c.month / 4):
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
}

// card is the number of the nth card, from 1.
func (c customer) card(n int) string { return c.id + "-card-" + strconv.Itoa(n) }

func number(card string) int {
	n, _ := strconv.Atoi(card[strings.LastIndexByte(card, '-')+1:])
	return n
}
