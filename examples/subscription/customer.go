package main

import (
	"context"
	"errors"
	"fmt"
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

// cardLasts is how many charges a customer's card is good for.
const cardLasts = 40

// A customer subscribes, gets a new card each time that the bank declines one, and cancels after some
// months. What a customer does can be repeated: it is done once.
type customer struct {
	id     string
	month  time.Duration
	months int // until the customer cancels
}

// act does everything that the customer does, and returns the result.
func (c customer) act(ctx context.Context, eng *engine.Engine, subscription *engine.Workflow[Subscription, Status]) (Status, error) {
	h, err := subscription.Start(ctx, eng, c.id, Subscription{Plan: single, Card: c.card(1), Month: c.month})
	if err != nil {
		return Status{}, err
	}
	card := 1
	for {
		s, err := status.Read(ctx, eng, c.id)
		if err != nil && !errors.Is(err, engine.ErrNotFound) { // nothing is paid yet
			return s, err
		}
		switch {
		case s.Paid >= c.months:
			err := h.Cancel(ctx, engine.Actor{Name: c.id, Reason: "moves to the sea"})
			if err != nil && !errors.Is(err, engine.ErrTerminal) { // cancelled before
				return s, err
			}
			return h.Result(ctx)
		case s.Overdue && s.Card == c.card(card):
			card++
			if _, err := renewed.Send(ctx, eng, c.id, c.card(card), &signal.Options{ID: c.card(card)}); err != nil {
				return s, err
			}
		}
		select {
		case <-time.After(c.month / 4):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

func (c customer) card(n int) string { return fmt.Sprintf("%s-card-%d", c.id, n) }

// A book is what a bank knows of its customers' cards.
type book struct {
	charges map[string]Charge // by reference
	used    map[string]int    // charges by card
	asked   int               // requests for a charge that was made before
}

func newBook() *book { return &book{charges: map[string]Charge{}, used: map[string]int{}} }

// charge reports whether a charge was made, now or before.
func (b *book) charge(c Charge) bool {
	if _, made := b.charges[c.Reference]; made {
		b.asked++
		return true
	}
	if b.used[c.Card] == cardLasts {
		return false
	}
	b.used[c.Card]++
	b.charges[c.Reference] = c
	return true
}

// months returns what each month of a customer has cost, from the first. The error says what is
// wrong: a month that was charged twice, or not at all.
func (b *book) months(id string) ([]int, error) {
	by := map[int]int{}
	for ref, c := range b.charges {
		of, rest, _ := strings.Cut(ref, "/")
		month, _, _ := strings.Cut(rest, "/")
		n, err := strconv.Atoi(month)
		if of != id || err != nil {
			continue
		}
		if _, twice := by[n]; twice {
			return nil, fmt.Errorf("month %d of %s was charged twice", n, id)
		}
		by[n] = c.Cents
	}
	var cents []int
	for n := range len(by) {
		if _, charged := by[n]; !charged {
			return nil, fmt.Errorf("month %d of %s was not charged", n, id)
		}
		cents = append(cents, by[n])
	}
	return cents, nil
}
