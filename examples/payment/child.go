package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/childproc"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// childEnv is the variable that makes this program the shop.
const childEnv = "WEFT_PAYMENT_CHILD"

const orderPrefix = "order-"

func orderID(n int) string { return orderPrefix + strconv.Itoa(n) }

// declines says that the card of an order is declined.
func declines(n int) bool { return n%7 == 0 }

// soldOut says that the goods of an order are sold out.
func soldOut(n int) bool { return n%5 == 0 }

// place is the address of a store: a file, or a private server, which ends with the
// program.
func place(store, dir string) (address string, stop func(), err error) {
	if store != "postgres" {
		return filepath.Join(dir, "payment."+store), func() {}, nil
	}
	server, stop, err := pgtest.Launch()
	if err != nil {
		return "", nil, err
	}
	return server.URL("postgres"), stop, nil
}

func open(store, address string) (storage.Storage, error) {
	switch store {
	case "sqlite":
		return sqlite.Open(address, nil)
	case "bolt":
		return bolt.Open(address, nil)
	case "postgres":
		return postgres.Open(context.Background(), address, nil)
	}
	return nil, fmt.Errorf("no store %q", store)
}

// A plan tells the shop what to do: a line of JSON on its stdin.
type plan struct {
	Store, Address, Bank string
	Clients              int
	Open                 []int // orders that are not known to have ended
	Next                 int   // the first number that is free
	Finish               bool  // start no new orders; exit when all have ended
}

// child is the shop. It ends when it is killed, when its parent has ended, or when the
// plan is done.
func child(in io.Reader, out io.Writer) int {
	var p plan
	return childproc.Main(in, &p, func(ctx context.Context) error { return serve(ctx, p, out) })
}

func serve(ctx context.Context, p plan, out io.Writer) error {
	store, err := open(p.Store, p.Address)
	if err != nil {
		return err
	}
	defer store.Close()
	wf := checkout(p.Bank)
	config := engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{wf},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if store.Capabilities().Shared { // no other process reports that a child was killed
		config.LeaseTTL, config.PollInterval = 150*time.Millisecond, 50*time.Millisecond
	}
	eng, err := engine.New(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()

	orders := make(chan int)
	var clients sync.WaitGroup
	var turn sync.Mutex // one line at a time
	for range p.Clients {
		clients.Go(func() {
			for n := range orders {
				outcome, err := pay(ctx, eng, wf, n)
				if err != nil {
					outcome = "error: " + err.Error()
				}
				turn.Lock()
				fmt.Fprintf(out, "%d %s\n", n, outcome) // one write, which survives the process
				turn.Unlock()
			}
		})
	}
	for _, n := range p.Open {
		orders <- n
	}
	for n := p.Next; !p.Finish; n++ {
		turn.Lock()
		fmt.Fprintf(out, "%d\n", n)
		turn.Unlock()
		orders <- n
	}
	close(orders)
	clients.Wait()
	stop()
	return <-ran
}

// pay handles one order.
func pay(ctx context.Context, eng *engine.Engine, wf *engine.Workflow[Order, Receipt], n int) (string, error) {
	h, err := wf.Start(ctx, eng, orderID(n), Order{ID: orderID(n), Cents: 4900, SoldOut: soldOut(n)})
	if err != nil {
		return "", err
	}
	r, err := h.Result(ctx)
	switch {
	case errors.Is(err, ErrDeclined):
		return "declined", nil
	case errors.Is(err, ErrSoldOut):
		return "sold out", nil
	}
	return r.ChargeID, err
}
