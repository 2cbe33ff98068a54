// Dashboard shows the workflows of a store in a browser and as JSON: filtered, a page at a time,
// and counted.
//
//	go run ./examples/dashboard
//
// Open the address that it prints, or ask for JSON:
//
//	curl 'http://127.0.0.1:8080/workflows?status=running&label=region%3Dnorth&limit=10'
//
// It starts some orders to have something to show. They are kept in a file, dashboard.db in the
// current directory unless -db names another. In a service of yours, dashboard.go is what you need,
// behind whatever decides who may see it: it asks nobody for a password.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/sqlite"
)

func main() {
	db := flag.String("db", "dashboard.db", "the file that keeps the workflows")
	address := flag.String("address", "127.0.0.1:8080", "where the dashboard is")
	orders := flag.Int("orders", 60, "how many orders are started")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *db, *address, *orders); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, address string, orders int) (err error) {
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{order, parcel},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop() // the server ends, too: nothing would execute what it starts
		ran <- eng.Run(running)
	}()
	defer func() { stop(); err = errors.Join(err, <-ran) }()
	if err := startOrders(ctx, eng, orders); err != nil {
		return err
	}

	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newDashboard(eng), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(running, func() { _ = server.Close() })
	fmt.Printf("The dashboard is at http://%s. Ctrl-C ends it.\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
