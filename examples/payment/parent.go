package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/internal/childproc"
)

// A parent kills the shop, and records its output.
type parent struct {
	options
	address, bank string
	random        *rand.Rand
	killed        int
	next          int            // the first order that has not started
	outcomes      map[int]string // of the orders that have ended
}

// stall is how long a shop may run without printing anything.
const stall = time.Minute

// torture runs shops until the kills are done, and lets the last one finish.
func (p *parent) torture(ctx context.Context) error {
	for p.next = 1; p.killed < p.kills; {
		if err := p.life(ctx, false); err != nil {
			return err
		}
	}
	if err := p.life(ctx, true); err != nil {
		return err
	}
	if open := p.plan(true).Open; len(open) > 0 {
		return fmt.Errorf("orders %v did not end", open)
	}
	return nil
}

func (p *parent) plan(finish bool) plan {
	l := plan{Store: p.store, Address: p.address, Bank: p.bank, Clients: p.clients, Next: p.next, Finish: finish}
	for n := 1; n < p.next; n++ {
		if _, ended := p.outcomes[n]; !ended {
			l.Open = append(l.Open, n)
		}
	}
	return l
}

// life is one shop, from its start to its death or, if it may finish, its end. It is
// killed some time after it has printed something.
func (p *parent) life(ctx context.Context, finish bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	lit := finish
	shop := childproc.Child{
		Program: self, Env: childEnv, Plan: p.plan(finish), Stall: stall,
		Hear: func(line string) (after time.Duration, kill bool) {
			p.hear(line)
			if lit {
				return 0, false
			}
			lit = true
			return time.Duration(p.random.Int64N(int64(p.span))), true
		},
	}
	killed, err := shop.Run(ctx)
	if killed {
		p.killed++
		return nil
	}
	if err != nil || !finish {
		return fmt.Errorf("the shop ended by itself: %v", err)
	}
	return nil
}

// hear records that an order starts, or how it ended.
func (p *parent) hear(line string) {
	number, outcome, ended := strings.Cut(line, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	p.next = max(p.next, n+1)
	if ended {
		p.outcomes[n] = outcome
	}
}
