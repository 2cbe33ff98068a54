// Order is an order that waits for approval, is charged, waits, and is shipped.
//
//	go run ./examples/order
//
// Press Enter to approve it; otherwise it approves itself. Kill it at any moment, with
// Ctrl-C or with kill -9 and the number that it prints, and start it again: it continues
// where it stopped. (The number of "go run" is another one.) The
// history is in a file, order.db in the current directory unless -db names another.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	weftsignal "github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/sqlite"
)

func main() {
	db := flag.String("db", "order.db", "the file that keeps the orders")
	pace := flag.Duration("pace", time.Second, "how long things take: a charge one of it, a wait five")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, *db, *pace)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		fmt.Println("\nStopped. Start me again, and the order goes on where it is.")
	case err != nil:
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db string, pace time.Duration) (err error) {
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	shop := newShop(pace)
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{shop.order},
		Logger:    slog.New(&lines{slog.NewTextHandler(os.Stderr, nil), false}),
	})
	if err != nil {
		return err
	}
	fmt.Printf("Orders are kept in %s. Kill me at any moment, with kill -9 %d, and start me again: the order goes on.\n\n", db, os.Getpid())
	id, err := next(ctx, eng)
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

	handle, err := shop.order.Start(ctx, eng, id, Order{ID: id, Item: "a loom", Cents: 4900})
	if err != nil {
		return err
	}
	go approveOnEnter(ctx, eng, id, os.Stdin)
	receipt, err := handle.Result(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s is done: approved by %s, charged as %s, shipped as %s.\n", id, receipt.By, receipt.Charge, receipt.Parcel)
	return nil
}

// next is the id of the order to complete: the last one, if it has not ended, or else a
// new one. It prints what the store knows of the last one.
func next(ctx context.Context, eng *engine.Engine) (string, error) {
	n := 0
	for last, err := range eng.List(ctx, engine.Filter{Workflow: "order"}) {
		if err != nil {
			return "", err
		}
		if _, err := fmt.Sscanf(last.ID, "order-%d", &n); err != nil {
			continue
		}
		if last.Status.Terminal() {
			fmt.Printf("%s was done already: it %s at %s. Here is the next one.\n\n", last.ID, last.Status, last.EndedAt.Local().Format(time.TimeOnly))
			break
		}
		fmt.Printf("%s was under way. It goes on. From its history, which is not done again:\n", last.ID)
		return last.ID, tellHistory(ctx, eng, last.ID)
	}
	return fmt.Sprintf("order-%d", n+1), nil
}

// tellHistory prints the history of an order so far.
func tellHistory(ctx context.Context, eng *engine.Engine, id string) error {
	for c, err := range eng.History(ctx, id) {
		if err != nil {
			return err
		}
		for _, e := range c.Events {
			what := ""
			switch e.Kind {
			case checkpoint.KindSettled:
				what = fmt.Sprintf("%s: %s", e.Name, e.Result)
			case checkpoint.KindReceived:
				what = fmt.Sprintf("%s: %s", e.Name, e.Result)
			case checkpoint.KindMissed:
				what = "nobody has approved in time"
			case checkpoint.KindFired:
				what = "the time to think it over is up"
			default:
				continue
			}
			say(c.Time, "(recorded) "+what)
		}
	}
	fmt.Println()
	return nil
}

// approveOnEnter sends the signal when the user presses Enter. If it is sent twice, it
// is accepted once, because it has an ID.
func approveOnEnter(ctx context.Context, eng *engine.Engine, id string, keyboard io.Reader) {
	if _, err := bufio.NewReader(keyboard).ReadString('\n'); err != nil {
		return // no input
	}
	_, err := approved.Send(ctx, eng, id, Approval{By: "you"}, &weftsignal.Options{ID: "enter"})
	if err != nil && !errors.Is(err, engine.ErrTerminal) && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "order: approve:", err)
	}
}
