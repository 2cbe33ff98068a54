// Chat shows the words of a model in a browser while they come, and again after a reload.
//
//	go run ./examples/chat
//
// Open the address that it prints, and ask something. Reload the page in the middle of the answer, or kill the
// program and start it again: the page goes on, and shows each word once. The answers are kept in a file, chat.db in the
// current directory unless -db names another.
//
// chat.go has the workflow, and web.go the page. model.go is a model that knows one answer.
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
	db := flag.String("db", "chat.db", "the file that keeps the answers")
	address := flag.String("address", "127.0.0.1:8080", "where the page is")
	pause := flag.Duration("pause", 100*time.Millisecond, "how long the model thinks about a word")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *db, *address, *pause); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, address string, pause time.Duration) (err error) {
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	chat := newChat(&model{pause})
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{chat},
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

	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           newWeb(eng, chat),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return running }, // readers end with the program
	}
	go func() {
		<-running.Done()
		server.Close()
	}()
	fmt.Println("http://" + l.Addr().String())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
