package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// cardLasts is how many charges a card is good for.
const cardLasts = 10

// A book is what a bank knows of its customers' cards.
type book struct {
	mu      sync.Mutex
	charges map[string]Charge // by reference
	used    map[string]int    // charges by card
}

func newBook() *book { return &book{charges: map[string]Charge{}, used: map[string]int{}} }

// charge makes a charge, once for each reference. ok is false if the card is declined.
func (b *book) charge(c Charge) (ok, again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok, again = b.answer(c)
	if ok && !again {
		b.used[c.Card]++
		b.charges[c.Reference] = c
	}
	return ok, again
}

// judge returns what charge would, and charges nothing.
func (b *book) judge(c Charge) (ok, again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answer(c)
}

func (b *book) answer(c Charge) (ok, again bool) {
	_, again = b.charges[c.Reference]
	return again || b.used[c.Card] < cardLasts, again
}

// check compares what a customer has seen at the end with the book: each month is charged once, at the
// price of its plan. loyal are the months that were cheaper.
func (b *book) check(c customer, o outcome) (loyal int, err error) {
	months, err := b.months(c.id)
	if err != nil {
		return 0, err
	}
	sum, changed := 0, o.Status.Plan == family
	if o.Accepted && !changed {
		return 0, fmt.Errorf("the plan of %s is still %v, although the change was accepted", c.id, o.Status.Plan)
	}
	for n, cents := range months {
		price := single.Cents
		if changed && n >= c.family {
			price = family.Cents
		}
		switch {
		case n >= 24 && cents == price-price/10:
			loyal++
		case cents != price || loyal > 0: // whoever pays less does so from then on
			return 0, fmt.Errorf("month %d of %s cost %d cents, want %d", n, c.id, cents, price)
		}
		sum += cents
	}
	if s := o.Status; s.Paid != len(months) || s.Cents != sum || s.Paid < c.months {
		return 0, fmt.Errorf("%s has paid %d cents for %d months, and the bank has %d for %d; want at least %d months", c.id, s.Cents, s.Paid, sum, len(months), c.months)
	}
	return loyal, nil
}

// months returns what each month of a customer has cost, from the first. The error names a month that was
// charged twice, or not at all.
func (b *book) months(id string) ([]int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
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
