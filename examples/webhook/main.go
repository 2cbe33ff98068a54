// Webhook is a shop that receives events from its payment provider by HTTP.
//
//	go run ./examples/webhook
//
// The provider signs its deliveries (Standard Webhooks), and delivers as real ones do:
// some events come late or out of order, and again when the answer was lost. Package
// webhook checks the signature and knows the event by its ID, so an event counts once,
// however often it is delivered. The first event of a payment starts the payment's
// workflow, in the same commit.
//
// Events are accepted in the order in which they arrive. This workflow does not depend
// on the order: each event adds something, and the last one says how many there are.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/sqlite"
)

// secret is what the provider signs with. A real one is not in the code.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// An Event is a message of the provider about a payment.
type Event struct {
	ID, Payment string
	Cents       int
	Of          int // in the last event: how many there are
}

var happened = &signal.Signal[Event]{Name: "happened"}

// payment collects the events of a payment until it has all of them.
var payment = &engine.Workflow[string, string]{
	Name: "payment",
	Func: func(run *engine.Run, _ string) (string, error) {
		cents, events, of := 0, 0, -1
		for events != of {
			e, err := happened.Receive(run)
			if err != nil {
				return "", err
			}
			cents += e.Cents
			if events++; e.Of > 0 {
				of = e.Of
			}
		}
		return fmt.Sprintf("%d cents in %d events", cents, events), nil
	},
}

func main() {
	dir, err := os.MkdirTemp("", "weft-webhook-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), filepath.Join(dir, "shop.db")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) (err error) {
	store, err := sqlite.Open(path, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{payment},
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop() // what waits for a result ends, too
		ran <- eng.Run(ctx)
	}()
	defer func() { stop(); err = errors.Join(err, <-ran) }()
	var work sync.WaitGroup
	defer work.Wait()

	ledger, err := idempotency.New(idempotency.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer ledger.Close()
	hook, err := newHook(ledger, eng, secret)
	if err != nil {
		return err
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: hook}
	work.Go(func() { server.Serve(door) })
	defer server.Close()

	p := provider{url: "http://" + door.Addr().String(), secret: secret}
	payments := []string{"pay-1", "pay-2", "pay-3"}
	if err := p.deliver(ctx, payments); err != nil {
		return err
	}
	for _, id := range payments {
		got, err := payment.Handle(eng, workflowID(id)).Result(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", id, got)
		if got != "600 cents in 3 events" {
			return fmt.Errorf("%s: %s, want 600 cents in 3 events", id, got)
		}
	}
	fmt.Printf("%d requests for %d events; %d answers were lost\n", p.requests, 3*len(payments), p.lost)
	return nil
}
