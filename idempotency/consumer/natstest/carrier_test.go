package natstest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
)

// A request is what the carrier is asked: to ship an order, or whether it was shipped.
type request struct {
	Hash  string // names the effect
	Token uint64 // its fencing token
	Order string
}

// A carrier ships whenever it is asked to. It finds what it has shipped, and after a question it refuses the
// requests of earlier attempts. It is in the test's process, so it is not killed and forgets nothing.
type carrier struct {
	// Only the goroutine of the subscription uses these, until it is closed.
	parcels   map[string]int    // by order
	shipped   map[string]bool   // by hash
	floor     map[string]uint64 // the lowest token that is accepted, by hash
	questions int
	refused   int

	hold    func(parcels int) // called after each parcel, before the answer
	stopped func()
}

const subjects = "carrier.*"

// startCarrier answers over nc. hold is called with the number of parcels after each.
func startCarrier(t *testing.T, nc *nats.Conn, hold func(parcels int)) *carrier {
	t.Helper()
	c := &carrier{parcels: map[string]int{}, shipped: map[string]bool{}, floor: map[string]uint64{}, hold: hold}
	s, err := nc.Subscribe(subjects, c.answer)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan bool)
	s.SetClosedHandler(func(string) { close(gone) })
	c.stopped = func() {
		if err := s.Drain(); err != nil {
			t.Fatal(err)
		}
		<-gone
	}
	return c
}

func (c *carrier) answer(m *nats.Msg) {
	var r request
	if err := json.Unmarshal(m.Data, &r); err != nil {
		panic(err)
	}
	answer := "no"
	switch {
	case m.Subject == "carrier.find":
		c.questions++
		c.floor[r.Hash] = max(c.floor[r.Hash], r.Token)
		if c.shipped[r.Hash] {
			answer = "parcel of " + r.Order
		}
	case r.Token < c.floor[r.Hash]:
		c.refused++
	default:
		c.parcels[r.Order]++
		c.shipped[r.Hash] = true
		answer = "parcel of " + r.Order
		if c.hold != nil {
			c.hold(len(c.parcels))
		}
	}
	_ = m.Respond([]byte(answer)) // whoever asked may be dead
}

// total returns how many parcels there are.
func (c *carrier) total() (n int) {
	for _, parcels := range c.parcels {
		n += parcels
	}
	return n
}

// shipping is the consumer's effect. died is called where the process may die.
func shipping(nc *nats.Conn, die func(step string)) *idempotency.Effect[Order, string] {
	ask := func(ctx context.Context, subject string, o Order) (string, error) {
		body, err := json.Marshal(request{idempotency.AttemptFrom(ctx).Hash, activity.InfoFrom(ctx).FencingToken, o.ID})
		if err != nil {
			return "", err
		}
		m, err := nc.RequestWithContext(ctx, subject, body)
		if err != nil {
			return "", err
		}
		return string(m.Data), nil
	}
	return &idempotency.Effect[Order, string]{
		Name: "ship",
		Run: func(ctx context.Context, o Order) (string, error) {
			die("claimed")
			parcel, err := ask(ctx, "carrier.ship", o)
			die("shipped")
			if err == nil && parcel == "no" {
				err = fmt.Errorf("%s: refused", o.ID)
			}
			return parcel, err
		},
		VerifyFences: true,
		Verify: func(ctx context.Context, o Order) (activity.Verification[string], error) {
			parcel, err := ask(ctx, "carrier.find", o)
			switch {
			case err != nil:
				return activity.Indeterminate[string](err.Error()), nil
			case parcel == "no":
				return activity.NotCompleted[string](), nil
			}
			return activity.CompletedWithResult(parcel), nil
		},
	}
}
