// Children is a workflow that starts others: a tour consists of bookings, each of which
// is a workflow of its own.
//
//	go run ./examples/children
//
// One tour goes ahead although one of its bookings fails; the other is cancelled, and
// its bookings with it. With -db the program keeps its history in a file. Kill it at
// any moment, with Ctrl-C or with kill -9, and start it again: it continues.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/sqlite"
)

func main() {
	db := flag.String("db", "", "the file that keeps the history; a temporary one if empty")
	pace := flag.Duration("pace", 500*time.Millisecond, "how long a booking takes")
	flag.Parse()
	if err := run(context.Background(), *db, *pace); err != nil {
		log.Fatal("children: ", err)
	}
}

func run(ctx context.Context, db string, pace time.Duration) (err error) {
	if db == "" {
		dir, err := os.MkdirTemp("", "weft-children-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		db = filepath.Join(dir, "children.db")
	} else {
		fmt.Printf("Kill me at any moment, with kill -9 %d, and start me again: it goes on from %s.\n\n", os.Getpid(), db)
	}
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{tour, book},
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

	lisbon, err := tour.Start(ctx, eng, "lisbon", Tour{Name: "lisbon", Takes: pace})
	if err != nil {
		return err
	}
	if err := toldOf(ctx, eng, lisbon, "postcards"); err != nil {
		return err
	}
	narvik, err := tour.Start(ctx, eng, "narvik", Tour{Name: "narvik", Takes: 1000 * pace})
	if err != nil {
		return err
	}
	return callOff(ctx, eng, narvik, "it rains")
}

// toldOf prints the outcome of a tour, and then of the child that outlives it.
func toldOf(ctx context.Context, eng *engine.Engine, h *engine.Handle[string], child string) error {
	got, err := h.Result(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", h.ID(), got)
	for i, err := range eng.List(ctx, engine.Filter{Parent: h.ID()}) {
		if err != nil {
			return err
		}
		fmt.Printf("%s is %s when its tour has ended\n", i.ID, i.Status)
	}
	got, err = book.Handle(eng, h.ID()+"/"+child).Result(ctx)
	fmt.Printf("%s: %s\n", child, got)
	return err
}

// callOff cancels a tour after its hotel has been asked, and waits until the hotel has
// been told.
func callOff(ctx context.Context, eng *engine.Engine, h *engine.Handle[string], why string) error {
	hotel := book.Handle(eng, h.ID()+"/hotel")
	for {
		i, err := hotel.Describe(ctx)
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		if i.Status.Terminal() || len(i.Waiting) == 1 && strings.HasPrefix(i.Waiting[0], "timer") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := h.Cancel(ctx, engine.Actor{Reason: why}); err != nil && !errors.Is(err, engine.ErrTerminal) {
		return err
	}
	for _, h := range []*engine.Handle[string]{h, hotel} {
		_, err := h.Result(ctx)
		if !errors.Is(err, engine.ErrCancelled) {
			return fmt.Errorf("%s was called off and came to %w", h.ID(), err)
		}
		i, err := h.Describe(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s is %s: %s\n", i.ID, i.Status, i.Cancel.Reason)
	}
	return nil
}
