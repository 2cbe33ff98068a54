package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/childproc"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// serviceEnv is the variable that makes this program the service.
const serviceEnv = "WEFT_SUBSCRIPTION_SERVICE"

var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

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

// remembered is how long it is known which signals and updates were accepted. What has accepted one is
// removed after that.
const remembered = 2 * time.Second

// An aim is what a service is started for.
type aim string

const (
	goOn   aim = "go on"  // until it is killed
	finish aim = "finish" // take no new customers, and exit when all have cancelled
	forget aim = "forget" // exit when all that has ended is removed
)

// A plan tells the service what to do: a line of JSON on its stdin.
type plan struct {
	Store, Address, Bank string
	Customers            int
	Month                time.Duration
	Open                 []int // customers that are not known to have cancelled
	Next                 int   // the first number that is free
	Aim                  aim
}

// customer is a customer by number. Some of them stay for more than two years.
func (p plan) customer(n int) customer {
	months := 14 + n*7%20
	return customer{"customer-" + strconv.Itoa(n), p.Month, time.Minute, months, months / 2}
}

// work is the main function of the service. It ends when it is killed, when its parent has ended, or when its
// aim is reached.
func work(in io.Reader, out io.Writer) int {
	var p plan
	return childproc.Main(in, &p, func(ctx context.Context) error { return serve(ctx, p, out) })
}

func serve(ctx context.Context, p plan, out io.Writer) error {
	number, err := strconv.Atoi(release)
	if err != nil {
		return err
	}
	store, err := open(p.Store, p.Address)
	if err != nil {
		return err
	}
	defer store.Close()
	kept := 90 * 24 * time.Hour
	if p.Aim == forget {
		kept = 2 * remembered
	}
	subscription := define(number, &remoteBank{p.Bank}, kept)
	config := engine.Config{
		Storage:           store,
		Workflows:         []engine.Definition{subscription},
		SignalIDRetention: remembered,
		PollInterval:      50 * time.Millisecond, // PostgreSQL tells that the process before was killed
		Logger:            quiet,
	}
	eng, err := engine.New(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	err = p.live(ctx, eng, subscription, out)
	stop()
	return errors.Join(err, <-ran)
}

// live has the customers act, or waits until all of them are forgotten.
func (p plan) live(ctx context.Context, eng *engine.Engine, subscription *engine.Workflow[Subscription, Status], out io.Writer) error {
	if p.Aim == forget {
		for {
			n, _, err := eng.Count(ctx, engine.Filter{}, 1)
			if err != nil || n == 0 {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	var clients sync.WaitGroup
	var turn sync.Mutex // one line at a time
	say := func(format string, args ...any) {
		turn.Lock()
		defer turn.Unlock()
		fmt.Fprintf(out, format+"\n", args...) // one write, which survives the process
	}
	next := make(chan int)
	for range p.Customers {
		clients.Go(func() {
			for n := range next {
				o, err := p.customer(n).act(ctx, eng, subscription)
				if err != nil {
					fmt.Fprintf(os.Stderr, "customer %d: %v\n", n, err)
					os.Exit(1)
				}
				said, _ := json.Marshal(o)
				say("%d %s", n, said)
			}
		})
	}
	say("0") // it works
	for _, n := range p.Open {
		next <- n
	}
	for n := p.Next; p.Aim == goOn; n++ {
		say("%d", n)
		next <- n
	}
	close(next)
	clients.Wait()
	return nil
}
