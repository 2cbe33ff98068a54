package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// An order, and what the customers were told of it.
type order struct {
	key        string // the idempotency key of its start, and its label "key"
	approves   bool
	run        string
	deployment string          // on which it begins
	accepted   signal.Accepted // of its approval
}

// approved is the signal of the demonstration.
var approved = &signal.Signal[string]{Name: "approved"}

// A crowd is customers at work.
type crowd struct {
	wg     sync.WaitGroup
	enough chan struct{} // closed by stop
	once   sync.Once
	broken chan struct{} // closed when a customer has failed
	err    error         // of the first; read it after wg.Wait
}

// shop lets customers start orders until they are stopped.
func shop(ctx context.Context, c *client.Client, b *books, o options) *crowd {
	x := &crowd{enough: make(chan struct{}), broken: make(chan struct{})}
	for who := range o.clients {
		x.wg.Go(func() {
			for n := 0; sleep(ctx, o.pause, x.enough); n++ {
				placed := &order{key: fmt.Sprintf("customer-%d-%06d", who, n), approves: n%4 == 3}
				if err := placed.place(ctx, c); err != nil {
					x.once.Do(func() { x.err = err; close(x.broken) })
					return
				}
				b.add(placed)
			}
		})
	}
	x.wg.Go(func() {
		if err := release(ctx, c, b, o, x.enough); err != nil {
			x.once.Do(func() { x.err = err; close(x.broken) })
		}
	})
	return x
}

// The deployments of the demonstration: the one that "weft serve" executes, and one that no engine
// has, so that its orders wait.
const (
	served   = "demo-1"
	unserved = "demo-2"
)

// release activates the two deployments by turns, the served one last. It repeats each activation,
// after it was answered.
func release(ctx context.Context, c *client.Client, b *books, o options, enough <-chan struct{}) error {
	_, err := insist(ctx, func() (wire.Deployment, error) {
		return c.CreateDeployment(ctx, json.RawMessage(`{"deploymentId": "`+unserved+`", "workflows": [{"name": "checkout"}]}`), nil)
	})
	for n := 0; err == nil; n++ {
		more := sleep(ctx, 10*o.pause, enough)
		deployment := []string{unserved, served}[n%2]
		key := fmt.Sprintf("activation-%06d", n)
		for range 2 {
			if _, err = insist(ctx, func() (wire.Activation, error) {
				return c.Activate(client.WithIdempotencyKey(ctx, key), deployment, client.Expected{}, engine.Actor{Reason: key})
			}); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		b.activated(key, deployment)
		if !more && deployment == served {
			return nil
		}
	}
	return err
}

func (x *crowd) failed() <-chan struct{} { return x.broken }

// stop lets the customers finish the orders that they have begun.
func (x *crowd) stop() error {
	close(x.enough)
	x.wg.Wait()
	return x.err
}

// place starts the order and, if it needs one, sends its approval. It repeats both, after they were
// answered: the answers are the same.
func (o *order) place(ctx context.Context, c *client.Client) error {
	cents := 4_900
	if o.approves {
		cents = 49_000
	}
	start := engine.StartRequest{Workflow: "checkout", Input: map[string]int{"cents": cents}, Options: engine.StartOptions{Labels: map[string]string{"key": o.key}}}
	for range 2 {
		i, err := insist(ctx, func() (engine.Info, error) {
			return c.StartWorkflow(client.WithIdempotencyKey(ctx, o.key), &start)
		})
		if err != nil {
			return fmt.Errorf("start of %s: %w", o.key, err)
		}
		if o.run != "" && (i.ID != o.run || i.Deployment != o.deployment) {
			return fmt.Errorf("start of %s: the run is %s on %s, and was %s on %s", o.key, i.ID, i.Deployment, o.run, o.deployment)
		}
		o.run, o.deployment = i.ID, i.Deployment
	}
	for range 2 {
		if !o.approves {
			break
		}
		a, err := insist(ctx, func() (signal.Accepted, error) {
			return approved.Send(ctx, c, o.run, o.key, &signal.Options{ID: "approval"})
		})
		if err != nil {
			return fmt.Errorf("approval of %s: %w", o.key, err)
		}
		if o.accepted.Accepted && a != o.accepted {
			return fmt.Errorf("approval of %s: it is %+v, and was %+v", o.key, a, o.accepted)
		}
		o.accepted = a
	}
	return nil
}

// insist calls f until it is answered.
func insist[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for end := time.Now().Add(time.Minute); ; {
		v, err := f()
		e, ok := errors.AsType[*client.Error](err)
		if err == nil || !ok || e.Status != 0 && e.Status < http.StatusInternalServerError || time.Now().After(end) || ctx.Err() != nil {
			return v, err
		}
	}
}
